"""A cron expression: which wall times match it. It knows no zone.

The only place that imports cronsim. It is used on wall times alone; what the days on which clocks
change make of them is decided in `cron.py`.
"""

import re
from bisect import bisect_left
from copy import copy
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, tzinfo
from itertools import pairwise
from typing import Final, Self

from cronsim import CronSim, CronSimError

from tampu.errors import OptionError
from tampu.timing.rule import Rule
from tampu.timing.zones import (
    SECOND,
    Change,
    change_of,
    changes_between,
    instant_of,
    wall_of,
    zone_of,
)

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


_YEARS: Final = 50
"""How far a match is looked for; the rarest rule, a 29th of February on a Sunday, needs 40."""
_REFERENCE_MS: Final = 1_767_225_600_000
"""2026-01-01: from here a rule must have a match to be one."""


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Cron(Rule):
    """Whole seconds at which a cron expression matches the wall clock of a zone.

    `text` and `tz` are kept as written: they are what the wire carries.
    """

    text: str
    tz: str
    has_zone: bool = field(compare=False)  # UTC was not just left to be taken for granted
    _expression: Expression = field(compare=False)
    _zone: tzinfo = field(compare=False)

    def __init__(self, expression: str, *, tz: str | None = None) -> None:
        zone = "UTC" if tz is None else tz
        object.__setattr__(self, "text", expression)
        object.__setattr__(self, "tz", zone)
        object.__setattr__(self, "has_zone", tz is not None)
        object.__setattr__(self, "_expression", Expression.of("expression", expression))
        object.__setattr__(self, "_zone", zone_of("tz", zone))
        if self.next_ms(_REFERENCE_MS) is None:
            raise OptionError("expression", expression, "matches no day or time that ever comes")

    def __repr__(self) -> str:
        return f"Cron({self.text!r}, tz={self.tz!r})"

    @property
    def goes_on(self) -> bool:
        """With a star for the minute or the hour it fires whenever the clock shows a match."""
        return not self._expression.is_fixed

    def zoned(self, tz: str) -> "Cron":
        """By the wall clock of a zone, unless it was given one; otherwise that is UTC."""
        return self if self.has_zone else Cron(self.text, tz=tz)

    def next_ms(self, after_ms: int) -> int | None:
        """The first match strictly after, or None if none comes within 50 years."""
        after_s = after_ms // 1000
        try:
            fixed = self._expression.is_fixed
            found = self._fixed_after(after_s) if fixed else self._real_after(after_s)
        except OverflowError:
            return None  # past the end of the calendar
        return None if found is None else found * 1000

    def previous_ms(self, before_ms: int) -> int | None:
        """The last match strictly before, or None if there was none for 50 years."""
        before_s = -(-before_ms // 1000)
        try:
            fixed = self._expression.is_fixed
            found = self._fixed_before(before_s) if fixed else self._real_before(before_s)
        except OverflowError:
            return None
        return None if found is None else found * 1000

    def count_between(self, after_ms: int, upto_ms: int) -> int:
        """How many matches lie after the first instant and up to the second.

        Counted by whole days, never one by one.
        """
        after_s, upto_s = after_ms // 1000, upto_ms // 1000
        if after_s >= upto_s:
            return 0
        changes = changes_between(self._zone, after_s, upto_s)
        if self._expression.is_fixed:
            return self._count_fixed(after_s, upto_s, changes)
        return self._count_real(after_s, upto_s, changes)

    def explain(self) -> str:
        """Such as "At 09:00 on Monday through Friday (Europe/Berlin)"."""
        return f"{self._expression.explain()} ({self.tz.strip() or 'UTC'})"

    # Fixed times: each wall time fires once, so a second pass stands where the first one ended.

    def _fixed_after(self, after_s: int) -> int | None:
        wall = self._expression.next(self._passed(after_s))
        if wall is None:
            return None
        change = change_of(self._zone, wall)
        if change and change.is_gap:
            return change.at_s
        return instant_of(self._zone, wall)

    def _fixed_before(self, before_s: int) -> int | None:
        wall = self._expression.previous(self._passed(before_s - 1) + SECOND)
        if wall is None:
            return None
        change = change_of(self._zone, wall)
        if change and change.is_gap:
            return change.at_s
        return instant_of(self._zone, wall)

    def _passed(self, at_s: int) -> datetime:
        """The latest wall time that the clock has shown, or jumped over, up to an instant."""
        wall = wall_of(self._zone, at_s)
        if wall.fold and (change := change_of(self._zone, wall)):
            return change.end - SECOND
        return wall

    def _count_fixed(self, after_s: int, upto_s: int, changes: list[Change]) -> int:
        expression = self._expression
        count = expression.count(self._passed(after_s) + SECOND, self._passed(upto_s) + SECOND)
        for change in changes:
            if change.is_gap and (lost := expression.count(change.start, change.end)):
                # All of them are one fire, together with a match at the very end of the gap.
                count -= lost - 1 + expression.count(change.end, change.end + SECOND)
        return count

    # Real time: what the clock jumps over does not fire, what it shows twice fires twice.

    def _real_after(self, after_s: int) -> int | None:
        start = wall_of(self._zone, after_s)
        wall = self._shown_after(start)
        now = None if start.fold else change_of(self._zone, start)
        if now and (wall is None or wall >= now.end):
            again = self._expression.next(now.start - SECOND)
            if again is not None and again < now.end:
                return instant_of(self._zone, again, fold=1)
        if wall is None:
            return None
        first_s = instant_of(self._zone, wall)
        return first_s if first_s > after_s else instant_of(self._zone, wall, fold=1)

    def _real_before(self, before_s: int) -> int | None:
        start = wall_of(self._zone, before_s)
        wall = self._shown_before(start)
        now = change_of(self._zone, start) if start.fold else None
        if now and (wall is None or wall < now.start):
            earlier = self._expression.previous(now.end)
            if earlier is not None and earlier >= now.start:
                return instant_of(self._zone, earlier)
        if wall is None:
            return None
        second_s = instant_of(self._zone, wall, fold=1)
        return second_s if second_s < before_s else instant_of(self._zone, wall)

    def _shown_after(self, start: datetime) -> datetime | None:
        wall = self._expression.next(start)
        while wall and (change := change_of(self._zone, wall)) and change.is_gap:
            wall = self._expression.next(change.end - SECOND)
            if wall and wall.year > start.year + _YEARS:
                return None
        return wall

    def _shown_before(self, start: datetime) -> datetime | None:
        wall = self._expression.previous(start)
        while wall and (change := change_of(self._zone, wall)) and change.is_gap:
            wall = self._expression.previous(change.start)
            if wall and wall.year < start.year - _YEARS:
                return None
        return wall

    def _count_real(self, after_s: int, upto_s: int, changes: list[Change]) -> int:
        edges = [after_s + 1, *(change.at_s for change in changes), upto_s + 1]
        count = 0
        for start_s, end_s in pairwise(edges):
            start = wall_of(self._zone, start_s)
            count += self._expression.count(start, start + timedelta(seconds=end_s - start_s))
        return count
