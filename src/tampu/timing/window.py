"""Hours of the week in which something may run, and rules that are moved into them."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, time, timedelta, tzinfo
from typing import Final

from tampu.errors import OptionError
from tampu.timing.rule import Rule
from tampu.timing.zones import changes_between, parse_zone, wall_instant_s, wall_time
from tampu.util.clock import instant, instant_ms
from tampu.util.options import check_type

Segment = tuple[str, str]
DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_CLOCK: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?", re.ASCII)
_DAY: Final = timedelta(days=1)
_DAY_S: Final = 86_400
_FAR_DAYS: Final = 16
"""Days to look ahead: a week, and another if a clock skips this week's opening or closing."""
_NEAR_DAYS: Final = 3
"""Days that contain all of the next 24 hours, even if a clock skips one of them."""
_DAYS_EXPECTED: Final = 'expected weekdays, such as "mon-fri", "mon,wed" or ["sat", "sun"]'
_SEGMENTS_EXPECTED: Final = (
    'expected pairs of different times, such as [("09:00", "17:00")]; "24:00" may end a pair'
)


@dataclass(frozen=True, slots=True, init=False, repr=False)
class TimeWindow:
    """When runs are allowed: days of the week and times of day, by the wall clock of a time zone.

        TimeWindow(tz="Europe/Berlin", days="mon-fri", segments=[("09:00", "17:00")])
        TimeWindow(days=["sat", "sun"])             # the whole weekend
        TimeWindow(segments=[("22:00", "06:00")])   # every night

    Without `days` every day is allowed; without `segments` the whole day is. A segment includes
    its start and excludes its end. A segment that ends before it starts continues past midnight
    and belongs to the day on which it starts. An hour that occurs twice is allowed twice.

    Without `tz`, a queue's schedule uses UTC and a `ScheduledTask` the `timezone` of its scheduler.
    """

    tz: str
    has_zone: bool = field(compare=False)  # `tz` was given, and UTC is not just the default
    days: tuple[str, ...] | None
    segments: tuple[Segment, ...] | None
    _zone: tzinfo = field(compare=False)
    _weekdays: frozenset[int] = field(compare=False)
    _spans: tuple[tuple[int, int], ...] = field(compare=False)

    def __init__(
        self,
        *,
        tz: str | None = None,
        days: str | Collection[str] | None = None,
        segments: Sequence[Segment] | None = None,
    ) -> None:
        weekdays = frozenset(range(7)) if days is None else _parse_days(days)
        spans = ((0, _DAY_S),) if segments is None else _parse_segments(segments)
        zone = "UTC" if tz is None else tz
        values = {
            "tz": zone,
            "has_zone": tz is not None,
            "days": None if days is None else tuple(DAYS[day] for day in sorted(weekdays)),
            "segments": None if segments is None else tuple((a, b) for a, b in segments),
            "_zone": parse_zone("tz", zone),
            "_weekdays": weekdays,
            "_spans": spans,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        days = "" if self.days is None else f", days={','.join(self.days)!r}"
        segments = "" if self.segments is None else f", segments={list(self.segments)!r}"
        return f"TimeWindow(tz={self.tz!r}{days}{segments})"

    def with_zone(self, tz: str) -> "TimeWindow":
        """A copy in this time zone; a window that was given a zone keeps it."""
        if self.has_zone:
            return self
        return TimeWindow(tz=tz, days=self.days, segments=self.segments)

    def contains(self, at: datetime) -> bool:
        """Whether the window is open at an aware datetime."""
        return self.contains_ms(instant_ms("at", at))

    def next_open(self, at: datetime) -> datetime | None:
        """The first instant from `at` on at which the window is open; `at` itself if it is."""
        found = self.next_open_ms(instant_ms("at", at))
        return None if found is None else instant(found)

    def next_close(self, at: datetime) -> datetime | None:
        """The first instant from `at` on at which the window is closed; None if it never closes."""
        found = self.next_close_ms(instant_ms("at", at))
        return None if found is None else instant(found)

    def contains_ms(self, at_ms: int) -> bool:
        """Whether the window is open at an instant."""
        wall = wall_time(self._zone, at_ms // 1000)
        at_s = wall.hour * 3600 + wall.minute * 60 + wall.second
        today = wall.weekday() in self._weekdays
        yesterday = (wall.weekday() - 1) % 7 in self._weekdays
        return any(
            today and start <= at_s < end
            if start < end
            else (today and start <= at_s) or (yesterday and at_s < end)
            for start, end in self._spans
        )

    def next_open_ms(self, at_ms: int) -> int | None:
        """The first open instant from this one on; None only at the end of the calendar."""
        return self._first_ms(at_ms, {start for start, _ in self._spans}, is_open=True)

    def next_close_ms(self, at_ms: int) -> int | None:
        """The first closed instant from this one on; None if the window never closes again."""
        return self._first_ms(at_ms, {end for _, end in self._spans}, is_open=False)

    def closed_since_ms(self, at_ms: int) -> int | None:
        """The last time the window closed, up to an instant; None if it never did."""
        ends = {end for _, end in self._spans}
        try:
            edges = self._edges(at_ms, range(-_FAR_DAYS, 2), ends)
            return max((ms for ms in edges if ms <= at_ms and self._closes_at(ms)), default=None)
        except OverflowError:
            return None

    def explain(self) -> str:
        """Such as "mon, tue from 09:00 to 17:00 (Europe/Berlin)"."""
        days = "every day" if self.days is None else ", ".join(self.days)
        hours = "all day"
        if self.segments is not None:
            hours = " and ".join(f"from {start} to {end}" for start, end in self.segments)
        return f"{days} {hours} ({self.tz.strip() or 'UTC'})"

    def _first_ms(self, at_ms: int, seconds: Collection[int], *, is_open: bool) -> int | None:
        """The first instant from this one on at which the window is open, or is closed."""
        try:
            if self.contains_ms(at_ms) is is_open:
                return at_ms
            for days in (_NEAR_DAYS, _FAR_DAYS):
                edges = self._edges(at_ms, range(-1, days), seconds)
                later = (ms for ms in edges if ms > at_ms and self.contains_ms(ms) is is_open)
                found = min(later, default=None)
                if found is not None and found <= at_ms + _DAY_S * 1000:
                    break  # nothing on a later day can come before it
        except OverflowError:
            return None
        return found

    def _closes_at(self, at_ms: int) -> bool:
        return not self.contains_ms(at_ms) and self.contains_ms(at_ms - 1)

    def _edges(self, at_ms: int, days: range, seconds: Collection[int]) -> Iterator[int]:
        """The instants at which the clock shows one of these seconds of the day, in no order.

        `days` counts from today, which is 0. A clock that is set back before midnight shows
        yesterday again. A clock change may open or close a window by itself, so it is an edge too.
        """
        at_s = at_ms // 1000
        first_s, last_s = at_s + days.start * _DAY_S, at_s + days.stop * _DAY_S
        for change in changes_between(self._zone, first_s, last_s):
            yield change.at_s * 1000
        midnight = datetime.combine(wall_time(self._zone, at_s), time())
        for day in days:
            for second in seconds:
                wall = midnight + day * _DAY + timedelta(seconds=second)
                yield wall_instant_s(self._zone, wall) * 1000
                yield wall_instant_s(self._zone, wall, fold=1) * 1000


@dataclass(frozen=True, slots=True)
class Aligned(Rule):
    """The instants of another rule, those outside a window moved to its next opening.

    All instants that move to the same opening become one. A rule without an anchor counts from the
    instant it is asked about, which is one of its own instants then.
    """

    rule: Rule
    window: TimeWindow

    def __post_init__(self) -> None:
        check_type("rule", self.rule, Rule, accepted="a rule, such as Every(...) or Cron(...)")
        check_type("window", self.window, TimeWindow, accepted="a TimeWindow")

    def next_ms(self, after_ms: int) -> int | None:
        """The first instant strictly after `after_ms`, or None if there is none."""
        rule = self.rule.with_anchor(after_ms)
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
        """The last instant strictly before `before_ms`, or None if there is none."""
        rule = self.rule.with_anchor(before_ms)
        found = rule.previous_ms(before_ms)
        if found is None:
            return None
        moved_ms = self.window.next_open_ms(found)
        if moved_ms is not None and moved_ms < before_ms:
            return moved_ms
        # It moves too far, like everything since the window closed.
        closed_ms = self.window.closed_since_ms(found)
        found = None if closed_ms is None else rule.previous_ms(closed_ms)
        return None if found is None else self.window.next_open_ms(found)

    def count_between(self, after_ms: int, upto_ms: int) -> int:
        """The number of instants after `after_ms` and up to `upto_ms`.

        Counted by the stretches in which the window is open, never one by one.
        """
        aligned = self.with_anchor(after_ms)
        count = 0
        found = aligned.next_ms(after_ms)
        while found is not None and found <= upto_ms:
            close_ms = self.window.next_close_ms(found)
            end_ms = upto_ms if close_ms is None else min(upto_ms, close_ms - 1)
            count += 1 + aligned.rule.count_between(found, end_ms)
            found = aligned.next_ms(end_ms)
        return count

    def explain(self) -> str:
        """Such as "Every 5 minutes, moved to the next opening of: every day from 09:00 to ..."."""
        return f"{self.rule.explain()}, moved to the next opening of: {self.window.explain()}"

    def with_anchor(self, at_ms: int) -> "Aligned":
        """A copy whose inner rule counts from `at_ms`, if it needs an anchor and has none."""
        return Aligned(self.rule.with_anchor(at_ms), self.window)

    def with_zone(self, tz: str) -> "Aligned":
        """A copy with the rule and the window in this time zone, where they were given none."""
        return Aligned(self.rule.with_zone(tz), self.window.with_zone(tz))

    @property
    def follows_elapsed_time(self) -> bool:
        """As the inner rule."""
        return self.rule.follows_elapsed_time


def _parse_days(days: str | Collection[str]) -> frozenset[int]:
    parts: object = days.split(",") if isinstance(days, str) else days
    if not isinstance(parts, Collection) or not parts:
        raise OptionError("days", days, _DAYS_EXPECTED)
    found: set[int] = set()
    for part in parts:
        name = part.strip().lower() if isinstance(part, str) else ""
        first, dash, last = name.partition("-")
        if first not in DAYS or (dash and last not in DAYS):
            raise OptionError("days", days, _DAYS_EXPECTED)
        start = DAYS.index(first)
        count = (DAYS.index(last or first) - start) % 7 + 1
        found.update((start + step) % 7 for step in range(count))
    return frozenset(found)


def _parse_segments(segments: Sequence[Segment]) -> tuple[tuple[int, int], ...]:
    given: object = segments
    if not isinstance(given, Sequence) or isinstance(given, str) or not given:
        raise OptionError("segments", segments, _SEGMENTS_EXPECTED)
    spans = []
    for pair in given:
        if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2:
            raise OptionError("segments", segments, _SEGMENTS_EXPECTED)
        start, end = _parse_clock(pair[0]), _DAY_S if pair[1] == "24:00" else _parse_clock(pair[1])
        if start is None or end is None or start == end:
            raise OptionError("segments", segments, _SEGMENTS_EXPECTED)
        spans.append((start, end))
    return tuple(spans)


def _parse_clock(text: object) -> int | None:
    """The second of the day of a text such as "09:00" or "09:00:30"."""
    found = _CLOCK.fullmatch(text) if isinstance(text, str) else None
    if not found:
        return None
    return int(found[1]) * 3600 + int(found[2]) * 60 + int(found[3] or 0)
