"""A rule with an end."""

from tampu.timing import Every
from tampu.timing.rule import Until

GRID = Every(10).anchored(0)
ENDING = Until(GRID, 30_000)


def test_the_end_itself_is_the_last_instant_that_there_can_be() -> None:
    assert ENDING.next_ms(20_000) == 30_000
    assert ENDING.next_ms(30_000) is None
    assert Until(GRID, 29_999).next_ms(20_000) is None


def test_nothing_behind_the_end_is_found_or_counted() -> None:
    assert ENDING.previous_ms(90_000) == 30_000
    assert ENDING.previous_ms(30_000) == 20_000
    assert ENDING.count_between(0, 90_000) == 3


def test_a_rule_without_an_anchor_gets_one() -> None:
    assert Until(Every(10), 90_000).anchored(5_000).next_ms(5_000) == 15_000


def test_it_says_when_it_ends() -> None:
    assert Until(Every(10), 0).explain() == "Every 10 seconds, until 1970-01-01 00:00:00 UTC"
