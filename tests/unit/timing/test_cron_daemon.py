"""Cron rules against a daemon that checks the clock each minute, over the days of a year."""

from bisect import bisect_left, bisect_right
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random
from zoneinfo import ZoneInfo

import pytest

from tampu.timing import Cron
from tests.effort import cases
from tests.unit.timing.daemon import (
    DAY_S,
    YEARS,
    Field,
    Spec,
    changes,
    day_spans,
    fires,
    make_rng,
    random_spec,
    wall_at,
)

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)


def _check(rule: Cron, expected: list[int], start_s: int, end_s: int, rng: Random) -> None:
    """Assert that every answer of the rule inside a span is the daemon's."""
    middle = (start_s + end_s) // 2
    near = [at_s for at_s in expected if abs(at_s - middle) < 4 * 3600]
    for earlier, later in pairwise(near):
        assert rule.next_ms(earlier * 1000) == later * 1000
        assert rule.previous_ms(later * 1000) == earlier * 1000
    for _ in range(40):
        at_ms = rng.randrange(start_s * 1000, end_s * 1000)
        upto_ms = rng.randrange(at_ms, end_s * 1000)
        after = bisect_right(expected, at_ms / 1000)
        before = bisect_left(expected, at_ms / 1000)
        if after < len(expected):
            assert rule.next_ms(at_ms) == expected[after] * 1000
        if before:
            assert rule.previous_ms(at_ms) == expected[before - 1] * 1000
        count = bisect_right(expected, upto_ms / 1000) - after
        assert rule.count_between(at_ms, upto_ms) == count


@pytest.mark.parametrize(("name", "year"), YEARS)
def test_a_rule_fires_when_the_daemon_does(name: str, year: int) -> None:
    rng = make_rng(f"{name} {year}")
    for _ in range(cases(12)):
        spec = random_spec(rng)
        try:
            rule = Cron(spec.text, tz=name)
        except ValueError:
            continue  # it never matches
        for walls in day_spans(name, year):
            expected = fires(spec, walls, MINUTE)
            _check(rule, expected, walls[0][0], walls[-1][0], rng)


ANY = Field("*", frozenset(range(60)))
ONE, TWO = Field("1", frozenset({1})), Field("2", frozenset({2}))
BY_SECONDS = [
    Spec(Field("*/20", frozenset({0, 20, 40})), Field("30", frozenset({30})), TWO, ANY, ANY),
    Spec(Field("15", frozenset({15})), Field("30-59", frozenset(range(30, 60))), ONE, ANY, ANY),
    Spec(Field("7", frozenset({7})), Field("*/10", frozenset(range(0, 60, 10))), TWO, ANY, ANY),
    Spec(Field("7", frozenset({7})), Field("45", frozenset({45})), ANY, ANY, ANY),
]


@pytest.mark.parametrize("name", ["America/New_York", "Australia/Lord_Howe", "Europe/London"])
@pytest.mark.parametrize("spec", BY_SECONDS, ids=lambda spec: spec.text)
def test_a_rule_with_seconds_fires_when_the_daemon_does(name: str, spec: Spec) -> None:
    zone, start_s = ZoneInfo(name), int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())
    for middle in changes(zone, start_s, 365):
        walls = [(s, wall_at(zone, s)) for s in range(middle - 3 * 3600, middle + 4 * 3600)]
        expected = fires(spec, walls, SECOND)
        _check(Cron(spec.text, tz=name), expected, walls[0][0], walls[-1][0], make_rng(name))


@pytest.mark.parametrize("name", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"])
@pytest.mark.parametrize("expression", ["*/7 * * * *", "13 1,2 * * *", "5-50/9 0-4 * * 0"])
def test_count_between_agrees_with_stepping_through_a_year(name: str, expression: str) -> None:
    rule = Cron(expression, tz=name)
    start_ms = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)
    end_ms = start_ms + 366 * DAY_S * 1000 // (12 if expression.startswith("*") else 1)
    stepped, at_ms = 0, rule.next_ms(start_ms)
    while at_ms is not None and at_ms <= end_ms:
        stepped, at_ms = stepped + 1, rule.next_ms(at_ms)
    assert rule.count_between(start_ms, end_ms) == stepped
