"""A cron expression: which wall times match it. It knows no zone.

The only place that imports cronsim. It is used on wall times alone; what the days on which clocks
change make of them is decided in `cron.py`.
"""

import re
from bisect import bisect_left
from copy import copy
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final, Self

from cronsim import CronSim, CronSimError

from tampu.errors import OptionError

MAX_LENGTH: Final = 256
"""Characters. A hundred times that would still be parsed, but slowly."""

_NICKNAMES: Final = {
    "@YEARLY": "0 0 1 1 *",
    "@ANNUALLY": "0 0 1 1 *",
    "@MONTHLY": "0 0 1 * *",
    "@WEEKLY": "0 0 * * 0",
    "@DAILY": "0 0 * * *",
    "@MIDNIGHT": "0 0 * * *",
    "@HOURLY": "0 * * * *",
}
_DAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_LAST_NAMED_DAY: Final = re.compile(rf"\b({'|'.join(_DAYS)})L\b")
_RANGE_OF_ONE: Final = re.compile(r"\b(\w+)-\1/0*[1-9]\d*\b")
_ANY_DAY: Final = datetime(2000, 1, 1)  # noqa: DTZ001 - a wall time has no zone
_DAY: Final = timedelta(days=1)
_ACCEPTED: Final = (
    'expected a cron expression of 5 fields, 6 with seconds first, or a name such as "@daily"'
)


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression; made by `Expression.of`."""

    times: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]  # hours, minutes, seconds
    is_fixed: bool
    _forward: CronSim
    _backward: CronSim

    @classmethod
    def of(cls, option: str, text: str) -> Self:
        """Parse; `OptionError` names the option and the field that is wrong."""
        given: object = text
        if not isinstance(given, str) or not given.isascii():
            raise OptionError(option, text, _ACCEPTED)
        if len(given) > MAX_LENGTH:
            raise OptionError(option, f"{given[:32]}...", f"has at most {MAX_LENGTH} characters")
        fields = " ".join(_fields_of(given))
        try:
            forward = CronSim(fields, _ANY_DAY)
            backward = CronSim(fields, _ANY_DAY, reverse=True)
        except CronSimError as problem:
            reason = str(problem).lower().replace("bad ", "this one has a bad ")
            raise OptionError(option, text, f"{_ACCEPTED}: {reason}") from None
        hours, minutes, seconds = (
            tuple(sorted(times)) for times in (forward.hours, forward.minutes, forward.seconds)
        )
        minute, hour = forward.parts[1:3]
        is_fixed = not minute.startswith("*") and not hour.startswith("*")
        return cls((hours, minutes, seconds), is_fixed, forward, backward)

    def next(self, after: datetime) -> datetime | None:
        """The first match strictly after, within 50 years; `OverflowError` past the calendar."""
        return _found(self._forward, after)

    def previous(self, before: datetime) -> datetime | None:
        """The last match strictly before, within 50 years; `OverflowError` as well."""
        return _found(self._backward, before)

    def count(self, start: datetime, end: datetime) -> int:
        """How many matches lie from the first wall time up to the second, that one left out."""
        if start >= end:
            return 0
        hours, minutes, seconds = self.times
        day, last, days = start.date(), end.date(), 0
        while day < last:
            days += self._has(day)
            day += _DAY
        whole = days * len(hours) * len(minutes) * len(seconds)
        return whole - self._earlier_that_day(start) + self._earlier_that_day(end)

    def explain(self) -> str:
        """The expression in words."""
        return self._forward.explain()

    def _has(self, day: date) -> bool:
        return day.month in self._forward.months and self._forward.match_day(day)

    def _earlier_that_day(self, wall: datetime) -> int:
        if not self._has(wall.date()):
            return 0
        hours, minutes, seconds = self.times
        each, total = len(hours) * len(minutes) * len(seconds), 0
        for times, at in zip(self.times, (wall.hour, wall.minute, wall.second), strict=True):
            each //= len(times)
            total += bisect_left(times, at) * each
            if at not in times:
                break
        return total


def _fields_of(text: str) -> list[str]:
    fields = text.upper().split()
    if len(fields) == 1:
        fields = _NICKNAMES.get(fields[0], fields[0]).split()
    # cronsim takes "9-9/2" for "9/2", which goes on to the end of the range.
    fields = ["*" if field == "?" else _RANGE_OF_ONE.sub(r"\1", field) for field in fields]
    return [*fields[:-1], *(_LAST_NAMED_DAY.sub(_numbered, field) for field in fields[-1:])]


def _numbered(named: re.Match[str]) -> str:
    return f"{_DAYS.index(named[1])}L"


def _found(template: CronSim, start: datetime) -> datetime | None:
    walk = copy(template)  # 2 µs, where parsing takes 7 to 12; what they share never changes
    walk.dt = start
    return next(walk, None)
