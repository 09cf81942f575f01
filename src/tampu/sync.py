"""A queue for threads without an event loop: a thin layer over `Queue`."""

from collections.abc import Callable, Coroutine, Iterable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

from tampu.admin.dead import DeadLetters
from tampu.job import Job, JobOptions, NewJob, SyncJob
from tampu.producer.options import QueueOptions
from tampu.queue import Queue
from tampu.server.client import CredentialCallback
from tampu.server.connect import Target
from tampu.util.portal import Blocking, Portal

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")
W = TypeVar("W")


# Each method below has the signature of the asynchronous one, for type checkers and at run time.


def _blocking(
    method: Callable[Concatenate[W, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Blocking[W], P], T]:
    @wraps(method)
    def call(self: Blocking[W], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._portal.call(lambda: method(self._wrapped, *args, **kwargs))

    return call


def _waiting(
    method: Callable[Concatenate[W, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Blocking[W], P], T]:
    @wraps(method)
    def call(self: Blocking[W], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._portal.wait(lambda: method(self._wrapped, *args, **kwargs))

    return call


def _blocking_job(
    method: Callable[Concatenate[W, P], Coroutine[Any, Any, Job[R]]],
) -> Callable[Concatenate[Blocking[W], P], SyncJob[R]]:
    @wraps(method)
    def call(self: Blocking[W], /, *args: P.args, **kwargs: P.kwargs) -> SyncJob[R]:
        job = self._portal.call(lambda: method(self._wrapped, *args, **kwargs))
        return SyncJob(job, self._portal)

    return call


def _blocking_jobs(
    method: Callable[Concatenate[W, P], Coroutine[Any, Any, list[Job[R]]]],
) -> Callable[Concatenate[Blocking[W], P], list[SyncJob[R]]]:
    @wraps(method)
    def call(self: Blocking[W], /, *args: P.args, **kwargs: P.kwargs) -> list[SyncJob[R]]:
        jobs = self._portal.call(lambda: method(self._wrapped, *args, **kwargs))
        return [SyncJob(job, self._portal) for job in jobs]

    return call


class SyncDeadLetters(Blocking[DeadLetters]):
    """The dead letters of a queue: `DeadLetters`, for code without an event loop."""

    peek = _blocking(DeadLetters.peek)
    get = _blocking(DeadLetters.get)
    replay = _blocking(DeadLetters.replay)
    purge = _blocking(DeadLetters.purge)


class SyncQueue(Blocking[Queue]):
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
    result = _waiting(Queue.result)
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
