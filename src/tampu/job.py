"""Jobs: what a producer adds, and what producers and handlers get."""

from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from contextvars import ContextVar
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypedDict, TypeVar

from msgspec import Struct

from tampu.backoff import Backoff
from tampu.errors import WrongContext
from tampu.unique import Unique
from tampu.util.clock import Duration, instant
from tampu.util.options import Word
from tampu.util.portal import Blocking, iterate
from tampu.wire.dead import Failure
from tampu.wire.event import EventKind
from tampu.wire.extras import NO_EXTRAS, Extras

if TYPE_CHECKING:
    # `Job` alone means `Job[Any]`. Type checkers have this module, whether it is installed or not.
    import typing_extensions

    R = typing_extensions.TypeVar("R", default=Any)
else:
    R = TypeVar("R")

DEFAULT_RESULT_WAIT_S: Final = 30.0


class JobOptions(TypedDict, total=False):
    """Options of one job, as keywords."""

    delay: Duration | None  # run no earlier than this from now
    at: datetime | None  # or no earlier than this instant
    job_id: str | None  # a second job with the same id is not added
    unique_for: Duration | None  # how long the id stays taken after the job is due
    unique: Unique | None  # at most one job with the same key at a time
    attempts: int | None
    backoff: Backoff | None
    timeout: Duration | None  # of one attempt
    expires: Duration | None  # buried instead of run if it has not started by then
    headers: dict[str, str] | None  # sent along, for tracing and similar
    tenant: str | None


class NewJob(Struct, frozen=True):
    """One job for `add_many`, with its options. They are checked when it is added."""

    name: str
    data: object = None
    delay: Duration | None = None
    at: datetime | None = None
    job_id: str | None = None
    unique_for: Duration | None = None
    unique: Unique | None = None
    attempts: int | None = None
    backoff: Backoff | None = None
    timeout: Duration | None = None
    expires: Duration | None = None
    headers: dict[str, str] | None = None
    tenant: str | None = None


class JobState(Word):
    """The state of a job."""

    WAITING = "waiting"
    ACTIVE = "active"  # a worker has it
    DELAYED = "delayed"
    RETRYING = "retrying"  # an attempt has failed, and it waits for the next one
    DEAD = "dead"
    DONE = "done"  # its result is still stored
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"  # done without a result, purged, or never added


class CancelState(Word):
    """What became of a job that was to be cancelled."""

    CANCELLED = "cancelled"  # it will not run
    CANCELLING = "cancelling"  # a worker has it and was asked to stop it
    TOO_LATE = "too_late"  # it has ended, or there is no such job


class JobInfo(Struct, frozen=True, kw_only=True):
    """What is known about a job. Values that its state does not have are None or empty."""

    id: str
    state: JobState
    searched_all: bool = True  # False: not found, but not everything was searched
    name: str | None = None
    data: object = None
    attempt: int | None = None  # the current attempt, or the number of past ones
    attempts: int | None = None  # how many it may have, if the producer said so
    created_at: datetime | None = None
    due_at: datetime | None = None
    started_at: datetime | None = None  # this and the next two: as far as the latest events tell
    ended_at: datetime | None = None
    progress: int | None = None
    failed_at: tuple[datetime, ...] = ()  # when attempts failed, oldest first
    failure: Failure | None = None  # what the last failed attempt raised
    reason: str | None = None  # why it is dead
    dead_id: str | None = None
    worker: str | None = None
    entry_id: str | None = None
    result: object = None
    schedule_key: str | None = None
    scheduled_at: datetime | None = None
    headers: dict[str, str] = {}
    tenant: str | None = None

    def __repr__(self) -> str:
        return f"<JobInfo {self.id} {self.state.value}>"  # without data, which may be private


class JobEvent(Struct, frozen=True):
    """One event of a job.

    A kind that this version does not know stays text. `at` is by the clock of the program that
    wrote the event.
    """

    id: str
    kind: EventKind | str
    job_id: str
    name: str
    at: datetime
    attempt: int | None
    fields: dict[str, int | str]


class JobActions(Protocol):
    """What can be asked about a job of a queue, and done to it, by its id."""

    async def info(self, job_id: str) -> JobInfo:
        """What is known about the job."""

    async def cancel(self, job_id: str) -> CancelState:
        """Cancel the job."""

    async def reschedule(self, job_id: str, *, delay: Duration | None, at: datetime | None) -> bool:
        """Change when the job is due."""

    async def run_now(self, job_id: str) -> bool:
        """Make the job due now."""

    def events(self, job_id: str) -> AsyncIterator[JobEvent]:
        """The events of the job, up to its end."""


class Host(Protocol):
    """What a job needs from the queue or worker that it came from."""

    @property
    def actions(self) -> JobActions:
        """What can be done with the job; raises `WrongContext` where that is not possible."""

    async def wait_for_result(self, job_id: str, timeout: Duration) -> object:
        """Wait for the value that the job's handler returned."""

    def report_progress(self, job: "Job[Any]", percent: int) -> None:
        """Write a progress event for a running job; may be called from any thread."""


class Job(Struct, Generic[R], frozen=True, eq=False, gc=False):
    """One job. A handler gets the job to run, a producer the job that was added.

    `attempt` counts from 1 and includes attempts that ended because their worker died. For a
    producer it is 0. `data` is decoded in a handler, and as it was given for a producer.
    """

    # Not tracked by the garbage collector, which took a sixth of a worker's time. So a cycle
    # through a job (job.data["me"] = job) is never collected.

    id: str
    name: str
    data: Any
    attempt: int
    created_at_ms: int
    host: Host
    extras: Extras = NO_EXTRAS
    duplicate: bool = False  # for a producer: the id was taken, and nothing was added

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.name!r} attempt {self.attempt}>"

    @property
    def created_at(self) -> datetime:
        """When it was added, by the producer's clock."""
        return instant(self.created_at_ms)

    @property
    def scheduled_at(self) -> datetime | None:
        """The instant of its schedule; None if no schedule fired it."""
        at_ms = self.extras.scheduled_at_ms
        return None if at_ms is None else instant(at_ms)

    @property
    def schedule_key(self) -> str | None:
        """The key of the schedule that fired it, if any."""
        return self.extras.schedule_key

    @property
    def headers(self) -> dict[str, str]:
        """The headers that the producer sent."""
        return self.extras.headers

    @property
    def tenant(self) -> str | None:
        """The tenant that the producer named."""
        return self.extras.tenant

    @property
    def cancelled(self) -> bool:
        """Whether the job was cancelled while this attempt runs: the handler should end it.

        For a plain handler, which cannot be interrupted; can be read in any thread.
        """
        return self in _cancelled

    async def info(self) -> JobInfo:
        """What is known about the job: its state, data, attempts, last error, result.

        A job that changes its state at this moment may be missed, and then its state is unknown.
        """
        return await self.host.actions.info(self.id)

    async def cancel(self) -> CancelState:
        """Cancel the job: remove it, or ask the worker that has it to stop it.

        Whoever waits for its result gets `JobCancelled`. Its id can be used again. If the
        connection is lost, this raises, and the job may have been cancelled.
        """
        return await self.host.actions.cancel(self.id)

    async def reschedule(
        self, *, delay: Duration | None = None, at: datetime | None = None
    ) -> bool:
        """Change when a delayed job is due: after `delay` from now, or at an instant.

        True only if it was still delayed. Its `expires` and `unique_for` count from the new time.
        """
        return await self.host.actions.reschedule(self.id, delay=delay, at=at)

    async def run_now(self) -> bool:
        """Make a delayed job run as soon as a worker is free; True if it was still delayed."""
        return await self.host.actions.run_now(self.id)

    def events(self) -> AsyncIterator[JobEvent]:
        """The events of the job that are still there and those to come, up to its end."""
        return self.host.actions.events(self.id)

    async def result(self, timeout: Duration = DEFAULT_RESULT_WAIT_S) -> R:
        """Wait for the value that the handler returned.

        Raises `JobFailed` if the job was buried, `JobCancelled` if it was cancelled, and
        `ResultTimeout` after `timeout`. The worker must store results: an `AppWorker` does, a
        `Worker` with `store_results=True`.
        """
        value: Any = await self.host.wait_for_result(self.id, timeout)
        return value  # type: ignore[no-any-return] # only the caller knows R

    def progress(self, percent: int) -> None:
        """Write an event that says how far this job is, from 0 to 100.

        Never waits and never raises. Numbers out of range are clamped. May be called from any
        thread.
        """
        with suppress(TypeError, ValueError, OverflowError):  # a wrong number must not fail the job
            self.host.report_progress(self, max(0, min(100, int(percent))))


class SyncJob(Blocking[Job[R]]):
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

    def info(self) -> JobInfo:
        """What is known about the job; see `Job.info`."""
        return self._portal.call(self._wrapped.info)

    def cancel(self) -> CancelState:
        """Cancel the job; see `Job.cancel`."""
        return self._portal.call(self._wrapped.cancel)

    def reschedule(self, *, delay: Duration | None = None, at: datetime | None = None) -> bool:
        """Change when a delayed job is due; see `Job.reschedule`."""
        return self._portal.call(lambda: self._wrapped.reschedule(delay=delay, at=at))

    def run_now(self) -> bool:
        """Make a delayed job run as soon as a worker is free; see `Job.run_now`."""
        return self._portal.call(self._wrapped.run_now)

    def events(self) -> Iterator[JobEvent]:
        """The events of the job up to its end; see `Job.events`."""
        return iterate(self._portal, self._wrapped.events())

    def result(self, timeout: Duration = DEFAULT_RESULT_WAIT_S) -> R:
        """Wait for the value that the handler returned; see `Job.result`.

        Raises `WrongContext` in a thread that runs an event loop, which would stand still.
        """
        return self._portal.wait(lambda: self._wrapped.result(timeout))


_current: ContextVar[Job[Any]] = ContextVar("tampu_current_job")
enter_job: Final = _current.set
_queue: ContextVar[str | None] = ContextVar("tampu_current_queue", default=None)
enter_queue: Final = _queue.set
current_queue: Final = _queue.get
"""The queue that the calling handler's job comes from; None where that is not known."""
_cancelled: Final[set[Job[Any]]] = set()  # only jobs that run; they are equal if identical
mark_cancelled: Final = _cancelled.add
unmark_cancelled: Final = _cancelled.discard


def current_job() -> Job[Any]:
    """The job that the calling handler runs, also in threads that inherit its context."""
    try:
        return _current.get()
    except LookupError:
        raise WrongContext("call current_job() here", "no job is running") from None
