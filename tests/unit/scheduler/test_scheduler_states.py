"""Stored states: restored, saved and deleted."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from tampu.errors import (
    WrongContext,
)
from tampu.scheduler import (
    MemoryStore,
    ScheduleChanged,
    Source,
    StateDeleted,
    StateLoaded,
    StateRepaired,
    StopReason,
    TaskRun,
    TaskStopped,
)
from tampu.timing import At, Every
from tests.unit.scheduler.harness import SOON, Harness, finish, minutes, task
from tests.unit.scheduler.plans import HOUR, MINUTE, SECOND, START_MS, ms, nothing
from tests.unit.scheduler.stores.fragile import UNREACHABLE, RecordingStore
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("no_leftovers")


class TestRestoring:
    async def test_a_task_continues_from_the_state_with_its_id(self) -> None:
        store = MemoryStore()
        harness = Harness(store=store)
        running = await harness.start_run(task(nothing, Every("1h"), max_runs=2))
        await harness.leap(HOUR)
        harness.scheduler.handle("t").cancel()
        await finish(running)
        harness.clock.turn(ms(30 * MINUTE))
        again = Harness(store=store, same_clock=harness.clock)
        running = await again.start_run(task(nothing, Every("1h"), max_runs=2))
        await again.leap(30 * MINUTE)
        report = await finish(running)
        [loaded] = again.log.of(StateLoaded)
        assert (loaded.source, loaded.fired) == (Source.RESTORED, 1)
        assert again.log.started == [2 * HOUR], "the grid is the same"
        assert (report.state.ran, report.stopped) == (2, StopReason.TERMINAL)

    async def test_occurrences_while_no_scheduler_ran_are_missed(self) -> None:
        store = MemoryStore()
        harness = Harness(store=store)
        async with harness.scheduler as scheduler:
            scheduler.add(task(nothing))
            await harness.turn(MINUTE)
        harness.clock.turn(ms(5 * MINUTE))
        again = Harness(store=store, same_clock=harness.clock)
        async with again.scheduler as scheduler:
            scheduler.add(task(nothing))
            await again.idle()
        assert again.log.started == minutes([6])
        assert [(at, count) for _, at, count in again.log.skipped] == [(2 * MINUTE, 4)]

    async def test_a_changed_rule_is_noticed_and_starts_again(self) -> None:
        store = MemoryStore()
        harness = Harness(store=store)
        async with harness.scheduler as scheduler:
            scheduler.add(task(nothing, Every("1h")))
            await harness.idle()
        again = Harness(store=store, same_clock=harness.clock)
        async with again.scheduler as scheduler:
            scheduler.add(task(nothing, Every("5s")))
            await again.turn(5 * SECOND)
        [changed] = again.log.of(ScheduleChanged)
        assert changed.previous_next_ms == START_MS + HOUR
        assert changed.next_ms == START_MS + 5 * SECOND
        assert again.log.of(StateLoaded)[0].source is Source.CHANGED
        assert again.log.started == [5 * SECOND]
        assert again.log.kinds.index("ScheduleChanged") < again.log.kinds.index("StateLoaded")

    async def test_an_unreadable_state_is_repaired_and_reported(self) -> None:
        store = RecordingStore()
        store.unreadable = True
        harness = Harness(store=store)
        async with harness.scheduler as scheduler:
            scheduler.add(task(nothing))
            await harness.turn(MINUTE)
        [repaired] = harness.log.of(StateRepaired)
        assert "not JSON" in repaired.problem
        assert repaired.next_ms == START_MS + MINUTE
        assert harness.log.kinds[:2] == ["StateRepaired", "StateLoaded"]
        assert harness.log.started == minutes([1])

    async def test_an_interval_without_a_next_instant_is_repaired(self) -> None:
        store = RecordingStore()
        harness = Harness(store=store)
        async with harness.scheduler as scheduler:
            scheduler.add(task(nothing))
            await harness.turn(MINUTE)
        await store.save([replace(await store.one(), next_ms=None)])
        again = Harness(store=store, same_clock=harness.clock)
        async with again.scheduler as scheduler:
            scheduler.add(task(nothing))
            await again.turn(MINUTE)
        assert len(again.log.of(StateRepaired)) == 1
        assert again.log.started == minutes([2])
        assert (await store.one()).ran == 2

    async def test_a_task_that_has_ended_does_not_run_again(self) -> None:
        harness = Harness()
        running = await harness.start_run(task(nothing, max_runs=1))
        await harness.turn(MINUTE)
        assert len((await finish(running)).history) == 1
        again = await asyncio.wait_for(harness.scheduler.run(task(nothing, max_runs=1)), SOON)
        assert (again.history, again.state.ran) == ((), 1)
        assert again.stopped is StopReason.TERMINAL

    async def test_a_task_whose_limit_is_raised_continues(self) -> None:
        harness = Harness()
        running = await harness.start_run(task(nothing, max_runs=1))
        await harness.turn(MINUTE)
        await finish(running)
        running = await harness.start_run(task(nothing, max_runs=2))
        await harness.turn(MINUTE)
        assert (await finish(running)).state.ran == 2


class TestSaving:
    async def test_an_occurrence_is_saved_as_done_before_its_run_starts(self) -> None:
        store = RecordingStore()
        seen = []

        def looks(run: TaskRun[Any]) -> None:
            seen.append((run.at_ms, store.saved[-1][0]))

        harness = Harness(store=store)
        running = await harness.start_run(task(looks, max_runs=1))
        assert [state.fired for [state] in store.saved] == [0], "saved when it was added"
        await harness.turn(MINUTE)
        await finish(running)
        [(at_ms, state)] = seen
        assert (state.fired, state.ran, state.next_ms) == (1, 1, None)
        assert at_ms == START_MS + MINUTE
        assert store.saved[-1][0].last_success_ms == START_MS + MINUTE, "saved after each run"

    async def test_tasks_that_are_due_together_are_saved_together(self) -> None:
        store = RecordingStore()
        harness = Harness(store=store)
        async with harness.scheduler as scheduler:
            for n in range(50):
                scheduler.add(task(nothing, id=f"t{n}"))
            await harness.turn(MINUTE)
            assert [len(states) for states in store.saved] == [50, 50, 50]

    async def test_the_state_of_a_task_that_has_ended_is_kept(self) -> None:
        store = RecordingStore()
        harness = Harness(store=store)
        running = await harness.start_run(task(nothing, max_runs=1))
        await harness.turn(MINUTE)
        await finish(running)
        assert (await store.one()).ran == 1
        assert harness.log.of(StateDeleted) == []

    async def test_the_state_of_a_task_that_has_ended_is_deleted_without_keep_ended(self) -> None:
        store = RecordingStore()
        harness = Harness(store=store, keep_ended=False)
        running = await harness.start_run(task(nothing, max_runs=1))
        await harness.turn(MINUTE)
        report = await finish(running)
        assert await store.load(["t"]) == [None]
        [deleted] = harness.log.of(StateDeleted)
        assert (deleted.fired, report.state.ran) == (1, 1)
        assert harness.log.kinds[-2:] == ["StateDeleted", "TaskStopped"]

    async def test_a_request_while_the_state_is_deleted_is_refused(self) -> None:
        store = RecordingStore()
        store.errors["delete"] = UNREACHABLE
        harness = Harness(store=store, keep_ended=False)
        async with harness.scheduler as scheduler:
            handle = scheduler.add(task(nothing, At()))
            await wait_until(
                lambda: store.failures >= 1, within=SOON, sentence="it tries to delete the state"
            )
            request = asyncio.ensure_future(handle.trigger_now())
            await asyncio.sleep(0)
            handle.cancel()
            store.errors.clear()
            with pytest.raises(WrongContext):
                await finish(request)
            await harness.turn(SECOND)
        assert len(harness.log.of(TaskStopped)) == 1
        assert len(harness.log.of(StateDeleted)) == 1

    async def test_a_stopped_task_keeps_its_state_without_keep_ended(self) -> None:
        store = RecordingStore()
        harness = Harness(store=store, keep_ended=False)
        async with harness.scheduler as scheduler:
            scheduler.add(task(nothing)).cancel()
        assert (await store.one()).next_ms == START_MS + MINUTE
        assert harness.log.of(StateDeleted) == []


class TestDeleting:
    async def test_a_task_that_is_stopped_while_its_state_is_deleted_has_ended(self) -> None:
        class StoppingStore(MemoryStore):
            async def delete(self, task_ids: Sequence[str]) -> None:
                handle.cancel()
                await super().delete(task_ids)

        harness = Harness(store=StoppingStore(), keep_ended=False)
        async with harness.scheduler as scheduler:
            handle = scheduler.add(task(nothing, max_runs=1))
            await harness.turn(MINUTE)
            report = await asyncio.wait_for(handle.wait(), SOON)
        assert report.stopped is StopReason.TERMINAL
        assert harness.log.kinds[-2:] == ["StateDeleted", "TaskStopped"]
