"""Jobs: what a producer adds, and what producers and handlers get."""

from contextlib import suppress
from contextvars import ContextVar
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypedDict, TypeVar

from msgspec import Struct

from tampu.backoff import Backoff
from tampu.errors import WrongContext
from tampu.util.clock import Duration, instant
from tampu.util.portal import Blocking
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
    attempts: int | None = None
    backoff: Backoff | None = None
    timeout: Duration | None = None
    expires: Duration | None = None
    headers: dict[str, str] | None = None
    tenant: str | None = None


class Host(Protocol):
    """What a job needs from the queue or worker that it came from."""

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

    async def result(self, timeout: Duration = DEFAULT_RESULT_WAIT_S) -> R:
        """Wait for the value that the handler returned.

        Raises `JobFailed` if the job was buried and `ResultTimeout` after `timeout`. The worker
        must store results: an `AppWorker` does, a `Worker` with `store_results=True`.
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

    def result(self, timeout: Duration = DEFAULT_RESULT_WAIT_S) -> R:
        """Wait for the value that the handler returned; raises `JobFailed` or `ResultTimeout`.

        Raises `WrongContext` in a thread that runs an event loop, which would stand still.
        """
        return self._portal.wait(lambda: self._wrapped.result(timeout))


_current: ContextVar[Job[Any]] = ContextVar("tampu_current_job")
enter_job: Final = _current.set


def current_job() -> Job[Any]:
    """The job that the calling handler runs, also in threads that inherit its context."""
    try:
        return _current.get()
    except LookupError:
        raise WrongContext("call current_job() here", "no job is running") from None
