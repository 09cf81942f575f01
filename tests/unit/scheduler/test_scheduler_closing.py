"""How a scheduler begins and ends, and who shares it. A1, A11."""

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from tampu.errors import OptionError, WrongContext
from tampu.scheduler import (
    MemoryStore,
    RunStatus,
    ScheduledTask,
    Scheduler,
    SkipReason,
    StopReason,
    TaskReport,
    TaskRun,
    TaskState,
)
from tampu.scheduler.guard import Guard, Lease, Refusal, Slot
from tampu.scheduler.stores.coordinated import CoordinatedStore
from tampu.timing import At, Every, Overlap
from tests.unit.scheduler.clocks import SOON, Function, House, ended, minutes, task
from tests.unit.scheduler.plans import MINUTE, SECOND, START_MS, ms, nothing
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("nothing_is_left")


class TestServing:
    async def test_many_tasks_at_once_each_with_its_report(self) -> None:
        house = House()
        async with house.scheduler as scheduler:
            scheduler.add(task(nothing, Every("10s"), id="a", max_runs=6))
            scheduler.add(task(nothing, Every("20s"), id="b", max_runs=3))
            serving = asyncio.ensure_future(scheduler.serve())
            await house.turn(MINUTE)
            reports = await ended(serving)
        assert {key: report.state.ran for key, report in reports.items()} == {"a": 6, "b": 3}

    async def test_one_that_came_and_went_meanwhile_is_reported_too(self) -> None:
        house = House()
        async with house.scheduler as scheduler:
            scheduler.add(task(nothing, At(), id="before"))
            scheduler.add(task(nothing, max_runs=1, id="long"))
            await house.idle()
            serving = asyncio.ensure_future(scheduler.serve())
            await house.idle()
            scheduler.add(task(nothing, At(), id="meanwhile"))
            await house.turn(MINUTE)
            reports = await ended(serving)
            assert set(reports) == {"before", "long", "meanwhile"}

    async def test_of_those_that_ended_before_the_last_thousand_are_reported(self) -> None:
        house = House()
        async with house.scheduler as scheduler:
            for n in range(1010):
                scheduler.add(task(nothing, At(), id=f"t{n}"))
            await house.idle()
            reports = await asyncio.wait_for(scheduler.serve(), SOON)
        assert list(reports) == [f"t{n}" for n in range(10, 1010)]

    async def test_without_any_task_there_is_nothing_to_serve(self) -> None:
        async with House().scheduler as scheduler:
            assert await asyncio.wait_for(scheduler.serve(), SOON) == {}

    async def test_a_task_may_add_another(self) -> None:
        house = House()

        def adds(run: TaskRun[Any]) -> None:
            house.scheduler.add(task(nothing, Every("1s"), id=f"{run.at_ms}", max_runs=1))

        async with house.scheduler as scheduler:
            scheduler.add(task(adds, max_runs=1))
            serving = asyncio.ensure_future(scheduler.serve())
            await house.turn(MINUTE + SECOND)
            reports = await ended(serving)
            assert set(reports) == {"t", f"{START_MS + MINUTE}"}

    async def test_an_id_can_be_had_once(self) -> None:
        house = House()
        async with house.scheduler as scheduler:
            scheduler.add(task(nothing))
            with pytest.raises(OptionError, match="is taken by another task") as refused:
                scheduler.add(task(nothing, Every("5s")))
            assert refused.value.option == "id"
            with pytest.raises(OptionError):
                await scheduler.run(task(nothing))
            await house.turn(MINUTE)
            assert house.notes.begun == minutes([1]), "the one that was there goes on"

    async def test_what_is_shared_by_many_schedulers_cannot_overlap(self) -> None:
        scheduler = Scheduler(store=CoordinatedStore("redis://127.0.0.1:1"))
        with pytest.raises((OptionError, WrongContext)):
            scheduler.add(task(nothing, overlap=Overlap.ALLOW))

    @pytest.mark.parametrize("what", ["add", "handle", "serve", "cancel", "shutdown"])
    async def test_outside_of_async_with_there_is_nothing_to_do(self, what: str) -> None:
        scheduler = House().scheduler
        calls: dict[str, Any] = {"add": (task(nothing),), "handle": ("t",)}
        with pytest.raises(WrongContext, match="inside of `async with scheduler`"):
            answer = getattr(scheduler, what)(*calls.get(what, ()))
            if what == "serve":
                await answer


class TestSharing:
    async def test_two_runs_at_once_share_one_loop(self) -> None:
        house = House()
        first = await house.run_beside(task(nothing, id="a", max_runs=1))
        second = await house.run_beside(task(nothing, id="b", max_runs=2))
        loops = [t for t in asyncio.all_tasks() if t.get_name() == "tampu-scheduler"]
        assert len(loops) == 1
        await house.turn(MINUTE)
        assert (await ended(first)).state.ran == 1
        await house.turn(MINUTE)
        assert (await ended(second)).state.ran == 2

    async def test_it_goes_on_until_the_last_of_its_users_has_left(self) -> None:
        house = House()
        async with house.scheduler:
            async with house.scheduler as scheduler:
                scheduler.add(task(nothing))
            await house.turn(MINUTE)
            assert house.notes.begun == minutes([1])

    async def test_it_can_be_opened_again(self) -> None:
        house = House()
        for n in (1, 2):
            async with house.scheduler as scheduler:
                handle = scheduler.add(task(nothing))
                await house.turn(MINUTE)
                assert handle.report().state.ran == n

    async def test_who_is_cancelled_while_it_runs_a_task_leaves_nothing_behind(self) -> None:
        function, house = Function(), House()
        running = await house.run_beside(task(function))
        await house.turn(MINUTE)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ended(running)
        assert (function.active, function.cancelled) == (0, 1)

    async def test_who_is_cancelled_among_others_takes_its_own_task_along(self) -> None:
        house = House()
        async with house.scheduler as scheduler:
            running = await house.run_beside(task(nothing))
            running.cancel()
            await asyncio.wait([running])
            await house.idle()
            scheduler.add(task(nothing))  # its id is free
            await house.turn(MINUTE)
        assert house.notes.begun == minutes([1])


class TestClosing:
    async def test_runs_have_all_the_time_they_need(self) -> None:
        function, house = Function(), House()

        async def leaves() -> TaskReport:
            async with house.scheduler as scheduler:
                handle = scheduler.add(task(function))
                await house.turn(MINUTE)
            return handle.report()

        leaving = asyncio.ensure_future(leaves())
        await wait_until(lambda: function.active == 1, within=SOON, sentence="it runs")
        for _ in range(100):
            await asyncio.sleep(0)
        assert not leaving.done()
        function.let_go()
        report = await ended(leaving)
        assert report.history[0].status is RunStatus.SUCCESS
        assert report.stopped is StopReason.SHUTDOWN

    async def test_or_as_long_as_the_grace_and_are_cancelled_then(self) -> None:
        function = Function()
        house = House(grace=0.02)
        async with house.scheduler as scheduler:
            handle = scheduler.add(task(function))
            await house.turn(MINUTE)
        report = handle.report()
        assert report.history[0].status is RunStatus.CANCELLED
        assert function.runs[0].cancelled
        assert (report.state.ran, report.state.failed) == (1, 0)

    async def test_an_error_inside_cancels_the_runs_at_once(self) -> None:
        function, house = Function(), House(grace="1h")
        with pytest.raises(ZeroDivisionError):
            async with house.scheduler as scheduler:
                handle = scheduler.add(task(function))
                await house.turn(MINUTE)
                raise ZeroDivisionError
        assert function.cancelled == 1
        assert handle.report().stopped is StopReason.SHUTDOWN

    async def test_a_run_that_was_decided_on_and_has_yet_to_begin_is_cancelled_too(self) -> None:
        gate = asyncio.Event()

        class Slow(MemoryStore):
            async def save(self, states: Sequence[TaskState]) -> None:
                if any(state.ran for state in states):
                    await gate.wait()
                await super().save(states)

        function = Function()
        house = House(store=Slow(), grace=0)
        leaving: asyncio.Future[None]

        async def leaves() -> None:
            async with house.scheduler as scheduler:
                scheduler.add(task(function))
                await house.idle()
                house.clock.turn(ms(MINUTE))
                for _ in range(20):
                    await asyncio.sleep(0)

        leaving = asyncio.ensure_future(leaves())
        for _ in range(200):
            await asyncio.sleep(0)
        assert not leaving.done()
        gate.set()
        await ended(leaving)
        assert function.active == 0

    async def test_one_who_gives_up_closing_leaves_no_run_behind(self) -> None:
        function, house = Function(), House()

        async def leaves() -> None:
            async with house.scheduler as scheduler:
                scheduler.add(task(function))
                await house.turn(MINUTE)

        leaving = asyncio.ensure_future(leaves())
        await wait_until(lambda: function.active == 1, within=SOON, sentence="it runs")
        for _ in range(50):
            await asyncio.sleep(0)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ended(leaving)
        await wait_until(lambda: function.active == 0, within=SOON, sentence="it is cancelled")

    async def test_a_blocking_run_is_waited_for(self) -> None:
        begun, go_on, done = threading.Event(), threading.Event(), []

        def blocks(run: TaskRun[Any]) -> None:
            begun.set()
            go_on.wait(SOON)
            done.append(run.at_ms)

        house = House()
        async with house.scheduler as scheduler:
            scheduler.add(task(blocks, blocking=True))
            await house.turn(MINUTE)
            await wait_until(begun.is_set, within=SOON, sentence="it begins")
            go_on.set()
        assert done == [START_MS + MINUTE]

    async def test_on_the_machines_own_clock(self) -> None:
        seen: list[TaskRun[str]] = []
        each = ScheduledTask("t", Every("5ms"), seen.append, deps="deps", max_runs=3)
        report = await asyncio.wait_for(Scheduler().run(each), SOON)
        assert [run.deps for run in seen] == ["deps"] * 3
        assert all(record.started_ms >= record.at_ms for record in report.history)
        assert report.stopped is StopReason.TERMINAL


class Choosy(Guard):
    """Refuses what it is told to, as soon as it may answer."""

    lease_s, renew_every_s = 60.0, 20.0

    def __init__(self) -> None:
        self.refused: set[int] = set()
        self.trouble: Exception | None = None
        self.answers = asyncio.Event()
        self.answers.set()
        self.users = 0

    async def open(self) -> None:
        if self.trouble is not None:
            raise self.trouble
        self.users += 1

    async def close(self) -> None:
        self.users -= 1

    async def acquire(self, slot: Slot) -> Lease | Refusal:
        await self.answers.wait()
        return Refusal.DONE if slot.at_ms in self.refused else Lease(slot, "token")

    async def renew(self, lease: Lease) -> bool:
        return bool(lease)

    async def release(self, lease: Lease) -> bool:
        return bool(lease)


class TestGuarded:
    async def test_a_run_that_a_guard_refused_is_none_of_those_a_task_may_have(self) -> None:
        guard = Choosy()
        guard.refused = {START_MS + n * MINUTE for n in (1, 3, 4)}
        house = House(guard=guard)
        running = await house.run_beside(task(nothing, max_runs=2))
        await house.turn(5 * MINUTE)
        report = await ended(running)
        assert house.notes.ended == minutes([2, 5])
        done = SkipReason.DONE
        assert house.notes.skipped == [(done, n * MINUTE, 1) for n in (1, 3, 4)]
        assert (report.state.ran, report.state.skipped, report.state.fired) == (2, 3, 5)

    async def test_one_beside_another_that_was_refused_does_not_come_twice(self) -> None:
        guard = Choosy()
        guard.refused = {START_MS + MINUTE}
        house = House(guard=guard)
        running = await house.run_beside(task(nothing, overlap=Overlap.ALLOW, max_runs=2))
        guard.answers.clear()
        await house.turn(3 * MINUTE)
        assert house.notes.begun == minutes([1, 2]), "two may run, and both have begun"
        guard.answers.set()
        await house.turn(MINUTE)
        report = await ended(running)
        assert house.notes.ended == minutes([2, 3])
        assert (report.state.fired, report.state.ran) == (3, 2)

    async def test_the_limit_of_occurrences_holds_whatever_was_refused(self) -> None:
        guard = Choosy()
        guard.refused = {START_MS + 2 * MINUTE}
        house = House(guard=guard)
        running = await house.run_beside(task(nothing, max_runs=2, max_fires=2))
        await house.turn(2 * MINUTE)
        report = await ended(running)
        assert (report.state.fired, report.state.ran) == (2, 1)

    async def test_a_guard_that_does_not_open_leaves_the_store_closed(self) -> None:
        class Counted(MemoryStore):
            users = 0

            async def open(self) -> None:
                self.users += 1

            async def close(self) -> None:
                self.users -= 1

        guard, store = Choosy(), Counted()
        guard.trouble = ValueError("no")
        house = House(guard=guard, store=store)
        with pytest.raises(ValueError, match="no"):
            await house.scheduler.run(task(nothing))
        assert (store.users, guard.users) == (0, 0)
        guard.trouble = None
        await asyncio.wait_for(house.scheduler.run(task(nothing, At())), SOON)
        assert (store.users, guard.users) == (0, 0)
