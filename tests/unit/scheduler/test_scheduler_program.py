"""What a program does to the scheduler in it: it ends, and functions raise what ends programs."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tampu.errors import Closed
from tampu.scheduler import MemoryStore, RunStatus, ScheduledTask, StopReason, TaskRun, TaskState
from tests.unit.scheduler.clocks import SOON, Function, House, ended, task
from tests.unit.scheduler.fragile import Fragile
from tests.unit.scheduler.plans import MINUTE, nothing
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("nothing_is_left")


class Odd(BaseException):
    """What is no ordinary error."""


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


async def end_of_program() -> None:
    """What `asyncio.run` does when its main function has returned."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for each in others:
        each.cancel()
    _, waiting = await asyncio.wait(others, timeout=SOON)
    assert not waiting, "the program would never end"


class TestEndOfProgram:
    @pytest.mark.parametrize("is_active", [False, True])
    async def test_it_holds_up_nobody_and_what_ran_is_stored(self, is_active: bool) -> None:  # noqa: FBT001 - a parameter
        store, function = MemoryStore(), Function()
        house = House(store=store)
        running = await house.run_beside(task(function))
        if is_active:
            await house.turn(MINUTE)
        await end_of_program()
        assert running.cancelled()
        assert (function.active, function.cancelled) == (0, int(is_active))
        assert [event.reason for event in house.notes.stops] == [StopReason.FAILED]
        (kept,) = await store.load(["t"])
        assert isinstance(kept, TaskState)
        assert (kept.ran, kept.last_run_ms is not None) == (int(is_active), is_active)

    async def test_a_store_whose_connection_ends_first_is_given_up(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        store, function = Fragile(), Function()
        house = House(store=store)
        running = await house.run_beside(task(function))
        await house.turn(MINUTE)
        store.trouble = Closed("redis://house")
        await end_of_program()
        assert running.cancelled()
        assert "a store is given up" in caplog.messages

    async def test_who_waits_for_a_task_is_cancelled_with_the_scheduler(self) -> None:
        house = House()
        async with house.scheduler as scheduler:
            handle = scheduler.add(task(nothing))
            await house.idle()
            asked = asyncio.ensure_future(handle.wait())
            await end_of_program()
            with pytest.raises(asyncio.CancelledError):
                await ended(asked)
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(scheduler.serve(), SOON)
            with pytest.raises(asyncio.CancelledError):
                scheduler.add(task(nothing, id="another"))

    async def test_one_without_a_task_holds_up_nobody_either(self) -> None:
        async with House().scheduler as scheduler:
            await asyncio.sleep(0)
            await end_of_program()
            with pytest.raises(asyncio.CancelledError):
                scheduler.add(task(nothing))

    async def test_who_waits_is_released_when_another_gives_up_closing(self) -> None:
        function, house = Function(), House()
        handles = []

        async def leaves() -> None:
            async with house.scheduler as scheduler:
                handles.append(scheduler.add(task(function)))
                await house.turn(MINUTE)

        leaving = asyncio.ensure_future(leaves())
        await wait_until(lambda: function.active == 1, within=SOON, sentence="it runs")
        waiting = asyncio.ensure_future(handles[0].wait())
        for _ in range(50):
            await asyncio.sleep(0)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ended(leaving)
        with pytest.raises(asyncio.CancelledError):
            await ended(waiting)
        await wait_until(lambda: function.active == 0, within=SOON, sentence="it is cancelled")


def plain(error: BaseException) -> ScheduledTask[Any]:
    def raises(run: object) -> None:
        del run
        raise error

    return task(raises, max_runs=2)


def in_thread(error: BaseException) -> ScheduledTask[Any]:
    return task(plain(error).function, max_runs=2, blocking=True)


def awaited(error: BaseException) -> ScheduledTask[Any]:
    async def raises(run: object) -> None:
        del run
        await asyncio.sleep(0)
        raise error

    return task(raises, max_runs=2)


class TestFunctionsThatRaiseAnything:
    @pytest.mark.parametrize(
        ("error", "text"),
        [
            (SystemExit(3), "SystemExit: 3"),
            (KeyboardInterrupt(), "KeyboardInterrupt: "),
            (asyncio.CancelledError("by itself"), "CancelledError: by itself"),
            (Odd("odd"), "Odd: odd"),
            (Mute(), "Mute: (its text cannot be made)"),
        ],
        ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
    )
    @pytest.mark.parametrize("made", [plain, in_thread, awaited])
    async def test_a_run_has_failed_and_the_task_goes_on(
        self, made: Callable[[BaseException], ScheduledTask[Any]], error: BaseException, text: str
    ) -> None:
        house = House()
        running = await house.run_beside(made(error))
        for count in (1, 2):
            await house.turn(MINUTE)
            await wait_until(
                lambda count=count: len(house.notes.ended) == count,  # type: ignore[misc]
                within=SOON,
                sentence="a run has ended",
            )
        report = await ended(running)
        assert [record.status for record in report.history] == [RunStatus.FAILED] * 2
        assert report.state.failed == 2
        assert report.state.last_error == text


class TestFunctionsThatGiveSomethingToAwait:
    async def test_one_in_a_thread_is_awaited_too(self) -> None:
        done: list[int] = []

        async def really(run: TaskRun[Any]) -> None:
            await asyncio.sleep(0)
            done.append(run.at_ms)

        house = House()
        running = await house.run_beside(
            task(lambda run: really(run), blocking=True, max_runs=1)  # noqa: PLW0108 - a plain one
        )
        await house.turn(MINUTE)
        report = await ended(running)
        assert len(done) == report.state.ran == 1
