"""What befalls a scheduler from outside: guards and stores of others, and other kinds of tasks."""

import asyncio
import logging
import sys
from collections.abc import Sequence

import pytest

from tampu.errors import OptionError, ServerUnreachable, WrongContext
from tampu.scheduler import (
    MemoryStore,
    ScheduledTask,
    Scheduler,
    Scope,
    SkipReason,
    StateDeleted,
    StopReason,
    TaskState,
)
from tampu.scheduler.guard import Refusal
from tampu.timing import At, Every
from tests.unit.scheduler.clocks import SOON, Function, House, minutes, task
from tests.unit.scheduler.fragile import Fragile
from tests.unit.scheduler.hand_guard import HandGuard
from tests.unit.scheduler.plans import MINUTE, START_MS, nothing
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("nothing_is_left")

AWAY = ServerUnreachable("redis://house", "it did not answer in time")


class TestGuards:
    async def test_one_that_fails_in_its_own_way_lets_nothing_run_and_ends_nothing(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        guard = HandGuard()
        guard.on_acquire = ZeroDivisionError("in the guard")
        house = House(guard=guard)
        async with house.scheduler as scheduler:
            scheduler.add(task(nothing))
            await house.turn(MINUTE)
            guard.on_acquire = None
        assert [reason for reason, _, _ in house.notes.skipped] == [SkipReason.GUARD_AWAY]
        assert "a guard of the scheduler failed" in caplog.messages

    async def test_one_that_is_away_is_logged_once_each_time(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        guard = HandGuard()
        house = House(guard=guard)
        async with house.scheduler as scheduler:
            scheduler.add(task(nothing))
            for trouble in (AWAY, AWAY, Refusal.DONE, AWAY):
                guard.on_acquire = trouble
                await house.turn(MINUTE)
        away, done = SkipReason.GUARD_AWAY, SkipReason.DONE
        assert [reason for reason, _, _ in house.notes.skipped] == [away, away, done, away]
        assert caplog.messages.count("no run begins without its guard") == 2

    @pytest.mark.parametrize(
        ("option", "given"), [("resource", "house"), ("scope", Scope.RESOURCE)]
    )
    async def test_what_only_a_guard_can_see_to_is_refused_without_one(
        self, option: str, given: object
    ) -> None:
        guarded = ScheduledTask("t", Every("1m"), nothing, **{option: given})  # type: ignore[arg-type]
        async with Scheduler() as scheduler:
            with pytest.raises(
                OptionError, match=f"^Invalid {option} .*needs a scheduler with a guard"
            ):
                scheduler.add(guarded)


class TestLogging:
    """What goes wrong is to be seen without an observer too."""

    async def test_a_store_that_is_away_and_back_is_logged_once(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "tampu.scheduler")
        store = Fragile()
        store.trouble = AWAY
        scheduler = Scheduler(store=store)
        running = asyncio.ensure_future(scheduler.run(task(nothing, At())))
        await wait_until(lambda: len(store.calls) > 2, within=SOON, sentence="it is asked again")
        store.trouble = None
        await asyncio.wait_for(running, SOON)
        assert caplog.messages == [
            "a store cannot be reached, and is asked again",
            "a store is back",
        ]

    async def test_a_run_that_failed_is_logged_without_the_text_of_its_error(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fails(run: object) -> None:
            raise ValueError("secret")

        report = await asyncio.wait_for(
            Scheduler().run(task(fails, Every("1ms"), max_runs=1)), SOON
        )
        assert report.state.last_error == "ValueError: secret"
        (record,) = caplog.records
        assert record.message == "a run failed"
        assert vars(record)["task_id"] == "t"
        assert "secret" not in repr(vars(record))


async def test_what_is_no_task_is_refused_by_name() -> None:
    async with Scheduler() as scheduler:
        with pytest.raises(OptionError, match=r"^Invalid task 't': expected a ScheduledTask"):
            scheduler.add("t")  # type: ignore[arg-type]


class TestDeleting:
    async def test_a_task_that_is_stopped_while_its_state_is_deleted_has_ended(self) -> None:
        class Stops(MemoryStore):
            async def delete(self, task_ids: Sequence[str]) -> None:
                handle.cancel()
                await super().delete(task_ids)

        house = House(store=Stops(), keep_ended=False)
        async with house.scheduler as scheduler:
            handle = scheduler.add(task(nothing, max_runs=1))
            await house.turn(MINUTE)
            report = await asyncio.wait_for(handle.wait(), SOON)
        assert report.stopped is StopReason.TERMINAL
        assert house.notes.kinds[-2:] == ["StateDeleted", "TaskStopped"]


class TestClosingWithoutTheStore:
    async def test_what_could_not_be_deleted_is_not_told_to_be_gone(self) -> None:
        store = Fragile()
        store.trouble, store.refused = AWAY, {"delete"}
        house = House(store=store, keep_ended=False)
        async with house.scheduler as scheduler:
            scheduler.add(task(nothing, At()))
            await wait_until(
                lambda: store.calls.count("delete") > 1, within=SOON, sentence="it is asked again"
            )
        assert house.notes.kinds[-1] == "TaskStopped"
        assert house.notes.all_of(StateDeleted) == []
        assert await store.load(["t"]) != [None]

    async def test_what_could_not_be_stored_does_not_run_and_is_still_to_run(self) -> None:
        class Leaving(MemoryStore):
            away = False
            refused = 0

            async def save(self, states: Sequence[TaskState]) -> None:
                if self.away:
                    self.refused += 1
                    raise AWAY
                await super().save(states)

        store, function = Leaving(), Function()
        house = House(store=store)
        async with house.scheduler as scheduler:
            handle = scheduler.add(task(function))
            await handle.ready()
            store.away = True
            house.clock.turn("1m")
            await wait_until(lambda: store.refused > 1, within=SOON, sentence="it is asked again")
        assert function.runs == []
        (kept,) = await store.load(["t"])
        assert isinstance(kept, TaskState)
        assert (kept.next_ms, kept.fired) == (START_MS + MINUTE, 0)


class TestReady:
    async def test_a_task_that_is_ready_is_stored_and_armed(self) -> None:
        store = MemoryStore()
        house = House(store=store)
        async with house.scheduler as scheduler:
            handle = scheduler.add(task(nothing))
            await asyncio.wait_for(handle.ready(), SOON)
            assert handle.report().state.next_ms == START_MS + MINUTE
            assert await store.load(["t"]) == [handle.report().state]
            handle.cancel()
            with pytest.raises(WrongContext, match=r"^ready belongs to a task that is not over"):
                await handle.ready()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="asyncio has no eager tasks yet")
async def test_tasks_that_are_over_before_they_are_known_leave_nothing_behind() -> None:
    asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined, unused-ignore]
    house = House()
    async with house.scheduler as scheduler:
        scheduler.add(task(nothing))
        await house.turn(2 * MINUTE)
    assert house.notes.ended == minutes([1, 2])
