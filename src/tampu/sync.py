"""A queue for threads without an event loop: a thin layer over `Queue`."""

from collections.abc import Callable, Coroutine, Iterable, Iterator
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

from tampu.admin.dead import DeadLetters
from tampu.admin.flows import Flows
from tampu.admin.limits import Limits
from tampu.admin.listing import MAX_LISTED, JobListing
from tampu.job import CancelState, Job, JobInfo, JobOptions, JobState, NewJob, R
from tampu.producer.options import QueueOptions
from tampu.producer.sync_job import SyncJob
from tampu.queue import Queue
from tampu.schedules.admin import Schedules
from tampu.server.client import CredentialCallback
from tampu.server.connect import Target
from tampu.util.portal import Blocking, Portal, iterate

P = ParamSpec("P")
T = TypeVar("T")
W = TypeVar("W")


# Each method below has the signature of the asynchronous one, for type checkers and at run time.


def _blocking(
    method: Callable[Concatenate[W, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Blocking[W], P], T]:
    @wraps(method)
    def call(self: Blocking[W], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._portal.call(lambda: method(self._wrapped, *args, **kwargs))

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
    replay_with = _blocking(DeadLetters.replay_with)
    purge = _blocking(DeadLetters.purge)


class SyncSchedules(Blocking[Schedules]):
    """The schedules of a queue: `Schedules`, for code without an event loop."""

    add = _blocking(Schedules.add)
    list = _blocking(Schedules.list)
    remove = _blocking(Schedules.remove)
    pause = _blocking(Schedules.pause)
    resume = _blocking(Schedules.resume)
    trigger = _blocking_job(Schedules.trigger)
    backfill = _blocking_jobs(Schedules.backfill)
    preview = _blocking(Schedules.preview)


class SyncJobListing(Blocking[JobListing]):
    """The jobs of a queue in a state: `JobListing`, for code without an event loop."""

    def __repr__(self) -> str:
        return f"<Sync{repr(self._wrapped)[1:]}"

    def __iter__(self) -> Iterator[JobInfo]:
        return iterate(self._portal, self._wrapped)

    @property
    def searched(self) -> int:
        """How many jobs the last iteration has looked at."""
        return self._wrapped.searched

    @property
    def searched_all(self) -> bool:
        """Whether these were all."""
        return self._wrapped.searched_all


class SyncLimits(Blocking[Limits]):
    """The limits of a queue: `Limits`, for code without an event loop."""

    list = _blocking(Limits.list)
    set = _blocking(Limits.set)
    reset = _blocking(Limits.reset)
    open = _blocking(Limits.open)
    weigh = _blocking(Limits.weigh)
    serve_lower = _blocking(Limits.serve_lower)
    pauses = _blocking(Limits.pauses)
    stopped_tasks = _blocking(Limits.stopped_tasks)
    keys = _blocking(Limits.keys)


class SyncFlows(Blocking[Flows]):
    """The flows whose home is a queue: `Flows`, for code without an event loop."""

    newest = _blocking(Flows.newest)
    info = _blocking(Flows.info)
    cancel = _blocking(Flows.cancel)


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
        self.schedules = SyncSchedules(queue.schedules, self._portal)
        self.limits = SyncLimits(queue.limits, self._portal)
        self.flows = SyncFlows(queue.flows, self._portal)

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
    pause = _blocking(Queue.pause)
    resume = _blocking(Queue.resume)
    is_paused = _blocking(Queue.is_paused)
    drain = _blocking(Queue.drain)
    counts = _blocking(Queue.counts)
    results = _blocking(Queue.results)
    raw_results = _blocking(Queue.raw_results)
    history = _blocking(Queue.history)
    failures = _blocking(Queue.failures)

    # An iterable runs in the thread of its caller: it may be a database cursor or a query set.

    def add_many(self, jobs: Iterable[NewJob]) -> list[SyncJob[Any]]:
        """Add many jobs; see `Queue.add_many`."""
        return self._add_many(list(jobs))

    def add_each(
        self, name: str, datas: Iterable[object], **options: Unpack[JobOptions]
    ) -> list[SyncJob[Any]]:
        """Add one job for each item of data; see `Queue.add_each`."""
        return self._add_each(name, list(datas), **options)

    def job(self, job_id: str) -> SyncJob[Any]:
        """The job with this id; see `Queue.job`."""
        return SyncJob(self._wrapped.job(job_id), self._portal)

    def jobs(
        self,
        *,
        state: JobState | str | None = None,
        name: str | None = None,
        newest_first: bool = False,
        most: int | None = MAX_LISTED,
    ) -> SyncJobListing:
        """The jobs in a state, or in all: `for info in ...`; see `Queue.jobs`."""
        listing = self._wrapped.jobs(state=state, name=name, newest_first=newest_first, most=most)
        return SyncJobListing(listing, self._portal)

    def cancel_many(self, job_ids: Iterable[str]) -> list[CancelState]:
        """Cancel jobs; see `Queue.cancel_many`."""
        return self._cancel_many(job_ids if isinstance(job_ids, str) else list(job_ids))

    _add_many = _blocking_jobs(Queue.add_many)
    _add_each = _blocking_jobs(Queue.add_each)
    _cancel_many = _blocking(Queue.cancel_many)
