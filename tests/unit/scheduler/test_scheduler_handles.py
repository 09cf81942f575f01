"""What a handle can do: stop, pause, resume, trigger now. A11, A14."""

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
from tests.unit.scheduler.clocks import SOON, Function, House, ended, minutes, task
from tests.unit.scheduler.plans import MINUTE, SECOND, START, START_MS, nothing

pytestmark = pytest.mark.usefixtures("nothing_is_left")

STOPS: list[tuple[Callable[[TaskHandle], None], StopReason]] = [
    (TaskHandle.cancel, StopReason.CANCELLED),
    (TaskHandle.shutdown, StopReason.SHUTDOWN),
]
WISHES: list[Callable[[TaskHandle], Awaitable[bool]]] = [
    TaskHandle.pause,
    TaskHandle.resume,
    TaskHandle.trigger_now,
]


class TestStopping:
    @pytest.mark.parametrize(("stop", "reason"), STOPS)
    async def test_a11_no_more_runs_begin_and_the_report_says_who_stopped_it(
        self, stop: Callable[[TaskHandle], None], reason: StopReason
    ) -> None:
        house = House()
        async with house.scheduler as scheduler:
            handle = scheduler.add(task(nothing))
            await house.turn(2 * MINUTE)
            stop(handle)
            report = await asyncio.wait_for(handle.wait(), SOON)
            await house.turn(5 * MINUTE)
        assert (report.stopped, report.state.ran) == (reason, 2)
        assert report.state.next_ms == START_MS + 3 * MINUTE, "there is more to come another time"
        [stopped] = house.notes.all_of(TaskStopped)
        assert (stopped.reason, stopped.fired) == (reason, 2)
        assert house.notes.begun == minutes([1, 2])

    @pytest.mark.parametrize(("stop", "reason"), STOPS)
    async def test_a11_a_stop_right_after_add_is_not_lost(
        self, stop: Callable[[TaskHandle], None], reason: StopReason
    ) -> None:
        house = House()
        async with house.scheduler as scheduler:
            handle = scheduler.add(task(nothing, At(START)))
            stop(handle)
            report = await asyncio.wait_for(handle.wait(), SOON)
        assert (report.stopped, report.state.ran) == (reason, 0)
        assert report.state.next_ms == START_MS

    @pytest.mark.parametrize(("stop", "reason"), STOPS)
    async def test_a11_what_is_active_goes_on_to_its_end(
        self, stop: Callable[[TaskHandle], None], reason: StopReason
    ) -> None:
        function, house = Function(), House()
        async with house.scheduler as scheduler:
            handle = scheduler.add(task(function))
            await house.turn(MINUTE)
            stop(handle)
            waiting = asyncio.ensure_future(handle.wait())
            await house.turn(3 * MINUTE)
            assert not waiting.done()
            function.let_go()
            report = await ended(waiting)
        assert [record.status for record in report.history] == [RunStatus.SUCCESS]
        assert (report.stopped, report.state.last_success_ms) == (reason, START_MS + 4 * MINUTE)

    async def test_the_first_stop_counts(self) -> None:
        house = House()
        async with house.scheduler as scheduler:
            handle = scheduler.add(task(nothing))
            handle.shutdown()
            handle.cancel()
            assert (await handle.wait()).stopped is StopReason.SHUTDOWN
            handle.cancel()
            assert handle.report().stopped is StopReason.SHUTDOWN
        assert len(house.notes.all_of(TaskStopped)) == 1

    async def test_all_tasks_can_be_stopped_at_once(self) -> None:
        for method, reason in (
            ("cancel", StopReason.CANCELLED),
            ("shutdown", StopReason.SHUTDOWN),
        ):
            house = House()
            async with house.scheduler as scheduler:
                for n in range(3):
                    scheduler.add(task(nothing, id=f"t{n}"))
                getattr(scheduler, method)()
                reports = await asyncio.wait_for(scheduler.serve(), SOON)
            assert {report.stopped for report in reports.values()} == {reason}
            assert set(reports) == {"t0", "t1", "t2"}

    async def test_its_id_is_free_again_and_its_state_is_found(self) -> None:
        house = House()
        async with house.scheduler as scheduler:
            handle = scheduler.add(task(nothing))
            await house.turn(MINUTE)
            handle.cancel()
            await handle.wait()
            again = scheduler.add(task(nothing))
            await house.turn(MINUTE)
            assert again.report().state.ran == 2
            assert len(again.report().history) == 1


class TestPause:
    async def test_a14_nothing_begins_until_it_is_resumed(self) -> None:
        house = House()
        async with house.scheduler as scheduler:
            handle = scheduler.add(task(nothing))
            await house.turn(MINUTE)
            assert await handle.pause()
            assert handle.report().state.paused_ms == START_MS + MINUTE
            await house.turn(3 * MINUTE)
            assert house.notes.begun == minutes([1])
            assert await handle.resume()
            await house.turn(2 * MINUTE)
        assert house.notes.begun == minutes([1, 4, 5, 6])
        assert house.notes.skipped == [(SkipReason.PAUSED, 2 * MINUTE, 2)]
        assert len(house.notes.all_of(TaskPaused)) == len(house.notes.all_of(TaskResumed)) == 1

    async def test_a14_the_missed_policy_is_asked_at_once_when_it_is_resumed(self) -> None:
        house = House()
        async with house.scheduler as scheduler:
            handle = scheduler.add(task(nothing, Every("1s"), missed=Missed.SKIP))
            await handle.pause()
            await house.turn(30 * SECOND + 500)
            await handle.resume()
            await house.idle()
            assert house.notes.begun == [], "no burst, though all are within the grace"
            assert house.notes.skipped == [(SkipReason.PAUSED, SECOND, 30)]
            assert handle.report().last_skip_reason is SkipReason.PAUSED

    async def test_a14_the_run_that_is_active_is_left_alone(self) -> None:
        function, house = Function(), House()
        async with house.scheduler as scheduler:
            handle = scheduler.add(task(function))
            await house.turn(MINUTE)
            await handle.pause()
            assert function.active == 1
            function.let_go()
            await house.idle()
            assert handle.report().history[0].status is RunStatus.SUCCESS

    async def test_doing_it_twice_changes_nothing_and_says_so(self) -> None:
        house = House()
        async with house.scheduler as scheduler:
            handle = scheduler.add(task(nothing))
            assert await handle.pause()
            assert not await handle.pause()
            assert await handle.resume()
            assert not await handle.resume()
        assert len(house.notes.all_of(TaskPaused)) == len(house.notes.all_of(TaskResumed)) == 1

    async def test_before_the_first_turn_it_is_not_lost(self) -> None:
        house = House()
        async with house.scheduler as scheduler:
            handle = scheduler.add(task(nothing, Every("1s")))
            assert await handle.pause()
            await house.turn(5 * SECOND)
            assert house.notes.begun == []

    async def test_it_outlasts_a_restart(self) -> None:
        store = MemoryStore()
        house = House(store=store)
        async with house.scheduler as scheduler:
            await scheduler.add(task(nothing)).pause()
        again = House(store=store, turned=house.clock)
        async with again.scheduler as scheduler:
            handle = scheduler.add(task(nothing))
            await again.turn(2 * MINUTE)
            assert again.notes.begun == []
            assert not await handle.pause()
            assert await handle.resume()
            await again.turn(MINUTE)
        assert again.notes.begun == minutes([2, 3])

    async def test_one_that_is_paused_can_be_stopped(self) -> None:
        house = House()
        async with house.scheduler as scheduler:
            handle = scheduler.add(task(nothing))
            await handle.pause()
            handle.cancel()
            assert (await asyncio.wait_for(handle.wait(), SOON)).stopped is StopReason.CANCELLED


class TestTriggerNow:
    async def test_a14_it_runs_at_once_and_the_next_instant_stays(self) -> None:
        seen: list[TaskRun[None]] = []
        house = House()
        async with house.scheduler as scheduler:
            handle = scheduler.add(task(seen.append))
            await house.turn(10 * SECOND)
            assert await handle.trigger_now()
            await house.idle()
            assert [(run.at_ms - START_MS, run.manual) for run in seen] == [(10 * SECOND, True)]
            state = handle.report().state
            assert (state.next_ms, state.fired, state.ran) == (START_MS + MINUTE, 0, 1)
            await house.turn(50 * SECOND)
            assert [run.manual for run in seen] == [True, False]
        [asked] = house.notes.all_of(RunAsked)
        assert (asked.at_ms, asked.manual) == (START_MS + 10 * SECOND, True)
        assert [event.manual for event in house.notes.all_of(RunStarted)] == [True, False]

    async def test_before_the_first_turn_it_is_not_lost(self) -> None:
        house = House()
        async with house.scheduler as scheduler:
            handle = scheduler.add(task(nothing))
            assert await handle.trigger_now()
            await house.idle()
        assert house.notes.begun == [0]

    async def test_a14_it_does_not_mind_the_window(self) -> None:
        house = House()
        async with house.scheduler as scheduler:
            handle = scheduler.add(task(nothing, window=TimeWindow(days="wed")))
            await handle.trigger_now()
            await house.idle()
        assert house.notes.begun == [0]

    @pytest.mark.parametrize(
        ("overlap", "active", "reasons"),
        [
            (Overlap.SKIP, 1, [SkipReason.OVERLAP]),
            (Overlap.QUEUE_ONE, 1, []),
            (Overlap.ALLOW, 2, []),
            (Overlap.CANCEL_RUNNING, 1, []),
        ],
    )
    async def test_a14_the_overlap_policy_has_its_say(
        self, overlap: Overlap, active: int, reasons: list[SkipReason]
    ) -> None:
        function, house = Function(), House()
        async with house.scheduler as scheduler:
            handle = scheduler.add(task(function, overlap=overlap))
            await house.turn(MINUTE)
            assert await handle.trigger_now()
            await house.idle()
            assert function.active == active
            assert [event.reason for event in house.notes.all_of(RunSkipped)] == reasons
            assert all(event.manual for event in house.notes.all_of(RunSkipped))
            assert function.cancelled == (overlap is Overlap.CANCEL_RUNNING)
            function.let_go()
            await house.idle()
            assert len(function.runs) == (1 if reasons else 2)
            function.let_go()

    async def test_a14_at_most_one_waits(self) -> None:
        function, house = Function(), House()
        async with house.scheduler as scheduler:
            handle = scheduler.add(task(function, overlap=Overlap.QUEUE_ONE))
            await house.turn(MINUTE)
            assert await handle.trigger_now()
            assert not await handle.trigger_now()
            for _ in range(2):
                function.let_go()
                await house.idle()
        assert len(function.runs) == 2

    async def test_a14_while_it_is_paused_the_run_waits(self) -> None:
        house = House()
        async with house.scheduler as scheduler:
            handle = scheduler.add(task(nothing))
            await handle.pause()
            assert await handle.trigger_now()
            await house.turn(SECOND)
            assert house.notes.begun == []
            await handle.resume()
            await house.idle()
            assert house.notes.begun == [0]

    async def test_it_is_one_of_the_runs_that_a_task_may_have(self) -> None:
        house = House()
        async with house.scheduler as scheduler:
            handle = scheduler.add(task(nothing, max_runs=1))
            await handle.trigger_now()
            report = await asyncio.wait_for(handle.wait(), SOON)
        assert (report.stopped, report.state.ran) == (StopReason.TERMINAL, 1)


class TestAfterTheEnd:
    @pytest.mark.parametrize("wish", WISHES)
    async def test_nothing_more_can_be_wished(
        self, wish: Callable[[TaskHandle], Awaitable[bool]]
    ) -> None:
        house = House()
        async with house.scheduler as scheduler:
            over = scheduler.add(task(nothing, At(), id="over"))
            stopped = scheduler.add(task(nothing, id="stopped"))
            await over.wait()
            with pytest.raises(WrongContext):
                await wish(over)
            stopped.cancel()
            with pytest.raises(WrongContext):
                await wish(stopped)
            await stopped.wait()
            with pytest.raises(WrongContext):
                await wish(stopped)

    async def test_who_waits_gets_the_report_and_who_comes_late_too(self) -> None:
        house = House()
        async with house.scheduler as scheduler:
            handle = scheduler.add(task(nothing, At()))
            first = await asyncio.wait_for(handle.wait(), SOON)
            assert await handle.wait() == first == handle.report()

    async def test_one_who_gives_up_waiting_stops_nothing(self) -> None:
        house = House()
        async with house.scheduler as scheduler:
            handle = scheduler.add(task(nothing))
            waiting = asyncio.ensure_future(handle.wait())
            await house.idle()
            waiting.cancel()
            await asyncio.wait([waiting])
            await house.turn(MINUTE)
            assert house.notes.begun == minutes([1])

    async def test_a_handle_says_whose_it_is(self) -> None:
        house = House()
        async with house.scheduler as scheduler:
            assert repr(scheduler.add(task(nothing))) == "<TaskHandle 't'>"
            assert scheduler.handle("t").id == "t"
            with pytest.raises(KeyError):
                scheduler.handle("nobody")
