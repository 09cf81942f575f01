"""What is stored of a task, and a store that has its troubles. A8, A11, A13, A15."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from tampu.errors import (
    AccessDenied,
    ConnectionLost,
    DecodeError,
    ServerBusy,
    ServerUnreachable,
    StoreFailed,
    TampuError,
    WrongContext,
)
from tampu.scheduler import (
    MemoryStore,
    RunStatus,
    ScheduleChanged,
    Source,
    StateDeleted,
    StateLoaded,
    StateRepaired,
    StopReason,
    StoreDegraded,
    StoreRecovered,
    TaskRun,
    TaskState,
    TaskStopped,
)
from tampu.scheduler.stores.store import Loaded
from tampu.timing import At, Cron, Every
from tests.unit.scheduler.clocks import SOON, Function, House, ended, minutes, task
from tests.unit.scheduler.plans import DAY, HOUR, MINUTE, SECOND, START_MS, ms, nothing
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("nothing_is_left")

AWAY = ServerUnreachable("redis://h", "nobody is there")
DENIED = AccessDenied("redis://h", "NOPERM")


class Troubled(MemoryStore):
    """Fails as it is told to, and writes down what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.trouble: dict[str, TampuError] = {}
        self.unreadable = False
        self.failures = 0
        self.saved: list[list[TaskState]] = []
        self.users = 0

    async def open(self) -> None:
        self._meet("open")
        self.users += 1

    async def close(self) -> None:
        self.users -= 1

    async def load(self, task_ids: Sequence[str]) -> list[Loaded]:
        self._meet("load")
        if self.unreadable:
            return [DecodeError("task state", "it is not JSON") for _ in task_ids]
        return await super().load(task_ids)

    async def save(self, states: Sequence[TaskState]) -> None:
        self._meet("save")
        self.saved.append(list(states))
        await super().save(states)

    async def delete(self, task_ids: Sequence[str]) -> None:
        self._meet("delete")
        await super().delete(task_ids)

    async def one(self) -> TaskState:
        """What is stored of the task "t"."""
        [found] = await MemoryStore.load(self, ["t"])
        assert isinstance(found, TaskState)
        return found

    def _meet(self, what: str) -> None:
        if what in self.trouble:
            self.failures += 1
            raise self.trouble[what]


class TestRestoring:
    async def test_a8_a_task_goes_on_where_it_was_by_its_id(self) -> None:
        store = MemoryStore()
        house = House(store=store)
        running = await house.run_beside(task(nothing, Every("1h"), max_runs=2))
        await house.leap(HOUR)
        house.scheduler.handle("t").cancel()
        await ended(running)
        house.clock.turn(ms(30 * MINUTE))
        again = House(store=store, turned=house.clock)
        running = await again.run_beside(task(nothing, Every("1h"), max_runs=2))
        await again.leap(30 * MINUTE)
        report = await ended(running)
        [loaded] = again.notes.all_of(StateLoaded)
        assert (loaded.source, loaded.fired) == (Source.RESTORED, 1)
        assert again.notes.begun == [2 * HOUR], "the grid is where it was"
        assert (report.state.ran, report.stopped) == (2, StopReason.TERMINAL)

    async def test_what_came_due_while_nobody_was_there_is_missed(self) -> None:
        store = MemoryStore()
        house = House(store=store)
        async with house.scheduler as scheduler:
            scheduler.add(task(nothing))
            await house.turn(MINUTE)
        house.clock.turn(ms(5 * MINUTE))
        again = House(store=store, turned=house.clock)
        async with again.scheduler as scheduler:
            scheduler.add(task(nothing))
            await again.idle()
        assert again.notes.begun == minutes([6])
        assert [(at, count) for _, at, count in again.notes.skipped] == [(2 * MINUTE, 4)]

    async def test_a15_4_a_schedule_that_was_edited_is_noticed_and_begins_anew(self) -> None:
        store = MemoryStore()
        house = House(store=store)
        async with house.scheduler as scheduler:
            scheduler.add(task(nothing, Every("1h")))
            await house.idle()
        again = House(store=store, turned=house.clock)
        async with again.scheduler as scheduler:
            scheduler.add(task(nothing, Every("5s")))
            await again.turn(5 * SECOND)
        [changed] = again.notes.all_of(ScheduleChanged)
        assert changed.previous_next_ms == START_MS + HOUR
        assert changed.next_ms == START_MS + 5 * SECOND
        assert again.notes.all_of(StateLoaded)[0].source is Source.CHANGED
        assert again.notes.begun == [5 * SECOND]
        assert again.notes.kinds.index("ScheduleChanged") < again.notes.kinds.index("StateLoaded")

    async def test_a8_a_state_that_cannot_be_read_is_repaired_and_said_so(self) -> None:
        store = Troubled()
        store.unreadable = True
        house = House(store=store)
        async with house.scheduler as scheduler:
            scheduler.add(task(nothing))
            await house.turn(MINUTE)
        [repaired] = house.notes.all_of(StateRepaired)
        assert "not JSON" in repaired.problem
        assert repaired.next_ms == START_MS + MINUTE
        assert house.notes.kinds[:2] == ["StateRepaired", "StateLoaded"]
        assert house.notes.begun == minutes([1])

    async def test_a8_an_interval_that_lost_its_next_instant_is_repaired(self) -> None:
        store = Troubled()
        house = House(store=store)
        async with house.scheduler as scheduler:
            scheduler.add(task(nothing))
            await house.turn(MINUTE)
        await store.save([replace(await store.one(), next_ms=None)])
        again = House(store=store, turned=house.clock)
        async with again.scheduler as scheduler:
            scheduler.add(task(nothing))
            await again.turn(MINUTE)
        assert len(again.notes.all_of(StateRepaired)) == 1
        assert again.notes.begun == minutes([2])
        assert (await store.one()).ran == 2

    async def test_run_twice_on_a_schedule_that_has_ended_does_nothing_more(self) -> None:
        house = House()
        running = await house.run_beside(task(nothing, max_runs=1))
        await house.turn(MINUTE)
        assert len((await ended(running)).history) == 1
        again = await asyncio.wait_for(house.scheduler.run(task(nothing, max_runs=1)), SOON)
        assert (again.history, again.state.ran) == ((), 1)
        assert again.stopped is StopReason.TERMINAL

    async def test_one_whose_limit_was_raised_goes_on(self) -> None:
        house = House()
        running = await house.run_beside(task(nothing, max_runs=1))
        await house.turn(MINUTE)
        await ended(running)
        running = await house.run_beside(task(nothing, max_runs=2))
        await house.turn(MINUTE)
        assert (await ended(running)).state.ran == 2


class TestSaving:
    async def test_a8_an_occurrence_is_behind_us_before_its_run_begins(self) -> None:
        store = Troubled()
        seen = []

        def looks(run: TaskRun[Any]) -> None:
            seen.append((run.at_ms, store.saved[-1][0]))

        house = House(store=store)
        running = await house.run_beside(task(looks, max_runs=1))
        assert [state.fired for [state] in store.saved] == [0], "saved when it was made"
        await house.turn(MINUTE)
        await ended(running)
        [(at_ms, state)] = seen
        assert (state.fired, state.ran, state.next_ms) == (1, 1, None)
        assert at_ms == START_MS + MINUTE
        assert store.saved[-1][0].last_success_ms == START_MS + MINUTE, "and after each run"

    async def test_tasks_of_one_moment_are_saved_together(self) -> None:
        store = Troubled()
        house = House(store=store)
        async with house.scheduler as scheduler:
            for n in range(50):
                scheduler.add(task(nothing, id=f"t{n}"))
            await house.turn(MINUTE)
            assert [len(states) for states in store.saved] == [50, 50, 50]

    async def test_a11_the_state_of_a_schedule_that_has_ended_is_kept(self) -> None:
        store = Troubled()
        house = House(store=store)
        running = await house.run_beside(task(nothing, max_runs=1))
        await house.turn(MINUTE)
        await ended(running)
        assert (await store.one()).ran == 1
        assert house.notes.all_of(StateDeleted) == []

    async def test_a11_or_deleted_if_that_is_wanted(self) -> None:
        store = Troubled()
        house = House(store=store, keep_ended=False)
        running = await house.run_beside(task(nothing, max_runs=1))
        await house.turn(MINUTE)
        report = await ended(running)
        assert await store.load(["t"]) == [None]
        [deleted] = house.notes.all_of(StateDeleted)
        assert (deleted.fired, report.state.ran) == (1, 1)
        assert house.notes.kinds[-2:] == ["StateDeleted", "TaskStopped"]

    async def test_it_ends_once_whoever_wants_something_of_it_meanwhile(self) -> None:
        store = Troubled()
        store.trouble["delete"] = AWAY
        house = House(store=store, keep_ended=False)
        async with house.scheduler as scheduler:
            handle = scheduler.add(task(nothing, At()))
            await wait_until(lambda: store.failures >= 1, within=SOON, sentence="it has ended")
            wish = asyncio.ensure_future(handle.trigger_now())
            await asyncio.sleep(0)
            handle.cancel()
            store.trouble.clear()
            with pytest.raises(WrongContext):
                await ended(wish)
            await house.turn(SECOND)
        assert len(house.notes.all_of(TaskStopped)) == 1
        assert len(house.notes.all_of(StateDeleted)) == 1

    async def test_one_that_was_stopped_keeps_its_state_all_the_same(self) -> None:
        store = Troubled()
        house = House(store=store, keep_ended=False)
        async with house.scheduler as scheduler:
            scheduler.add(task(nothing)).cancel()
        assert (await store.one()).next_ms == START_MS + MINUTE
        assert house.notes.all_of(StateDeleted) == []


class TestTrouble:
    @pytest.mark.parametrize("operation", ["load", "save", "delete"])
    @pytest.mark.parametrize(
        "error",
        [AWAY, ConnectionLost("redis://h", "it broke"), ServerBusy("redis://h", "LOADING", "x")],
        ids=lambda error: type(error).__name__,
    )
    async def test_a_store_that_is_away_is_asked_again_and_nothing_is_lost(
        self, operation: str, error: TampuError
    ) -> None:
        store = Troubled()
        house = House(store=store, keep_ended=False)
        store.trouble[operation] = error
        running = asyncio.ensure_future(house.scheduler.run(task(nothing, At(), id="t")))
        await wait_until(lambda: store.failures >= 3, within=SOON, sentence="it is asked again")
        assert not running.done()
        store.trouble.clear()
        report = await ended(running)
        assert report.stopped is StopReason.TERMINAL
        [degraded] = house.notes.all_of(StoreDegraded)
        assert (degraded.operation.name.lower(), degraded.error) == (operation, str(error))
        assert len(house.notes.all_of(StoreRecovered)) == 1

    async def test_what_came_due_in_an_outage_runs_when_it_is_over(self) -> None:
        store = Troubled()
        house = House(store=store)
        running = await house.run_beside(task(nothing, max_runs=2))
        store.trouble["save"] = AWAY
        house.clock.turn(ms(MINUTE))
        await wait_until(lambda: store.failures >= 2, within=SOON, sentence="it is asked again")
        assert house.notes.begun == [], "it is not behind us while that is not stored"
        house.clock.turn(ms(MINUTE))
        store.trouble.clear()
        report = await ended(running)
        assert house.notes.begun == minutes([1, 2])
        assert (await store.one()).ran == report.state.ran == 2

    @pytest.mark.parametrize("operation", ["load", "save", "delete"])
    @pytest.mark.parametrize(
        "error", [DENIED, StoreFailed("file", "it is full")], ids=["denied", "failed"]
    )
    async def test_a13_a_store_that_refuses_ends_run_with_its_error(
        self, operation: str, error: TampuError
    ) -> None:
        store = Troubled()
        house = House(store=store, keep_ended=False)
        store.trouble[operation] = error
        with pytest.raises(type(error)):
            await asyncio.wait_for(house.scheduler.run(task(nothing, At())), SOON)
        assert store.users == 0, "it is closed all the same"
        [stopped] = house.notes.all_of(TaskStopped)
        assert stopped.reason is StopReason.FAILED

    async def test_a13_it_ends_serve_and_all_runs_and_nobody_is_left_waiting(self) -> None:
        store, function = Troubled(), Function()
        house = House(store=store)
        with pytest.raises(AccessDenied):
            async with house.scheduler as scheduler:
                handle = scheduler.add(task(function, Every("10s"), id="runs"))
                other = scheduler.add(task(nothing))
                await house.turn(10 * SECOND)
                store.trouble["save"] = DENIED
                serving = asyncio.ensure_future(scheduler.serve())
                await house.leap(MINUTE)
                with pytest.raises(AccessDenied):
                    await ended(serving)
                with pytest.raises(AccessDenied):
                    await ended(asyncio.ensure_future(other.wait()))
                with pytest.raises(AccessDenied):
                    scheduler.add(task(nothing, id="late"))
                assert handle.report().stopped is StopReason.FAILED
        assert function.cancelled == 1
        assert function.active == 0

    async def test_runs_that_a_failure_has_cancelled_may_clean_up(self) -> None:
        cleaned = []

        async def cleans_up(run: TaskRun[Any]) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                for _ in range(50):
                    await asyncio.sleep(0)
                cleaned.append(run)

        store = Troubled()
        house = House(store=store)
        running = await house.run_beside(task(cleans_up))
        await house.turn(MINUTE)
        store.trouble["save"] = DENIED
        await house.leap(MINUTE)
        with pytest.raises(AccessDenied):
            await ended(running)
        assert len(cleaned) == 1, "they were waited for"

    async def test_a_store_that_does_not_open_is_told_to_who_enters(self) -> None:
        store = Troubled()
        store.trouble["open"] = AWAY
        house = House(store=store)
        with pytest.raises(ServerUnreachable):
            await house.scheduler.run(task(nothing))
        store.trouble.clear()
        report = await asyncio.wait_for(house.scheduler.run(task(nothing, At())), SOON)
        assert report.stopped is StopReason.TERMINAL
        assert store.users == 0

    async def test_closing_does_not_wait_for_a_store_that_is_away(self) -> None:
        store, function = Troubled(), Function()
        house = House(store=store, grace=0)
        async with house.scheduler as scheduler:
            handle = scheduler.add(task(function))
            await house.turn(MINUTE)
            store.trouble["save"] = AWAY
        assert handle.report().history[0].status is RunStatus.CANCELLED
        assert store.users == 0
        assert (await store.one()).ran == 1

    async def test_a_task_that_was_never_looked_up_is_not_stored_anew(self) -> None:
        store = Troubled()
        kept = TaskState(task_id="t", fired=9, ran=9, next_ms=START_MS + DAY)
        await store.save([kept])
        store.trouble["load"] = AWAY
        house = House(store=store)
        async with house.scheduler as scheduler:
            handle = scheduler.add(task(nothing, Cron("0 0 * * *")))
            wish = asyncio.ensure_future(handle.pause())
            await wait_until(lambda: store.failures >= 1, within=SOON, sentence="it is asked")
        with pytest.raises(TampuError):
            await ended(wish)
        assert await store.one() == kept
