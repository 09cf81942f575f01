"""Cron rules: `Cron` places an expression in a time zone, and decides what happens when clocks
change.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo
from itertools import pairwise
from typing import Final

from tampu.errors import OptionError
from tampu.timing.expression import CronExpression
from tampu.timing.rule import Rule
from tampu.timing.zones import (
    SECOND,
    ClockChange,
    changes_between,
    find_change,
    parse_zone,
    wall_instant_s,
    wall_time,
)

_YEARS: Final = 50
"""How far to look for a match; the rarest, a 29th of February on a Sunday, can be 40 years away."""
_REFERENCE_MS: Final = 1_767_225_600_000
"""2026-01-01. An expression without a match in the 50 years from here is refused."""


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Cron(Rule):
    """The times at which a cron expression matches the wall clock of a time zone.

        Cron("0 9 * * 1-5", tz="Europe/Berlin")  # at 09:00, Monday to Friday
        Cron("*/15 * * * * *")                   # every 15 seconds: 6 fields start with seconds
        Cron("@daily")                           # at midnight

    The 5 fields are minute, hour, day of month, month and day of week (0 and 7 are Sunday). They
    take `*`, lists, ranges, steps and names such as `FRI`; `L`, `15W`, `FRI#2` and `FRIL` mean the
    last day of the month, the weekday nearest to its 15th, its second Friday and its last Friday.
    If both days are restricted, either one is enough. A seventh field has the years.

    `tz` is an IANA name or an offset such as "+05:30". Without it, a queue's schedule uses UTC and
    a `ScheduledTask` uses the `timezone` of its scheduler.

    When clocks change, a fixed time of day such as "30 2 * * *" runs exactly once: right after the
    gap if the clock skips it, and the first time if it occurs twice. An expression whose minute or
    hour starts with `*` follows the clock: no run for a skipped time, two for a repeated one.
    """

    text: str  # as it was given: part of what the wire carries, like `tz`
    tz: str
    has_zone: bool = field(compare=False)  # `tz` was given, and UTC is not just the default
    _expression: CronExpression = field(compare=False)
    _zone: tzinfo = field(compare=False)

    def __init__(self, expression: str, *, tz: str | None = None) -> None:
        zone = "UTC" if tz is None else tz
        object.__setattr__(self, "text", expression)
        object.__setattr__(self, "tz", zone)
        object.__setattr__(self, "has_zone", tz is not None)
        object.__setattr__(self, "_expression", CronExpression.parse("expression", expression))
        object.__setattr__(self, "_zone", parse_zone("tz", zone))
        found = self.next_ms(_REFERENCE_MS)
        if found is None and self._expression.has_years:
            found = self.previous_ms(_REFERENCE_MS)
        if found is None:
            raise OptionError("expression", expression, "it never matches any date and time")

    def __repr__(self) -> str:
        return f"Cron({self.text!r}, tz={self.tz!r})"

    @property
    def follows_elapsed_time(self) -> bool:
        """True if the minute or the hour starts with a star."""
        return not self._expression.is_fixed

    def with_zone(self, tz: str) -> "Cron":
        """A copy in this time zone; a rule that was given a zone keeps it."""
        return self if self.has_zone else Cron(self.text, tz=tz)

    def next_ms(self, after_ms: int) -> int | None:
        """The first match strictly after `after_ms`, or None if there is none within 50 years."""
        after_s = after_ms // 1000
        try:
            fixed = self._expression.is_fixed
            found = self._fixed_after(after_s) if fixed else self._elapsed_after(after_s)
        except OverflowError:
            return None  # past the end of the calendar
        return None if found is None else found * 1000

    def previous_ms(self, before_ms: int) -> int | None:
        """The last match strictly before `before_ms`, or None if there is none within 50 years."""
        before_s = -(-before_ms // 1000)
        try:
            fixed = self._expression.is_fixed
            found = self._fixed_before(before_s) if fixed else self._elapsed_before(before_s)
        except OverflowError:
            return None
        return None if found is None else found * 1000

    def count_between(self, after_ms: int, upto_ms: int) -> int:
        """The number of matches after `after_ms` and up to `upto_ms`, counted by whole days."""
        after_s, upto_s = after_ms // 1000, upto_ms // 1000
        if after_s >= upto_s:
            return 0
        changes = changes_between(self._zone, after_s, upto_s)
        if self._expression.is_fixed:
            return self._count_fixed(after_s, upto_s, changes)
        return self._count_elapsed(after_s, upto_s, changes)

    def explain(self) -> str:
        """Such as "At 09:00 on Monday through Friday (Europe/Berlin)"."""
        return f"{self._expression.explain()} ({self.tz.strip() or 'UTC'})"

    # Fixed times of day: each wall time fires once. A wall time that is skipped fires at the end of
    # the gap; one that occurs twice fires in the first pass, so the second pass is already over.

    def _fixed_after(self, after_s: int) -> int | None:
        return self._fixed_instant_s(self._expression.next(self._latest_wall(after_s)))

    def _fixed_before(self, before_s: int) -> int | None:
        wall = self._expression.previous(self._latest_wall(before_s - 1) + SECOND)
        return self._fixed_instant_s(wall)

    def _fixed_instant_s(self, wall: datetime | None) -> int | None:
        if wall is None:
            return None
        change = find_change(self._zone, wall)
        return change.at_s if change and change.is_gap else wall_instant_s(self._zone, wall)

    def _latest_wall(self, at_s: int) -> datetime:
        """The latest wall time that the clock has shown or skipped, up to an instant."""
        wall = wall_time(self._zone, at_s)
        if wall.fold and (change := find_change(self._zone, wall)):
            return change.end - SECOND
        return wall

    def _count_fixed(self, after_s: int, upto_s: int, changes: list[ClockChange]) -> int:
        expression = self._expression
        start, end = self._latest_wall(after_s), self._latest_wall(upto_s)
        count = expression.count(start + SECOND, end + SECOND)
        for change in changes:
            if change.is_gap and (skipped := expression.count(change.start, change.end)):
                # All of them are one fire, together with a match at the very end of the gap.
                count -= skipped - 1 + expression.count(change.end, change.end + SECOND)
        return count

    # Elapsed time: a wall time that is skipped does not fire; one that occurs twice fires twice.

    def _elapsed_after(self, after_s: int) -> int | None:
        start = wall_time(self._zone, after_s)
        wall = self._next_existing(start)
        change = None if start.fold else find_change(self._zone, start)
        if change and (wall is None or wall >= change.end):
            repeated = self._expression.next(change.start - SECOND)
            if repeated is not None and repeated < change.end:
                return wall_instant_s(self._zone, repeated, fold=1)
        if wall is None:
            return None
        first_s = wall_instant_s(self._zone, wall)
        return first_s if first_s > after_s else wall_instant_s(self._zone, wall, fold=1)

    def _elapsed_before(self, before_s: int) -> int | None:
        start = wall_time(self._zone, before_s)
        wall = self._previous_existing(start)
        change = find_change(self._zone, start) if start.fold else None
        if change and (wall is None or wall < change.start):
            first_pass = self._expression.previous(change.end)
            if first_pass is not None and first_pass >= change.start:
                return wall_instant_s(self._zone, first_pass)
        if wall is None:
            return None
        second_s = wall_instant_s(self._zone, wall, fold=1)
        return second_s if second_s < before_s else wall_instant_s(self._zone, wall)

    def _next_existing(self, start: datetime) -> datetime | None:
        wall = self._expression.next(start)
        while wall and (change := find_change(self._zone, wall)) and change.is_gap:
            wall = self._expression.next(change.end - SECOND)
            if wall and wall.year > start.year + _YEARS:
                return None
        return wall

    def _previous_existing(self, start: datetime) -> datetime | None:
        wall = self._expression.previous(start)
        while wall and (change := find_change(self._zone, wall)) and change.is_gap:
            wall = self._expression.previous(change.start)
            if wall and wall.year < start.year - _YEARS:
                return None
        return wall

    def _count_elapsed(self, after_s: int, upto_s: int, changes: list[ClockChange]) -> int:
        edges = [after_s + 1, *(change.at_s for change in changes), upto_s + 1]
        count = 0
        for start_s, end_s in pairwise(edges):
            start = wall_time(self._zone, start_s)
            count += self._expression.count(start, start + timedelta(seconds=end_s - start_s))
        return count
