"""What all rules have in common."""

from datetime import UTC, datetime, timedelta

import pytest

from tampu.errors import OptionError
from tampu.timing import At, Cron, Every, Rule
from tampu.timing.rule import Around
from tampu.util.clock import instant

MINUTE = datetime(2027, 1, 1, 9, 1, tzinfo=UTC)
EVERY_MINUTE = [
    Cron("* * * * *"),
    Every("1m", anchor=MINUTE),
    At(*(MINUTE + timedelta(minutes=n) for n in range(-5, 6))),
]
OPTIONS = pytest.mark.parametrize("rule", EVERY_MINUTE, ids=lambda rule: type(rule).__name__)


@OPTIONS
def test_after_and_before_are_strict_to_the_microsecond(rule: Rule) -> None:
    tick, minute = timedelta(microseconds=1), timedelta(minutes=1)
    assert rule.next(MINUTE) == MINUTE + minute
    assert rule.next(MINUTE - tick) == MINUTE
    assert rule.previous(MINUTE) == MINUTE - minute
    assert rule.previous(MINUTE + tick) == MINUTE


@OPTIONS
def test_answers_are_in_utc_whatever_the_question_was_in(rule: Rule) -> None:
    after = datetime.fromisoformat("2027-01-01T14:31:30+05:30")
    found = rule.next(after)
    assert found == MINUTE + timedelta(minutes=1)
    assert found.utcoffset() == timedelta(0)


@OPTIONS
def test_the_last_and_the_next_are_found_without_those_in_between(rule: Rule) -> None:
    after_ms = int(MINUTE.timestamp() * 1000)
    assert rule.first_after_many(after_ms, after_ms + 150_000) == Around(
        after_ms + 120_000, after_ms + 180_000
    )
    assert rule.first_after_many(after_ms, after_ms + 60_000).last_ms == after_ms + 60_000
    assert rule.first_after_many(after_ms, after_ms + 59_999) == Around(None, after_ms + 60_000)


@OPTIONS
def test_naive_datetimes_are_refused_by_name(rule: Rule) -> None:
    naive = datetime(2027, 1, 1)  # noqa: DTZ001
    with pytest.raises(OptionError, match=r"^Invalid after "):
        rule.next(naive)
    with pytest.raises(OptionError, match=r"^Invalid after "):
        rule.next_n(1, naive)
    with pytest.raises(OptionError, match=r"^Invalid before "):
        rule.previous(naive)


@OPTIONS
@pytest.mark.parametrize("n", [-1, 1.5, True, None, "3"])
def test_a_count_that_is_none_is_refused(rule: Rule, n: object) -> None:
    with pytest.raises(OptionError, match=r"^Invalid n "):
        rule.next_n(n, MINUTE)  # type: ignore[arg-type]


def test_as_many_are_shown_as_were_asked_for() -> None:
    assert Cron("0 0 * * *").next_n(0, MINUTE) == []
    days = [datetime(2027, 1, day, tzinfo=UTC) for day in (2, 3, 4)]
    assert Cron("0 0 * * *").next_n(3, MINUTE) == days
    assert Every("1m").next_n(2, instant(0)) == [instant(60_000), instant(120_000)]
