"""The thread of an attempt: plain code of one attempt runs in one thread of a pool."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from contextvars import Context, ContextVar, copy_context
from functools import partial
from queue import SimpleQueue
from typing import Any, Final

from msgspec import Struct, field

from tampu.tasks.signature import Dependency

Values = dict[Dependency, Any]


class Runtime(Struct):
    """What all attempts of one worker share."""

    values: Values = field(default_factory=dict)  # of the dependencies with scope="app"
    threads: ThreadPoolExecutor | None = None  # None: plain functions run where they are called
    stopping: bool = False  # whether attempts are cancelled because the worker stops


class _ThreadCall(Struct, frozen=True):
    call: Callable[[], Any]
    variables: list[tuple[ContextVar[Any], object]]  # to set before
    captured: "Future[tuple[Any, BaseException | None]]"


class AttemptThread:
    """One thread of a pool for all plain code of an attempt: some objects belong to their thread.

    The code shares one context, which follows the context of the attempt. Middleware may replace
    `around`, which is entered in the thread before the first call and left after the last one.
    """

    def __init__(self, pool: ThreadPoolExecutor, runtime: Runtime) -> None:
        self._pool = pool
        self._runtime = runtime
        self._context: Context | None = None  # of the attempt, at the last call; None: no call yet
        self._calls: SimpleQueue[_ThreadCall | None] = SimpleQueue()
        self._is_left = False  # whether a call still runs that nobody waits for
        self.around: Callable[[], AbstractContextManager[object]] = nullcontext

    async def call(self, call: Callable[[], Any]) -> Any:  # noqa: ANN401 - what it returns
        """Call it in the thread, which cannot be interrupted.

        After a timeout we wait for the thread, because what it uses is closed next. When the worker
        stops we do not: the job goes back to the queue, and the thread closes what it has used.
        """
        running = asyncio.wrap_future(self.begin(call))
        if self._is_left:
            return None
        try:
            value, error = await asyncio.shield(running)
        except asyncio.CancelledError:
            if self._runtime.stopping:
                self._is_left = True
            else:
                await asyncio.wait([running])
            raise
        if error is not None:
            raise error
        return value

    def begin(self, call: Callable[[], Any]) -> "Future[tuple[Any, BaseException | None]]":
        """Begin a call in the thread, after those that began before."""
        wanted = _ThreadCall(call, self._follow_context(), Future())
        self._calls.put(wanted)
        return wanted.captured

    @property
    def is_stopping(self) -> bool:
        """Whether attempts are cancelled because the worker stops."""
        return self._runtime.stopping

    def end(self) -> None:
        """Give the thread back to the pool, after its last call."""
        if self._context is not None:
            self._calls.put(None)

    def _follow_context(self) -> list[tuple[ContextVar[Any], object]]:
        """The variables that the attempt has set since the last call; starts the thread."""
        before, now = self._context, copy_context()
        self._context = now
        if before is None:
            self._pool.submit(now.copy().run, self._serve)
            return []
        return [(var, value) for var, value in now.items() if before.get(var) is not value]

    def _serve(self) -> None:
        with self.around():
            while (wanted := self._calls.get()) is not None:
                for variable, value in wanted.variables:
                    variable.set(value)
                wanted.captured.set_result(_capture(wanted.call))
                del wanted  # it may refer to what the attempt closes


_thread: ContextVar[AttemptThread | None] = ContextVar("tampu_attempt_thread", default=None)
enter_thread: Final = _thread.set
leave_thread: Final = _thread.reset


def attempt_thread() -> AttemptThread | None:
    """The thread of this attempt; None outside an attempt with middleware, and in child processes.

    For middleware, and for tasks that have some.
    """
    return _thread.get()


class ThreadManager(AbstractAsyncContextManager[object]):
    """A plain context manager that is entered and left in the thread of its attempt."""

    def __init__(self, manager: AbstractContextManager[object], thread: AttemptThread) -> None:
        self._manager, self._thread = manager, thread
        self.gen = getattr(manager, "gen", type(manager))  # for messages

    async def __aenter__(self) -> object:
        return await self._thread.call(self._manager.__enter__)

    async def __aexit__(self, *exc: Any) -> bool | None:  # noqa: ANN401 - as the protocol has it
        return bool(await self._thread.call(partial(self._manager.__exit__, *exc)))


def _capture(call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """The value it returned and the error it raised; a future cannot carry a StopIteration."""
    try:
        return call(), None
    except BaseException as error:  # noqa: BLE001 - raised again by the caller
        return None, error
