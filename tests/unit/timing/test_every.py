"""Rules with a grid or a list of instants, and jitter."""

import pickle
from collections import Counter
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tampu.errors import OptionError
from tampu.timing import At, Every, offset_ms
from tampu.util.clock import instant

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
NOON_MS = 1_794_744_000_000
NEW_YEAR = datetime(2027, 1, 1, tzinfo=UTC)


def _grid(rule: Every, low_ms: int, high_ms: int) -> list[int]:
    """The grid by brute force: every millisecond is tested."""
    anchor_ms = rule.anchor_ms or 0
    return [ms for ms in range(low_ms, high_ms + 1) if (ms - anchor_ms) % rule.interval_ms == 0]


class TestEvery:
    @given(
        interval=st.integers(1, 60),
        anchor=st.integers(-200, 200),
        after=st.integers(-300, 300),
        length=st.integers(-50, 300),
    )
    def test_the_formula_agrees_with_brute_force(
        self, interval: int, anchor: int, after: int, length: int
    ) -> None:
        rule = Every(interval / 1000).with_anchor(anchor)
        grid = _grid(rule, -500, 700)
        upto = after + length
        assert rule.next_ms(after) == min(ms for ms in grid if ms > after)
        assert rule.previous_ms(after) == max(ms for ms in grid if ms < after)
        between = [ms for ms in grid if after < ms <= upto]
        assert rule.count_between(after, upto) == len(between)
        if length >= 0:
            last = between[-1] if between else None
            assert rule.latest_ms(after, upto) == last

    def test_a_year_of_milliseconds_is_counted_exactly(self) -> None:
        year_ms = 365 * 86_400_000
        rule = Every(0.001).with_anchor(0)
        assert rule.count_between(0, year_ms) == year_ms
        assert rule.latest_ms(0, year_ms) == year_ms

    def test_the_grid_runs_through_the_anchor_in_both_directions(self) -> None:
        rule = Every("1h", anchor=NOON)
        assert rule.next(NOON) == NOON + timedelta(hours=1)
        assert rule.next(NOON - timedelta(milliseconds=1)) == NOON
        assert rule.previous(NOON) == NOON - timedelta(hours=1)
        assert rule.previous(NOON + timedelta(milliseconds=1)) == NOON

    def test_without_an_anchor_it_counts_from_the_given_time(self) -> None:
        rule = Every("90s")
        assert rule.next_n(3, NOON) == [NOON + timedelta(seconds=90 * n) for n in (1, 2, 3)]
        assert rule.previous(NOON) == NOON - timedelta(seconds=90)
        assert rule.count_between(NOON_MS, NOON_MS + 180_000) == 2

    def test_with_anchor_changes_only_a_rule_without_one(self) -> None:
        assert Every("1h").with_anchor(NOON_MS) == Every("1h", anchor=NOON)
        assert Every("1h", anchor=NOON).with_anchor(5) == Every("1h", anchor=NOON)

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
    def test_a_seed_gives_the_same_phase_everywhere(
        self, interval: str, seed: str, phase_ms: int
    ) -> None:
        rule = Every(interval).stagger(seed)
        assert rule == Every(interval).with_anchor(phase_ms)
        assert rule.next_ms(NOON_MS) == NOON_MS - NOON_MS % rule.interval_ms + phase_ms + (
            rule.interval_ms if NOON_MS % rule.interval_ms >= phase_ms else 0
        )

    @pytest.mark.parametrize("interval", ["1s", "5s", "1m", "1h", "1d"])
    def test_many_seeds_spread_evenly_over_the_interval(self, interval: str) -> None:
        rule = Every(interval)
        shares = Counter(
            (rule.stagger(f"task-{n}").anchor_ms or 0) * 20 // rule.interval_ms
            for n in range(10_000)
        )
        assert len(shares) == 20
        assert all(400 < share < 600 for share in shares.values())  # 500 each, were it perfect

    def test_a_staggered_rule_keeps_its_anchor_and_any_text_is_a_seed(self) -> None:
        rule = Every("1m").stagger("a")
        assert rule.with_anchor(NOON_MS) == rule
        assert Every("1m").stagger("\ud800").anchor_ms is not None

    def test_a_rule_with_an_anchor_cannot_be_staggered(self) -> None:
        with pytest.raises(
            OptionError, match=r"^Invalid anchor .*2026, 11, 15.*combined with a seed"
        ):
            Every("1m", anchor=NOON).stagger("a")
        with pytest.raises(OptionError, match=r"^Invalid anchor "):
            Every("1m").stagger("a").stagger("a")

    @pytest.mark.parametrize("seed", [None, 5, b"a"])
    def test_an_invalid_seed_is_refused_by_name(self, seed: object) -> None:
        with pytest.raises(OptionError, match=r"^Invalid seed "):
            Every("1m").stagger(seed)  # type: ignore[arg-type]

    def test_equal_rules_compare_equal(self) -> None:
        assert Every("90s") == Every(90) == Every(timedelta(minutes=1.5))
        assert hash(Every("90s")) == hash(Every(90))
        assert Every(90) != Every(91)
        assert Every(90) != Every(90, anchor=NOON)
        assert pickle.loads(pickle.dumps(Every(90, anchor=NOON))) == Every(90, anchor=NOON)  # noqa: S301

    def test_a_rule_is_immutable(self) -> None:
        with pytest.raises(AttributeError):
            Every(90).interval_ms = 5  # type: ignore[misc]

    @pytest.mark.parametrize(
        ("rule", "text", "words"),
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
                Every("1d").with_anchor(NOON_MS + 7),
                "Every('1d', anchor=datetime.datetime(2026, 11, 15, 12, 0, 0, 7000, "
                "tzinfo=datetime.timezone.utc))",
                "Every day, counted from 2026-11-15 12:00:00.007 UTC",
            ),
        ],
    )
    def test_repr_and_explanation(self, rule: Every, text: str, words: str) -> None:
        assert repr(rule) == text
        assert rule.explain() == words

    @pytest.mark.parametrize("interval", [0, "0s", -1, 0.0001, "11000d", None, "often", True])
    def test_an_invalid_interval_is_refused_by_name(self, interval: object) -> None:
        with pytest.raises(OptionError, match=r"^Invalid interval "):
            Every(interval)  # type: ignore[arg-type]

    @pytest.mark.parametrize("anchor", [datetime(2026, 1, 1), "2026-01-01", 5])  # noqa: DTZ001
    def test_an_invalid_anchor_is_refused_by_name(self, anchor: object) -> None:
        with pytest.raises(OptionError, match=r"^Invalid anchor "):
            Every("1s", anchor=anchor)  # type: ignore[arg-type]

    def test_late_calls_do_not_shift_the_grid(self) -> None:
        rule = Every("1s", anchor=NOON)
        late = [NOON_MS + n * 1000 + 999 for n in range(5)]
        found = [rule.next_ms(ms) for ms in late]
        assert found == [NOON_MS + n * 1000 for n in range(1, 6)]


class TestAt:
    @given(
        instants_ms=st.lists(st.integers(-20, 20)),
        after=st.integers(-25, 25),
        upto=st.integers(-25, 25),
    )
    def test_it_has_exactly_the_given_instants(
        self, instants_ms: list[int], after: int, upto: int
    ) -> None:
        rule = At(*map(instant, instants_ms))
        assert rule.next_ms(after) == min((ms for ms in instants_ms if ms > after), default=None)
        assert rule.previous_ms(after) == max(
            (ms for ms in instants_ms if ms < after), default=None
        )
        assert rule.count_between(after, upto) == len(
            {ms for ms in instants_ms if after < ms <= upto}
        )

    def test_instants_are_sorted_and_duplicates_count_once(self) -> None:
        later = NEW_YEAR + timedelta(hours=1)
        same = NEW_YEAR.astimezone(timezone(timedelta(hours=5)))
        rule = At(later, NEW_YEAR, same)
        assert rule.next_n(10, NEW_YEAR - timedelta(days=1)) == [NEW_YEAR, later]
        assert rule == At(NEW_YEAR, later)
        assert hash(rule) == hash(At(NEW_YEAR, later))
        assert pickle.loads(pickle.dumps(rule)) == rule  # noqa: S301

    def test_an_empty_list_has_no_instants(self) -> None:
        rule = At()
        assert rule.next(NEW_YEAR) is None
        assert rule.previous(NEW_YEAR) is None
        assert rule.next_n(3, NEW_YEAR) == []
        assert rule.count_between(0, 10**13) == 0

    @pytest.mark.parametrize(
        ("rule", "text", "words"),
        [
            (At(), "At()", "Never"),
            (
                At(NEW_YEAR),
                "At(datetime.datetime(2027, 1, 1, 0, 0, tzinfo=datetime.timezone.utc))",
                "Once, at 2027-01-01 00:00:00 UTC",
            ),
            (
                At(*(instant(ms) for ms in range(5))),
                "At(datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc), "
                "datetime.datetime(1970, 1, 1, 0, 0, 0, 1000, tzinfo=datetime.timezone.utc), "
                "datetime.datetime(1970, 1, 1, 0, 0, 0, 2000, tzinfo=datetime.timezone.utc), "
                "and 2 more)",
                "5 times, from 1970-01-01 00:00:00 UTC to 1970-01-01 00:00:00.004 UTC",
            ),
        ],
    )
    def test_repr_and_explanation(self, rule: At, text: str, words: str) -> None:
        assert repr(rule) == text
        assert rule.explain() == words

    @pytest.mark.parametrize("moment", [datetime(2027, 1, 1), "2027-01-01", 5, None])  # noqa: DTZ001
    def test_an_invalid_instant_is_refused_by_name(self, moment: object) -> None:
        with pytest.raises(OptionError, match=r"^Invalid instants "):
            At(NEW_YEAR, moment)  # type: ignore[arg-type]


class TestJitter:
    def test_the_offset_of_a_key_and_an_instant_never_changes(self) -> None:
        # Computed once; another value would make two versions of this library fire twice.
        assert [offset_ms("digest", 1_800_000_000_000 + n, 60_000) for n in range(3)] == [
            22795,
            39878,
            5031,
        ]

    def test_offsets_cover_the_whole_spread(self) -> None:
        offsets = [offset_ms(f"key-{n}", 1_800_000_000_000, 10) for n in range(1000)]
        assert set(offsets) == set(range(10))
        assert all(60 < offsets.count(each) < 140 for each in range(10))

    def test_other_keys_and_instants_get_other_offsets(self) -> None:
        by_instant = {offset_ms("digest", at_ms, 1_000_000) for at_ms in range(100)}
        by_key = {offset_ms(f"digest-{n}", 0, 1_000_000) for n in range(100)}
        assert len(by_instant) > 95
        assert len(by_key) > 95

    @pytest.mark.parametrize("spread_ms", [0, -1, 1])
    def test_without_a_spread_the_offset_is_0(self, spread_ms: int) -> None:
        assert offset_ms("digest", 5, spread_ms) == 0
