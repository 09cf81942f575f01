"""Handles of tasks: stop, pause, resume, trigger, wait."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tampu.errors import WrongContext
from tampu.scheduler import (
    MemoryStore,
    RunAsked,
    RunSkipped,
    RunStarted,
    RunStatus,
    SkipReason,
    StopReason,
    TaskHandle,
    TaskPaused,
    TaskResumed,
    TaskRun,
    TaskStopped,
)
from tampu.timing import At, Every, Missed, Overlap, TimeWindow
from tests.unit.scheduler.harness import SOON, Harness, HeldFunction, finish, minutes, task
from tests.unit.scheduler.plans import MINUTE, SECOND, START, START_MS, nothing

pytestmark = pytest.mark.usefixtures("no_leftovers")

STOPS: list[tuple[Callable[[TaskHandle], None], StopReason]] = [
    (TaskHandle.cancel, StopReason.CANCELLED),
    (TaskHandle.shutdown, StopReason.SHUTDOWN),
]
REQUESTS: list[Callable[[TaskHandle], Awaitable[bool]]] = [
    TaskHandle.pause,
    TaskHandle.resume,
    TaskHandle.trigger_now,
]


class TestStopping:
    @pytest.mark.parametrize(("stop", "reason"), STOPS)
    async def test_no_more_runs_start_and_the_report_has_the_reason(
        self, stop: Callable[[TaskHandle], None], reason: StopReason
    ) -> None:
        harness = Harness()
        async with harness.scheduler as scheduler:
            handle = scheduler.add(task(nothing))
            await harness.turn(2 * MINUTE)
            stop(handle)
            report = await asyncio.wait_for(handle.wait(), SOON)
            await harness.turn(5 * MINUTE)
        assert (report.stopped, report.state.ran) == (reason, 2)
        assert report.state.next_ms == START_MS + 3 * MINUTE, (
            "the next instant is kept for the next start"
        )
        [stopped] = harness.log.of(TaskStopped)
        assert (stopped.reason, stopped.fired) == (reason, 2)
        assert harness.log.started == minutes([1, 2])

    @pytest.mark.parametrize(("stop", "reason"), STOPS)
    async def test_a_stop_right_after_add_is_not_lost(
        self, stop: Callable[[TaskHandle], None], reason: StopReason
    ) -> None:
        harness = Harness()
        async with harness.scheduler as scheduler:
            handle = scheduler.add(task(nothing, At(START)))
            stop(handle)
            report = await asyncio.wait_for(handle.wait(), SOON)
        assert (report.stopped, report.state.ran) == (reason, 0)
        assert report.state.next_ms == START_MS

    @pytest.mark.parametrize(("stop", "reason"), STOPS)
    async def test_an_active_run_continues_to_its_end(
        self, stop: Callable[[TaskHandle], None], reason: StopReason
    ) -> None:
        function, harness = HeldFunction(), Harness()
        async with harness.scheduler as scheduler:
            handle = scheduler.add(task(function))
            await harness.turn(MINUTE)
            stop(handle)
            waiting = asyncio.ensure_future(handle.wait())
            await harness.turn(3 * MINUTE)
            assert not waiting.done()
            function.release()
            report = await finish(waiting)
        assert [record.status for record in report.history] == [RunStatus.SUCCESS]
        assert (report.stopped, report.state.last_success_ms) == (reason, START_MS + 4 * MINUTE)

    async def test_the_first_stop_counts(self) -> None:
        harness = Harness()
        async with harness.scheduler as scheduler:
            handle = scheduler.add(task(nothing))
            handle.shutdown()
            handle.cancel()
            assert (await handle.wait()).stopped is StopReason.SHUTDOWN
            handle.cancel()
            assert handle.report().stopped is StopReason.SHUTDOWN
        assert len(harness.log.of(TaskStopped)) == 1

    async def test_a_scheduler_stops_all_its_tasks(self) -> None:
        for method, reason in (
            ("cancel", StopReason.CANCELLED),
            ("shutdown", StopReason.SHUTDOWN),
        ):
            harness = Harness()
            async with harness.scheduler as scheduler:
                for n in range(3):
                    scheduler.add(task(nothing, id=f"t{n}"))
                getattr(scheduler, method)()
                reports = await asyncio.wait_for(scheduler.serve(), SOON)
            assert {report.stopped for report in reports.values()} == {reason}
            assert set(reports) == {"t0", "t1", "t2"}

    async def test_a_stopped_task_can_be_added_again_and_continues(self) -> None:
        harness = Harness()
        async with harness.scheduler as scheduler:
            handle = scheduler.add(task(nothing))
            await harness.turn(MINUTE)
            handle.cancel()
            await handle.wait()
            again = scheduler.add(task(nothing))
            await harness.turn(MINUTE)
            assert again.report().state.ran == 2
            assert len(again.report().history) == 1


class TestPause:
    async def test_no_run_starts_until_the_task_is_resumed(self) -> None:
        harness = Harness()
        async with harness.scheduler as scheduler:
            handle = scheduler.add(task(nothing))
            await harness.turn(MINUTE)
            assert await handle.pause()
            assert handle.report().state.paused_ms == START_MS + MINUTE
            await harness.turn(3 * MINUTE)
            assert harness.log.started == minutes([1])
            assert await handle.resume()
            await harness.turn(2 * MINUTE)
        assert harness.log.started == minutes([1, 4, 5, 6])
        assert harness.log.skipped == [(SkipReason.PAUSED, 2 * MINUTE, 2)]
        assert len(harness.log.of(TaskPaused)) == len(harness.log.of(TaskResumed)) == 1

    async def test_the_missed_policy_applies_when_the_task_is_resumed(self) -> None:
        harness = Harness()
        async with harness.scheduler as scheduler:
            handle = scheduler.add(task(nothing, Every("1s"), missed=Missed.SKIP))
            await handle.pause()
            await harness.turn(30 * SECOND + 500)
            await handle.resume()
            await harness.idle()
            assert harness.log.started == [], "no burst, although all of them are within the grace"
            assert harness.log.skipped == [(SkipReason.PAUSED, SECOND, 30)]
            assert handle.report().last_skip_reason is SkipReason.PAUSED

    async def test_a_pause_does_not_affect_the_active_run(self) -> None:
        function, harness = HeldFunction(), Harness()
        async with harness.scheduler as scheduler:
            handle = scheduler.add(task(function))
            await harness.turn(MINUTE)
            await handle.pause()
            assert function.active == 1
            function.release()
            await harness.idle()
            assert handle.report().history[0].status is RunStatus.SUCCESS

    async def test_a_second_pause_or_resume_returns_false(self) -> None:
        harness = Harness()
        async with harness.scheduler as scheduler:
            handle = scheduler.add(task(nothing))
            assert await handle.pause()
            assert not await handle.pause()
            assert await handle.resume()
            assert not await handle.resume()
        assert len(harness.log.of(TaskPaused)) == len(harness.log.of(TaskResumed)) == 1

    async def test_a_request_right_after_add_is_not_lost(self) -> None:
        harness = Harness()
        async with harness.scheduler as scheduler:
            handle = scheduler.add(task(nothing, Every("1s")))
            assert await handle.pause()
            await harness.turn(5 * SECOND)
            assert harness.log.started == []

    async def test_a_pause_survives_a_restart(self) -> None:
        store = MemoryStore()
        harness = Harness(store=store)
        async with harness.scheduler as scheduler:
            await scheduler.add(task(nothing)).pause()
        again = Harness(store=store, same_clock=harness.clock)
        async with again.scheduler as scheduler:
            handle = scheduler.add(task(nothing))
            await again.turn(2 * MINUTE)
            assert again.log.started == []
            assert not await handle.pause()
            assert await handle.resume()
            await again.turn(MINUTE)
        assert again.log.started == minutes([2, 3])

    async def test_a_paused_task_can_be_stopped(self) -> None:
        harness = Harness()
        async with harness.scheduler as scheduler:
            handle = scheduler.add(task(nothing))
            await handle.pause()
            handle.cancel()
            assert (await asyncio.wait_for(handle.wait(), SOON)).stopped is StopReason.CANCELLED


class TestTriggerNow:
    async def test_it_runs_at_once_and_the_next_instant_stays(self) -> None:
        seen: list[TaskRun[None]] = []
        harness = Harness()
        async with harness.scheduler as scheduler:
            handle = scheduler.add(task(seen.append))
            await harness.turn(10 * SECOND)
            assert await handle.trigger_now()
            await harness.idle()
            assert [(run.at_ms - START_MS, run.manual) for run in seen] == [(10 * SECOND, True)]
            state = handle.report().state
            assert (state.next_ms, state.fired, state.ran) == (START_MS + MINUTE, 0, 1)
            await harness.turn(50 * SECOND)
            assert [run.manual for run in seen] == [True, False]
        [asked] = harness.log.of(RunAsked)
        assert (asked.at_ms, asked.manual) == (START_MS + 10 * SECOND, True)
        assert [event.manual for event in harness.log.of(RunStarted)] == [True, False]

    async def test_a_request_right_after_add_is_not_lost(self) -> None:
        harness = Harness()
        async with harness.scheduler as scheduler:
            handle = scheduler.add(task(nothing))
            assert await handle.trigger_now()
            await harness.idle()
        assert harness.log.started == [0]

    async def test_it_ignores_the_window(self) -> None:
        harness = Harness()
        async with harness.scheduler as scheduler:
            handle = scheduler.add(task(nothing, window=TimeWindow(days="wed")))
            await handle.trigger_now()
            await harness.idle()
        assert harness.log.started == [0]

    @pytest.mark.parametrize(
        ("overlap", "active", "reasons"),
        [
            (Overlap.SKIP, 1, [SkipReason.OVERLAP]),
            (Overlap.QUEUE_ONE, 1, []),
            (Overlap.ALLOW, 2, []),
            (Overlap.CANCEL_RUNNING, 1, []),
        ],
    )
    async def test_the_overlap_policy_applies(
        self, overlap: Overlap, active: int, reasons: list[SkipReason]
    ) -> None:
        function, harness = HeldFunction(), Harness()
        async with harness.scheduler as scheduler:
            handle = scheduler.add(task(function, overlap=overlap))
            await harness.turn(MINUTE)
            assert await handle.trigger_now()
            await harness.idle()
            assert function.active == active
            assert [event.reason for event in harness.log.of(RunSkipped)] == reasons
            assert all(event.manual for event in harness.log.of(RunSkipped))
            assert function.cancelled == (overlap is Overlap.CANCEL_RUNNING)
            function.release()
            await harness.idle()
            assert len(function.runs) == (1 if reasons else 2)
            function.release()

    async def test_at_most_one_triggered_run_waits(self) -> None:
        function, harness = HeldFunction(), Harness()
        async with harness.scheduler as scheduler:
            handle = scheduler.add(task(function, overlap=Overlap.QUEUE_ONE))
            await harness.turn(MINUTE)
            assert await handle.trigger_now()
            assert not await handle.trigger_now()
            for _ in range(2):
                function.release()
                await harness.idle()
        assert len(function.runs) == 2

    async def test_the_run_waits_while_the_task_is_paused(self) -> None:
        harness = Harness()
        async with harness.scheduler as scheduler:
            handle = scheduler.add(task(nothing))
            await handle.pause()
            assert await handle.trigger_now()
            await harness.turn(SECOND)
            assert harness.log.started == []
            await handle.resume()
            await harness.idle()
            assert harness.log.started == [0]

    async def test_it_counts_towards_max_runs(self) -> None:
        harness = Harness()
        async with harness.scheduler as scheduler:
            handle = scheduler.add(task(nothing, max_runs=1))
            await handle.trigger_now()
            report = await asyncio.wait_for(handle.wait(), SOON)
        assert (report.stopped, report.state.ran) == (StopReason.TERMINAL, 1)


class TestAfterTheEnd:
    @pytest.mark.parametrize("request_change", REQUESTS)
    async def test_requests_are_refused_with_a_reason(
        self, request_change: Callable[[TaskHandle], Awaitable[bool]]
    ) -> None:
        harness = Harness()
        async with harness.scheduler as scheduler:
            over = scheduler.add(task(nothing, At(), id="cache"))
            stopped = scheduler.add(task(nothing, id="index"))
            await over.wait()
            with pytest.raises(WrongContext, match=r"^Cannot \w+ 'cache': it has finished\.$"):
                await request_change(over)
            stopped.cancel()
            with pytest.raises(WrongContext, match=r"^Cannot \w+ 'index': it is stopping\.$"):
                await request_change(stopped)
            await stopped.wait()
            with pytest.raises(WrongContext, match=r"^Cannot \w+ 'index': it has finished\.$"):
                await request_change(stopped)

    async def test_wait_returns_the_report_even_after_the_end(self) -> None:
        harness = Harness()
        async with harness.scheduler as scheduler:
            handle = scheduler.add(task(nothing, At()))
            first = await asyncio.wait_for(handle.wait(), SOON)
            assert await handle.wait() == first == handle.report()

    async def test_a_cancelled_wait_does_not_stop_the_task(self) -> None:
        harness = Harness()
        async with harness.scheduler as scheduler:
            handle = scheduler.add(task(nothing))
            waiting = asyncio.ensure_future(handle.wait())
            await harness.idle()
            waiting.cancel()
            await asyncio.wait([waiting])
            await harness.turn(MINUTE)
            assert harness.log.started == minutes([1])

    async def test_a_handle_has_the_id_of_its_task(self) -> None:
        harness = Harness()
        async with harness.scheduler as scheduler:
            assert repr(scheduler.add(task(nothing))) == "<TaskHandle 't'>"
            assert scheduler.handle("t").id == "t"
            with pytest.raises(KeyError):
                scheduler.handle("nobody")


class TestReady:
    async def test_ready_returns_when_the_state_is_stored(self) -> None:
        store = MemoryStore()
        harness = Harness(store=store)
        async with harness.scheduler as scheduler:
            handle = scheduler.add(task(nothing))
            await asyncio.wait_for(handle.ready(), SOON)
            assert handle.report().state.next_ms == START_MS + MINUTE
            assert await store.load(["t"]) == [handle.report().state]
            handle.cancel()
            with pytest.raises(WrongContext, match=r"^Cannot wait for 't': it is stopping\.$"):
                await handle.ready()
