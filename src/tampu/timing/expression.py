"""Cron expressions: which wall times match. The only module that imports cronsim.

cronsim is asked about wall times only, and extended by years and by the weekday nearest to a day.
"""

import re
from bisect import bisect_left
from calendar import monthrange
from copy import copy
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final, Self

from cronsim import CronSim, CronSimError

from tampu.errors import OptionError

MAX_LENGTH: Final = 256
"""Characters of an expression. Much longer ones would take a long time to parse."""
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
_NEAREST: Final = re.compile(r"(\d{1,2})W")
_YEAR_TERM: Final = re.compile(
    r"(?:\*|(?P<first>\d{4})(?:-(?P<last>\d{4}))?)(?:/(?P<step>\d{1,4}))?"
)
_FIRST_YEAR, _LAST_YEAR = 1970, 9999
_ANY_DAY: Final = datetime(2000, 1, 1)  # noqa: DTZ001 - a wall time has no zone
_DAY: Final = timedelta(days=1)
_EXPECTED: Final = (
    "expected a cron expression of 5 fields, 6 with seconds first, 7 with years last, or a name "
    'such as "@daily"'
)


class _Walk(CronSim):
    """Walks over wall times that match, also by years and by weekdays nearest to days."""

    years: tuple[int, ...] | None = None  # sorted; None: all
    nearest: frozenset[int] = frozenset()  # days of the month, whose nearest weekday matches

    def match_dom(self, d: date) -> bool:
        """Whether the day of the month matches."""
        if super().match_dom(d):
            return True
        return any(d == nearest_weekday(d.year, d.month, day) for day in self.nearest)

    def match_year(self, year: int) -> bool:
        """Whether the year matches."""
        return self.years is None or year in self.years

    def advance_month(self) -> None:
        """Move on to a month that matches, in a year that matches."""
        while True:
            if not self.match_year(self.dt.year):
                later = [year for year in self.years or () if year > self.dt.year]
                if not later:
                    raise StopIteration
                self.dt = datetime(later[0], 1, 1)  # noqa: DTZ001 - a wall time has no zone
            super().advance_month()
            if self.match_year(self.dt.year):
                return

    def reverse_month(self) -> None:
        """Move back to a month that matches, in a year that matches."""
        while True:
            if not self.match_year(self.dt.year):
                earlier = [year for year in self.years or () if year < self.dt.year]
                if not earlier:
                    raise StopIteration
                self.dt = datetime(earlier[-1], 12, 31, 23, 59, 59)  # noqa: DTZ001 - as above
            super().reverse_month()
            if self.match_year(self.dt.year):
                return

    def explain(self) -> str:
        """The expression in words."""
        text = super().explain()
        if self.nearest:
            days = " and ".join(map(str, sorted(self.nearest)))
            text = text.replace("the last weekday", f"the weekday nearest to day {days}")
        if self.years is not None:
            text += f" in {_years_text(self.years)}"
        return text


def nearest_weekday(year: int, month: int, day: int) -> date | None:
    """The day from Monday to Friday that is nearest to a day, in the same month.

    None if the month has no such day.
    """
    last = monthrange(year, month)[1]
    if day > last:
        return None
    weekday = date(year, month, day).weekday()
    if weekday == 5:
        day += 2 if day == 1 else -1
    elif weekday == 6:
        day += -2 if day == last else 1
    return date(year, month, day)


@dataclass(frozen=True, slots=True)
class CronExpression:
    """A parsed cron expression: which wall times match it. It knows no time zone."""

    times: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]  # hours, minutes, seconds
    is_fixed: bool  # names times of day: neither the minute nor the hour starts with a star
    has_years: bool  # so it may have no match in the future, but in the past
    _forward: _Walk
    _backward: _Walk

    @classmethod
    def parse(cls, option: str, text: str) -> Self:
        """Parse an expression; `OptionError` names the option and the field that is wrong."""
        given: object = text
        if not isinstance(given, str) or not given.isascii():
            raise OptionError(option, text, _EXPECTED)
        if len(given) > MAX_LENGTH:
            problem = f"a cron expression must be at most {MAX_LENGTH} characters long"
            raise OptionError(option, f"{given[:32]}...", problem)
        fields = _split_fields(given)
        try:
            forward = _new_walk(fields, reverse=False)
            backward = _new_walk(fields, reverse=True)
        except CronSimError as error:
            raise OptionError(option, text, f"{str(error).lower()}; {_EXPECTED}") from None
        hours, minutes, seconds = (
            tuple(sorted(times)) for times in (forward.hours, forward.minutes, forward.seconds)
        )
        minute, hour = forward.parts[1:3]
        is_fixed = not minute.startswith("*") and not hour.startswith("*")
        has_years = forward.years is not None
        return cls((hours, minutes, seconds), is_fixed, has_years, forward, backward)

    def next(self, after: datetime) -> datetime | None:
        """The first match strictly after, within 50 years; `OverflowError` past the calendar."""
        return _step(self._forward, after)

    def previous(self, before: datetime) -> datetime | None:
        """The last match strictly before, within 50 years; `OverflowError` past the calendar."""
        return _step(self._backward, before)

    def count(self, start: datetime, end: datetime) -> int:
        """The number of matches from `start` up to `end`, which is excluded."""
        if start >= end:
            return 0
        hours, minutes, seconds = self.times
        day, last, days = start.date(), end.date(), 0
        while day < last:
            days += self._has_day(day)
            day += _DAY
        whole_days = days * len(hours) * len(minutes) * len(seconds)
        return whole_days - self._count_that_day(start) + self._count_that_day(end)

    def explain(self) -> str:
        """The expression in words."""
        return self._forward.explain()

    def _has_day(self, day: date) -> bool:
        walk = self._forward
        return day.month in walk.months and walk.match_year(day.year) and walk.match_day(day)

    def _count_that_day(self, end: datetime) -> int:
        """The number of matches from midnight up to `end`."""
        if not self._has_day(end.date()):
            return 0
        hours, minutes, seconds = self.times
        each, total = len(hours) * len(minutes) * len(seconds), 0
        for times, at in zip(self.times, (end.hour, end.minute, end.second), strict=True):
            each //= len(times)
            total += bisect_left(times, at) * each
            if at not in times:
                break
        return total


def _new_walk(fields: list[str], *, reverse: bool) -> _Walk:
    """A walk over an expression of 5 to 7 fields; raises `CronSimError`."""
    if not 5 <= len(fields) <= 7:
        raise CronSimError("Wrong number of fields")
    years = _parse_years(fields[6]) if len(fields) == 7 else None
    fields = fields[:6]
    place = len(fields) - 3
    days = fields[place].split(",")
    nearest = frozenset(int(found[1]) for day in days if (found := _NEAREST.fullmatch(day)))
    if not nearest <= frozenset(range(1, 32)):
        raise CronSimError("Bad day-of-month")
    if nearest:
        others = [day for day in days if not _NEAREST.fullmatch(day)]
        # Its words for the last weekday are changed in `explain`.
        fields[place] = ",".join([*others, "LW"])
    walk = _Walk(" ".join(fields), _ANY_DAY, reverse=reverse)
    if nearest and "LW" not in others:
        walk.days = walk.days - {CronSim.LAST_WEEKDAY}
    walk.years, walk.nearest = years, nearest
    return walk


def _parse_years(text: str) -> tuple[int, ...] | None:
    if text == "*":
        return None
    years: set[int] = set()
    for term in text.split(","):
        found = _YEAR_TERM.fullmatch(term)
        if found is None or found["step"] in {"0", "00", "000", "0000"}:
            raise CronSimError("Bad year")
        first, step = int(found["first"] or _FIRST_YEAR), int(found["step"] or 1)
        last = int(found["last"]) if found["last"] else first
        if not found["last"] and (found["step"] or not found["first"]):
            last = _LAST_YEAR
        if not _FIRST_YEAR <= first <= last <= _LAST_YEAR:
            raise CronSimError("Bad year")
        years.update(range(first, last + 1, step))
    return tuple(sorted(years))


def _years_text(years: tuple[int, ...]) -> str:
    """Such as "2026", "2026 through 2030" or "2026, 2028 and 2030"."""
    if len(years) > 2 and years == tuple(range(years[0], years[-1] + 1)):
        return f"{years[0]} through {years[-1]}"
    shown = [*map(str, years[:3]), *(["later years"] if len(years) > 3 else [])]
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)


def _split_fields(text: str) -> list[str]:
    """The fields as cronsim takes them."""
    fields = text.upper().split()
    if len(fields) == 1:
        fields = _NICKNAMES.get(fields[0], fields[0]).split()
    # cronsim reads "9-9/2" as "9/2", which means every second value from 9 on.
    fields = ["*" if field == "?" else _RANGE_OF_ONE.sub(r"\1", field) for field in fields]
    if len(fields) < 5:
        return fields
    week = min(5, len(fields) - 1)
    return [
        *fields[:week],
        _LAST_NAMED_DAY.sub(_number_last_day, fields[week]),
        *fields[week + 1 :],
    ]


def _number_last_day(named: re.Match[str]) -> str:
    return f"{_DAYS.index(named[1])}L"


def _step(template: _Walk, start: datetime) -> datetime | None:
    walk = copy(template)  # 2 µs, where parsing takes 7 to 12; nothing they share ever changes
    walk.dt = start
    return next(walk, None)
