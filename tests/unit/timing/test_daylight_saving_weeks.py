"""The week around each clock change, decided minute by minute; three days in `make test`."""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from tampu.timing import Cron, Every, Missed, Rule, decide_missed
from tampu.util.clock import instant
from tests.effort import THOROUGH
from tests.unit.timing.daemon import CLOCK_CHANGES, DAY_S, Field, Spec, fires, parse_s, wall_at

MINUTE = timedelta(minutes=1)
HALF_S = (7 if THOROUGH else 3) * DAY_S // 2
ON_TIME = Missed.SKIP.within(grace=0)

ANY = Field("*", frozenset(range(60)))
ZERO = Field("0", frozenset({0}))
WEEKS = pytest.mark.parametrize(("name", "at"), CLOCK_CHANGES)


def _week(at: str) -> range:
    """The minutes of those days, in seconds, with the clock change in the middle."""
    middle_s = parse_s(at)
    return range(middle_s - HALF_S, middle_s + HALF_S, 60)


def _decide_each_minute(rule: Rule, week: range) -> list[int]:
    """The fires, in seconds, if a schedule is decided at each full minute; nothing may be late."""
    fired: list[int] = []
    due_ms = rule.next_ms(week.start * 1000 - 1)
    for now_s in week:
        assert due_ms is not None
        decision = decide_missed(rule, ON_TIME, due_ms=due_ms, now_ms=now_s * 1000)
        assert decision.skipped == 0
        assert decision.fires in {(), (now_s * 1000,)}
        fired += [ms // 1000 for ms in decision.fires]
        due_ms = decision.next_ms
    return fired


def _changed_walls(zone: ZoneInfo, at_s: int) -> tuple[datetime, datetime]:
    """The first and the last wall time that is skipped or occurs twice."""
    edges = wall_at(zone, at_s - 60) + MINUTE, wall_at(zone, at_s)
    return min(edges), max(edges)


def _times(*walls: datetime) -> Spec:
    """The times of day of some wall times in the same hour."""
    minutes = sorted({wall.minute for wall in walls})
    return Spec(
        ZERO,
        Field(",".join(map(str, minutes)), frozenset(minutes)),
        Field(str(walls[0].hour), frozenset({walls[0].hour})),
        ANY,
        ANY,
    )


def _fixed_specs(zone: ZoneInfo, at_s: int) -> list[Spec]:
    """Times of day before, at, inside and after what is skipped or occurs twice."""
    start, end = _changed_walls(zone, at_s)
    return [
        _times(start - MINUTE),
        _times(start),
        _times(start + 15 * MINUTE),
        _times(start + 10 * MINUTE, start + 20 * MINUTE),
        _times(end - MINUTE),
        _times(end),
        _times(datetime(2026, 1, 1, 12, 45)),  # noqa: DTZ001 - a wall time has no zone
        Spec(ZERO, ZERO, Field("0-5", frozenset(range(6))), ANY, ANY),
        Spec(ZERO, Field("30", frozenset({30})), Field("0,23", frozenset({0, 23})), ANY, ANY),
    ]


@WEEKS
def test_each_week_has_one_clock_change_in_its_middle(name: str, at: str) -> None:
    zone, week, at_s = ZoneInfo(name), _week(at), parse_s(at)
    offsets = {(now_s < at_s, datetime.fromtimestamp(now_s, zone).utcoffset()) for now_s in week}
    assert len(offsets) == len({offset for _, offset in offsets}) == 2


@WEEKS
def test_a_time_of_day_fires_once_whether_it_is_skipped_or_occurs_twice(name: str, at: str) -> None:
    zone, week = ZoneInfo(name), _week(at)
    walls = [(now_s, wall_at(zone, now_s)) for now_s in week]
    for spec in _fixed_specs(zone, parse_s(at)):
        rule, expected = Cron(spec.text, tz=name), fires(spec, walls, MINUTE)
        assert _decide_each_minute(rule, week) == expected, spec.text
        rest = week[len(week) // 2 + 1 :]  # of a scheduler that starts after the clock change
        assert _decide_each_minute(rule, rest) == [s for s in expected if s in rest], spec.text


ELAPSED_SPECS = [
    Spec(ZERO, ZERO, ANY, ANY, ANY),
    Spec(ZERO, Field("*/15", frozenset({0, 15, 30, 45})), ANY, ANY, ANY),
    Spec(ZERO, ANY, ANY, ANY, ANY),
    Spec(ZERO, Field("20", frozenset({20})), Field("*/2", frozenset(range(0, 24, 2))), ANY, ANY),
    Spec(
        ZERO,
        Field("*/10", frozenset(range(0, 60, 10))),
        Field("0-3", frozenset(range(4))),
        ANY,
        ANY,
    ),
]


@WEEKS
@pytest.mark.parametrize("spec", ELAPSED_SPECS, ids=lambda spec: spec.text)
def test_a_rule_with_a_star_fires_whenever_the_clock_matches(
    name: str, at: str, spec: Spec
) -> None:
    zone, week = ZoneInfo(name), _week(at)
    expected = [now_s for now_s in week if spec.matches(wall_at(zone, now_s))]
    assert _decide_each_minute(Cron(spec.text, tz=name), week) == expected


@WEEKS
@pytest.mark.parametrize("minutes", [1, 7, 60, 24 * 60])
def test_an_interval_ignores_clock_changes(name: str, at: str, minutes: int) -> None:
    del name
    week = _week(at)
    rule = Every(timedelta(minutes=minutes), anchor=instant(week.start * 1000))
    assert _decide_each_minute(rule, week) == list(week)[::minutes]
