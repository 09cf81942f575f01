"""The loop: instants, windows, limits, functions, and what the report says. Spec A2 to A11."""

import asyncio
import threading
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tampu.scheduler import RunCompleted, RunStatus, SkipReason, StopReason, TaskRun
from tampu.timing import At, Cron, Every, Missed, TimeWindow
from tampu.util.clock import instant
from tests.unit.scheduler.clocks import SOON, Function, House, ended, minutes, task
from tests.unit.scheduler.plans import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    START,
    START_MS,
    limited,
    ms,
    nothing,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("nothing_is_left")


class TestInstants:
    async def test_a3_an_interval_fires_first_when_it_has_passed_and_then_on_its_grid(self) -> None:
        house = House()
        running = await house.run_beside(task(nothing, Every("5s"), max_runs=4))
        await house.turn(4999)
        assert house.notes.begun == []
        await house.turn(1)
        assert house.notes.begun == [5000]
        await house.turn(15_000)
        report = await ended(running)
        assert house.notes.begun == [5000, 10_000, 15_000, 20_000]
        assert [record.at_ms - START_MS for record in report.history] == house.notes.begun

    async def test_a3_lateness_does_not_shift_the_grid(self) -> None:
        house = House()
        running = await house.run_beside(task(nothing, max_runs=3))
        await house.leap(MINUTE + 45 * SECOND)
        await house.turn(MINUTE + 15 * SECOND)
        report = await ended(running)
        assert house.notes.begun == minutes([1, 2, 3])
        assert report.history[0].started_ms == START_MS + MINUTE + 45 * SECOND

    async def test_a3_instants_run_in_order_each_once_and_then_it_is_over(self) -> None:
        house = House()
        rule = At(*(START + timedelta(minutes=n) for n in (3, 1, 3)))
        running = await house.run_beside(task(nothing, rule))
        await house.turn(3 * MINUTE)
        report = await ended(running)
        assert house.notes.begun == minutes([1, 3])
        assert report.stopped is StopReason.TERMINAL

    async def test_a3_an_instant_that_is_past_at_the_start_is_missed(self) -> None:
        house = House()
        rule = At(START - timedelta(hours=2), START - timedelta(hours=1))
        report = await ended(asyncio.ensure_future(house.scheduler.run(task(nothing, rule))))
        assert house.notes.skipped == [(SkipReason.MISSED, -2 * HOUR, 1)]
        assert house.notes.begun == [-HOUR]
        assert report.history[0].catch_up

    async def test_a3_no_instants_are_nothing_to_do(self) -> None:
        house = House()
        report = await ended(asyncio.ensure_future(house.scheduler.run(task(nothing, At()))))
        assert (report.history, report.stopped) == ((), StopReason.TERMINAL)
        assert house.notes.kinds == ["StateLoaded", "TaskStopped"]

    async def test_a2_cron_goes_by_the_schedulers_zone(self) -> None:
        house = House(timezone="America/New_York")  # midnight UTC is 20:00 there
        running = await house.run_beside(task(nothing, Cron("30 20 * * *"), max_runs=1))
        await house.turn(30 * MINUTE)
        await ended(running)
        assert house.notes.begun == [30 * MINUTE]

    async def test_a2_cron_with_a_zone_of_its_own_goes_by_that(self) -> None:
        house = House(timezone="America/New_York")
        rule = Cron("30 9 * * *", tz="Asia/Tokyo")  # midnight UTC is 09:00 there
        running = await house.run_beside(task(nothing, rule, max_runs=1))
        await house.turn(30 * MINUTE)
        await ended(running)
        assert house.notes.begun == [30 * MINUTE]

    async def test_a15_9_the_zone_is_utc_unless_it_is_given(self) -> None:
        house = House()
        running = await house.run_beside(task(nothing, Cron("15 0 * * *"), max_runs=1))
        await house.turn(15 * MINUTE)
        await ended(running)
        assert house.notes.begun == [15 * MINUTE]

    async def test_a15_3_weekdays_of_cron_are_the_standard_ones(self) -> None:
        house = House()
        running = await house.run_beside(task(nothing, Cron("0 0 * * 1-5"), max_runs=2))
        await house.leap(2 * DAY)  # from Saturday to Monday
        await house.leap(DAY)
        await ended(running)
        assert house.notes.begun == [2 * DAY, 3 * DAY]

    async def test_a14_a_staggered_interval_has_the_same_phase_in_every_scheduler(self) -> None:
        begun = []
        for later_ms in (0, 777):
            house = House()
            house.clock.turn(ms(later_ms))
            running = await house.run_beside(task(nothing, stagger=True, max_runs=2))
            await house.turn(2 * MINUTE)
            await ended(running)
            begun.append(house.notes.begun)
        assert begun[0] == begun[1]
        assert begun[0][1] - begun[0][0] == MINUTE

    async def test_a14_an_aligned_interval_waits_for_the_window_to_open(self) -> None:
        house = House()
        window = TimeWindow(segments=[("01:00", "01:30")])
        each = task(nothing, Every("20m"), window=window, align=True, max_runs=3)
        running = await house.run_beside(each)
        for by_ms in (HOUR - 1, 1, 20 * MINUTE, 20 * MINUTE, 23 * HOUR + 20 * MINUTE):
            await house.leap(by_ms)
        await ended(running)
        assert house.notes.begun == [HOUR, HOUR + 20 * MINUTE, 25 * HOUR]

    async def test_a_jittered_run_is_late_and_keeps_its_instant(self) -> None:
        house = House()
        running = await house.run_beside(task(nothing, jitter="30s", max_runs=3))
        await house.turn(4 * MINUTE)
        report = await ended(running)
        assert house.notes.begun == minutes([1, 2, 3])
        late = [record.started_ms - record.at_ms for record in report.history]
        assert all(0 <= each < 30 * SECOND for each in late)
        assert len(set(late)) == 3
        assert not any(record.catch_up for record in report.history)


class TestWindow:
    async def test_a7_outside_of_it_nothing_runs_and_the_occurrence_is_spent(self) -> None:
        house = House()
        window = TimeWindow(segments=[("00:02", "00:04")])
        running = await house.run_beside(task(nothing, window=window, max_fires=5))
        await house.turn(5 * MINUTE)
        report = await ended(running)
        outside = SkipReason.OUTSIDE_WINDOW
        assert house.notes.begun == minutes([2, 3]), "it holds its start and not its end"
        assert house.notes.skipped == [(outside, n * MINUTE, 1) for n in (1, 4, 5)]
        assert report.last_skip_reason is outside
        assert len(report.history) == 2, "what did not run is no history"
        assert (report.state.fired, report.state.ran, report.state.skipped) == (5, 2, 3)

    @pytest.mark.parametrize(
        ("window", "runs"),
        [
            (TimeWindow(segments=[("20:00", "20:05")]), True),  # the scheduler's zone
            (TimeWindow(tz="UTC", segments=[("20:00", "20:05")]), False),
            (TimeWindow(tz="Asia/Tokyo", segments=[("09:00", "09:05")]), True),
        ],
    )
    async def test_a7_it_goes_by_its_own_zone_or_else_by_the_schedulers(
        self, window: TimeWindow, *, runs: bool
    ) -> None:
        house = House(timezone="America/New_York")
        running = await house.run_beside(task(nothing, window=window, max_fires=1))
        await house.turn(MINUTE)
        await ended(running)
        assert bool(house.notes.begun) is runs

    async def test_a7_it_is_looked_at_when_the_run_would_begin(self) -> None:
        house = House()
        window = TimeWindow(segments=[("00:00", "00:02")])
        each = task(nothing, window=window, max_fires=1, missed=Missed.ONCE.within(grace="1h"))
        running = await house.run_beside(each)
        await house.leap(2 * MINUTE + 1)
        await ended(running)
        assert house.notes.skipped == [(SkipReason.OUTSIDE_WINDOW, MINUTE, 1)]


class TestLimits:
    async def test_a4_max_fires_counts_what_did_not_run_as_well(self) -> None:
        house = House()
        running = await house.run_beside(task(nothing, max_fires=3, missed=Missed.SKIP))
        await house.leap(3 * MINUTE + 61 * SECOND)
        report = await ended(running)
        assert (report.state.fired, report.state.ran) == (3, 0)
        assert report.stopped is StopReason.TERMINAL

    async def test_a15_8_max_runs_counts_runs_only(self) -> None:
        house = House()
        running = await house.run_beside(task(nothing, max_runs=2))
        await house.leap(3 * MINUTE)
        await house.turn(MINUTE)
        report = await ended(running)
        assert (report.state.fired, report.state.ran, report.state.skipped) == (4, 2, 2)
        assert house.notes.begun == minutes([3, 4])

    @pytest.mark.parametrize("limit", ["max_runs", "max_fires"])
    async def test_a4_with_a_limit_of_none_it_is_over_at_once(self, limit: str) -> None:
        house = House()
        report = await ended(
            asyncio.ensure_future(house.scheduler.run(task(nothing, **limited(limit, 0))))
        )
        assert (report.state.fired, report.state.ran, report.history) == (0, 0, ())

    async def test_a_run_that_fails_is_a_run(self) -> None:
        def fails(run: object) -> None:
            raise ValueError(run)

        house = House()
        running = await house.run_beside(task(fails, max_runs=2))
        await house.turn(2 * MINUTE)
        report = await ended(running)
        assert (report.state.ran, report.state.failed) == (2, 2)


class TestFunctions:
    async def test_a11_a_run_knows_what_it_is_and_gets_what_it_needs(self) -> None:
        seen: list[TaskRun[dict[str, int]]] = []
        deps = {"answer": 42}
        house = House(timezone="Europe/Berlin")
        running = await house.run_beside(task(seen.append, deps=deps, max_runs=2))
        await house.turn(MINUTE)
        await house.leap(3 * MINUTE)
        await ended(running)
        first, second = seen
        assert first.deps is deps
        assert (first.task_id, first.catch_up, first.manual) == ("t", False, False)
        assert first.scheduled_at == START + timedelta(minutes=1)
        assert first.scheduled_at.tzinfo == ZoneInfo("Europe/Berlin")
        assert first.started_ms == START_MS + MINUTE
        assert (second.at_ms, second.catch_up) == (START_MS + 4 * MINUTE, True)

    async def test_a11_a_plain_function_runs_on_the_loop(self) -> None:
        seen = []
        house = House()
        each = task(lambda run: seen.append((run, threading.get_ident())), max_runs=1)
        running = await house.run_beside(each)
        await house.turn(MINUTE)
        await ended(running)
        assert [ident for _, ident in seen] == [threading.get_ident()]

    async def test_a11_a_blocking_function_runs_in_a_thread_and_the_loop_goes_on(self) -> None:
        seen, go_on = [], threading.Event()

        def blocks(run: TaskRun[Any]) -> None:
            seen.append(threading.get_ident())
            assert go_on.wait(SOON)
            seen.append(run.at_ms)

        house = House()
        others: list[TaskRun[Any]] = []
        async with house.scheduler as scheduler:
            scheduler.add(task(blocks, id="blocks", blocking=True, max_runs=1))
            scheduler.add(task(others.append, Every("10s"), max_runs=9))
            await house.turn(90 * SECOND)
            assert len(others) == 9, "the others had their turns"
            go_on.set()
            reports = await asyncio.wait_for(scheduler.serve(), SOON)
        assert seen[0] != threading.get_ident()
        assert seen[1] == START_MS + MINUTE
        assert reports["blocks"].history[0].status is RunStatus.SUCCESS

    async def test_a_lambda_around_an_async_function_is_awaited(self) -> None:
        function, house = Function(), House()
        each = task(lambda run: function(run) if run.deps else None, deps=1, max_runs=1)
        running = await house.run_beside(each)
        await house.turn(MINUTE)
        assert function.active == 1
        function.let_go()
        report = await ended(running)
        assert report.history[0].status is RunStatus.SUCCESS

    @pytest.mark.parametrize("kind", ["plain", "async", "blocking"])
    async def test_a11_one_that_fails_is_told_and_goes_on(self, kind: str) -> None:
        def fails(run: TaskRun[Any]) -> None:
            if run.at_ms == START_MS + MINUTE:
                raise KeyError("what")

        async def fails_later(run: TaskRun[Any]) -> None:
            await asyncio.sleep(0)
            fails(run)

        house = House()
        function = fails_later if kind == "async" else fails
        each = task(function, blocking=kind == "blocking", max_runs=2)
        running = await house.run_beside(each)
        await house.turn(MINUTE)
        await wait_until(lambda: len(house.notes.ended) == 1, within=SOON, sentence="it ends")
        await house.turn(MINUTE)
        report = await ended(running)
        assert [record.status for record in report.history] == [
            RunStatus.FAILED,
            RunStatus.SUCCESS,
        ]
        assert report.history[0].error == "KeyError: 'what'"
        assert (report.state.failed, report.state.last_error) == (1, None)

    async def test_an_error_is_told_up_to_a_length(self) -> None:
        def fails(run: object) -> None:
            del run
            raise ValueError("x" * 100_000)

        house = House()
        running = await house.run_beside(task(fails, max_runs=1))
        await house.turn(MINUTE)
        report = await ended(running)
        assert len(report.history[0].error or "") == 1000

    async def test_a_stop_iteration_in_a_thread_is_a_failure_like_others(self) -> None:
        def stops(run: object) -> None:
            del run
            next(iter(()))

        house = House()
        running = await house.run_beside(task(stops, blocking=True, max_runs=1))
        await house.turn(MINUTE)
        report = await ended(running)
        assert report.history[0].error == "RuntimeError: the function raised StopIteration"


class TestReport:
    async def test_a8_last_run_is_its_start_and_last_success_its_end(self) -> None:
        function = Function()
        house = House()
        running = await house.run_beside(task(function, max_runs=1))
        await house.turn(MINUTE)
        await house.turn(7 * SECOND)
        function.let_go()
        report = await ended(running)
        assert report.state.last_run_at == instant(START_MS + MINUTE)
        assert report.state.last_success_at == instant(START_MS + MINUTE + 7 * SECOND)
        record = report.history[0]
        assert record.scheduled_at == record.started_at == instant(START_MS + MINUTE)
        assert record.finished_at == instant(START_MS + MINUTE + 7 * SECOND)

    async def test_a8_an_error_stays_until_the_next_success(self) -> None:
        def fails_twice(run: TaskRun[Any]) -> None:
            if run.at_ms < START_MS + 3 * MINUTE:
                raise RuntimeError(run.at_ms - START_MS)

        house = House()
        async with house.scheduler as scheduler:
            handle = scheduler.add(task(fails_twice))
            await house.turn(2 * MINUTE)
            state = handle.report().state
            assert state.last_error == "RuntimeError: 120000"
            assert (state.last_success_at, state.last_run_ms) == (None, START_MS + 2 * MINUTE)
            await house.turn(MINUTE)
            state = handle.report().state
            assert (state.last_error, state.last_success_ms) == (None, START_MS + 3 * MINUTE)

    @pytest.mark.parametrize(("history", "kept"), [(0, []), (2, [4, 5]), (32, [1, 2, 3, 4, 5])])
    async def test_a2_so_many_records_are_kept_and_they_are_the_newest(
        self, history: int, kept: list[int]
    ) -> None:
        house = House(history=history)
        running = await house.run_beside(task(nothing, max_runs=5))
        await house.turn(5 * MINUTE)
        report = await ended(running)
        assert [record.at_ms - START_MS for record in report.history] == minutes(kept)
        assert report.state.ran == 5

    async def test_a_report_can_be_had_at_any_time(self) -> None:
        house = House()
        async with house.scheduler as scheduler:
            handle = scheduler.add(task(nothing))
            assert handle.report().state.next_ms is None, "it has not been looked up yet"
            await house.turn(MINUTE)
            report = scheduler.handle("t").report()
            assert (report.task_id, report.stopped, report.state.ran) == ("t", None, 1)
            assert report.state.next_at == instant(START_MS + 2 * MINUTE)
            assert house.notes.all_of(RunCompleted)[0].scheduled_at == START + timedelta(minutes=1)
