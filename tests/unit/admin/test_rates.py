"""Rates are told from two looks and, where there are any, from events."""

from tampu.admin.queues import Counts
from tampu.admin.rates import AttemptRates, QueueSample, Rates, compute_rates


def look(at_ms: int, waiting: int, added: int | None, *, active: int = 0) -> QueueSample:
    return QueueSample(at_ms, Counts(waiting, active, 0, 0, 0), added)


def test_what_was_added_is_counted_by_the_server() -> None:
    before, now = look(0, 10, 100), look(2000, 30, 160)
    assert compute_rates(before, now, AttemptRates(20.0, 1.0)) == Rates(30.0, 20.0, 1.0)


def test_without_events_jobs_that_left_count_as_done() -> None:
    before, now = look(0, 10, 100, active=5), look(2000, 10, 160, active=1)
    assert compute_rates(before, now, None) == Rates(30.0, 32.0, None)


def test_without_server_counters_added_is_left_plus_growth() -> None:
    before, now = look(0, 10, None), look(1000, 14, None)
    assert compute_rates(before, now, AttemptRates(5.0, 1.0)) == Rates(10.0, 5.0, 1.0)
    assert compute_rates(before, now, None) == Rates(None, None, None)


def test_a_first_look_has_nothing_to_compare_with() -> None:
    first = look(0, 10, 100)
    assert compute_rates(first, first, AttemptRates(5.0, 1.0)) == Rates(None, 5.0, 1.0)
    assert compute_rates(first, first, None) == Rates(None, None, None)


def test_a_stream_that_was_removed_in_between_gives_no_negative_rates() -> None:
    before, now = look(0, 10, 100), look(1000, 2, 2)
    assert compute_rates(before, now, None) == Rates(0.0, 8.0, None)
