"""Hours of the week in which something may run."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, time, timedelta, tzinfo
from typing import Final

from tampu.errors import OptionError
from tampu.timing.rule import Rule
from tampu.timing.zones import changes_between, instant_of, wall_of, zone_of
from tampu.util.clock import instant, instant_ms

Segment = tuple[str, str]
DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_CLOCK: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?", re.ASCII)
_DAY: Final = timedelta(days=1)
_DAY_S: Final = 86_400
_AHEAD: Final = 16
"""Days looked ahead: a week, and another if a clock jumps over this week's opening or closing."""
_NEAR: Final = 3
"""Days that hold all of the next 24 hours, even if a clock jumps over one of them."""
_DAYS_ACCEPTED: Final = 'expected names and ranges of weekdays, such as "mon-fri" or ["sat", "sun"]'
_SEGMENTS_ACCEPTED: Final = (
    'expected pairs of times such as ("09:00", "17:00"), the two of a pair different; '
    '"24:00" may end one'
)


@dataclass(frozen=True, slots=True, init=False, repr=False)
class TimeWindow:
    """Open on some days of the week, from a time up to another, by the wall clock of a zone.

    A segment holds its start and not its end. One that ends before it starts goes over midnight and
    belongs to the day on which it starts. No days means every day, no segments the whole day. An
    hour that comes twice is inside twice.
    """

    tz: str
    has_zone: bool = field(compare=False)  # UTC was not just left to be taken for granted
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
        weekdays = frozenset(range(7)) if days is None else _weekdays_of(days)
        spans = ((0, _DAY_S),) if segments is None else _spans_of(segments)
        zone = "UTC" if tz is None else tz
        values = {
            "tz": zone,
            "has_zone": tz is not None,
            "days": None if days is None else tuple(DAYS[day] for day in sorted(weekdays)),
            "segments": None if segments is None else tuple((a, b) for a, b in segments),
            "_zone": zone_of("tz", zone),
            "_weekdays": weekdays,
            "_spans": spans,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        days = "" if self.days is None else f", days={','.join(self.days)!r}"
        segments = "" if self.segments is None else f", segments={list(self.segments)!r}"
        return f"TimeWindow(tz={self.tz!r}{days}{segments})"

    def zoned(self, tz: str) -> "TimeWindow":
        """By the wall clock of a zone, unless it was given one; otherwise that is UTC."""
        if self.has_zone:
            return self
        return TimeWindow(tz=tz, days=self.days, segments=self.segments)

    def contains(self, at: datetime) -> bool:
        """Whether it is open at an aware datetime."""
        return self.contains_ms(instant_ms("at", at))

    def next_open(self, at: datetime) -> datetime | None:
        """The first instant from `at` on at which it is open; `at` itself if it is."""
        found = self.next_open_ms(instant_ms("at", at))
        return None if found is None else instant(found)

    def next_close(self, at: datetime) -> datetime | None:
        """The first instant from `at` on at which it is closed; None if it never closes."""
        found = self.next_close_ms(instant_ms("at", at))
        return None if found is None else instant(found)

    def contains_ms(self, at_ms: int) -> bool:
        """Whether it is open at an instant."""
        wall = wall_of(self._zone, at_ms // 1000)
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
        """The first closed instant from this one on; None if it never closes any more."""
        return self._first_ms(at_ms, {end for _, end in self._spans}, is_open=False)

    def closed_since_ms(self, at_ms: int) -> int | None:
        """When it closed last, up to an instant; None if it never did."""
        ends = {end for _, end in self._spans}
        try:
            edges = self._edges(at_ms, range(-_AHEAD, 2), ends)
            return max((ms for ms in edges if ms <= at_ms and self._closes_ms(ms)), default=None)
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
        """The first instant from this one on at which it is open, or is not."""
        try:
            if self.contains_ms(at_ms) is is_open:
                return at_ms
            for days in (_NEAR, _AHEAD):
                edges = self._edges(at_ms, range(-1, days), seconds)
                later = (ms for ms in edges if ms > at_ms and self.contains_ms(ms) is is_open)
                found = min(later, default=None)
                if found is not None and found <= at_ms + _DAY_S * 1000:
                    break  # nothing that is farther away could come before it
        except OverflowError:
            return None
        return found

    def _closes_ms(self, at_ms: int) -> bool:
        return not self.contains_ms(at_ms) and self.contains_ms(at_ms - 1)

    def _edges(self, at_ms: int, days: range, seconds: Collection[int]) -> Iterator[int]:
        """When a clock of these days, today being 0, shows one of these seconds; in no order.

        A clock that is set back before midnight shows yesterday again. One that is set may open or
        close a window by itself: it lands inside a segment or behind one.
        """
        at_s = at_ms // 1000
        first_s, last_s = at_s + days.start * _DAY_S, at_s + days.stop * _DAY_S
        for change in changes_between(self._zone, first_s, last_s):
            yield change.at_s * 1000
        midnight = datetime.combine(wall_of(self._zone, at_s), time())
        for day in days:
            for second in seconds:
                wall = midnight + day * _DAY + timedelta(seconds=second)
                yield instant_of(self._zone, wall) * 1000
                yield instant_of(self._zone, wall, fold=1) * 1000


def _weekdays_of(days: str | Collection[str]) -> frozenset[int]:
    parts: object = days.split(",") if isinstance(days, str) else days
    if not isinstance(parts, Collection) or not parts:
        raise OptionError("days", days, _DAYS_ACCEPTED)
    found: set[int] = set()
    for part in parts:
        name = part.strip().lower() if isinstance(part, str) else ""
        first, dash, last = name.partition("-")
        if first not in DAYS or (dash and last not in DAYS):
            raise OptionError("days", days, _DAYS_ACCEPTED)
        start = DAYS.index(first)
        count = (DAYS.index(last or first) - start) % 7 + 1
        found.update((start + step) % 7 for step in range(count))
    return frozenset(found)


def _spans_of(segments: Sequence[Segment]) -> tuple[tuple[int, int], ...]:
    given: object = segments
    if not isinstance(given, Sequence) or isinstance(given, str) or not given:
        raise OptionError("segments", segments, _SEGMENTS_ACCEPTED)
    spans = []
    for pair in given:
        if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2:
            raise OptionError("segments", segments, _SEGMENTS_ACCEPTED)
        start, end = _second_of(pair[0]), _DAY_S if pair[1] == "24:00" else _second_of(pair[1])
        if start is None or end is None or start == end:
            raise OptionError("segments", segments, _SEGMENTS_ACCEPTED)
        spans.append((start, end))
    return tuple(spans)


def _second_of(clock: object) -> int | None:
    found = _CLOCK.fullmatch(clock) if isinstance(clock, str) else None
    if not found:
        return None
    return int(found[1]) * 3600 + int(found[2]) * 60 + int(found[3] or 0)


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
