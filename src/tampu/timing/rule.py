"""Durations and instants in words, for explanations and reprs."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, Self

from tampu.errors import OptionError
from tampu.util.clock import instant, instant_ms

_UNITS: Final = (
    (86_400_000, "d", "day"),
    (3_600_000, "h", "hour"),
    (60_000, "m", "minute"),
    (1000, "s", "second"),
    (1, "ms", "millisecond"),
)


def short(ms: int) -> str:
    """As an option takes it, such as "1h30m"."""
    return "".join(f"{number}{letter}" for number, letter, _ in _parts(ms)) or "0s"


def spoken(ms: int) -> str:
    """As it follows the word "every": "second", "5 minutes", "1 hour 30 minutes"."""
    parts = _parts(ms)
    if len(parts) == 1 and parts[0][0] == 1:
        return parts[0][2]
    return " ".join(f"{number} {word}{'s' * (number > 1)}" for number, _, word in parts)


def shown_at(ms: int) -> str:
    """An instant for people, in UTC; milliseconds only if it has any."""
    spec = "milliseconds" if ms % 1000 else "seconds"
    return instant(ms).replace(tzinfo=None).isoformat(" ", spec) + " UTC"


def _parts(ms: int) -> list[tuple[int, str, str]]:
    parts = []
    for size, letter, word in _UNITS:
        number, ms = divmod(ms, size)
        if number:
            parts.append((number, letter, word))
    return parts


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)


class Around(NamedTuple):
    """The two instants on either side of now; None where there is none."""

    last_ms: int | None
    next_ms: int | None


class Rule(ABC):
    """A set of instants. Inside they are milliseconds since 1970, outside aware datetimes."""

    __slots__ = ()

    @abstractmethod
    def next_ms(self, after_ms: int) -> int | None:
        """The first instant strictly after, or None if there is no more."""

    @abstractmethod
    def previous_ms(self, before_ms: int) -> int | None:
        """The last instant strictly before, or None if there was none."""

    @abstractmethod
    def count_between(self, after_ms: int, upto_ms: int) -> int:
        """How many instants lie after the first and up to the second, that one included."""

    @abstractmethod
    def explain(self) -> str:
        """The rule in plain words."""

    def anchored(self, at_ms: int) -> Self:
        """This rule, counting from an instant if it counts and has none of its own yet."""
        del at_ms  # only `Every` counts
        return self

    @property
    def goes_on(self) -> bool:
        """Whether it goes by the time that passes, so that a clock set back repeats its instants.

        Others name wall times, each of which comes once.
        """
        return False

    def zoned(self, tz: str) -> "Rule":
        """This rule by the wall clock of a zone, if it goes by one and was given none."""
        del tz  # only `Cron` goes by one
        return self

    def first_after_many(self, after_ms: int, now_ms: int) -> Around:
        """The last instant up to now, if it is after `after_ms`, and the next one past now.

        However many lie in between, they are not walked.
        """
        last = self.previous_ms(now_ms + 1)
        if last is not None and last <= after_ms:
            last = None
        return Around(last, self.next_ms(now_ms))

    def next(self, after: datetime) -> datetime | None:
        """The first instant strictly after an aware datetime, in UTC."""
        found = self.next_ms(_floor_ms("after", after))
        return None if found is None else instant(found)

    def next_n(self, n: int, after: datetime) -> list[datetime]:
        """The next n instants, or as many as there are."""
        given: object = n
        if not isinstance(given, int) or isinstance(given, bool) or given < 0:
            raise OptionError("n", n, "must be a whole number from 0")
        at_ms: int | None = _floor_ms("after", after)
        found: list[datetime] = []
        while len(found) < n and at_ms is not None:
            at_ms = self.next_ms(at_ms)
            if at_ms is not None:
                found.append(instant(at_ms))
        return found

    def previous(self, before: datetime) -> datetime | None:
        """The last instant strictly before an aware datetime, in UTC."""
        found = self.previous_ms(_ceil_ms("before", before))
        return None if found is None else instant(found)


def _floor_ms(option: str, moment: datetime) -> int:
    instant_ms(option, moment)  # refuses a naive one
    return (moment - _EPOCH) // _MS


def _ceil_ms(option: str, moment: datetime) -> int:
    instant_ms(option, moment)
    return -((_EPOCH - moment) // _MS)


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
