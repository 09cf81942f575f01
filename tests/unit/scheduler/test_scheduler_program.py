"""The end of a program, and functions that raise or return anything."""

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tampu.errors import Closed
from tampu.scheduler import MemoryStore, RunStatus, ScheduledTask, StopReason, TaskRun, TaskState
from tests.unit.scheduler.harness import SOON, Harness, HeldFunction, finish, minutes, task
from tests.unit.scheduler.plans import MINUTE, nothing
from tests.unit.scheduler.stores.fragile import FragileStore
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("no_leftovers")


class OddError(BaseException):
    """Not an ordinary exception."""


class MuteError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


async def end_program() -> None:
    """Do what `asyncio.run` does when its main function has returned."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for each in others:
        each.cancel()
    _, waiting = await asyncio.wait(others, timeout=SOON)
    assert not waiting, "the program would never end"


class TestEndOfProgram:
    @pytest.mark.parametrize("is_active", [False, True])
    async def test_the_program_ends_and_the_state_is_stored(self, is_active: bool) -> None:  # noqa: FBT001 - a parameter
        store, function = MemoryStore(), HeldFunction()
        harness = Harness(store=store)
        running = await harness.start_run(task(function))
        if is_active:
            await harness.turn(MINUTE)
        await end_program()
        assert running.cancelled()
        assert (function.active, function.cancelled) == (0, int(is_active))
        assert [event.reason for event in harness.log.stops] == [StopReason.FAILED]
        (stored,) = await store.load(["t"])
        assert isinstance(stored, TaskState)
        assert (stored.ran, stored.last_run_ms is not None) == (int(is_active), is_active)

    async def test_a_store_whose_connection_is_closed_first_is_given_up(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        store, function = FragileStore(), HeldFunction()
        harness = Harness(store=store)
        running = await harness.start_run(task(function))
        await harness.turn(MINUTE)
        store.error = Closed("redis://host")
        await end_program()
        assert running.cancelled()
        assert any(text.startswith("gave up the task store") for text in caplog.messages)

    async def test_everyone_who_waits_for_a_task_is_cancelled(self) -> None:
        harness = Harness()
        async with harness.scheduler as scheduler:
            handle = scheduler.add(task(nothing))
            await harness.idle()
            waiting = asyncio.ensure_future(handle.wait())
            await end_program()
            with pytest.raises(asyncio.CancelledError):
                await finish(waiting)
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(scheduler.serve(), SOON)
            with pytest.raises(asyncio.CancelledError):
                scheduler.add(task(nothing, id="another"))

    async def test_a_program_with_a_scheduler_without_tasks_ends(self) -> None:
        async with Harness().scheduler as scheduler:
            await asyncio.sleep(0)
            await end_program()
            with pytest.raises(asyncio.CancelledError):
                scheduler.add(task(nothing))

    async def test_a_cancelled_close_cancels_those_who_wait_for_a_task(self) -> None:
        function, harness = HeldFunction(), Harness()
        handles = []

        async def open_and_close() -> None:
            async with harness.scheduler as scheduler:
                handles.append(scheduler.add(task(function)))
                await harness.turn(MINUTE)

        closing = asyncio.ensure_future(open_and_close())
        await wait_until(lambda: function.active == 1, within=SOON, sentence="the run has started")
        waiting = asyncio.ensure_future(handles[0].wait())
        for _ in range(50):
            await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await finish(closing)
        with pytest.raises(asyncio.CancelledError):
            await finish(waiting)
        await wait_until(lambda: function.active == 0, within=SOON, sentence="the run is cancelled")


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


class TestFunctions:
    @pytest.mark.parametrize(
        ("error", "text"),
        [
            (SystemExit(3), "SystemExit: 3"),
            (KeyboardInterrupt(), "KeyboardInterrupt: "),
            (asyncio.CancelledError("by itself"), "CancelledError: by itself"),
            (OddError("odd"), "OddError: odd"),
            (MuteError(), "MuteError: (no text: __str__ raised an error)"),
        ],
        ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
    )
    @pytest.mark.parametrize("make_task", [plain, in_thread, awaited])
    async def test_any_exception_fails_the_run_and_the_task_continues(
        self,
        make_task: Callable[[BaseException], ScheduledTask[Any]],
        error: BaseException,
        text: str,
    ) -> None:
        harness = Harness()
        running = await harness.start_run(make_task(error))
        for count in (1, 2):
            await harness.turn(MINUTE)
            await wait_until(
                lambda count=count: len(harness.log.ended) == count,  # type: ignore[misc]
                within=SOON,
                sentence="a run has ended",
            )
        report = await finish(running)
        assert [record.status for record in report.history] == [RunStatus.FAILED] * 2
        assert report.state.failed == 2
        assert report.state.last_error == text

    async def test_an_awaitable_from_a_thread_is_awaited(self) -> None:
        done: list[int] = []

        async def append_later(run: TaskRun[Any]) -> None:
            await asyncio.sleep(0)
            done.append(run.at_ms)

        harness = Harness()
        running = await harness.start_run(
            task(lambda run: append_later(run), blocking=True, max_runs=1)  # noqa: PLW0108 - a plain function
        )
        await harness.turn(MINUTE)
        report = await finish(running)
        assert len(done) == report.state.ran == 1


@pytest.mark.skipif(sys.version_info < (3, 12), reason="asyncio has no eager tasks yet")
async def test_eager_tasks_that_end_at_once_leave_nothing_behind() -> None:
    asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined, unused-ignore]
    harness = Harness()
    async with harness.scheduler as scheduler:
        scheduler.add(task(nothing))
        await harness.turn(2 * MINUTE)
    assert harness.log.ended == minutes([1, 2])
