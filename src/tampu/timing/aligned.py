"""A rule whose instants are moved into a window."""

from dataclasses import dataclass

from tampu.errors import OptionError
from tampu.timing.rule import Rule
from tampu.timing.window import TimeWindow


@dataclass(frozen=True, slots=True)
class Aligned(Rule):
    """The instants of a rule; one outside of the window comes at the window's next opening.

    All that come at one opening are one instant, together with one that is there anyway. A rule
    that has no anchor yet counts from the instant it is asked from, which is one of its own then.
    """

    rule: Rule
    window: TimeWindow

    def __post_init__(self) -> None:
        rule: object = self.rule
        window: object = self.window
        if not isinstance(rule, Rule):
            raise OptionError("rule", rule, "expected a rule such as Every(...) or Cron(...)")
        if not isinstance(window, TimeWindow):
            raise OptionError("window", window, "expected a TimeWindow")

    def next_ms(self, after_ms: int) -> int | None:
        """The first instant strictly after, or None if there is no more."""
        rule = self.rule.anchored(after_ms)
        open_ms = self.window.next_open_ms(after_ms)
        if open_ms is None:
            return None
        if open_ms > after_ms:
            last_ms = rule.previous_ms(open_ms + 1)
            if last_ms is not None and self.window.next_open_ms(last_ms) == open_ms:
                return open_ms
        found = rule.next_ms(open_ms)
        return None if found is None else self.window.next_open_ms(found)

    def previous_ms(self, before_ms: int) -> int | None:
        """The last instant strictly before, or None if there was none."""
        rule = self.rule.anchored(before_ms)
        found = rule.previous_ms(before_ms)
        if found is None:
            return None
        moved_ms = self.window.next_open_ms(found)
        if moved_ms is not None and moved_ms < before_ms:
            return moved_ms
        # It moves too far, as does all that came since the window closed.
        closed_ms = self.window.closed_since_ms(found)
        found = None if closed_ms is None else rule.previous_ms(closed_ms)
        return None if found is None else self.window.next_open_ms(found)

    def count_between(self, after_ms: int, upto_ms: int) -> int:
        """How many instants lie after the first and up to the second.

        Counted by the stretches in which the window is open, never one by one.
        """
        aligned = self.anchored(after_ms)
        count = 0
        found = aligned.next_ms(after_ms)
        while found is not None and found <= upto_ms:
            close_ms = self.window.next_close_ms(found)
            end_ms = upto_ms if close_ms is None else min(upto_ms, close_ms - 1)
            count += 1 + aligned.rule.count_between(found, end_ms)
            found = aligned.next_ms(end_ms)
        return count

    def explain(self) -> str:
        """The rule in words, and the window."""
        return f"{self.rule.explain()}, outside of {self.window.explain()} at the next opening"

    def anchored(self, at_ms: int) -> "Aligned":
        """The rule inside counts from an instant if it has none of its own yet."""
        return Aligned(self.rule.anchored(at_ms), self.window)

    @property
    def goes_on(self) -> bool:
        """As the rule inside."""
        return self.rule.goes_on

    def zoned(self, tz: str) -> "Aligned":
        """The rule and the window go by a zone, each if it was given none."""
        return Aligned(self.rule.zoned(tz), self.window.zoned(tz))
