"""A rule of time: the base of `Every`, `Cron` and `At`, and the words they are explained with."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Self

from tampu.util.clock import instant, instant_ms
from tampu.util.options import at_least

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
_UNITS: Final = (
    (86_400_000, "d", "day"),
    (3_600_000, "h", "hour"),
    (60_000, "m", "minute"),
    (1000, "s", "second"),
    (1, "ms", "millisecond"),
)


class Rule(ABC):
    """A set of instants: `Every(...)`, `Cron(...)` or `At(...)`.

    A rule is a plain value. It never reads a clock: you pass in the time that you ask about.
    """

    # Instants are aware datetimes for users, and milliseconds since 1970 (`_ms`) for our own code.
    __slots__ = ()

    @abstractmethod
    def next_ms(self, after_ms: int) -> int | None:
        """The first instant strictly after `after_ms`, or None if there is none."""

    @abstractmethod
    def previous_ms(self, before_ms: int) -> int | None:
        """The last instant strictly before `before_ms`, or None if there is none."""

    @abstractmethod
    def count_between(self, after_ms: int, upto_ms: int) -> int:
        """The number of instants after `after_ms` and up to `upto_ms`, which is included."""

    @abstractmethod
    def explain(self) -> str:
        """The rule in plain words, such as "Every 5 minutes"."""

    def with_anchor(self, at_ms: int) -> Self:
        """A copy that counts from `at_ms`, if the rule needs an anchor and has none."""
        del at_ms  # only `Every` needs one
        return self

    def with_zone(self, tz: str) -> "Rule":
        """A copy in this time zone, if the rule uses a wall clock and was given no zone."""
        del tz  # only `Cron` uses a wall clock
        return self

    @property
    def follows_elapsed_time(self) -> bool:
        """Whether instants come again after the clock is set back.

        True for an interval, and for a cron rule such as "every 5 minutes". False for a rule that
        names times of day: each of them comes once.
        """
        return False

    def latest_ms(self, after_ms: int, now_ms: int) -> int | None:
        """The last instant after `after_ms` and up to `now_ms`, or None if there is none."""
        found = self.previous_ms(now_ms + 1)
        return found if found is not None and found > after_ms else None

    def next(self, after: datetime) -> datetime | None:
        """The first instant strictly after `after`, in UTC; None if there is none."""
        found = self.next_ms(_floor_ms("after", after))
        return None if found is None else instant(found)

    def next_n(self, n: int, after: datetime) -> list[datetime]:
        """The first `n` instants strictly after `after`, in UTC, or fewer if the rule ends."""
        at_least("n", n, 0)
        at_ms: int | None = _floor_ms("after", after)
        found: list[datetime] = []
        while len(found) < n and at_ms is not None:
            at_ms = self.next_ms(at_ms)
            if at_ms is not None:
                found.append(instant(at_ms))
        return found

    def previous(self, before: datetime) -> datetime | None:
        """The last instant strictly before `before`, in UTC; None if there is none."""
        found = self.previous_ms(_ceil_ms("before", before))
        return None if found is None else instant(found)


@dataclass(frozen=True, slots=True)
class Until(Rule):
    """The instants of another rule up to `end_ms`, which is included."""

    rule: Rule
    end_ms: int

    def next_ms(self, after_ms: int) -> int | None:
        """The first instant strictly after `after_ms`, or None if it is past the end."""
        found = self.rule.next_ms(after_ms)
        return found if found is not None and found <= self.end_ms else None

    def previous_ms(self, before_ms: int) -> int | None:
        """The last instant strictly before `before_ms`."""
        return self.rule.previous_ms(min(before_ms, self.end_ms + 1))

    def count_between(self, after_ms: int, upto_ms: int) -> int:
        """The number of instants after `after_ms` and up to `upto_ms` or the end."""
        return self.rule.count_between(after_ms, min(upto_ms, self.end_ms))

    def explain(self) -> str:
        """Such as "Every 5 minutes, until 2026-01-31 09:00:00 UTC"."""
        return f"{self.rule.explain()}, until {instant_text(self.end_ms)}"

    def with_anchor(self, at_ms: int) -> "Until":
        """A copy whose inner rule counts from `at_ms`, if it needs an anchor and has none."""
        return Until(self.rule.with_anchor(at_ms), self.end_ms)

    def with_zone(self, tz: str) -> "Until":
        """A copy whose inner rule is in this time zone, if it was given none."""
        return Until(self.rule.with_zone(tz), self.end_ms)

    @property
    def follows_elapsed_time(self) -> bool:
        """As the inner rule."""
        return self.rule.follows_elapsed_time


def duration_text(ms: int) -> str:
    """A duration as options take it, such as "1h30m"."""
    return "".join(f"{number}{unit}" for number, unit, _ in _split_units(ms)) or "0s"


def interval_words(ms: int) -> str:
    """A duration as it follows the word "every": "second", "5 minutes", "1 hour 30 minutes"."""
    parts = _split_units(ms)
    if len(parts) == 1 and parts[0][0] == 1:
        return parts[0][2]
    return " ".join(f"{number} {word}{'s' * (number > 1)}" for number, _, word in parts)


def instant_text(ms: int) -> str:
    """An instant in UTC, such as "2026-01-31 09:00:00 UTC"; milliseconds only if it has any."""
    spec = "milliseconds" if ms % 1000 else "seconds"
    return instant(ms).replace(tzinfo=None).isoformat(" ", spec) + " UTC"


def _split_units(ms: int) -> list[tuple[int, str, str]]:
    parts = []
    for size, unit, word in _UNITS:
        number, ms = divmod(ms, size)
        if number:
            parts.append((number, unit, word))
    return parts


def _floor_ms(option: str, moment: datetime) -> int:
    instant_ms(option, moment)  # refuses a naive datetime
    return (moment - _EPOCH) // _MS


def _ceil_ms(option: str, moment: datetime) -> int:
    instant_ms(option, moment)
    return -((_EPOCH - moment) // _MS)
