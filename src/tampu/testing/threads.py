"""Threads in a test: plain functions run in the thread of whoever waits for them.

So a task sees what belongs to the thread of the test, such as the database transaction that
Django's `TestCase` opens.
"""

from asyncio import AbstractEventLoop, Future, get_running_loop
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, ThreadPoolExecutor
from concurrent.futures import Future as SoonDone
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from threading import current_thread, get_ident
from typing import Any, ParamSpec, TypeAlias, TypeVar

from tampu.errors import Closed
from tampu.util.portal import Portal

T = TypeVar("T")
P = ParamSpec("P")
_Work: TypeAlias = Callable[[], None]


@dataclass(frozen=True, slots=True)
class _Caller:
    """A thread that waits in `KitPortal.call`, and what it has to do meanwhile; None: go on."""

    thread: int = field(default_factory=get_ident)
    todo: SimpleQueue[_Work | None] = field(default_factory=SimpleQueue)


_caller: ContextVar[_Caller | None] = ContextVar("tampu_testing_caller", default=None)


class KitPortal(Portal):
    """A portal whose callers run plain functions while they wait; it is closed by `end`."""

    def call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine in the loop and wait for it, from any other thread."""
        caller = _Caller()
        running = self._submit(partial(_run_for, caller, work))
        running.add_done_callback(lambda _: caller.todo.put(None))
        try:
            while (each := caller.todo.get()) is not None:
                each()
            return running.result()
        except CancelledError:
            raise Closed("the test kit") from None
        finally:
            running.cancel()

    @property
    def is_current(self) -> bool:
        """Whether this is called in its own loop."""
        return current_thread() is self._thread

    def runs(self, loop: AbstractEventLoop) -> bool:
        """Whether a loop is its own."""
        return loop is self._loop

    def close(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a coroutine, as if it were the last one: the app closes its queues with it."""
        self.call(last)

    def end(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run one last coroutine, then end the loop and join its thread. May be called twice."""
        super().close(last)


async def _run_for(caller: _Caller, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    _caller.set(caller)
    return await work()


class KitThreads(ThreadPoolExecutor):
    """Runs functions in the thread that waits in `KitPortal.call`, else in threads of its own."""

    def __init__(self) -> None:
        super().__init__(thread_name_prefix="tampu-handler")

    def call(self, function: Callable[[], T]) -> Future[T]:
        """Call a function that does not raise."""
        return get_running_loop().run_in_executor(self, function)

    def replace(self) -> None:
        """Do nothing: no function is abandoned."""

    def close(self) -> None:
        """Start nothing more."""
        self.shutdown(wait=False, cancel_futures=True)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> SoonDone[T]:
        """Run a function soon."""
        caller = _caller.get()
        if caller is None or caller.thread == get_ident():
            return super().submit(fn, *args, **kwargs)
        future: SoonDone[T] = SoonDone()
        caller.todo.put(partial(_resolve, future, partial(fn, *args, **kwargs)))
        return future


def _resolve(future: SoonDone[T], call: Callable[[], T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(call())
    except BaseException as error:  # noqa: BLE001 - raised again by whoever awaits the future
        future.set_exception(error)
