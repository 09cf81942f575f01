"""An event loop in a thread of its own, for code without one."""

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Coroutine, Generator
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, Generic, TypeVar

from tampu.errors import Closed, WrongContext

T = TypeVar("T")
W = TypeVar("W")


class Portal:
    """An event loop in its own thread, and a way for other threads to call into it.

    The thread starts with the first call and ends with `close` or with the program.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine in the loop and wait for it, from any other thread.

        If the wait is interrupted, for example by KeyboardInterrupt, the coroutine is cancelled.
        """
        running = self._submit(work)
        try:
            return running.result()
        except CancelledError:
            raise Closed(self._name) from None  # the portal was closed during the call
        finally:
            running.cancel()

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a coroutine in the loop without waiting for it; it must not raise."""
        self._submit(work)

    def wait(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """As `call`, for what may take long: refused where it would block an event loop."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self.call(work)
        reason = (
            "an event loop runs in this thread and would stand still; add the job with "
            "`await task.enqueue(...)` or `await queue.add(...)`, and await its result"
        )
        raise WrongContext("wait for a result here", reason)

    async def join(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """As `call`, from another event loop."""
        waiting = asyncio.wrap_future(self._submit(work))
        try:
            await asyncio.wait([waiting])
        finally:
            waiting.cancel()
        if waiting.cancelled():
            raise Closed(self._name)  # the portal was closed during the call
        return waiting.result()

    def close(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run one last coroutine, then end the loop and join its thread. May be called twice."""
        if self._pid != os.getpid():
            return  # a forked process has no such thread
        with self._lock:
            if threading.current_thread() is self._thread:
                raise _wrong_thread()
            self._closed = True
            loop, self._loop = self._loop, None
            thread, self._thread = self._thread, None
        if loop is None or thread is None:
            return
        try:
            asyncio.run_coroutine_threadsafe(last(), loop).result()
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def _submit(self, work: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        if self._pid != os.getpid():
            raise WrongContext(
                "use a SyncQueue after a fork", "create a new one in the child process"
            )
        with self._lock:  # so that nothing is submitted after the last coroutine
            if self._closed:
                raise Closed(self._name)
            loop = self._loop or self._start()
            if threading.current_thread() is self._thread:
                raise _wrong_thread()
            return asyncio.run_coroutine_threadsafe(work(), loop)

    def _start(self) -> asyncio.AbstractEventLoop:
        self._loop = loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=_run, args=(loop,), name="tampu-portal", daemon=True)
        self._thread.start()
        return loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(_cancel_tasks())
        loop.run_until_complete(loop.shutdown_asyncgens())
        # From Python 3.12 on this fails when the program ends, after it has ended those threads.
        with suppress(RuntimeError):
            loop.run_until_complete(loop.shutdown_default_executor())
        asyncio.set_event_loop(None)
        loop.close()


async def _cancel_tasks() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _wrong_thread() -> WrongContext:
    return WrongContext("wait here", "the call would block the event loop that it waits for")


def iterate(portal: Portal, items: AsyncIterable[T]) -> Generator[T]:
    """The items of an asynchronous iterable, each waited for in this thread.

    A generator is closed when this one is.
    """
    iterator = aiter(items)
    end: Any = object()

    async def take() -> T:
        return await anext(iterator, end)

    try:
        while (item := portal.call(take)) is not end:
            yield item
    finally:
        if isinstance(iterator, AsyncGenerator):
            with suppress(Closed):
                portal.call(iterator.aclose)


class Blocking(Generic[W]):
    """Wraps an asynchronous object, and calls its methods through a portal."""

    __slots__ = ("_portal", "_wrapped")

    def __init__(self, wrapped: W, portal: Portal) -> None:
        self._wrapped, self._portal = wrapped, portal


def iterate_with(blocking: Blocking[W], make: Callable[[W], AsyncIterable[T]]) -> Generator[T]:
    """The items of what is made of an asynchronous object, each waited for in this thread."""
    return iterate(blocking._portal, make(blocking._wrapped))
