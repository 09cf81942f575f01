"""Histograms and figures: how exact quantiles are, and that parts add up."""

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tampu.metrics.history import (
    NO_FIGURES,
    Bucket,
    Figures,
    Histogram,
    History,
    Span,
    bound_s,
    bucket_of,
)
from tampu.wire.history import PackedFigures

HOURS_38_US = 38 * 3600 * 1_000_000


def histogram_of(micros: list[int]) -> Histogram:
    counts: dict[int, int] = {}
    for each in micros:
        counts[bucket_of(each)] = counts.get(bucket_of(each), 0) + 1
    return Histogram(counts, sum(micros))


@given(st.integers(1, HOURS_38_US))
def test_a_time_falls_into_the_bucket_whose_bounds_hold_it(micros: int) -> None:
    bucket = bucket_of(micros)
    assert micros <= bound_s(bucket) * 1e6 * 1.000001
    assert bucket == 0 or micros > bound_s(bucket - 1) * 1e6 * 0.999999


@pytest.mark.parametrize("share", [0.5, 0.95, 0.99])
@pytest.mark.parametrize("shape", ["even", "skewed", "two peaks"])
def test_quantiles_are_within_ten_per_cent(share: float, shape: str) -> None:
    rng = Random(1)  # noqa: S311 - the same times in every run
    draw: Callable[[], float] = {
        "even": lambda: rng.uniform(1_000, 50_000),
        "skewed": lambda: rng.lognormvariate(9, 1.5),
        "two peaks": lambda: rng.gauss(2_000, 100) if rng.random() < 0.8 else rng.gauss(9e5, 9e4),
    }[shape]
    times = sorted(max(1, round(draw())) for _ in range(20_000))
    true_s = times[int(share * len(times))] / 1e6
    found = histogram_of(times).quantile(share)
    assert found is not None
    assert abs(found - true_s) / true_s < 0.1


def test_a_histogram_without_times_has_no_quantile_and_no_mean() -> None:
    assert Histogram().quantile(0.5) is None
    assert Histogram().mean_s is None
    assert histogram_of([1_000_000, 3_000_000]).mean_s == 2.0


@given(st.lists(st.integers(0, 10**9), max_size=30), st.lists(st.integers(0, 10**9), max_size=30))
def test_two_histograms_add_up_to_that_of_all_times(one: list[int], other: list[int]) -> None:
    assert histogram_of(one) + histogram_of(other) == histogram_of(one + other)


def test_figures_are_unpacked_and_added_field_by_field() -> None:
    packed = PackedFigures(1, 2, 3, 4, 5, 6, 70, 80, [9, 2], [3, 1, 4, 1])
    figures = Figures.unpack(packed)
    assert figures.run == Histogram({9: 2}, 70)
    assert figures.wait == Histogram({3: 1, 4: 1}, 80)
    twice = figures + figures
    assert (twice.done, twice.failed, twice.retried) == (2, 4, 6)
    assert (twice.dead, twice.snoozed, twice.cancelled) == (8, 10, 12)
    assert (twice.attempts, twice.failure_rate) == (6, 2 / 3)
    assert NO_FIGURES + figures == figures
    assert NO_FIGURES.failure_rate is None


def test_a_history_sums_its_steps_by_task() -> None:
    one, two = Figures(done=1), Figures(done=2, failed=1)
    history = History(
        "q", 60, [Bucket(0, {"a": one}), Bucket(60_000), Bucket(1, {"a": two, "b": one})]
    )
    assert history.tasks == {"a": one + two, "b": one}
    assert history.total.done == 4


def test_each_span_covers_its_time() -> None:
    assert [each.step_s * each.steps for each in Span] == [3600, 86_400, 30 * 86_400]
