"""Starting and stopping: once, by whoever asks, however often."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, Generic, Self, TypeVar

from tampu.errors import WrongContext

logger = logging.getLogger(__name__)
T = TypeVar("T")
_CLOSED: Final = object()


class Lifetime(Generic[T]):
    """A resource that is opened once and closed once.

    `close` gets the seconds that running work may still take. `hurry` tells a `close` that is under
    way about a shorter limit. If `run` or `start` is cancelled, the resource is closed at once.
    """

    def __init__(
        self,
        what: str,
        open: Callable[[], Coroutine[Any, Any, T]],
        close: Callable[[T, float], Awaitable[None]],
        *,
        hurry: Callable[[T, float], Awaitable[None]] | None = None,
    ) -> None:
        self._what = what
        self._open = open
        self._close = close
        self._hurry = hurry
        self._starting: asyncio.Task[T] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._stopped = asyncio.Event()

    async def run(self) -> None:
        """Open the resource, and return when it has been closed by `stop`."""
        await self.start()
        try:
            await self._stopped.wait()
        finally:
            await self.stop()

    async def start(self) -> None:
        """Open the resource; raises what `open` raises."""
        if self._starting is not None or self._stopping is not None:
            raise WrongContext(
                f"start this {self._what} again", "it can be started only once; create a new one"
            )
        self._starting = asyncio.create_task(self._open(), name=f"tampu-{self._what}-start")
        try:
            await self._starting
        except asyncio.CancelledError:
            self._starting.cancel()
            await self.stop()  # the opening may have finished already
            raise

    @property
    def resource(self) -> T | None:
        """What was opened, even after it was closed; None before that."""
        starting = self._starting
        if starting is None or not starting.done() or starting.cancelled():
            return None
        return None if starting.exception() is not None else starting.result()

    def begin_stop(self, grace_s: float) -> asyncio.Task[None]:
        """Begin to close the resource, unless that has begun already."""
        if self._stopping is None:
            stopping = self._stop(grace_s)
            self._stopping = asyncio.create_task(stopping, name=f"tampu-{self._what}-stop")
        return self._stopping

    @property
    def is_stopping(self) -> bool:
        """Whether it has begun to close, or has closed."""
        return self._stopping is not None

    async def stop(self, grace_s: float = 0.0) -> None:
        """Close the resource. Every caller waits for the end; a later one may hurry it."""
        if self._stopping is None:
            self.begin_stop(grace_s)
        elif self._hurry is not None and not self._stopping.done():
            resource = self.resource
            if resource is not None:
                await self._hurry(resource, grace_s)
        await asyncio.shield(self.begin_stop(grace_s))

    async def _stop(self, grace_s: float) -> None:
        try:
            if self._starting is not None:
                await asyncio.wait([self._starting])
                if not self._starting.cancelled() and self._starting.exception() is None:
                    await self._close(self._starting.result(), grace_s)
        finally:
            self._stopped.set()


class Runnable(ABC):
    """Something that users start and stop once: with calls, with `run` or with `async with`."""

    _life: Lifetime[Any]

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def run(self) -> None:
        """Start, and work until `stop`. If this call is cancelled, running work gets no grace."""
        await self._life.run()

    async def start(self) -> None:
        """Connect and begin to work. If this raises, nothing is left open."""
        await self._life.start()

    @property
    def is_stopping(self) -> bool:
        """Whether it has begun to stop, or has stopped."""
        return self._life.is_stopping

    @abstractmethod
    async def stop(self) -> None:
        """Stop working and disconnect. May be called twice."""


class Shared(Generic[T]):
    """A resource with several users: the first one opens it, the last one closes it.

    Users may come and go concurrently. If `open` fails, it fails for that user alone, and the next
    one tries again. After the last user has left, the next one opens it again.
    """

    def __init__(
        self,
        open: Callable[[], Awaitable[T]],
        close: Callable[[T], Awaitable[None]],
    ) -> None:
        self._open = open
        self._close = close
        self._users = 0
        self._resource: Any = _CLOSED
        self._changing = asyncio.Lock()

    async def acquire(self) -> T:
        """The resource, opened if this is the first user. Each call needs one `release`."""
        self._users += 1
        try:
            async with self._changing:
                if self._resource is _CLOSED:
                    self._resource = await self._open()
                resource: T = self._resource
                return resource
        except BaseException:
            await self.release()  # whoever left meanwhile has left the closing to us
            raise

    async def release(self) -> None:
        """Leave; the last user closes the resource. One release too many is ignored."""
        if not self._users:
            return
        self._users -= 1
        async with self._changing:
            if self._users == 0 and self._resource is not _CLOSED:
                resource, self._resource = self._resource, _CLOSED
                await self._close(resource)


@asynccontextmanager
async def in_own_task(
    what: str, enter: Callable[[AsyncExitStack], Awaitable[None]]
) -> AsyncIterator[None]:
    """Enter and leave in the same task, as a task group requires. `what` names it.

    If it ends early, its error is raised when this is left.
    """
    entered, leaving = asyncio.Event(), asyncio.Event()

    async def run() -> None:
        async with AsyncExitStack() as stack:
            await enter(stack)
            entered.set()
            await leaving.wait()

    def note_end(task: asyncio.Task[None]) -> None:
        if entered.is_set() and not leaving.is_set():
            error = None if task.cancelled() else task.exception()
            logger.error("the %s ended while the worker was running", what, exc_info=error)
        entered.set()

    task = asyncio.create_task(run(), name=f"tampu-{what}")
    task.add_done_callback(note_end)
    try:
        await entered.wait()
        if not task.done():
            yield
    except asyncio.CancelledError:
        if not entered.is_set():
            task.cancel()
        raise
    finally:
        leaving.set()
        await asyncio.wait([task])
    task.result()


async def cancel_all(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel tasks and wait until all of them have ended; what they raise is ignored."""
    ending = list(tasks)
    for task in ending:
        task.cancel()
    if ending:
        await asyncio.wait(ending)


async def run_all(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines concurrently; if one fails, cancel the others and raise its error."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        await cancel_all(tasks)
        raise


def ignore_outcome(future: asyncio.Future[Any]) -> None:
    """Retrieve an error that nobody waits for, so that asyncio does not report it."""
    if not future.cancelled():
        future.exception()
