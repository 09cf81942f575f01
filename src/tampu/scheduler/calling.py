"""The three ways to call a task's function: awaited, called, or called in a thread."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from inspect import isawaitable
from typing import Any

from msgspec import Struct

from tampu.errors import text_of
from tampu.scheduler.clock import Clock
from tampu.scheduler.events import RunStatus
from tampu.scheduler.run import TaskRun
from tampu.scheduler.task import ScheduledTask

_LONGEST_ERROR = 1000


class Ending(Struct, frozen=True, gc=False):
    """How a call ended."""

    status: RunStatus
    error: str | None = None


GOOD = Ending(RunStatus.SUCCESS)
CANCELLED = Ending(RunStatus.CANCELLED)


class Threads:
    """Threads for blocking functions, started when they are first needed."""

    def __init__(self, limit: int, clock: Clock) -> None:
        self._limit = limit
        self._clock = clock
        self._pool: ThreadPoolExecutor | None = None

    async def call(self, function: Callable[[TaskRun[Any]], object], run: TaskRun[Any]) -> object:
        """Call it in a thread; if this is cancelled, `run` says so, and the call is waited for."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._limit, thread_name_prefix="tampu-task")
        called = self._pool.submit(copy_context().run, self._in_thread, function, run)
        calling = asyncio.wrap_future(called)
        try:
            return await asyncio.shield(calling)
        except asyncio.CancelledError:
            run.cancelled = True
            called.cancel()  # has an effect only while it waits for a thread
            await asyncio.wait([calling])
            if not calling.cancelled():
                calling.exception()  # looked at, so that asyncio does not report it
            raise

    def close(self) -> None:
        """Start nothing more; what still runs goes on to its end."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _in_thread(self, function: Callable[[TaskRun[Any]], object], run: TaskRun[Any]) -> object:
        run.started_ms = self._clock.now_ms()  # it may have waited for a thread
        try:
            return function(run)
        except StopIteration as error:  # no future can hold it, so nobody would ever hear of it
            raise RuntimeError("the function raised StopIteration") from error


def called_inline(task: ScheduledTask[Any], run: TaskRun[Any]) -> Ending | Awaitable[object]:
    """Call a plain function here and now; what it gives to await, if anything, comes back."""
    try:
        value = task.function(run)
    except BaseException as error:  # noqa: BLE001 - border: user code may raise anything
        return failed(error)
    return value if value is not None and isawaitable(value) else GOOD


async def ending_of(run: TaskRun[Any], value: Awaitable[object]) -> Ending:
    """How what a function gave to await ends; also if it is cancelled."""
    try:
        await value
    except GeneratorExit:
        raise  # not the function's: the loop is gone, and this task with it
    except BaseException as error:  # noqa: BLE001 - border: user code may raise anything
        if isinstance(error, asyncio.CancelledError) and _is_cancelled():
            run.cancelled = True
            return CANCELLED
        return failed(error)
    return GOOD


async def called(task: ScheduledTask[Any], run: TaskRun[Any], threads: Threads) -> object:
    """Call a function of whatever kind, and await what it gives to await."""
    value = await threads.call(task.function, run) if task.blocking else task.function(run)
    return await value if isawaitable(value) else value


def failed(error: BaseException) -> Ending:
    """The ending of a call that raised."""
    text = f"{type(error).__name__}: {text_of(error)}"
    return Ending(RunStatus.FAILED, text[:_LONGEST_ERROR])


def _is_cancelled() -> bool:
    """Whether somebody has cancelled us; a function may raise the same by itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
