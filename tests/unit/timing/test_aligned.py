"""Instants moved into a window, against moving each of them by itself."""

import time
from bisect import bisect_left, bisect_right
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tampu.errors import OptionError
from tampu.timing import Aligned, At, Cron, Every, Missed, Rule, TimeWindow, decide_missed
from tampu.timing.rule import Around, Until
from tampu.timing.window import DAYS
from tampu.util.clock import instant
from tests.effort import cases
from tests.unit.timing.walks import CLOCKS_SET, DAY_S, seconds_of

DAY_MS = DAY_S * 1000
HOUR_MS = 3_600_000
OFFICE = TimeWindow(tz="Europe/Berlin", days="mon-fri", segments=[("09:00", "17:00")])


def _at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _ms(text: str) -> int:
    return seconds_of(text) * 1000


class TestMoving:
    def test_an_instant_inside_stays(self) -> None:
        rule = Aligned(Cron("30 9 * * MON-FRI", tz="Europe/Berlin"), OFFICE)
        found = rule.next(_at("2026-11-16T00:00+01:00"))
        assert found == _at("2026-11-16T09:30+01:00")

    def test_one_outside_moves_to_the_next_opening(self) -> None:
        rule = Aligned(Cron("0 18 * * FRI", tz="Europe/Berlin"), OFFICE)
        found = rule.next_n(2, _at("2026-11-16T10:00+01:00"))
        assert found == [_at("2026-11-23T09:00+01:00"), _at("2026-11-30T09:00+01:00")]

    def test_all_that_move_to_one_opening_are_one_together_with_one_that_is_there(self) -> None:
        rule = Aligned(Every("1h", anchor=_at("2026-11-16T00:00+01:00")), OFFICE)
        friday = _at("2026-11-20T15:30+01:00")
        expected = [_at("2026-11-20T16:00+01:00"), _at("2026-11-23T09:00+01:00")]
        assert rule.next_n(3, friday) == [*expected, _at("2026-11-23T10:00+01:00")]
        assert rule.count_between(_ms("2026-11-20T15:30+01:00"), _ms("2026-11-23T09:59+01:00")) == 2
        assert rule.previous(_at("2026-11-23T09:30+01:00")) == expected[1]
        assert rule.previous(expected[1]) == expected[0]

    def test_asked_while_it_is_closed_it_knows_what_waits_for_the_opening(self) -> None:
        opening = _at("2026-11-23T09:00+01:00")
        sunday = _at("2026-11-22T12:00+01:00")
        waits = At(_at("2026-11-20T17:00+01:00"))
        assert Aligned(waits, OFFICE).next(sunday) == opening
        came = At(_at("2026-11-20T16:59:59.999+01:00"))
        assert Aligned(came, OFFICE).next(sunday) is None
        assert Aligned(came, OFFICE).previous(sunday) == _at("2026-11-20T16:59:59.999+01:00")

    def test_an_opening_may_lie_past_the_end_of_the_rule(self) -> None:
        evening_ms = _ms("2026-11-20T18:00+01:00")
        rule = Aligned(Until(Every("1h").anchored(evening_ms), evening_ms), OFFICE)
        found = rule.next_n(2, _at("2026-11-20T16:30+01:00"))
        assert found == [_at("2026-11-23T09:00+01:00")]

    def test_a_window_that_never_closes_moves_nothing(self) -> None:
        rule, start_ms = Every("7s").anchored(0), _ms("2026-11-20T17:00Z")
        always = Aligned(rule, TimeWindow(tz="Europe/Berlin"))
        assert always.next_ms(start_ms) == rule.next_ms(start_ms)
        assert always.previous_ms(start_ms) == rule.previous_ms(start_ms)
        upto_ms = start_ms + 400 * DAY_MS
        assert always.count_between(start_ms, upto_ms) == rule.count_between(start_ms, upto_ms)

    def test_an_opening_that_the_clock_jumps_over_is_right_after_the_jump(self) -> None:
        window = TimeWindow(tz="America/New_York", segments=[("02:30", "04:00")])
        rule = Aligned(At(_at("2026-03-08T06:00Z")), window)
        assert rule.next(_at("2026-03-08T00:00Z")) == _at("2026-03-08T07:00Z")

    def test_no_opening_comes_at_the_end_of_the_calendar(self) -> None:
        rule = Aligned(Every("1h", anchor=_at("2026-11-16T00:00Z")), OFFICE)
        assert rule.next(_at("9999-12-31T23:30Z")) is None
        assert rule.count_between(_ms("9999-12-31T23:30Z"), _ms("9999-12-31T23:59Z")) == 0


class TestAnchor:
    def test_a_rule_without_an_anchor_gets_one(self) -> None:
        rule = Aligned(Every("1h"), OFFICE)
        start_ms = _ms("2026-11-16T09:10+01:00")
        assert rule.anchored(start_ms) == Aligned(Every("1h").anchored(start_ms), OFFICE)
        assert rule.anchored(start_ms).anchored(5) == rule.anchored(start_ms)

    @pytest.mark.parametrize("start", ["2026-11-16T09:10+01:00", "2026-11-15T09:10+01:00"])
    def test_until_then_it_counts_from_where_it_is_asked(self, start: str) -> None:
        rule, start_ms = Aligned(Every("1h"), OFFICE), _ms(start)
        armed, upto_ms = rule.anchored(start_ms), start_ms + 3 * DAY_MS
        assert rule.next_ms(start_ms) == armed.next_ms(start_ms)
        assert rule.previous_ms(start_ms) == armed.previous_ms(start_ms)
        assert rule.count_between(start_ms, upto_ms) == armed.count_between(start_ms, upto_ms)

    def test_one_that_begins_while_it_is_closed_begins_at_the_opening(self) -> None:
        rule = Aligned(Every("90m"), OFFICE)
        assert rule.next(_at("2026-11-15T12:00+01:00")) == _at("2026-11-16T09:00+01:00")


class TestZone:
    def test_a_rule_and_a_window_that_were_given_none_get_one(self) -> None:
        rule = Aligned(Cron("0 9 * * *"), TimeWindow(days="mon"))
        berlin = Aligned(
            Cron("0 9 * * *", tz="Europe/Berlin"), TimeWindow(tz="Europe/Berlin", days="mon")
        )
        assert rule.zoned("Europe/Berlin") == berlin
        assert berlin.zoned("UTC") == berlin


class TestValues:
    def test_it_explains_itself(self) -> None:
        rule = Aligned(Every("5m"), TimeWindow(days="sat", segments=[("09:00", "17:00")]))
        assert rule.explain() == (
            "Every 5 minutes, outside of sat from 09:00 to 17:00 (UTC) at the next opening"
        )

    def test_rules_that_say_the_same_are_equal(self) -> None:
        assert Aligned(Every("60s"), OFFICE) == Aligned(Every("1m"), OFFICE)
        assert Aligned(Every("60s"), OFFICE) != Aligned(Every("60s"), TimeWindow())
        assert hash(Aligned(Every("60s"), OFFICE)) == hash(Aligned(Every("1m"), OFFICE))

    def test_what_is_no_rule_or_no_window_is_refused(self) -> None:
        with pytest.raises(OptionError, match=r"^Invalid rule '5m'"):
            Aligned("5m", OFFICE)  # type: ignore[arg-type]
        with pytest.raises(OptionError, match=r"^Invalid window 'mon-fri'"):
            Aligned(Every("5m"), "mon-fri")  # type: ignore[arg-type]


def test_a_year_of_milliseconds_is_counted_by_open_stretches() -> None:
    start_ms = _ms("2026-01-01T00:00+01:00")
    rule = Aligned(Every("1ms").anchored(0), OFFICE)
    begun = time.process_time()
    count = rule.count_between(start_ms, start_ms + 365 * DAY_MS)
    assert time.process_time() - begun < 0.5
    assert count == 261 * 8 * HOUR_MS  # all days from Monday to Friday of that year


def test_a_schedule_decides_by_the_moved_instants() -> None:
    rule = Aligned(Every("1h", anchor=_at("2026-11-16T00:00+01:00")), OFFICE)
    due_ms, now_ms = _ms("2026-11-20T15:00+01:00"), _ms("2026-11-23T10:30+01:00")
    decision = decide_missed(rule, Missed.all().within(catch_up="7d"), due_ms=due_ms, now_ms=now_ms)
    assert [instant(ms) for ms in decision.fires] == [
        _at("2026-11-20T15:00+01:00"),
        _at("2026-11-20T16:00+01:00"),
        _at("2026-11-23T09:00+01:00"),
        _at("2026-11-23T10:00+01:00"),
    ]
    assert decision.next_ms == _ms("2026-11-23T11:00+01:00")


# Against brute force.

minutes = st.integers(0, 24 * 60 - 1)
early = st.integers(0, 5 * 60)  # when clocks are set


def _clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"


pairs = st.tuples(minutes | early, minutes | early).filter(lambda pair: pair[0] != pair[1])
segments = st.lists(
    pairs.map(lambda pair: (_clock(pair[0]), _clock(pair[1]))), min_size=1, max_size=4
)
weekdays = st.none() | st.sets(st.sampled_from(DAYS), min_size=1)
set_clocks = st.sampled_from(CLOCKS_SET)


def _moved(rule: Rule, window: TimeWindow, low_ms: int, high_ms: int) -> list[int]:
    """Each instant of the rule moved by itself; those at one opening are one."""
    found = set()
    at_ms = rule.next_ms(low_ms)
    while at_ms is not None and at_ms <= high_ms:
        opening_ms = window.next_open_ms(at_ms)
        assert opening_ms is not None
        found.add(opening_ms)
        at_ms = rule.next_ms(at_ms)
    return sorted(found)


def _agrees(rule: Aligned, moved: list[int], start_ms: int, end_ms: int) -> None:
    """Every answer about a range, and from each of its instants, is that of brute force."""
    inside = moved[bisect_right(moved, start_ms) : bisect_right(moved, end_ms)]
    assert rule.count_between(start_ms, end_ms) == len(inside)
    after, before = bisect_right(moved, start_ms), bisect_left(moved, start_ms)
    if after < len(moved):
        assert rule.next_ms(start_ms) == moved[after]
    if before:
        assert rule.previous_ms(start_ms) == moved[before - 1]
    if inside and inside[-1] != moved[-1]:
        last, past = inside[-1], moved[bisect_right(moved, end_ms)]
        assert rule.first_after_many(start_ms, end_ms) == Around(last, past)
    for index in range(1, len(inside)):
        earlier, later = inside[index - 1], inside[index]
        assert rule.next_ms(earlier) == later
        assert rule.next_ms(later - 1) == later
        assert rule.previous_ms(later) == earlier
        assert rule.previous_ms(earlier + 1) == earlier


@settings(max_examples=cases(40), deadline=None)
@given(
    clock=set_clocks,
    days=weekdays,
    hours=segments,
    interval_ms=st.integers(50 * 60_000, 3 * DAY_MS),
    before_ms=st.integers(0, 3 * DAY_MS),
    length_ms=st.integers(0, 6 * DAY_MS),
)
def test_the_instants_of_a_week_are_those_that_brute_force_gives(
    clock: tuple[str, str],
    days: set[str] | None,
    hours: list[tuple[str, str]],
    interval_ms: int,
    before_ms: int,
    length_ms: int,
) -> None:
    window = TimeWindow(tz=clock[0], days=days, segments=hours)
    rule = Every(interval_ms / 1000).anchored(0)
    start_ms = _ms(clock[1]) - before_ms
    moved = _moved(rule, window, start_ms - 17 * DAY_MS, start_ms + length_ms + 5 * DAY_MS)
    _agrees(Aligned(rule, window), moved, start_ms, start_ms + length_ms)


@settings(max_examples=cases(40), deadline=None)
@given(
    clock=set_clocks,
    hours=segments,
    interval_ms=st.integers(5 * 60_000, 60 * 60_000),
    before_ms=st.integers(0, 12 * HOUR_MS),
    length_ms=st.integers(0, 24 * HOUR_MS),
)
def test_the_instants_of_the_hours_round_a_change_are_those_that_brute_force_gives(
    clock: tuple[str, str],
    hours: list[tuple[str, str]],
    interval_ms: int,
    before_ms: int,
    length_ms: int,
) -> None:
    window = TimeWindow(tz=clock[0], segments=hours)
    rule = Every(interval_ms / 1000).anchored(0)
    start_ms = _ms(clock[1]) - before_ms
    moved = _moved(rule, window, start_ms - 3 * DAY_MS, start_ms + length_ms + 3 * HOUR_MS)
    _agrees(Aligned(rule, window), moved, start_ms, start_ms + length_ms)


@settings(max_examples=cases(40), deadline=None)
@given(
    clock=set_clocks,
    days=weekdays,
    hours=segments,
    expression=st.sampled_from(["0 * * * *", "30 2 * * *", "*/40 0-4 * * *", "15 1,23 * * 0,6"]),
    before_ms=st.integers(0, 3 * DAY_MS),
)
def test_a_cron_rule_is_moved_as_brute_force_moves_it(
    clock: tuple[str, str],
    days: set[str] | None,
    hours: list[tuple[str, str]],
    expression: str,
    before_ms: int,
) -> None:
    window = TimeWindow(tz=clock[0], days=days, segments=hours)
    rule = Cron(expression, tz=clock[0])
    start_ms = _ms(clock[1]) - before_ms
    moved = _moved(rule, window, start_ms - 17 * DAY_MS, start_ms + 6 * DAY_MS)
    _agrees(Aligned(rule, window), moved, start_ms, start_ms + 5 * DAY_MS)


@settings(max_examples=cases(40), deadline=None)
@given(
    clock=set_clocks,
    days=weekdays,
    hours=segments,
    offsets_ms=st.lists(st.integers(-4 * DAY_MS, 4 * DAY_MS), max_size=12),
    before_ms=st.integers(-5 * DAY_MS, 5 * DAY_MS),
)
def test_single_instants_are_moved_as_brute_force_moves_them(
    clock: tuple[str, str],
    days: set[str] | None,
    hours: list[tuple[str, str]],
    offsets_ms: list[int],
    before_ms: int,
) -> None:
    window, middle_ms = TimeWindow(tz=clock[0], days=days, segments=hours), _ms(clock[1])
    rule = At(*(instant(middle_ms + offset) for offset in offsets_ms))
    moved = _moved(rule, window, middle_ms - 9 * DAY_MS, middle_ms + 9 * DAY_MS)
    aligned, start_ms = Aligned(rule, window), middle_ms - before_ms
    _agrees(aligned, moved, start_ms, start_ms + 30 * DAY_MS)
    low_ms, high_ms = middle_ms - 30 * DAY_MS, middle_ms + 60 * DAY_MS
    assert aligned.count_between(low_ms, high_ms) == len(moved)
    assert aligned.previous_ms(low_ms) is None
    assert aligned.next_ms(high_ms) is None
    assert aligned.next_ms(low_ms) == (moved[0] if moved else None)
    assert aligned.previous_ms(high_ms) == (moved[-1] if moved else None)
