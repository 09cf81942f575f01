"""What all rules have in common, and rules with an end."""

from datetime import UTC, datetime, timedelta

import pytest

from tampu.errors import OptionError
from tampu.timing import At, Cron, Every, Rule
from tampu.timing.rule import Until
from tampu.util.clock import instant

MINUTE = datetime(2027, 1, 1, 9, 1, tzinfo=UTC)
EVERY_MINUTE = [
    Cron("* * * * *"),
    Every("1m", anchor=MINUTE),
    At(*(MINUTE + timedelta(minutes=n) for n in range(-5, 6))),
]
ALL_RULES = pytest.mark.parametrize("rule", EVERY_MINUTE, ids=lambda rule: type(rule).__name__)


@ALL_RULES
def test_after_and_before_are_strict_to_the_microsecond(rule: Rule) -> None:
    tick, minute = timedelta(microseconds=1), timedelta(minutes=1)
    assert rule.next(MINUTE) == MINUTE + minute
    assert rule.next(MINUTE - tick) == MINUTE
    assert rule.previous(MINUTE) == MINUTE - minute
    assert rule.previous(MINUTE + tick) == MINUTE


@ALL_RULES
def test_answers_are_in_utc(rule: Rule) -> None:
    after = datetime.fromisoformat("2027-01-01T14:31:30+05:30")
    found = rule.next(after)
    assert found == MINUTE + timedelta(minutes=1)
    assert found.utcoffset() == timedelta(0)


@ALL_RULES
def test_the_latest_instant_is_after_the_first_time_and_up_to_the_second(rule: Rule) -> None:
    after_ms = int(MINUTE.timestamp() * 1000)
    assert rule.latest_ms(after_ms, after_ms + 150_000) == after_ms + 120_000
    assert rule.latest_ms(after_ms, after_ms + 60_000) == after_ms + 60_000
    assert rule.latest_ms(after_ms, after_ms + 59_999) is None


@ALL_RULES
def test_a_naive_datetime_is_refused_by_name(rule: Rule) -> None:
    naive = datetime(2027, 1, 1)  # noqa: DTZ001
    with pytest.raises(OptionError, match=r"^Invalid after "):
        rule.next(naive)
    with pytest.raises(OptionError, match=r"^Invalid after "):
        rule.next_n(1, naive)
    with pytest.raises(OptionError, match=r"^Invalid before "):
        rule.previous(naive)


@ALL_RULES
@pytest.mark.parametrize("n", [-1, 1.5, True, None, "3"])
def test_an_invalid_count_is_refused_by_name(rule: Rule, n: object) -> None:
    with pytest.raises(OptionError, match=r"^Invalid n "):
        rule.next_n(n, MINUTE)  # type: ignore[arg-type]


def test_next_n_returns_as_many_instants_as_requested() -> None:
    assert Cron("0 0 * * *").next_n(0, MINUTE) == []
    days = [datetime(2027, 1, day, tzinfo=UTC) for day in (2, 3, 4)]
    assert Cron("0 0 * * *").next_n(3, MINUTE) == days
    assert Every("1m").next_n(2, instant(0)) == [instant(60_000), instant(120_000)]


class TestUntil:
    GRID = Every(10).with_anchor(0)

    def test_the_end_is_included(self) -> None:
        rule = Until(self.GRID, 30_000)
        assert rule.next_ms(20_000) == 30_000
        assert rule.next_ms(30_000) is None
        assert Until(self.GRID, 29_999).next_ms(20_000) is None

    def test_instants_after_the_end_are_neither_found_nor_counted(self) -> None:
        rule = Until(self.GRID, 30_000)
        assert rule.previous_ms(90_000) == 30_000
        assert rule.previous_ms(30_000) == 20_000
        assert rule.count_between(0, 90_000) == 3

    def test_the_inner_rule_gets_the_anchor_and_the_zone(self) -> None:
        assert Until(Every(10), 90_000).with_anchor(5_000).next_ms(5_000) == 15_000
        berlin = Cron("0 9 * * *", tz="Europe/Berlin")
        assert Until(Cron("0 9 * * *"), 0).with_zone("Europe/Berlin") == Until(berlin, 0)

    def test_it_follows_elapsed_time_if_the_inner_rule_does(self) -> None:
        assert Until(Every(10), 0).follows_elapsed_time
        assert not Until(Cron("0 9 * * *"), 0).follows_elapsed_time

    def test_the_explanation_includes_the_end(self) -> None:
        assert Until(Every(10), 0).explain() == "Every 10 seconds, until 1970-01-01 00:00:00 UTC"
