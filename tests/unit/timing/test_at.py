import pickle
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tampu.errors import OptionError
from tampu.timing import At
from tampu.util.clock import instant

NEW_YEAR = datetime(2027, 1, 1, tzinfo=UTC)


@given(stamps=st.lists(st.integers(-20, 20)), after=st.integers(-25, 25), upto=st.integers(-25, 25))
def test_it_gives_the_instants_and_no_others(stamps: list[int], after: int, upto: int) -> None:
    rule = At(*map(instant, stamps))
    assert rule.next_ms(after) == min((ms for ms in stamps if ms > after), default=None)
    assert rule.previous_ms(after) == max((ms for ms in stamps if ms < after), default=None)
    assert rule.count_between(after, upto) == len({ms for ms in stamps if after < ms <= upto})


def test_instants_are_sorted_and_each_of_them_comes_once() -> None:
    later = NEW_YEAR + timedelta(hours=1)
    same = NEW_YEAR.astimezone(timezone(timedelta(hours=5)))
    rule = At(later, NEW_YEAR, same)
    assert rule.next_n(10, NEW_YEAR - timedelta(days=1)) == [NEW_YEAR, later]
    assert rule == At(NEW_YEAR, later)
    assert hash(rule) == hash(At(NEW_YEAR, later))
    assert pickle.loads(pickle.dumps(rule)) == rule  # noqa: S301


def test_no_instants_are_a_rule_that_never_fires() -> None:
    rule = At()
    assert rule.next(NEW_YEAR) is None
    assert rule.previous(NEW_YEAR) is None
    assert rule.next_n(3, NEW_YEAR) == []
    assert rule.count_between(0, 10**13) == 0


@pytest.mark.parametrize(
    ("rule", "written", "words"),
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
def test_it_reads_as_it_is_written_and_explains_itself(rule: At, written: str, words: str) -> None:
    assert repr(rule) == written
    assert rule.explain() == words


@pytest.mark.parametrize("moment", [datetime(2027, 1, 1), "2027-01-01", 5, None])  # noqa: DTZ001
def test_what_is_no_instant_is_refused(moment: object) -> None:
    with pytest.raises(OptionError, match=r"^Invalid instants "):
        At(NEW_YEAR, moment)  # type: ignore[arg-type]
