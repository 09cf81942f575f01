"""A store that fails: for a while, for good, or while the scheduler closes."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tampu.errors import (
    AccessDenied,
    ConnectionLost,
    ServerBusy,
    ServerUnreachable,
    StoreFailed,
    TampuError,
)
from tampu.scheduler import (
    MemoryStore,
    RunStatus,
    StateDeleted,
    StopReason,
    StoreDegraded,
    StoreRecovered,
    TaskRun,
    TaskState,
    TaskStopped,
)
from tampu.timing import At, Cron, Every
from tests.unit.scheduler.harness import SOON, Harness, HeldFunction, finish, minutes, task
from tests.unit.scheduler.plans import DAY, MINUTE, SECOND, START_MS, ms, nothing
from tests.unit.scheduler.stores.fragile import UNREACHABLE, FragileStore, RecordingStore
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("no_leftovers")

DENIED = AccessDenied("redis://h", "NOPERM")


class TestOutages:
    @pytest.mark.parametrize("operation", ["load", "save", "delete"])
    @pytest.mark.parametrize(
        "error",
        [
            UNREACHABLE,
            ConnectionLost("redis://h", "it broke"),
            ServerBusy("redis://h", "LOADING", "x"),
        ],
        ids=lambda error: type(error).__name__,
    )
    async def test_a_call_of_an_unreachable_store_is_repeated_and_nothing_is_lost(
        self, operation: str, error: TampuError
    ) -> None:
        store = RecordingStore()
        harness = Harness(store=store, keep_ended=False)
        store.errors[operation] = error
        running = asyncio.ensure_future(harness.scheduler.run(task(nothing, At(), id="t")))
        await wait_until(lambda: store.failures >= 3, within=SOON, sentence="it tries again")
        assert not running.done()
        store.errors.clear()
        report = await finish(running)
        assert report.stopped is StopReason.TERMINAL
        [degraded] = harness.log.of(StoreDegraded)
        assert (degraded.operation.name.lower(), degraded.error) == (operation, str(error))
        assert len(harness.log.of(StoreRecovered)) == 1

    async def test_occurrences_of_an_outage_run_after_it(self) -> None:
        store = RecordingStore()
        harness = Harness(store=store)
        running = await harness.start_run(task(nothing, max_runs=2))
        store.errors["save"] = UNREACHABLE
        harness.clock.turn(ms(MINUTE))
        await wait_until(lambda: store.failures >= 2, within=SOON, sentence="it tries again")
        assert harness.log.started == [], "no run starts before it is saved"
        harness.clock.turn(ms(MINUTE))
        store.errors.clear()
        report = await finish(running)
        assert harness.log.started == minutes([1, 2])
        assert (await store.one()).ran == report.state.ran == 2

    @pytest.mark.parametrize("operation", ["load", "save", "delete"])
    @pytest.mark.parametrize(
        "error", [DENIED, StoreFailed("file", "it is full")], ids=["denied", "failed"]
    )
    async def test_an_error_that_will_not_pass_ends_run(
        self, operation: str, error: TampuError
    ) -> None:
        store = RecordingStore()
        harness = Harness(store=store, keep_ended=False)
        store.errors[operation] = error
        with pytest.raises(type(error)):
            await asyncio.wait_for(harness.scheduler.run(task(nothing, At())), SOON)
        assert store.users == 0, "it is closed"
        [stopped] = harness.log.of(TaskStopped)
        assert stopped.reason is StopReason.FAILED

    async def test_an_error_that_will_not_pass_ends_serve_and_all_runs(self) -> None:
        store, function = RecordingStore(), HeldFunction()
        harness = Harness(store=store)
        with pytest.raises(AccessDenied):
            async with harness.scheduler as scheduler:
                handle = scheduler.add(task(function, Every("10s"), id="runs"))
                other = scheduler.add(task(nothing))
                await harness.turn(10 * SECOND)
                store.errors["save"] = DENIED
                serving = asyncio.ensure_future(scheduler.serve())
                await harness.leap(MINUTE)
                with pytest.raises(AccessDenied):
                    await finish(serving)
                with pytest.raises(AccessDenied):
                    await finish(asyncio.ensure_future(other.wait()))
                with pytest.raises(AccessDenied):
                    scheduler.add(task(nothing, id="late"))
                assert handle.report().stopped is StopReason.FAILED
        assert function.cancelled == 1
        assert function.active == 0

    async def test_runs_that_a_failure_cancels_may_clean_up(self) -> None:
        cleaned = []

        async def cleans_up(run: TaskRun[Any]) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                for _ in range(50):
                    await asyncio.sleep(0)
                cleaned.append(run)

        store = RecordingStore()
        harness = Harness(store=store)
        running = await harness.start_run(task(cleans_up))
        await harness.turn(MINUTE)
        store.errors["save"] = DENIED
        await harness.leap(MINUTE)
        with pytest.raises(AccessDenied):
            await finish(running)
        assert len(cleaned) == 1, "closing waits for them"

    async def test_an_error_while_opening_the_store_is_raised(self) -> None:
        store = RecordingStore()
        store.errors["open"] = UNREACHABLE
        harness = Harness(store=store)
        with pytest.raises(ServerUnreachable):
            await harness.scheduler.run(task(nothing))
        store.errors.clear()
        report = await asyncio.wait_for(harness.scheduler.run(task(nothing, At())), SOON)
        assert report.stopped is StopReason.TERMINAL
        assert store.users == 0

    async def test_closing_does_not_wait_for_an_unreachable_store(self) -> None:
        store, function = RecordingStore(), HeldFunction()
        harness = Harness(store=store, grace=0)
        async with harness.scheduler as scheduler:
            handle = scheduler.add(task(function))
            await harness.turn(MINUTE)
            store.errors["save"] = UNREACHABLE
        assert handle.report().history[0].status is RunStatus.CANCELLED
        assert store.users == 0
        assert (await store.one()).ran == 1

    async def test_a_task_that_was_never_loaded_is_not_saved(self) -> None:
        store = RecordingStore()
        stored = TaskState(task_id="t", fired=9, ran=9, next_ms=START_MS + DAY)
        await store.save([stored])
        store.errors["load"] = UNREACHABLE
        harness = Harness(store=store)
        async with harness.scheduler as scheduler:
            handle = scheduler.add(task(nothing, Cron("0 0 * * *")))
            request = asyncio.ensure_future(handle.pause())
            await wait_until(lambda: store.failures >= 1, within=SOON, sentence="it tries to load")
        with pytest.raises(TampuError):
            await finish(request)
        assert await store.one() == stored


class TestClosing:
    async def test_a_state_that_could_not_be_deleted_is_not_reported_as_deleted(self) -> None:
        store = FragileStore()
        store.error, store.failing = UNREACHABLE, {"delete"}
        harness = Harness(store=store, keep_ended=False)
        async with harness.scheduler as scheduler:
            scheduler.add(task(nothing, At()))
            await wait_until(
                lambda: store.calls.count("delete") > 1, within=SOON, sentence="it tries again"
            )
        assert harness.log.kinds[-1] == "TaskStopped"
        assert harness.log.of(StateDeleted) == []
        assert await store.load(["t"]) != [None]

    async def test_an_occurrence_that_could_not_be_saved_does_not_run(self) -> None:
        class FailingStore(MemoryStore):
            fails = False
            failures = 0

            async def save(self, states: Sequence[TaskState]) -> None:
                if self.fails:
                    self.failures += 1
                    raise UNREACHABLE
                await super().save(states)

        store, function = FailingStore(), HeldFunction()
        harness = Harness(store=store)
        async with harness.scheduler as scheduler:
            handle = scheduler.add(task(function))
            await handle.ready()
            store.fails = True
            harness.clock.turn("1m")
            await wait_until(lambda: store.failures > 1, within=SOON, sentence="it tries again")
        assert function.runs == []
        (stored,) = await store.load(["t"])
        assert isinstance(stored, TaskState)
        assert (stored.next_ms, stored.fired) == (START_MS + MINUTE, 0)
