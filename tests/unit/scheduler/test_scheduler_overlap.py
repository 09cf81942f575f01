"""Missed occurrences, overlapping runs, cancelled runs, and threads."""

import asyncio
import threading
from typing import Any

import pytest

from tampu.scheduler import MemoryStore, RunQueued, RunStatus, SkipReason, TaskRun
from tampu.scheduler.guard import Guard, Lease, Refusal, Slot
from tampu.timing import Every, Missed, Overlap
from tests.unit.scheduler.harness import SOON, Harness, HeldFunction, finish, minutes, task
from tests.unit.scheduler.plans import MINUTE, SECOND, START_MS, ms, nothing
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("no_leftovers")

OVERLAP, QUEUE_FULL, MISSED = SkipReason.OVERLAP, SkipReason.QUEUE_FULL, SkipReason.MISSED


class TestMissed:
    async def test_once_runs_the_latest_and_reports_the_others_as_skipped(self) -> None:
        harness = Harness()
        running = await harness.start_run(task(nothing, max_runs=1))
        await harness.leap(5 * MINUTE)
        report = await finish(running)
        assert harness.log.skipped == [(MISSED, MINUTE, 4)]
        [record] = report.history
        assert (record.at_ms - START_MS, record.catch_up) == (5 * MINUTE, True)
        assert report.last_skip_reason is MISSED

    async def test_skip_runs_the_latest_if_it_is_on_time(self) -> None:
        harness = Harness()
        each = task(nothing, missed=Missed.SKIP.within(grace="5s"), max_fires=4)
        running = await harness.start_run(each)
        await harness.leap(2 * MINUTE + 5 * SECOND)
        assert (harness.log.started, harness.log.skipped) == (minutes([2]), [(MISSED, MINUTE, 1)])
        await harness.leap(2 * MINUTE + SECOND)
        await finish(running)
        assert harness.log.started == minutes([2])
        assert harness.log.skipped[1:] == [(MISSED, 3 * MINUTE, 2)]

    async def test_a_slightly_late_wakeup_loses_nothing(self) -> None:
        harness = Harness()
        running = await harness.start_run(task(nothing, missed=Missed.SKIP, max_fires=1))
        await harness.leap(MINUTE + 26)
        report = await finish(running)
        assert (report.state.ran, report.history[0].catch_up) == (1, False)

    @pytest.mark.parametrize("overlap", [Overlap.SKIP, Overlap.QUEUE_ONE])
    async def test_missed_runs_come_one_after_the_other(self, overlap: Overlap) -> None:
        function, harness = HeldFunction(), Harness()
        running = await harness.start_run(
            task(function, max_runs=4, missed=Missed.all(), overlap=overlap)
        )
        await harness.leap(3 * MINUTE)
        for done in (1, 2, 3):
            assert (len(function.runs), function.active) == (done, 1)
            function.release()
            await harness.idle()
        await harness.turn(MINUTE)
        function.release()
        await finish(running)
        assert harness.log.started == minutes([1, 2, 3, 4])
        assert harness.log.skipped == []
        assert [run.catch_up for run in function.runs] == [True, True, False, False]

    async def test_missed_runs_overlap_if_that_is_allowed(self) -> None:
        function, harness = HeldFunction(), Harness()
        running = await harness.start_run(
            task(function, max_runs=3, missed=Missed.all(), overlap=Overlap.ALLOW)
        )
        await harness.leap(3 * MINUTE)
        assert function.active == 3
        function.release()
        await finish(running)

    async def test_other_tasks_of_the_loop_progress_between_missed_runs(self) -> None:
        turns: list[int] = []
        seen: list[int] = []

        async def ticks() -> None:
            while True:
                turns.append(len(seen))
                await asyncio.sleep(0)

        harness = Harness()
        each = task(lambda run: seen.append(run.at_ms), missed=Missed.all(), max_runs=50)
        running = await harness.start_run(each)
        ticking = asyncio.ensure_future(ticks())
        harness.clock.turn(ms(50 * MINUTE))
        await finish(running)
        ticking.cancel()
        assert set(range(50)) <= set(turns)

    async def test_the_number_of_missed_runs_is_limited(self) -> None:
        harness = Harness()
        each = task(
            nothing, Every("1ms"), missed=Missed.all(max=5).within(grace=0), max_fires=10**6
        )
        running = await harness.start_run(each)
        await harness.leap(10**6)
        await finish(running)
        # The last one is on time, and the five before it catch up.
        assert harness.log.skipped == [(MISSED, 1, 10**6 - 6)]
        assert harness.log.started == [10**6 - n for n in (5, 4, 3, 2, 1, 0)]


class TestOverlap:
    async def test_skip_drops_occurrences_while_a_run_is_active(self) -> None:
        function, harness = HeldFunction(), Harness()
        running = await harness.start_run(task(function, max_runs=2))
        await harness.turn(3 * MINUTE)
        assert harness.log.started == minutes([1])
        assert harness.log.skipped == [(OVERLAP, 2 * MINUTE, 1), (OVERLAP, 3 * MINUTE, 1)]
        function.release()
        await harness.turn(MINUTE)
        function.release()
        report = await finish(running)
        assert harness.log.started == minutes([1, 4])
        assert report.last_skip_reason is OVERLAP

    async def test_queue_one_keeps_the_first_occurrence_until_the_run_ends(self) -> None:
        function, harness = HeldFunction(), Harness()
        running = await harness.start_run(task(function, overlap=Overlap.QUEUE_ONE, max_runs=2))
        await harness.turn(4 * MINUTE)
        [queued] = harness.log.of(RunQueued)
        assert queued.at_ms == START_MS + 2 * MINUTE
        assert harness.log.skipped == [(QUEUE_FULL, 3 * MINUTE, 1), (QUEUE_FULL, 4 * MINUTE, 1)]
        function.release()
        await harness.idle()
        assert harness.log.started == minutes([1, 2]), "at once, and not at the next instant"
        function.release()
        await finish(running)

    async def test_a_queued_occurrence_survives_a_restart(self) -> None:
        store, function = MemoryStore(), HeldFunction()
        harness = Harness(store=store, grace=0)
        async with harness.scheduler as scheduler:
            scheduler.add(task(function, overlap=Overlap.QUEUE_ONE))
            await harness.turn(2 * MINUTE)
            assert harness.log.of(RunQueued)
        again = Harness(store=store, same_clock=harness.clock)
        async with again.scheduler as scheduler:
            handle = scheduler.add(task(nothing, overlap=Overlap.QUEUE_ONE))
            await again.idle()
            assert again.log.started == minutes([2])
            state = handle.report().state
            assert (state.fired, state.ran, state.queued) == (2, 2, None)

    async def test_allow_runs_them_at_the_same_time(self) -> None:
        function, harness = HeldFunction(), Harness()
        running = await harness.start_run(task(function, overlap=Overlap.ALLOW, max_runs=3))
        await harness.turn(3 * MINUTE)
        assert function.active == 3
        assert not running.done(), "the task ends with its last run"
        function.release()
        await finish(running)
        assert harness.log.ended == minutes([1, 2, 3])


class ExclusiveGuard(Guard):
    """Gives its resource to one run at a time."""

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
    async def test_the_active_run_is_cancelled_for_the_next(self) -> None:
        function, harness = HeldFunction(), Harness()
        each = task(function, overlap=Overlap.CANCEL_RUNNING, max_runs=3)
        running = await harness.start_run(each)
        await harness.turn(3 * MINUTE)
        assert (function.active, function.cancelled) == (1, 2)
        assert [run.cancelled for run in function.runs] == [True, True, False]
        function.release()
        report = await finish(running)
        assert [record.status for record in report.history] == [
            RunStatus.CANCELLED,
            RunStatus.CANCELLED,
            RunStatus.SUCCESS,
        ]
        assert report.state.failed == 0

    async def test_the_next_run_starts_after_the_cleanup_of_the_cancelled_one(self) -> None:
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

        harness = Harness()
        each = task(cleans_up, overlap=Overlap.CANCEL_RUNNING, max_runs=3)
        running = await harness.start_run(each)
        await harness.turn(3 * MINUTE)
        # The second never started: the third came while it waited. The first is cancelled once.
        assert order == ["begin 1"]
        cleaned.set()
        report = await finish(running)
        assert order == ["begin 1", "end 1", "begin 3"]
        statuses = {record.at_ms - START_MS: record.status for record in report.history}
        assert statuses == {
            MINUTE: RunStatus.CANCELLED,
            2 * MINUTE: RunStatus.CANCELLED,
            3 * MINUTE: RunStatus.SUCCESS,
        }

    async def test_the_next_run_asks_the_guard_after_the_cancelled_one_has_released_it(
        self,
    ) -> None:
        function, guard = HeldFunction(), ExclusiveGuard()
        harness = Harness(guard=guard)
        each = task(function, overlap=Overlap.CANCEL_RUNNING, max_runs=3)
        running = await harness.start_run(each)
        for count in (1, 2, 3):
            await harness.turn(MINUTE)
            await wait_until(
                lambda count=count: len(function.runs) == count,  # type: ignore[misc]
                within=SOON,
                sentence="the next run has started",
            )
        function.release()
        report = await finish(running)
        assert harness.log.skipped == []
        assert [record.status for record in report.history] == [
            RunStatus.CANCELLED,
            RunStatus.CANCELLED,
            RunStatus.SUCCESS,
        ]

    async def test_a_run_that_ignores_the_cancellation_is_awaited(self) -> None:
        go_on = asyncio.Event()
        started = []

        async def stubborn(run: TaskRun[Any]) -> None:
            started.append(run.at_ms)
            while not go_on.is_set():
                try:
                    await go_on.wait()
                except asyncio.CancelledError:
                    continue

        harness = Harness()
        each = task(stubborn, overlap=Overlap.CANCEL_RUNNING, max_runs=2)
        running = await harness.start_run(each)
        await harness.turn(2 * MINUTE)
        assert len(started) == 1
        go_on.set()
        report = await finish(running)
        assert [record.status for record in report.history] == [RunStatus.SUCCESS] * 2


class TestThreads:
    async def test_a_run_in_a_thread_sees_that_it_is_cancelled(self) -> None:
        seen = threading.Event()
        started = threading.Event()

        def looks(run: TaskRun[Any]) -> None:
            started.set()
            limit = threading.Event()
            for _ in range(1000):
                if run.cancelled:
                    seen.set()
                    return
                limit.wait(0.005)

        harness = Harness(grace=0)
        async with harness.scheduler as scheduler:
            handle = scheduler.add(task(looks, blocking=True))
            await harness.turn(MINUTE)
            await wait_until(started.is_set, within=SOON, sentence="it has started")
        assert seen.is_set(), "closing waits for it"
        assert handle.report().history[0].status is RunStatus.CANCELLED

    async def test_a_cancelled_run_that_waits_for_a_thread_is_not_called(self) -> None:
        started = threading.Event()
        called: list[TaskRun[Any]] = []

        def first(run: TaskRun[Any]) -> None:
            started.set()
            for _ in range(1000):
                if run.cancelled:
                    return
                threading.Event().wait(0.005)

        harness = Harness(grace=0, threads=1)
        async with harness.scheduler as scheduler:
            scheduler.add(task(first, blocking=True, id="first"))
            await harness.turn(MINUTE)
            await wait_until(started.is_set, within=SOON, sentence="it has started")
            second = scheduler.add(task(called.append, Every("1s"), blocking=True, max_runs=1))
            await harness.turn(SECOND)
        assert called == []
        assert second.report().history[0].status is RunStatus.CANCELLED

    async def test_the_number_of_threads_limits_the_runs(self) -> None:
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

        harness = Harness(threads=2)
        async with harness.scheduler as scheduler:
            for n in range(5):
                scheduler.add(task(counts, blocking=True, max_runs=1, id=f"t{n}"))
            await harness.turn(MINUTE)
            await wait_until(lambda: active == 2, within=SOON, sentence="two of them run")
            go_on.set()
            await asyncio.wait_for(scheduler.serve(), SOON)
        assert most == 2

    async def test_a_run_starts_when_it_gets_a_thread(self) -> None:
        started, go_on = threading.Event(), threading.Event()

        def first(run: TaskRun[Any]) -> None:
            del run
            started.set()
            go_on.wait(SOON)

        harness = Harness(threads=1)
        async with harness.scheduler as scheduler:
            scheduler.add(task(first, blocking=True, max_runs=1, id="first"))
            second = scheduler.add(task(nothing, Every("61s"), blocking=True, max_runs=1))
            await harness.turn(MINUTE)
            await wait_until(started.is_set, within=SOON, sentence="the first run has started")
            await harness.turn(10 * SECOND)
            go_on.set()
            (record,) = (await asyncio.wait_for(second.wait(), SOON)).history
        assert (record.at_ms, record.started_ms) == (START_MS + 61 * SECOND, START_MS + 70 * SECOND)
