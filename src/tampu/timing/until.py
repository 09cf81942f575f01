"""A rule with an end."""

from dataclasses import dataclass

from tampu.timing.rule import Rule
from tampu.timing.words import shown_at


@dataclass(frozen=True, slots=True)
class Until(Rule):
    """The instants of a rule up to an end, which is the last that may be one of them."""

    rule: Rule
    end_ms: int

    def next_ms(self, after_ms: int) -> int | None:
        """The first instant strictly after, unless it is past the end."""
        found = self.rule.next_ms(after_ms)
        return found if found is not None and found <= self.end_ms else None

    def previous_ms(self, before_ms: int) -> int | None:
        """The last instant strictly before."""
        return self.rule.previous_ms(min(before_ms, self.end_ms + 1))

    def count_between(self, after_ms: int, upto_ms: int) -> int:
        """How many instants lie after the first and up to the second."""
        return self.rule.count_between(after_ms, min(upto_ms, self.end_ms))

    def explain(self) -> str:
        """The rule in words, and its end."""
        return f"{self.rule.explain()}, until {shown_at(self.end_ms)}"

    def anchored(self, at_ms: int) -> "Until":
        """The rule inside counts from an instant if it has none of its own yet."""
        return Until(self.rule.anchored(at_ms), self.end_ms)

    @property
    def goes_on(self) -> bool:
        """As the rule inside."""
        return self.rule.goes_on

    def zoned(self, tz: str) -> "Until":
        """The rule inside goes by a zone if it was given none."""
        return Until(self.rule.zoned(tz), self.end_ms)
