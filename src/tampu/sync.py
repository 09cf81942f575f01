"""A queue for threads without an event loop: a thin layer over `Queue`."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import CancelledError, Future
from datetime import datetime
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack

from tampu.admin.dead import DeadLetters
from tampu.errors import Closed, WrongContext
from tampu.job import DEFAULT_RESULT_WAIT_S, Job, JobOptions, NewJob
from tampu.producer.options import QueueOptions
from tampu.queue import Queue
from tampu.server.client import CredentialCallback
from tampu.server.connect import Target
from tampu.util.clock import Duration

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")
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


class _Blocking(Generic[W]):
    """Wraps an asynchronous object, and calls its methods through a portal."""

    __slots__ = ("_portal", "_wrapped")

    def __init__(self, wrapped: W, portal: Portal) -> None:
        self._wrapped, self._portal = wrapped, portal


# Each method below has the signature of the asynchronous one, for type checkers and at run time.


def _blocking(
    method: Callable[Concatenate[W, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[_Blocking[W], P], T]:
    @wraps(method)
    def call(self: _Blocking[W], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._portal.call(lambda: method(self._wrapped, *args, **kwargs))

    return call


def _blocking_job(
    method: Callable[Concatenate[W, P], Coroutine[Any, Any, Job[R]]],
) -> Callable[Concatenate[_Blocking[W], P], "SyncJob[R]"]:
    @wraps(method)
    def call(self: _Blocking[W], /, *args: P.args, **kwargs: P.kwargs) -> SyncJob[R]:
        job = self._portal.call(lambda: method(self._wrapped, *args, **kwargs))
        return SyncJob(job, self._portal)

    return call


def _blocking_jobs(
    method: Callable[Concatenate[W, P], Coroutine[Any, Any, list[Job[R]]]],
) -> Callable[Concatenate[_Blocking[W], P], "list[SyncJob[R]]"]:
    @wraps(method)
    def call(self: _Blocking[W], /, *args: P.args, **kwargs: P.kwargs) -> list[SyncJob[R]]:
        jobs = self._portal.call(lambda: method(self._wrapped, *args, **kwargs))
        return [SyncJob(job, self._portal) for job in jobs]

    return call


class SyncJob(_Blocking[Job[R]]):
    """A job that was added: a producer's `Job`, for code without an event loop."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<SyncJob {self.id} {self.name!r}>"

    @property
    def id(self) -> str:
        """The job's id."""
        return self._wrapped.id

    @property
    def name(self) -> str:
        """The job's name."""
        return self._wrapped.name

    @property
    def data(self) -> Any:  # noqa: ANN401 - what the producer gave
        """The job's data, as it was given."""
        return self._wrapped.data

    @property
    def created_at(self) -> datetime:
        """When it was added, by the clock of this machine."""
        return self._wrapped.created_at

    @property
    def duplicate(self) -> bool:
        """Whether the id was taken, and nothing was added."""
        return self._wrapped.duplicate

    def result(self, timeout: Duration = DEFAULT_RESULT_WAIT_S) -> R:
        """Wait for the value that the handler returned; raises `JobFailed` or `ResultTimeout`."""
        return self._portal.call(lambda: self._wrapped.result(timeout))


class SyncDeadLetters(_Blocking[DeadLetters]):
    """The dead letters of a queue: `DeadLetters`, for code without an event loop."""

    peek = _blocking(DeadLetters.peek)
    get = _blocking(DeadLetters.get)
    replay = _blocking(DeadLetters.replay)
    purge = _blocking(DeadLetters.purge)


class SyncQueue(_Blocking[Queue]):
    """Adds jobs from any number of threads: `Queue`, for code without an event loop."""

    def __init__(
        self,
        name: str,
        url: Target = None,
        *,
        credentials: CredentialCallback | None = None,
        **options: Unpack[QueueOptions],
    ) -> None:
        queue = Queue(name, url, credentials=credentials, **options)
        super().__init__(queue, Portal(f"queue {name}"))
        self.dead = SyncDeadLetters(queue.dead, self._portal)

    def __repr__(self) -> str:
        return f"<SyncQueue {self.name!r}>"

    def __enter__(self) -> Self:
        try:
            self._portal.call(self._wrapped.__aenter__)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._wrapped.name

    def close(self) -> None:
        """Disconnect and end the thread. May be called twice. It cannot be reopened."""
        self._portal.close(self._wrapped.close)

    add = _blocking_job(Queue.add)
    cancel = _blocking(Queue.cancel)
    reschedule = _blocking(Queue.reschedule)
    run_now = _blocking(Queue.run_now)
    schedule = _blocking(Queue.schedule)
    schedules = _blocking(Queue.schedules)
    unschedule = _blocking(Queue.unschedule)
    pause = _blocking(Queue.pause)
    resume = _blocking(Queue.resume)
    trigger = _blocking_job(Queue.trigger)
    backfill = _blocking_jobs(Queue.backfill)
    preview = _blocking(Queue.preview)
    counts = _blocking(Queue.counts)
    result = _blocking(Queue.result)
    results = _blocking(Queue.results)
    raw_results = _blocking(Queue.raw_results)

    # An iterable runs in the thread of its caller: it may be a database cursor or a query set.

    def add_many(self, jobs: Iterable[NewJob]) -> list[SyncJob[Any]]:
        """Add many jobs; see `Queue.add_many`."""
        return self._add_many(list(jobs))

    def add_each(
        self, name: str, datas: Iterable[object], **options: Unpack[JobOptions]
    ) -> list[SyncJob[Any]]:
        """Add one job for each item of data; see `Queue.add_each`."""
        return self._add_each(name, list(datas), **options)

    def cancel_many(self, job_ids: Iterable[str]) -> list[bool]:
        """Remove delayed jobs; see `Queue.cancel_many`."""
        return self._cancel_many(job_ids if isinstance(job_ids, str) else list(job_ids))

    _add_many = _blocking_jobs(Queue.add_many)
    _add_each = _blocking_jobs(Queue.add_each)
    _cancel_many = _blocking(Queue.cancel_many)
