"""Observers receive every event in order, and cannot harm the scheduler."""

import asyncio
from typing import Any

import pytest

from tampu.scheduler import (
    ClockJumped,
    Event,
    RunCompleted,
    RunSkipped,
    RunStarted,
    RunStatus,
    SkipReason,
    Source,
    StateLoaded,
    StateRepaired,
    StopReason,
    TaskRun,
    TaskStopped,
)
from tampu.timing import At, Cron, Every, Missed, Overlap, TimeWindow
from tampu.util.clock import instant
from tests.unit.scheduler.harness import Harness, HeldFunction, finish, minutes, task
from tests.unit.scheduler.plans import HOUR, MINUTE, SECOND, START_MS, nothing

pytestmark = pytest.mark.usefixtures("no_leftovers")


class TestOrder:
    async def test_the_events_of_a_task_in_order(self) -> None:
        harness = Harness()
        running = await harness.start_run(task(nothing, max_runs=1))
        await harness.turn(MINUTE)
        await finish(running)
        assert harness.log.events == [
            StateLoaded(task_id="t", source=Source.NEW, fired=0, next_ms=START_MS + MINUTE),
            RunStarted(task_id="t", at_ms=START_MS + MINUTE, fired=1),
            RunCompleted(
                task_id="t",
                at_ms=START_MS + MINUTE,
                fired=1,
                status=RunStatus.SUCCESS,
                error=None,
            ),
            TaskStopped(task_id="t", reason=StopReason.TERMINAL, fired=1),
        ]

    async def test_the_event_of_a_failed_run_has_its_error(self) -> None:
        def fails(run: object) -> None:
            del run
            raise ValueError("no")

        harness = Harness()
        running = await harness.start_run(task(fails, max_runs=1))
        await harness.turn(MINUTE)
        await finish(running)
        [done] = harness.log.of(RunCompleted)
        assert (done.status, done.error) == (RunStatus.FAILED, "ValueError: no")

    async def test_pausing_triggering_and_queueing_have_events(self) -> None:
        function, harness = HeldFunction(), Harness()
        async with harness.scheduler as scheduler:
            handle = scheduler.add(task(function, overlap=Overlap.QUEUE_ONE))
            await harness.turn(2 * MINUTE)
            await handle.trigger_now()
            await handle.pause()
            await handle.resume()
            handle.cancel()
            function.release()
        assert harness.log.kinds == [
            "StateLoaded",
            "RunStarted",
            "RunQueued",
            "RunAsked",
            "TaskPaused",
            "TaskResumed",
            "RunCompleted",
            "TaskStopped",
        ]

    async def test_every_occurrence_ends_in_one_event(self) -> None:
        function = HeldFunction()
        harness = Harness()
        window = TimeWindow(segments=[("00:00", "00:05"), ("00:07", "00:30")])
        each = task(function, window=window, overlap=Overlap.QUEUE_ONE, max_fires=20)
        running = await harness.start_run(each)
        await harness.turn(3 * MINUTE)  # one runs, one waits, one is skipped
        function.release()
        await harness.idle()
        function.release()
        await harness.turn(3 * MINUTE)  # one runs, two are outside the window
        function.release()
        await harness.leap(9 * MINUTE)  # eight of nine are missed
        function.release()
        handle = harness.scheduler.handle("t")
        await handle.pause()
        await harness.turn(2 * MINUTE)
        await handle.resume()
        while not running.done():
            function.release()
            await harness.turn(MINUTE)
        report = await finish(running)
        reported = sorted(
            [event.at_ms for event in harness.log.of(RunCompleted)]
            + [
                event.at_ms + n * MINUTE
                for event in harness.log.of(RunSkipped)
                for n in range(event.count)
            ]
        )
        assert reported == [START_MS + n * MINUTE for n in range(1, 21)]
        assert {reason for reason, _, _ in harness.log.skipped} == {
            SkipReason.QUEUE_FULL,
            SkipReason.OUTSIDE_WINDOW,
            SkipReason.MISSED,
            SkipReason.PAUSED,
        }
        state = report.state
        assert (state.fired, state.ran + state.skipped) == (20, 20)

    async def test_occurrences_after_the_last_run_are_reported_as_skipped(self) -> None:
        harness = Harness()
        each = task(nothing, missed=Missed.all(), overlap=Overlap.ALLOW, max_runs=1)
        running = await harness.start_run(each)
        await harness.leap(3 * MINUTE)
        await finish(running)
        assert harness.log.skipped == [(SkipReason.MAX_RUNS, 2 * MINUTE, 2)]
        assert harness.log.of(RunSkipped)[0].last_ms == START_MS + 3 * MINUTE


class FailingObserver:
    def __init__(self, kind: type[BaseException]) -> None:
        self.received = 0
        self._kind = kind

    def on_event(self, event: Event) -> None:
        self.received += 1
        raise self._kind(type(event).__name__)


class TestObservers:
    @pytest.mark.parametrize("kind", [RuntimeError, asyncio.CancelledError])
    async def test_an_observer_that_raises_is_logged_once_and_harms_nothing(
        self, caplog: pytest.LogCaptureFixture, kind: type[BaseException]
    ) -> None:
        failing = FailingObserver(kind)
        harness = Harness(observers=[failing])
        running = await harness.start_run(task(nothing, max_runs=3))
        await harness.turn(3 * MINUTE)
        report = await finish(running)
        assert report.state.ran == 3
        assert failing.received == len(harness.log.events) == 8, (
            "both observers receive every event"
        )
        assert caplog.messages == [
            "observer FailingObserver failed on StateLoaded; its further errors are not logged"
        ]

    async def test_observers_are_called_in_the_given_order(self) -> None:
        order: list[str] = []

        class Named:
            def __init__(self, name: str) -> None:
                self.name = name

            def on_event(self, event: Event) -> None:
                order.append(f"{self.name} {type(event).__name__}")

        harness = Harness(observers=[Named("a"), Named("b")])
        running = await harness.start_run(task(nothing, At()))
        await finish(running)
        assert order == ["a StateLoaded", "b StateLoaded", "a TaskStopped", "b TaskStopped"]

    async def test_a_scheduler_needs_no_observer(self) -> None:
        harness = Harness()
        seen: list[TaskRun[Any]] = []
        silent = Harness(same_clock=harness.clock)
        silent.scheduler = type(silent.scheduler)(clock=silent.clock)
        running = await silent.start_run(task(seen.append, max_runs=2))
        await silent.leap(2 * MINUTE)
        await silent.turn(MINUTE)
        report = await finish(running)
        assert (len(seen), report.last_skip_reason) == (2, SkipReason.MISSED)


class TestClock:
    """The wall clock is set while the scheduler waits."""

    async def test_after_a_jump_forwards_the_skipped_occurrences_are_missed(self) -> None:
        harness = Harness()
        async with harness.scheduler as scheduler:
            scheduler.add(task(nothing))
            await harness.turn(30 * SECOND)
            harness.clock.set(instant(harness.clock.now_ms() + HOUR))
            await harness.turn(SECOND)
            assert harness.log.of(ClockJumped) == [ClockJumped(by_ms=HOUR)]
            assert harness.log.started == minutes([60]), (
                "within a second, and not after half an hour"
            )
            assert harness.log.skipped == [(SkipReason.MISSED, MINUTE, 59)]

    async def test_after_a_small_jump_backwards_no_occurrence_comes_twice(self) -> None:
        harness = Harness()
        async with harness.scheduler as scheduler:
            scheduler.add(task(nothing))
            await harness.turn(2 * MINUTE)
            harness.clock.set(instant(harness.clock.now_ms() - 30 * SECOND))
            await harness.turn(SECOND)
            assert harness.log.of(ClockJumped) == [ClockJumped(by_ms=-30 * SECOND)]
            await harness.turn(3 * MINUTE)
        assert harness.log.started == minutes([1, 2, 3, 4])

    async def test_after_a_jump_backwards_times_of_day_do_not_come_again(self) -> None:
        harness = Harness()
        async with harness.scheduler as scheduler:
            scheduler.add(task(nothing, Cron("10 0,1,2,3,4 * * *")))
            await harness.leap(HOUR + 10 * MINUTE)
            harness.clock.set(instant(harness.clock.now_ms() - HOUR))
            await harness.leap(SECOND)
            await harness.leap(2 * HOUR)
        assert harness.log.ended == [HOUR + 10 * MINUTE, 2 * HOUR + 10 * MINUTE]

    async def test_after_a_jump_backwards_an_interval_continues_by_the_new_time(self) -> None:
        harness = Harness()
        async with harness.scheduler as scheduler:
            scheduler.add(task(nothing))
            await harness.leap(HOUR)
            harness.clock.set(instant(harness.clock.now_ms() - 50 * MINUTE))
            await harness.turn(MINUTE + SECOND)
        assert harness.log.started == minutes([60, 11]), "it does not wait for 50 minutes"
        [repaired] = harness.log.of(StateRepaired)
        assert repaired.problem == "the clock was set back"
        assert repaired.previous_next_ms == START_MS + HOUR + MINUTE

    async def test_a_jump_during_a_run_is_noticed(self) -> None:
        function, harness = HeldFunction(), Harness()
        async with harness.scheduler as scheduler:
            scheduler.add(task(function))
            await harness.turn(MINUTE)
            harness.clock.set(instant(harness.clock.now_ms() - 10 * MINUTE))
            await harness.turn(SECOND)
            assert harness.log.of(ClockJumped) == [ClockJumped(by_ms=-10 * MINUTE)]
            function.release()

    async def test_elapsed_time_and_small_corrections_are_not_jumps(self) -> None:
        harness = Harness()
        async with harness.scheduler as scheduler:
            scheduler.add(task(nothing, Every("1h")))
            await harness.leap(3 * HOUR)
            harness.clock.set(instant(harness.clock.now_ms() + 999))
            await harness.turn(SECOND)
        assert harness.log.of(ClockJumped) == []
