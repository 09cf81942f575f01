"""Runs that meet each other, runs that were missed, and runs that are cancelled. A5, A6."""

import asyncio
import threading
from typing import Any

import pytest

from tampu.scheduler import MemoryStore, RunQueued, RunStatus, SkipReason, TaskRun
from tampu.scheduler.guard import Guard, Lease, Refusal, Slot
from tampu.timing import Every, Missed, Overlap
from tests.unit.scheduler.clocks import SOON, Function, House, ended, minutes, task
from tests.unit.scheduler.plans import MINUTE, SECOND, START_MS, ms, nothing
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("nothing_is_left")

OVERLAP, QUEUE_FULL, MISSED = SkipReason.OVERLAP, SkipReason.QUEUE_FULL, SkipReason.MISSED


class TestMissed:
    async def test_a5_once_runs_the_latest_and_tells_of_the_others(self) -> None:
        house = House()
        running = await house.run_beside(task(nothing, max_runs=1))
        await house.leap(5 * MINUTE)
        report = await ended(running)
        assert house.notes.skipped == [(MISSED, MINUTE, 4)]
        [record] = report.history
        assert (record.at_ms - START_MS, record.catch_up) == (5 * MINUTE, True)
        assert report.last_skip_reason is MISSED

    async def test_a5_skip_runs_the_latest_if_it_is_on_time(self) -> None:
        house = House()
        each = task(nothing, missed=Missed.SKIP.within(grace="5s"), max_fires=4)
        running = await house.run_beside(each)
        await house.leap(2 * MINUTE + 5 * SECOND)
        assert (house.notes.begun, house.notes.skipped) == (minutes([2]), [(MISSED, MINUTE, 1)])
        await house.leap(2 * MINUTE + SECOND)
        await ended(running)
        assert house.notes.begun == minutes([2])
        assert house.notes.skipped[1:] == [(MISSED, 3 * MINUTE, 2)]

    async def test_a15_2_a_wake_up_that_is_a_little_late_loses_nothing(self) -> None:
        house = House()
        running = await house.run_beside(task(nothing, missed=Missed.SKIP, max_fires=1))
        await house.leap(MINUTE + 26)
        report = await ended(running)
        assert (report.state.ran, report.history[0].catch_up) == (1, False)

    @pytest.mark.parametrize("overlap", [Overlap.SKIP, Overlap.QUEUE_ONE])
    async def test_a5_all_are_replayed_one_after_the_other(self, overlap: Overlap) -> None:
        function, house = Function(), House()
        running = await house.run_beside(
            task(function, max_runs=4, missed=Missed.all(), overlap=overlap)
        )
        await house.leap(3 * MINUTE)
        for done in (1, 2, 3):
            assert (len(function.runs), function.active) == (done, 1)
            function.let_go()
            await house.idle()
        await house.turn(MINUTE)
        function.let_go()
        await ended(running)
        assert house.notes.begun == minutes([1, 2, 3, 4])
        assert house.notes.skipped == []
        assert [run.catch_up for run in function.runs] == [True, True, False, False]

    async def test_a5_beside_each_other_if_that_is_allowed(self) -> None:
        function, house = Function(), House()
        running = await house.run_beside(
            task(function, max_runs=3, missed=Missed.all(), overlap=Overlap.ALLOW)
        )
        await house.leap(3 * MINUTE)
        assert function.active == 3
        function.let_go()
        await ended(running)

    async def test_while_it_is_replayed_others_have_their_turns(self) -> None:
        turns: list[int] = []
        seen: list[int] = []

        async def ticks() -> None:
            while True:
                turns.append(len(seen))
                await asyncio.sleep(0)

        house = House()
        each = task(lambda run: seen.append(run.at_ms), missed=Missed.all(), max_runs=50)
        running = await house.run_beside(each)
        ticking = asyncio.ensure_future(ticks())
        house.clock.turn(ms(50 * MINUTE))
        await ended(running)
        ticking.cancel()
        assert set(range(50)) <= set(turns)

    async def test_a15_5_catching_up_is_bounded(self) -> None:
        house = House()
        each = task(
            nothing, Every("1ms"), missed=Missed.all(max=5).within(grace=0), max_fires=10**6
        )
        running = await house.run_beside(each)
        await house.leap(10**6)
        await ended(running)
        # The last one is on time, and five before it are made up for.
        assert house.notes.skipped == [(MISSED, 1, 10**6 - 6)]
        assert house.notes.begun == [10**6 - n for n in (5, 4, 3, 2, 1, 0)]


class TestOverlap:
    async def test_a6_skip_drops_what_comes_while_one_runs_and_says_so(self) -> None:
        function, house = Function(), House()
        running = await house.run_beside(task(function, max_runs=2))
        await house.turn(3 * MINUTE)
        assert house.notes.begun == minutes([1])
        assert house.notes.skipped == [(OVERLAP, 2 * MINUTE, 1), (OVERLAP, 3 * MINUTE, 1)]
        function.let_go()
        await house.turn(MINUTE)
        function.let_go()
        report = await ended(running)
        assert house.notes.begun == minutes([1, 4])
        assert report.last_skip_reason is OVERLAP

    async def test_a6_queue_one_keeps_the_first_and_runs_it_when_there_is_room(self) -> None:
        function, house = Function(), House()
        running = await house.run_beside(task(function, overlap=Overlap.QUEUE_ONE, max_runs=2))
        await house.turn(4 * MINUTE)
        [queued] = house.notes.all_of(RunQueued)
        assert queued.at_ms == START_MS + 2 * MINUTE
        assert house.notes.skipped == [(QUEUE_FULL, 3 * MINUTE, 1), (QUEUE_FULL, 4 * MINUTE, 1)]
        function.let_go()
        await house.idle()
        assert house.notes.begun == minutes([1, 2]), "at once, not at the next instant"
        function.let_go()
        await ended(running)

    async def test_a15_5_one_that_waits_survives_a_restart(self) -> None:
        store, function = MemoryStore(), Function()
        house = House(store=store, grace=0)
        async with house.scheduler as scheduler:
            scheduler.add(task(function, overlap=Overlap.QUEUE_ONE))
            await house.turn(2 * MINUTE)
            assert house.notes.all_of(RunQueued)
        again = House(store=store, turned=house.clock)
        async with again.scheduler as scheduler:
            handle = scheduler.add(task(nothing, overlap=Overlap.QUEUE_ONE))
            await again.idle()
            assert again.notes.begun == minutes([2])
            state = handle.report().state
            assert (state.fired, state.ran, state.queued) == (2, 2, None)

    async def test_a6_allow_runs_them_beside_each_other(self) -> None:
        function, house = Function(), House()
        running = await house.run_beside(task(function, overlap=Overlap.ALLOW, max_runs=3))
        await house.turn(3 * MINUTE)
        assert function.active == 3
        assert not running.done(), "it is over when the last run is"
        function.let_go()
        await ended(running)
        assert house.notes.ended == minutes([1, 2, 3])


class OneAtATime(Guard):
    """Holds a resource for one run."""

    lease_s, renew_every_s = 60.0, 20.0
    is_held = False

    async def acquire(self, slot: Slot) -> Lease | Refusal:
        if self.is_held:
            return Refusal.HELD
        self.is_held = True
        return Lease(slot, "token")

    async def renew(self, lease: Lease) -> bool:
        return bool(lease)

    async def release(self, lease: Lease) -> bool:
        self.is_held = False
        return bool(lease)


class TestCancelRunning:
    async def test_the_run_that_is_active_is_cancelled_for_the_next(self) -> None:
        function, house = Function(), House()
        each = task(function, overlap=Overlap.CANCEL_RUNNING, max_runs=3)
        running = await house.run_beside(each)
        await house.turn(3 * MINUTE)
        assert (function.active, function.cancelled) == (1, 2)
        assert [run.cancelled for run in function.runs] == [True, True, False]
        function.let_go()
        report = await ended(running)
        assert [record.status for record in report.history] == [
            RunStatus.CANCELLED,
            RunStatus.CANCELLED,
            RunStatus.SUCCESS,
        ]
        assert report.state.failed == 0

    async def test_the_next_begins_when_the_one_before_has_cleaned_up(self) -> None:
        order: list[str] = []
        cleaned = asyncio.Event()

        async def cleans_up(run: TaskRun[Any]) -> None:
            number = (run.at_ms - START_MS) // MINUTE
            order.append(f"begin {number}")
            if number == 3:
                return
            try:
                await asyncio.Event().wait()
            finally:
                await cleaned.wait()
                order.append(f"end {number}")

        house = House()
        each = task(cleans_up, overlap=Overlap.CANCEL_RUNNING, max_runs=3)
        running = await house.run_beside(each)
        await house.turn(3 * MINUTE)
        # The second never began: a third one came while it waited. The first is cancelled once.
        assert order == ["begin 1"]
        cleaned.set()
        report = await ended(running)
        assert order == ["begin 1", "end 1", "begin 3"]
        statuses = {record.at_ms - START_MS: record.status for record in report.history}
        assert statuses == {
            MINUTE: RunStatus.CANCELLED,
            2 * MINUTE: RunStatus.CANCELLED,
            3 * MINUTE: RunStatus.SUCCESS,
        }

    async def test_the_next_asks_the_guard_when_the_one_before_has_let_go(self) -> None:
        function, guard = Function(), OneAtATime()
        house = House(guard=guard)
        each = task(function, overlap=Overlap.CANCEL_RUNNING, max_runs=3)
        running = await house.run_beside(each)
        for count in (1, 2, 3):
            await house.turn(MINUTE)
            await wait_until(
                lambda count=count: len(function.runs) == count,  # type: ignore[misc]
                within=SOON,
                sentence="the next one runs",
            )
        function.let_go()
        report = await ended(running)
        assert house.notes.skipped == []
        assert [record.status for record in report.history] == [
            RunStatus.CANCELLED,
            RunStatus.CANCELLED,
            RunStatus.SUCCESS,
        ]

    async def test_one_that_will_not_be_cancelled_is_waited_for(self) -> None:
        go_on = asyncio.Event()
        begun = []

        async def stubborn(run: TaskRun[Any]) -> None:
            begun.append(run.at_ms)
            while not go_on.is_set():
                try:
                    await go_on.wait()
                except asyncio.CancelledError:
                    continue

        house = House()
        each = task(stubborn, overlap=Overlap.CANCEL_RUNNING, max_runs=2)
        running = await house.run_beside(each)
        await house.turn(2 * MINUTE)
        assert len(begun) == 1
        go_on.set()
        report = await ended(running)
        assert [record.status for record in report.history] == [RunStatus.SUCCESS] * 2


class TestThreads:
    async def test_a_run_in_a_thread_sees_that_it_is_cancelled(self) -> None:
        seen = threading.Event()
        begun = threading.Event()

        def looks(run: TaskRun[Any]) -> None:
            begun.set()
            limit = threading.Event()
            for _ in range(1000):
                if run.cancelled:
                    seen.set()
                    return
                limit.wait(0.005)

        house = House(grace=0)
        async with house.scheduler as scheduler:
            handle = scheduler.add(task(looks, blocking=True))
            await house.turn(MINUTE)
            await wait_until(begun.is_set, within=SOON, sentence="it begins")
        assert seen.is_set(), "it was waited for"
        assert handle.report().history[0].status is RunStatus.CANCELLED

    async def test_one_that_never_got_a_thread_is_not_called_once_it_is_cancelled(self) -> None:
        begun = threading.Event()
        called: list[TaskRun[Any]] = []

        def first(run: TaskRun[Any]) -> None:
            begun.set()
            for _ in range(1000):
                if run.cancelled:
                    return
                threading.Event().wait(0.005)

        house = House(grace=0, threads=1)
        async with house.scheduler as scheduler:
            scheduler.add(task(first, blocking=True, id="first"))
            await house.turn(MINUTE)
            await wait_until(begun.is_set, within=SOON, sentence="it begins")
            second = scheduler.add(task(called.append, Every("1s"), blocking=True, max_runs=1))
            await house.turn(SECOND)
        assert called == []
        assert second.report().history[0].status is RunStatus.CANCELLED

    async def test_no_more_run_at_a_time_than_there_are_threads(self) -> None:
        active, most, lock = 0, 0, threading.Lock()
        go_on = threading.Event()

        def counts(run: TaskRun[Any]) -> None:
            nonlocal active, most
            del run
            with lock:
                active, most = active + 1, max(most, active + 1)
            go_on.wait(SOON)
            with lock:
                active -= 1

        house = House(threads=2)
        async with house.scheduler as scheduler:
            for n in range(5):
                scheduler.add(task(counts, blocking=True, max_runs=1, id=f"t{n}"))
            await house.turn(MINUTE)
            await wait_until(lambda: active == 2, within=SOON, sentence="two of them run")
            go_on.set()
            await asyncio.wait_for(scheduler.serve(), SOON)
        assert most == 2

    async def test_a_run_starts_when_it_gets_a_thread(self) -> None:
        begun, go_on = threading.Event(), threading.Event()

        def first(run: TaskRun[Any]) -> None:
            del run
            begun.set()
            go_on.wait(SOON)

        house = House(threads=1)
        async with house.scheduler as scheduler:
            scheduler.add(task(first, blocking=True, max_runs=1, id="first"))
            second = scheduler.add(task(nothing, Every("61s"), blocking=True, max_runs=1))
            await house.turn(MINUTE)
            await wait_until(begun.is_set, within=SOON, sentence="the first one begins")
            await house.turn(10 * SECOND)
            go_on.set()
            (record,) = (await asyncio.wait_for(second.wait(), SOON)).history
        assert (record.at_ms, record.started_ms) == (START_MS + 61 * SECOND, START_MS + 70 * SECOND)
