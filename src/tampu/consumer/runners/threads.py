"""Threads that call plain functions for the loop."""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class HandlerThreads:
    """At most `size` threads that call functions, as many at the same time as there are calls.

    An executor alone needs two futures, a lock and a wake-up of the loop for each call. Here all
    threads take calls from one deque, so none waits behind a slow one while a thread is idle. A
    thread that takes a call first starts another thread if there are more. So with short calls few
    threads do all the work, and the loop is woken once for all calls that have ended since.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._executor = _new_executor(size)
        self._calls: deque[_Call] = deque()
        self._ended: deque[tuple[asyncio.Future[Any], object]] = deque()
        self._is_starting = False  # a thread is on its way: it will see what was added before
        self._is_reporting = False  # the loop is on its way
        self._is_closed = False

    def call(self, function: Callable[[], T]) -> "asyncio.Future[T]":
        """Call a function, which must not raise, in a thread.

        If the future is cancelled, a call that has begun goes on, and any other is left out.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        call = _Call(future, function)
        self._calls.append(call)
        try:
            self._start_thread()
        except RuntimeError:  # the system has no thread left, or the program ends
            self._is_starting = False
            with suppress(ValueError):  # a running thread has taken it
                self._calls.remove(call)
                raise
        return future

    def replace(self) -> None:
        """Go on with new threads: some of the present ones are held by calls that do not end.

        The others end when they have nothing to do.
        """
        if self._is_closed:
            return
        self._executor = _new_executor(self._size)
        self._is_starting = False
        if self._calls:
            self._start_thread()

    def close(self) -> None:
        """Begin no more calls, and end the threads that have none."""
        self._is_closed = True
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _start_thread(self) -> None:
        if not self._is_starting:
            self._is_starting = True
            self._executor.submit(self._work)

    def _work(self) -> None:
        """Make calls until there are none; runs in a thread."""
        self._is_starting = False
        calls = self._calls
        while not self._is_closed:
            try:
                future, function = calls.popleft()
            except IndexError:
                return
            if calls:
                with suppress(RuntimeError):  # this thread makes the calls, one after the other
                    self._start_thread()
            if not future.cancelled():
                self._ended.append((future, function()))
                self._report(future.get_loop())

    def _report(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._is_reporting:
            self._is_reporting = True
            with suppress(RuntimeError):  # the loop has ended before the thread
                loop.call_soon_threadsafe(self._set_results)

    def _set_results(self) -> None:
        self._is_reporting = False  # before the deque is emptied: later calls are reported again
        ended = self._ended
        while ended:
            future, value = ended.popleft()
            if not future.done():
                future.set_result(value)


class _Call(NamedTuple):
    future: asyncio.Future[Any]
    function: Callable[[], object]


def _new_executor(size: int) -> ThreadPoolExecutor:
    """An executor; its threads end when nothing refers to it any more."""
    return ThreadPoolExecutor(size, thread_name_prefix="tampu-handler")
