"""Rules moved into a window, against moving each instant alone."""

from bisect import bisect_left, bisect_right
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tampu.errors import OptionError
from tampu.timing import Aligned, At, Cron, Every, Missed, Rule, TimeWindow, decide_missed
from tampu.timing.rule import Until
from tampu.timing.window import DAYS
from tampu.util.clock import instant
from tests.effort import cases
from tests.unit.timing.daemon import CLOCK_CHANGES, DAY_S, CountingRule, parse_s

DAY_MS = DAY_S * 1000
HOUR_MS = 3_600_000
OFFICE = TimeWindow(tz="Europe/Berlin", days="mon-fri", segments=[("09:00", "17:00")])


def _at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _ms(text: str) -> int:
    return parse_s(text) * 1000


class TestMoving:
    def test_an_instant_inside_the_window_stays(self) -> None:
        rule = Aligned(Cron("30 9 * * MON-FRI", tz="Europe/Berlin"), OFFICE)
        found = rule.next(_at("2026-11-16T00:00+01:00"))
        assert found == _at("2026-11-16T09:30+01:00")

    def test_an_instant_outside_moves_to_the_next_opening(self) -> None:
        rule = Aligned(Cron("0 18 * * FRI", tz="Europe/Berlin"), OFFICE)
        found = rule.next_n(2, _at("2026-11-16T10:00+01:00"))
        assert found == [_at("2026-11-23T09:00+01:00"), _at("2026-11-30T09:00+01:00")]

    def test_all_instants_at_the_same_opening_become_one(self) -> None:
        rule = Aligned(Every("1h", anchor=_at("2026-11-16T00:00+01:00")), OFFICE)
        friday = _at("2026-11-20T15:30+01:00")
        expected = [_at("2026-11-20T16:00+01:00"), _at("2026-11-23T09:00+01:00")]
        assert rule.next_n(3, friday) == [*expected, _at("2026-11-23T10:00+01:00")]
        assert rule.count_between(_ms("2026-11-20T15:30+01:00"), _ms("2026-11-23T09:59+01:00")) == 2
        assert rule.previous(_at("2026-11-23T09:30+01:00")) == expected[1]
        assert rule.previous(expected[1]) == expected[0]

    def test_while_closed_only_instants_since_the_closing_move_to_the_opening(self) -> None:
        opening = _at("2026-11-23T09:00+01:00")
        sunday = _at("2026-11-22T12:00+01:00")
        late = At(_at("2026-11-20T17:00+01:00"))
        assert Aligned(late, OFFICE).next(sunday) == opening
        in_time = At(_at("2026-11-20T16:59:59.999+01:00"))
        assert Aligned(in_time, OFFICE).next(sunday) is None
        assert Aligned(in_time, OFFICE).previous(sunday) == _at("2026-11-20T16:59:59.999+01:00")

    def test_an_instant_may_move_past_the_end_of_the_rule(self) -> None:
        evening_ms = _ms("2026-11-20T18:00+01:00")
        rule = Aligned(Until(Every("1h").with_anchor(evening_ms), evening_ms), OFFICE)
        found = rule.next_n(2, _at("2026-11-20T16:30+01:00"))
        assert found == [_at("2026-11-23T09:00+01:00")]

    def test_a_window_that_never_closes_moves_nothing(self) -> None:
        rule, start_ms = Every("7s").with_anchor(0), _ms("2026-11-20T17:00Z")
        always = Aligned(rule, TimeWindow(tz="Europe/Berlin"))
        assert always.next_ms(start_ms) == rule.next_ms(start_ms)
        assert always.previous_ms(start_ms) == rule.previous_ms(start_ms)
        upto_ms = start_ms + 400 * DAY_MS
        assert always.count_between(start_ms, upto_ms) == rule.count_between(start_ms, upto_ms)

    def test_a_skipped_opening_is_right_after_the_gap(self) -> None:
        window = TimeWindow(tz="America/New_York", segments=[("02:30", "04:00")])
        rule = Aligned(At(_at("2026-03-08T06:00Z")), window)
        assert rule.next(_at("2026-03-08T00:00Z")) == _at("2026-03-08T07:00Z")

    def test_there_is_no_opening_after_the_calendar(self) -> None:
        rule = Aligned(Every("1h", anchor=_at("2026-11-16T00:00Z")), OFFICE)
        assert rule.next(_at("9999-12-31T23:30Z")) is None
        assert rule.count_between(_ms("9999-12-31T23:30Z"), _ms("9999-12-31T23:59Z")) == 0


class TestAnchor:
    def test_a_rule_without_an_anchor_gets_one(self) -> None:
        rule = Aligned(Every("1h"), OFFICE)
        start_ms = _ms("2026-11-16T09:10+01:00")
        assert rule.with_anchor(start_ms) == Aligned(Every("1h").with_anchor(start_ms), OFFICE)
        assert rule.with_anchor(start_ms).with_anchor(5) == rule.with_anchor(start_ms)

    @pytest.mark.parametrize("start", ["2026-11-16T09:10+01:00", "2026-11-15T09:10+01:00"])
    def test_without_an_anchor_it_counts_from_the_given_time(self, start: str) -> None:
        rule, start_ms = Aligned(Every("1h"), OFFICE), _ms(start)
        anchored, upto_ms = rule.with_anchor(start_ms), start_ms + 3 * DAY_MS
        assert rule.next_ms(start_ms) == anchored.next_ms(start_ms)
        assert rule.previous_ms(start_ms) == anchored.previous_ms(start_ms)
        assert rule.count_between(start_ms, upto_ms) == anchored.count_between(start_ms, upto_ms)

    def test_an_interval_that_starts_while_closed_starts_at_the_opening(self) -> None:
        rule = Aligned(Every("90m"), OFFICE)
        assert rule.next(_at("2026-11-15T12:00+01:00")) == _at("2026-11-16T09:00+01:00")


class TestZone:
    def test_a_rule_and_a_window_without_a_zone_get_one(self) -> None:
        rule = Aligned(Cron("0 9 * * *"), TimeWindow(days="mon"))
        berlin = Aligned(
            Cron("0 9 * * *", tz="Europe/Berlin"), TimeWindow(tz="Europe/Berlin", days="mon")
        )
        assert rule.with_zone("Europe/Berlin") == berlin
        assert berlin.with_zone("UTC") == berlin


class TestValues:
    def test_explanation(self) -> None:
        rule = Aligned(Every("5m"), TimeWindow(days="sat", segments=[("09:00", "17:00")]))
        assert rule.explain() == (
            "Every 5 minutes, moved to the next opening of: sat from 09:00 to 17:00 (UTC)"
        )

    def test_equal_rules_compare_equal(self) -> None:
        assert Aligned(Every("60s"), OFFICE) == Aligned(Every("1m"), OFFICE)
        assert Aligned(Every("60s"), OFFICE) != Aligned(Every("60s"), TimeWindow())
        assert hash(Aligned(Every("60s"), OFFICE)) == hash(Aligned(Every("1m"), OFFICE))

    def test_an_invalid_rule_or_window_is_refused_by_name(self) -> None:
        with pytest.raises(OptionError, match=r"^Invalid rule '5m'"):
            Aligned("5m", OFFICE)  # type: ignore[arg-type]
        with pytest.raises(OptionError, match=r"^Invalid window 'mon-fri'"):
            Aligned(Every("5m"), "mon-fri")  # type: ignore[arg-type]


def test_a_year_of_milliseconds_takes_few_calls_of_the_rule() -> None:
    start_ms = _ms("2026-01-01T00:00+01:00")
    counting = CountingRule(Every("1ms").with_anchor(0))
    count = Aligned(counting, OFFICE).count_between(start_ms, start_ms + 365 * DAY_MS)
    assert count == 261 * 8 * HOUR_MS  # from Monday to Friday in that year
    assert counting.calls.count("count_between") == 261
    assert len(counting.calls) < 1000


def test_a_missed_policy_sees_the_moved_instants() -> None:
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
early = st.integers(0, 5 * 60)  # when clocks change


def _clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"


pairs = st.tuples(minutes | early, minutes | early).filter(lambda pair: pair[0] != pair[1])
segments = st.lists(
    pairs.map(lambda pair: (_clock(pair[0]), _clock(pair[1]))), min_size=1, max_size=4
)
weekdays = st.none() | st.sets(st.sampled_from(DAYS), min_size=1)
clock_changes = st.sampled_from(CLOCK_CHANGES)


def _moved(rule: Rule, window: TimeWindow, low_ms: int, high_ms: int) -> list[int]:
    """Each instant of the rule moved alone; those at the same opening become one."""
    found = set()
    at_ms = rule.next_ms(low_ms)
    while at_ms is not None and at_ms <= high_ms:
        opening_ms = window.next_open_ms(at_ms)
        assert opening_ms is not None
        found.add(opening_ms)
        at_ms = rule.next_ms(at_ms)
    return sorted(found)


def _check(rule: Aligned, moved: list[int], start_ms: int, end_ms: int) -> None:
    """Assert that every answer about a range agrees with brute force."""
    inside = moved[bisect_right(moved, start_ms) : bisect_right(moved, end_ms)]
    assert rule.count_between(start_ms, end_ms) == len(inside)
    after, before = bisect_right(moved, start_ms), bisect_left(moved, start_ms)
    if after < len(moved):
        assert rule.next_ms(start_ms) == moved[after]
    if before:
        assert rule.previous_ms(start_ms) == moved[before - 1]
    if inside and inside[-1] != moved[-1]:
        assert rule.latest_ms(start_ms, end_ms) == inside[-1]
    for index in range(1, len(inside)):
        earlier, later = inside[index - 1], inside[index]
        assert rule.next_ms(earlier) == later
        assert rule.next_ms(later - 1) == later
        assert rule.previous_ms(later) == earlier
        assert rule.previous_ms(earlier + 1) == earlier


@settings(max_examples=cases(40), deadline=None)
@given(
    clock=clock_changes,
    days=weekdays,
    hours=segments,
    interval_ms=st.integers(50 * 60_000, 3 * DAY_MS),
    before_ms=st.integers(0, 3 * DAY_MS),
    length_ms=st.integers(0, 6 * DAY_MS),
)
def test_an_interval_agrees_with_brute_force_over_a_week(
    clock: tuple[str, str],
    days: set[str] | None,
    hours: list[tuple[str, str]],
    interval_ms: int,
    before_ms: int,
    length_ms: int,
) -> None:
    window = TimeWindow(tz=clock[0], days=days, segments=hours)
    rule = Every(interval_ms / 1000).with_anchor(0)
    start_ms = _ms(clock[1]) - before_ms
    moved = _moved(rule, window, start_ms - 17 * DAY_MS, start_ms + length_ms + 5 * DAY_MS)
    _check(Aligned(rule, window), moved, start_ms, start_ms + length_ms)


@settings(max_examples=cases(40), deadline=None)
@given(
    clock=clock_changes,
    hours=segments,
    interval_ms=st.integers(5 * 60_000, 60 * 60_000),
    before_ms=st.integers(0, 12 * HOUR_MS),
    length_ms=st.integers(0, 24 * HOUR_MS),
)
def test_an_interval_agrees_with_brute_force_around_a_clock_change(
    clock: tuple[str, str],
    hours: list[tuple[str, str]],
    interval_ms: int,
    before_ms: int,
    length_ms: int,
) -> None:
    window = TimeWindow(tz=clock[0], segments=hours)
    rule = Every(interval_ms / 1000).with_anchor(0)
    start_ms = _ms(clock[1]) - before_ms
    moved = _moved(rule, window, start_ms - 3 * DAY_MS, start_ms + length_ms + 3 * HOUR_MS)
    _check(Aligned(rule, window), moved, start_ms, start_ms + length_ms)


@settings(max_examples=cases(40), deadline=None)
@given(
    clock=clock_changes,
    days=weekdays,
    hours=segments,
    expression=st.sampled_from(["0 * * * *", "30 2 * * *", "*/40 0-4 * * *", "15 1,23 * * 0,6"]),
    before_ms=st.integers(0, 3 * DAY_MS),
)
def test_a_cron_rule_agrees_with_brute_force(
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
    _check(Aligned(rule, window), moved, start_ms, start_ms + 5 * DAY_MS)


@settings(max_examples=cases(40), deadline=None)
@given(
    clock=clock_changes,
    days=weekdays,
    hours=segments,
    offsets_ms=st.lists(st.integers(-4 * DAY_MS, 4 * DAY_MS), max_size=12),
    before_ms=st.integers(-5 * DAY_MS, 5 * DAY_MS),
)
def test_single_instants_agree_with_brute_force(
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
    _check(aligned, moved, start_ms, start_ms + 30 * DAY_MS)
    low_ms, high_ms = middle_ms - 30 * DAY_MS, middle_ms + 60 * DAY_MS
    assert aligned.count_between(low_ms, high_ms) == len(moved)
    assert aligned.previous_ms(low_ms) is None
    assert aligned.next_ms(high_ms) is None
    assert aligned.next_ms(low_ms) == (moved[0] if moved else None)
    assert aligned.previous_ms(high_ms) == (moved[-1] if moved else None)
