"""What every rule of time can be asked. No rule reads a clock: each call brings its instant."""

from abc import ABC, abstractmethod
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, Self

from tampu.clock import instant, instant_ms
from tampu.errors import OptionError

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
