import pickle
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tampu.errors import OptionError
from tampu.timing import Every
from tampu.timing.rule import Around

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
NOON_MS = 1_794_744_000_000


def _grid(rule: Every, low_ms: int, high_ms: int) -> list[int]:
    """The grid by brute force: every millisecond is looked at."""
    anchor_ms = rule.anchor_ms or 0
    return [ms for ms in range(low_ms, high_ms + 1) if (ms - anchor_ms) % rule.interval_ms == 0]


@given(
    interval=st.integers(1, 60),
    anchor=st.integers(-200, 200),
    after=st.integers(-300, 300),
    length=st.integers(-50, 300),
)
def test_the_closed_form_gives_what_a_walk_gives(
    interval: int, anchor: int, after: int, length: int
) -> None:
    rule = Every(interval / 1000).anchored(anchor)
    grid = _grid(rule, -500, 700)
    upto = after + length
    assert rule.next_ms(after) == min(ms for ms in grid if ms > after)
    assert rule.previous_ms(after) == max(ms for ms in grid if ms < after)
    between = [ms for ms in grid if after < ms <= upto]
    assert rule.count_between(after, upto) == len(between)
    if length >= 0:
        last = between[-1] if between else None
        assert rule.first_after_many(after, upto) == Around(last, rule.next_ms(upto))


def test_a_year_of_milliseconds_is_arithmetic() -> None:
    year_ms = 365 * 86_400_000
    rule = Every(0.001).anchored(0)
    assert rule.count_between(0, year_ms) == year_ms
    assert rule.first_after_many(0, year_ms) == Around(year_ms, year_ms + 1)


def test_the_grid_runs_through_the_anchor_in_both_directions() -> None:
    rule = Every("1h", anchor=NOON)
    assert rule.next(NOON) == NOON + timedelta(hours=1)
    assert rule.next(NOON - timedelta(milliseconds=1)) == NOON
    assert rule.previous(NOON) == NOON - timedelta(hours=1)
    assert rule.previous(NOON + timedelta(milliseconds=1)) == NOON


def test_without_an_anchor_it_counts_from_where_it_is_asked() -> None:
    rule = Every("90s")
    assert rule.next_n(3, NOON) == [NOON + timedelta(seconds=90 * n) for n in (1, 2, 3)]
    assert rule.previous(NOON) == NOON - timedelta(seconds=90)
    assert rule.count_between(NOON_MS, NOON_MS + 180_000) == 2


def test_arming_gives_an_anchor_to_a_rule_that_has_none_and_to_no_other() -> None:
    assert Every("1h").anchored(NOON_MS) == Every("1h", anchor=NOON)
    assert Every("1h", anchor=NOON).anchored(5) == Every("1h", anchor=NOON)


@pytest.mark.parametrize(
    ("interval", "seed", "phase_ms"),
    [
        ("1m", "", 16_037),  # 0xCBF29CE484222325
        ("1m", "a", 1_996),  # 0xAF63DC4C8601EC8C, both as published for FNV-1a
        ("1m", "refresh-cache", 8_911),
        ("1h", "refresh-cache", 1_388_911),
        ("1d", "K\u00fche", 65_124_454),
        ("5s", "nightly/report", 961),
        ("1ms", "a", 0),
    ],
)
def test_a_seed_has_its_phase_everywhere(interval: str, seed: str, phase_ms: int) -> None:
    rule = Every(interval).staggered(seed)
    assert rule == Every(interval).anchored(phase_ms)
    assert rule.next_ms(NOON_MS) == NOON_MS - NOON_MS % rule.interval_ms + phase_ms + (
        rule.interval_ms if NOON_MS % rule.interval_ms >= phase_ms else 0
    )


@pytest.mark.parametrize("interval", ["1s", "5s", "1m", "1h", "1d"])
def test_many_seeds_spread_evenly_over_the_interval(interval: str) -> None:
    rule = Every(interval)
    shares = Counter(
        (rule.staggered(f"task-{n}").anchor_ms or 0) * 20 // rule.interval_ms for n in range(10_000)
    )
    assert len(shares) == 20
    assert all(400 < share < 600 for share in shares.values())  # 500 each, were it perfect


def test_a_phase_survives_being_armed_and_asks_for_no_valid_text() -> None:
    rule = Every("1m").staggered("a")
    assert rule.anchored(NOON_MS) == rule
    assert Every("1m").staggered("\ud800").anchor_ms is not None


def test_a_phase_for_a_rule_that_has_an_anchor_is_refused() -> None:
    with pytest.raises(
        OptionError, match=r"^Invalid anchor .*2026, 11, 15.*cannot be had with a seed"
    ):
        Every("1m", anchor=NOON).staggered("a")
    with pytest.raises(OptionError, match=r"^Invalid anchor "):
        Every("1m").staggered("a").staggered("a")


@pytest.mark.parametrize("seed", [None, 5, b"a"])
def test_what_is_no_seed_is_refused(seed: object) -> None:
    with pytest.raises(OptionError, match=r"^Invalid seed "):
        Every("1m").staggered(seed)  # type: ignore[arg-type]


def test_rules_that_say_the_same_are_equal() -> None:
    assert Every("90s") == Every(90) == Every(timedelta(minutes=1.5))
    assert hash(Every("90s")) == hash(Every(90))
    assert Every(90) != Every(91)
    assert Every(90) != Every(90, anchor=NOON)
    assert pickle.loads(pickle.dumps(Every(90, anchor=NOON))) == Every(90, anchor=NOON)  # noqa: S301


def test_a_rule_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Every(90).interval_ms = 5  # type: ignore[misc]


@pytest.mark.parametrize(
    ("rule", "written", "words"),
    [
        (Every(1), "Every('1s')", "Every second"),
        (Every("1ms"), "Every('1ms')", "Every millisecond"),
        (Every("5m"), "Every('5m')", "Every 5 minutes"),
        (Every(5400.25), "Every('1h30m250ms')", "Every 1 hour 30 minutes 250 milliseconds"),
        (Every("3650d"), "Every('3650d')", "Every 3650 days"),
        (
            Every("1d", anchor=NOON),
            "Every('1d', anchor=datetime.datetime(2026, 11, 15, 12, 0, "
            "tzinfo=datetime.timezone.utc))",
            "Every day, counted from 2026-11-15 12:00:00 UTC",
        ),
        (
            Every("1d").anchored(NOON_MS + 7),
            "Every('1d', anchor=datetime.datetime(2026, 11, 15, 12, 0, 0, 7000, "
            "tzinfo=datetime.timezone.utc))",
            "Every day, counted from 2026-11-15 12:00:00.007 UTC",
        ),
    ],
)
def test_it_reads_as_it_is_written_and_explains_itself(
    rule: Every, written: str, words: str
) -> None:
    assert repr(rule) == written
    assert rule.explain() == words


@pytest.mark.parametrize("interval", [0, "0s", -1, 0.0001, "11000d", None, "often", True])
def test_what_is_no_interval_is_refused(interval: object) -> None:
    with pytest.raises(OptionError, match=r"^Invalid interval "):
        Every(interval)  # type: ignore[arg-type]


@pytest.mark.parametrize("anchor", [datetime(2026, 1, 1), "2026-01-01", 5])  # noqa: DTZ001
def test_what_is_no_anchor_is_refused(anchor: object) -> None:
    with pytest.raises(OptionError, match=r"^Invalid anchor "):
        Every("1s", anchor=anchor)  # type: ignore[arg-type]


def test_lateness_never_shifts_the_grid() -> None:
    rule = Every("1s", anchor=NOON)
    late = [NOON_MS + n * 1000 + 999 for n in range(5)]
    found = [rule.next_ms(ms) for ms in late]
    assert found == [NOON_MS + n * 1000 for n in range(1, 6)]
