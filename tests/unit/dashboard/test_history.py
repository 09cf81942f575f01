"""What was recorded, as charts need it."""

import pytest

from tampu.dashboard.history import Period, Quantiles, TrendStep, drain_s, fold, make_trend
from tampu.metrics.history import Bucket, Figures, Histogram, Span
from tampu.wire.history import Gauges


def bucket(at_ms: int, waiting: int | None = None, **done: int) -> Bucket:
    tasks = {name: Figures(done=count, failed=1) for name, count in done.items()}
    gauges = None if waiting is None else Gauges(waiting=waiting, oldest_ms=waiting * 10)
    return Bucket(at_ms, tasks, gauges, gauges)


def test_neighbouring_steps_become_one() -> None:
    step = TrendStep.of([bucket(0, 5, a=1, b=2), bucket(60_000, 9, a=3), bucket(120_000, 2)])
    assert step.at_ms == 0
    assert step.tasks["a"].done == 4
    assert step.total.done == 6
    assert (step.waiting, step.left, step.oldest_ms) == (9, 2, 90)


def test_a_step_without_gauges_has_a_gap() -> None:
    step = TrendStep.of([bucket(0, a=1)])
    assert (step.waiting, step.left, step.oldest_ms) == (None, None, None)


def test_queues_are_added_up() -> None:
    both = TrendStep.of([bucket(0, 5, a=1)]) + TrendStep.of([bucket(0, 7, a=10)])
    assert both.total.done == 11
    assert (both.waiting, both.left, both.oldest_ms) == (12, 12, 70)
    assert not both.tasks
    assert (both + TrendStep.of([bucket(0)])).waiting == 12


def test_a_trend_lists_the_busiest_tasks_first() -> None:
    steps = [TrendStep.of([bucket(place * 60_000, a=1, b=5)]) for place in range(3)]
    trend = make_trend(steps, Period.of(Span.HOUR))
    assert [task.name for task in trend.tasks] == ["b", "a"]
    assert trend.tasks[0].done == 15
    assert trend.tasks[0].failure_rate == pytest.approx(3 / 18)
    assert trend.total.ended == [8, 8, 8]
    assert trend.done == [6, 6, 6]
    assert trend.failed == [2, 2, 2]


def test_a_rate_counts_from_the_first_attempt_on() -> None:
    steps = [TrendStep.of([bucket(0)]), TrendStep.of([bucket(60_000, a=59)])]
    assert make_trend(steps, Period.of(Span.HOUR)).total.per_s == pytest.approx(1.0)


def test_nothing_recorded_is_nothing_and_not_an_error() -> None:
    trend = make_trend([], Period.of(Span.DAY))
    assert trend.total.per_s == 0
    assert trend.total.failure_rate is None
    assert trend.total.wait == Quantiles()


def test_run_times_are_folded_to_powers_of_two() -> None:
    assert fold(Histogram({0: 1, 1: 2, 4: 3, 5: 4, 8: 5})) == {0: 1, 1: 5, 2: 9}


@pytest.mark.parametrize(
    ("backlog", "waiting", "left_s"),
    [
        ([100, 90, 80, 70, 60], 60, 60 / 40 * 240),
        ([500, 100, 90, 80, 70, 60], 60, 60 / 40 * 240),  # what was before says little
        ([60, 70, 80, 90, 100], 100, None),
        ([100, 100, 100, 100, 100], 100, None),
        ([100], 100, None),
        ([None, None], 100, None),
        ([100, 50], 0, 0.0),
    ],
)
def test_a_backlog_is_gone_when_it_goes_on_shrinking(
    backlog: list[int | None], waiting: int, left_s: float | None
) -> None:
    steps = [TrendStep.of([bucket(place * 60_000, each)]) for place, each in enumerate(backlog)]
    assert drain_s(make_trend(steps, Period.of(Span.HOUR)), waiting) == pytest.approx(left_s)


NOW_S = 1_800_000_000
HOUR_S, DAY_S = 3600, 86_400


@pytest.mark.parametrize(
    ("ago_s", "long_s", "step_s"),
    [
        (HOUR_S, 600, 60),
        (23 * HOUR_S, 2 * HOUR_S, 60),
        (23 * HOUR_S, 4 * HOUR_S, 600),
        (25 * HOUR_S - 60, HOUR_S, 600),
        (3 * DAY_S, 600, HOUR_S),
        (30 * DAY_S, 6 * DAY_S, HOUR_S),
        (30 * DAY_S, 29 * DAY_S, 6 * HOUR_S),
    ],
)
def test_a_chosen_time_has_the_finest_steps_that_are_kept_and_fit(
    ago_s: int, long_s: int, step_s: int
) -> None:
    start = NOW_S - ago_s
    period = Period.choose(range(start, start + long_s), NOW_S)
    assert period.step_s == step_s
    numbers = period.numbers(NOW_S)
    assert len(numbers) <= 151
    assert numbers[0] * step_s <= start < (numbers[0] + 1) * step_s
    assert numbers[-1] * step_s < start + long_s <= (numbers[-1] + 1) * step_s


def test_a_span_ends_with_the_step_of_now() -> None:
    for span in Span:
        period = Period.of(span)
        numbers = period.numbers(NOW_S)
        assert numbers[-1] == NOW_S // period.step_s
        assert len(numbers) * period.step_s == span.steps * span.step_s
