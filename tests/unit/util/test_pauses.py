"""Pauses that grow."""

from random import Random

from tampu.util.pauses import Pauses


def test_pauses_double_up_to_the_longest_and_start_again_after_a_reset() -> None:
    pauses = Pauses(0.25, 2.0)
    assert [pauses.next_s() for _ in range(6)] == [0.25, 0.5, 1.0, 2.0, 2.0, 2.0]
    pauses.reset()
    assert pauses.next_s() == 0.25


def test_the_number_of_pauses_has_no_limit() -> None:
    pauses = Pauses(0.01, 0.25)
    assert [pauses.next_s() for _ in range(5000)][-1] == 0.25


def test_the_first_pause_can_be_skipped_and_still_counts() -> None:
    pauses = Pauses(1.0, 8.0)
    assert [pauses.next_s(skip_first=True) for _ in range(3)] == [0.0, 2.0, 4.0]


def test_spread_pauses_stay_between_half_and_all_of_their_length() -> None:
    firsts = []
    for seed in range(200):
        pauses = Pauses(1.0, 4.0, spread=Random(seed))  # noqa: S311 - a test
        firsts.append(pauses.next_s())
        for ceiling in (2.0, 4.0, 4.0):
            assert ceiling / 2 <= pauses.next_s() <= ceiling
    assert 0.0 <= min(firsts) < 0.1
    assert 0.9 < max(firsts) <= 1.0
