"""The week round each change of a clock, decided minute by minute by a clock turned by hand."""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from tampu.timing import Cron, Every, Missed, Rule, decide_missed
from tampu.util.clock import instant
from tests.unit.timing.walks import CLOCKS_SET, DAY_S, Field, Spec, fires, seconds_of, wall_at

MINUTE = timedelta(minutes=1)
HALF_WEEK_S = 7 * DAY_S // 2
ON_TIME = Missed.SKIP.within(grace=0)

ANY = Field("*", frozenset(range(60)))
ZERO = Field("0", frozenset({0}))
WEEKS = pytest.mark.parametrize(("name", "at"), CLOCKS_SET)


def _week(at: str) -> range:
    """The minutes of a week, in seconds, with the change in its middle."""
    middle_s = seconds_of(at)
    return range(middle_s - HALF_WEEK_S, middle_s + HALF_WEEK_S, 60)


def _decided(rule: Rule, week: range) -> list[int]:
    """What fires, in seconds, if somebody decides at each full minute; nothing may be late."""
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


def _touched(zone: ZoneInfo, at_s: int) -> tuple[datetime, datetime]:
    """The wall times from the first up to the second are jumped over, or come twice."""
    edges = wall_at(zone, at_s - 60) + MINUTE, wall_at(zone, at_s)
    return min(edges), max(edges)


def _times(*walls: datetime) -> Spec:
    """The times of day of some wall times of one hour."""
    minutes = sorted({wall.minute for wall in walls})
    return Spec(
        ZERO,
        Field(",".join(map(str, minutes)), frozenset(minutes)),
        Field(str(walls[0].hour), frozenset({walls[0].hour})),
        ANY,
        ANY,
    )


def _fixed(zone: ZoneInfo, at_s: int) -> list[Spec]:
    """Times of day before, at, inside and after what is jumped over or comes twice."""
    start, end = _touched(zone, at_s)
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
def test_the_clock_is_set_in_the_middle_of_the_week_and_only_there(name: str, at: str) -> None:
    zone, week, at_s = ZoneInfo(name), _week(at), seconds_of(at)
    offsets = {(now_s < at_s, datetime.fromtimestamp(now_s, zone).utcoffset()) for now_s in week}
    assert len(offsets) == len({offset for _, offset in offsets}) == 2


@WEEKS
def test_a_time_of_day_is_made_up_for_after_a_jump_and_fires_once_if_it_comes_twice(
    name: str, at: str
) -> None:
    zone, week = ZoneInfo(name), _week(at)
    walls = [(now_s, wall_at(zone, now_s)) for now_s in week]
    for spec in _fixed(zone, seconds_of(at)):
        rule, expected = Cron(spec.text, tz=name), fires(spec, walls, MINUTE)
        assert _decided(rule, week) == expected, spec.text
        started = week[len(week) // 2 + 1 :]  # by one who was not there when the clock was set
        assert _decided(rule, started) == [s for s in expected if s in started], spec.text


RHYTHMS = [
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
@pytest.mark.parametrize("spec", RHYTHMS, ids=lambda spec: spec.text)
def test_a_rhythm_fires_whenever_the_clock_shows_it(name: str, at: str, spec: Spec) -> None:
    zone, week = ZoneInfo(name), _week(at)
    shown = [now_s for now_s in week if spec.matches(wall_at(zone, now_s))]
    assert _decided(Cron(spec.text, tz=name), week) == shown


@WEEKS
@pytest.mark.parametrize("minutes", [1, 7, 60, 24 * 60])
def test_an_interval_knows_of_no_clock_on_a_wall(name: str, at: str, minutes: int) -> None:
    del name
    week = _week(at)
    rule = Every(timedelta(minutes=minutes), anchor=instant(week.start * 1000))
    assert _decided(rule, week) == list(week)[::minutes]
