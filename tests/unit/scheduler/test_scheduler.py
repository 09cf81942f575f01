"""A running scheduler: instants, windows, limits, functions and reports."""

import asyncio
import threading
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tampu.scheduler import RunCompleted, RunStatus, SkipReason, StopReason, TaskRun
from tampu.timing import At, Cron, Every, Missed, TimeWindow
from tampu.util.clock import instant
from tests.unit.scheduler.harness import SOON, Harness, HeldFunction, finish, minutes, task
from tests.unit.scheduler.plans import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    START,
    START_MS,
    limit_option,
    ms,
    nothing,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("no_leftovers")


class TestInstants:
    async def test_an_interval_first_fires_one_interval_later_and_then_on_its_grid(self) -> None:
        harness = Harness()
        running = await harness.start_run(task(nothing, Every("5s"), max_runs=4))
        await harness.turn(4999)
        assert harness.log.started == []
        await harness.turn(1)
        assert harness.log.started == [5000]
        await harness.turn(15_000)
        report = await finish(running)
        assert harness.log.started == [5000, 10_000, 15_000, 20_000]
        assert [record.at_ms - START_MS for record in report.history] == harness.log.started

    async def test_a_late_run_does_not_shift_the_grid(self) -> None:
        harness = Harness()
        running = await harness.start_run(task(nothing, max_runs=3))
        await harness.leap(MINUTE + 45 * SECOND)
        await harness.turn(MINUTE + 15 * SECOND)
        report = await finish(running)
        assert harness.log.started == minutes([1, 2, 3])
        assert report.history[0].started_ms == START_MS + MINUTE + 45 * SECOND

    async def test_listed_instants_run_once_in_order_and_then_the_task_ends(self) -> None:
        harness = Harness()
        rule = At(*(START + timedelta(minutes=n) for n in (3, 1, 3)))
        running = await harness.start_run(task(nothing, rule))
        await harness.turn(3 * MINUTE)
        report = await finish(running)
        assert harness.log.started == minutes([1, 3])
        assert report.stopped is StopReason.TERMINAL

    async def test_a_listed_instant_in_the_past_is_missed(self) -> None:
        harness = Harness()
        rule = At(START - timedelta(hours=2), START - timedelta(hours=1))
        report = await finish(asyncio.ensure_future(harness.scheduler.run(task(nothing, rule))))
        assert harness.log.skipped == [(SkipReason.MISSED, -2 * HOUR, 1)]
        assert harness.log.started == [-HOUR]
        assert report.history[0].catch_up

    async def test_a_task_without_instants_ends_at_once(self) -> None:
        harness = Harness()
        report = await finish(asyncio.ensure_future(harness.scheduler.run(task(nothing, At()))))
        assert (report.history, report.stopped) == ((), StopReason.TERMINAL)
        assert harness.log.kinds == ["StateLoaded", "TaskStopped"]

    async def test_a_cron_rule_uses_the_zone_of_the_scheduler(self) -> None:
        harness = Harness(timezone="America/New_York")  # midnight UTC is 20:00 there
        running = await harness.start_run(task(nothing, Cron("30 20 * * *"), max_runs=1))
        await harness.turn(30 * MINUTE)
        await finish(running)
        assert harness.log.started == [30 * MINUTE]

    async def test_a_cron_rule_uses_its_own_zone_if_it_has_one(self) -> None:
        harness = Harness(timezone="America/New_York")
        rule = Cron("30 9 * * *", tz="Asia/Tokyo")  # midnight UTC is 09:00 there
        running = await harness.start_run(task(nothing, rule, max_runs=1))
        await harness.turn(30 * MINUTE)
        await finish(running)
        assert harness.log.started == [30 * MINUTE]

    async def test_the_default_zone_is_utc(self) -> None:
        harness = Harness()
        running = await harness.start_run(task(nothing, Cron("15 0 * * *"), max_runs=1))
        await harness.turn(15 * MINUTE)
        await finish(running)
        assert harness.log.started == [15 * MINUTE]

    async def test_cron_weekdays_are_numbered_from_sunday(self) -> None:
        harness = Harness()
        running = await harness.start_run(task(nothing, Cron("0 0 * * 1-5"), max_runs=2))
        await harness.leap(2 * DAY)  # from Saturday to Monday
        await harness.leap(DAY)
        await finish(running)
        assert harness.log.started == [2 * DAY, 3 * DAY]

    async def test_a_staggered_interval_has_the_same_phase_in_every_scheduler(self) -> None:
        started = []
        for later_ms in (0, 777):
            harness = Harness()
            harness.clock.turn(ms(later_ms))
            running = await harness.start_run(task(nothing, stagger=True, max_runs=2))
            await harness.turn(2 * MINUTE)
            await finish(running)
            started.append(harness.log.started)
        assert started[0] == started[1]
        assert started[0][1] - started[0][0] == MINUTE

    async def test_an_aligned_interval_waits_for_the_window_to_open(self) -> None:
        harness = Harness()
        window = TimeWindow(segments=[("01:00", "01:30")])
        each = task(nothing, Every("20m"), window=window, align=True, max_runs=3)
        running = await harness.start_run(each)
        for by_ms in (HOUR - 1, 1, 20 * MINUTE, 20 * MINUTE, 23 * HOUR + 20 * MINUTE):
            await harness.leap(by_ms)
        await finish(running)
        assert harness.log.started == [HOUR, HOUR + 20 * MINUTE, 25 * HOUR]

    async def test_a_run_with_jitter_is_late_and_keeps_its_instant(self) -> None:
        harness = Harness()
        running = await harness.start_run(task(nothing, jitter="30s", max_runs=3))
        await harness.turn(4 * MINUTE)
        report = await finish(running)
        assert harness.log.started == minutes([1, 2, 3])
        late = [record.started_ms - record.at_ms for record in report.history]
        assert all(0 <= each < 30 * SECOND for each in late)
        assert len(set(late)) == 3
        assert not any(record.catch_up for record in report.history)


class TestWindow:
    async def test_an_occurrence_outside_the_window_is_skipped(self) -> None:
        harness = Harness()
        window = TimeWindow(segments=[("00:02", "00:04")])
        running = await harness.start_run(task(nothing, window=window, max_fires=5))
        await harness.turn(5 * MINUTE)
        report = await finish(running)
        outside = SkipReason.OUTSIDE_WINDOW
        assert harness.log.started == minutes([2, 3]), "it includes its start and excludes its end"
        assert harness.log.skipped == [(outside, n * MINUTE, 1) for n in (1, 4, 5)]
        assert report.last_skip_reason is outside
        assert len(report.history) == 2, "skipped occurrences are not in the history"
        assert (report.state.fired, report.state.ran, report.state.skipped) == (5, 2, 3)

    @pytest.mark.parametrize(
        ("window", "runs"),
        [
            (TimeWindow(segments=[("20:00", "20:05")]), True),  # the scheduler's zone
            (TimeWindow(tz="UTC", segments=[("20:00", "20:05")]), False),
            (TimeWindow(tz="Asia/Tokyo", segments=[("09:00", "09:05")]), True),
        ],
    )
    async def test_a_window_uses_its_own_zone_or_that_of_the_scheduler(
        self, window: TimeWindow, *, runs: bool
    ) -> None:
        harness = Harness(timezone="America/New_York")
        running = await harness.start_run(task(nothing, window=window, max_fires=1))
        await harness.turn(MINUTE)
        await finish(running)
        assert bool(harness.log.started) is runs

    async def test_the_window_is_checked_when_the_run_would_start(self) -> None:
        harness = Harness()
        window = TimeWindow(segments=[("00:00", "00:02")])
        each = task(nothing, window=window, max_fires=1, missed=Missed.ONCE.within(grace="1h"))
        running = await harness.start_run(each)
        await harness.leap(2 * MINUTE + 1)
        await finish(running)
        assert harness.log.skipped == [(SkipReason.OUTSIDE_WINDOW, MINUTE, 1)]


class TestLimits:
    async def test_max_fires_counts_skipped_occurrences_too(self) -> None:
        harness = Harness()
        running = await harness.start_run(task(nothing, max_fires=3, missed=Missed.SKIP))
        await harness.leap(3 * MINUTE + 61 * SECOND)
        report = await finish(running)
        assert (report.state.fired, report.state.ran) == (3, 0)
        assert report.stopped is StopReason.TERMINAL

    async def test_max_runs_counts_only_runs(self) -> None:
        harness = Harness()
        running = await harness.start_run(task(nothing, max_runs=2))
        await harness.leap(3 * MINUTE)
        await harness.turn(MINUTE)
        report = await finish(running)
        assert (report.state.fired, report.state.ran, report.state.skipped) == (4, 2, 2)
        assert harness.log.started == minutes([3, 4])

    @pytest.mark.parametrize("limit", ["max_runs", "max_fires"])
    async def test_a_limit_of_0_ends_the_task_at_once(self, limit: str) -> None:
        harness = Harness()
        report = await finish(
            asyncio.ensure_future(harness.scheduler.run(task(nothing, **limit_option(limit, 0))))
        )
        assert (report.state.fired, report.state.ran, report.history) == (0, 0, ())

    async def test_a_failed_run_counts_towards_max_runs(self) -> None:
        def fails(run: object) -> None:
            raise ValueError(run)

        harness = Harness()
        running = await harness.start_run(task(fails, max_runs=2))
        await harness.turn(2 * MINUTE)
        report = await finish(running)
        assert (report.state.ran, report.state.failed) == (2, 2)


class TestFunctions:
    async def test_a_run_has_its_instant_its_zone_and_its_dependencies(self) -> None:
        seen: list[TaskRun[dict[str, int]]] = []
        deps = {"answer": 42}
        harness = Harness(timezone="Europe/Berlin")
        running = await harness.start_run(task(seen.append, deps=deps, max_runs=2))
        await harness.turn(MINUTE)
        await harness.leap(3 * MINUTE)
        await finish(running)
        first, second = seen
        assert first.deps is deps
        assert (first.task_id, first.catch_up, first.manual) == ("t", False, False)
        assert first.scheduled_at == START + timedelta(minutes=1)
        assert first.scheduled_at.tzinfo == ZoneInfo("Europe/Berlin")
        assert first.started_ms == START_MS + MINUTE
        assert (second.at_ms, second.catch_up) == (START_MS + 4 * MINUTE, True)

    async def test_a_plain_function_runs_on_the_loop(self) -> None:
        seen = []
        harness = Harness()
        each = task(lambda run: seen.append((run, threading.get_ident())), max_runs=1)
        running = await harness.start_run(each)
        await harness.turn(MINUTE)
        await finish(running)
        assert [ident for _, ident in seen] == [threading.get_ident()]

    async def test_a_blocking_function_runs_in_a_thread_and_the_loop_continues(self) -> None:
        seen, go_on = [], threading.Event()

        def blocks(run: TaskRun[Any]) -> None:
            seen.append(threading.get_ident())
            assert go_on.wait(SOON)
            seen.append(run.at_ms)

        harness = Harness()
        others: list[TaskRun[Any]] = []
        async with harness.scheduler as scheduler:
            scheduler.add(task(blocks, id="blocks", blocking=True, max_runs=1))
            scheduler.add(task(others.append, Every("10s"), max_runs=9))
            await harness.turn(90 * SECOND)
            assert len(others) == 9, "other tasks continue"
            go_on.set()
            reports = await asyncio.wait_for(scheduler.serve(), SOON)
        assert seen[0] != threading.get_ident()
        assert seen[1] == START_MS + MINUTE
        assert reports["blocks"].history[0].status is RunStatus.SUCCESS

    async def test_a_lambda_around_an_async_function_is_awaited(self) -> None:
        function, harness = HeldFunction(), Harness()
        each = task(lambda run: function(run) if run.deps else None, deps=1, max_runs=1)
        running = await harness.start_run(each)
        await harness.turn(MINUTE)
        assert function.active == 1
        function.release()
        report = await finish(running)
        assert report.history[0].status is RunStatus.SUCCESS

    @pytest.mark.parametrize("kind", ["plain", "async", "blocking"])
    async def test_a_failed_run_is_recorded_and_the_task_continues(self, kind: str) -> None:
        def fails(run: TaskRun[Any]) -> None:
            if run.at_ms == START_MS + MINUTE:
                raise KeyError("what")

        async def fails_later(run: TaskRun[Any]) -> None:
            await asyncio.sleep(0)
            fails(run)

        harness = Harness()
        function = fails_later if kind == "async" else fails
        each = task(function, blocking=kind == "blocking", max_runs=2)
        running = await harness.start_run(each)
        await harness.turn(MINUTE)
        await wait_until(
            lambda: len(harness.log.ended) == 1, within=SOON, sentence="a run has ended"
        )
        await harness.turn(MINUTE)
        report = await finish(running)
        assert [record.status for record in report.history] == [
            RunStatus.FAILED,
            RunStatus.SUCCESS,
        ]
        assert report.history[0].error == "KeyError: 'what'"
        assert (report.state.failed, report.state.last_error) == (1, None)

    async def test_a_long_error_is_shortened(self) -> None:
        def fails(run: object) -> None:
            del run
            raise ValueError("x" * 100_000)

        harness = Harness()
        running = await harness.start_run(task(fails, max_runs=1))
        await harness.turn(MINUTE)
        report = await finish(running)
        assert len(report.history[0].error or "") == 1000

    async def test_a_stop_iteration_in_a_thread_is_a_failure(self) -> None:
        def stops(run: object) -> None:
            del run
            next(iter(()))

        harness = Harness()
        running = await harness.start_run(task(stops, blocking=True, max_runs=1))
        await harness.turn(MINUTE)
        report = await finish(running)
        assert report.history[0].error == "RuntimeError: the function raised StopIteration"


class TestReport:
    async def test_last_run_is_its_start_and_last_success_its_end(self) -> None:
        function = HeldFunction()
        harness = Harness()
        running = await harness.start_run(task(function, max_runs=1))
        await harness.turn(MINUTE)
        await harness.turn(7 * SECOND)
        function.release()
        report = await finish(running)
        assert report.state.last_run_at == instant(START_MS + MINUTE)
        assert report.state.last_success_at == instant(START_MS + MINUTE + 7 * SECOND)
        record = report.history[0]
        assert record.scheduled_at == record.started_at == instant(START_MS + MINUTE)
        assert record.finished_at == instant(START_MS + MINUTE + 7 * SECOND)

    async def test_the_last_error_stays_until_the_next_success(self) -> None:
        def fails_twice(run: TaskRun[Any]) -> None:
            if run.at_ms < START_MS + 3 * MINUTE:
                raise RuntimeError(run.at_ms - START_MS)

        harness = Harness()
        async with harness.scheduler as scheduler:
            handle = scheduler.add(task(fails_twice))
            await harness.turn(2 * MINUTE)
            state = handle.report().state
            assert state.last_error == "RuntimeError: 120000"
            assert (state.last_success_at, state.last_run_ms) == (None, START_MS + 2 * MINUTE)
            await harness.turn(MINUTE)
            state = handle.report().state
            assert (state.last_error, state.last_success_ms) == (None, START_MS + 3 * MINUTE)

    @pytest.mark.parametrize(("history", "kept"), [(0, []), (2, [4, 5]), (32, [1, 2, 3, 4, 5])])
    async def test_the_newest_records_are_kept(self, history: int, kept: list[int]) -> None:
        harness = Harness(history=history)
        running = await harness.start_run(task(nothing, max_runs=5))
        await harness.turn(5 * MINUTE)
        report = await finish(running)
        assert [record.at_ms - START_MS for record in report.history] == minutes(kept)
        assert report.state.ran == 5

    async def test_a_report_is_available_at_any_time(self) -> None:
        harness = Harness()
        async with harness.scheduler as scheduler:
            handle = scheduler.add(task(nothing))
            assert handle.report().state.next_ms is None, "its state is not loaded yet"
            await harness.turn(MINUTE)
            report = scheduler.handle("t").report()
            assert (report.task_id, report.stopped, report.state.ran) == ("t", None, 1)
            assert report.state.next_at == instant(START_MS + 2 * MINUTE)
            assert harness.log.of(RunCompleted)[0].scheduled_at == START + timedelta(minutes=1)
