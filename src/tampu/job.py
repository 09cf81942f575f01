"""Jobs: what a producer gives, what a handler gets, and what stays in the producer's hands."""

from contextlib import suppress
from contextvars import ContextVar
from datetime import datetime
from typing import Any, Final, Generic, Protocol, TypedDict, TypeVar

from msgspec import Struct

from tampu.backoff import Backoff
from tampu.errors import WrongContext
from tampu.util.clock import Duration, instant
from tampu.wire.extras import NO_EXTRAS, Extras

R = TypeVar("R")

DEFAULT_RESULT_WAIT_S: Final = 30.0


class JobOptions(TypedDict, total=False):
    """What may be said of one job besides its name and data."""

    delay: Duration | None  # run no sooner than this from now
    at: datetime | None  # or: no sooner than this instant
    job_id: str | None  # adding another job of the same id adds nothing
    unique_for: Duration | None  # how long an id stays taken behind the job's due time
    attempts: int | None
    backoff: Backoff | None
    timeout: Duration | None  # the longest that one attempt may take
    expires: Duration | None  # buried instead of run if it has not started by then
    headers: dict[str, str] | None  # travels along; for tracing and the like
    tenant: str | None


class NewJob(Struct, frozen=True):
    """One job to be added, with its options; they are checked when it is added."""

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
    """Where a job lives: what its methods need of a queue or a worker."""

    async def wait_for_result(self, job_id: str, timeout: Duration) -> object:
        """What the job's handler returned."""

    def report_progress(self, job: "Job[Any]", percent: int) -> None:
        """Tell listeners how far a running job is; from any thread."""


class Job(Struct, Generic[R], frozen=True, eq=False, gc=False):
    """One job: in a handler what is to be done, at the producer what was added.

    `attempt` counts from 1 and includes attempts that ended with their worker's death; at the
    producer it is 0. `data` is as the handler's side decoded it, or as the producer gave it.
    """

    # Not tracked by the garbage collector, which took a sixth of a worker's time; a cycle through
    # a job (job.data["me"] = job) is therefore never collected.

    id: str
    name: str
    data: Any
    attempt: int
    created_at_ms: int
    host: Host
    extras: Extras = NO_EXTRAS
    duplicate: bool = False  # at the producer: the id was taken, and nothing was added

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.name!r} attempt {self.attempt}>"

    @property
    def created_at(self) -> datetime:
        """When it was added, by the clock of the producer."""
        return instant(self.created_at_ms)

    @property
    def scheduled_at(self) -> datetime | None:
        """The instant that a schedule fired it for."""
        at_ms = self.extras.scheduled_at_ms
        return None if at_ms is None else instant(at_ms)

    @property
    def schedule_key(self) -> str | None:
        """The schedule that fired it."""
        return self.extras.schedule_key

    @property
    def headers(self) -> dict[str, str]:
        """What the producer sent along."""
        return self.extras.headers

    @property
    def tenant(self) -> str | None:
        """On whose behalf it runs."""
        return self.extras.tenant

    async def result(self, timeout: Duration = DEFAULT_RESULT_WAIT_S) -> R:
        """What the handler returned, as soon as it is there.

        Raises `JobFailed` if the job was buried and `ResultTimeout` when the time is up. The worker
        must store results (`store_results=True`).
        """
        value: Any = await self.host.wait_for_result(self.id, timeout)
        return value  # type: ignore[no-any-return] # what R is, only the caller knows

    def progress(self, percent: int) -> None:
        """Tell listeners how far this job is, from 0 to 100; neither waits nor fails.

        Numbers beyond the range count as its ends. Plain handlers may call it too.
        """
        with suppress(TypeError, ValueError, OverflowError):  # it is not worth a job
            self.host.report_progress(self, max(0, min(100, int(percent))))


_current: ContextVar[Job[Any]] = ContextVar("tampu_current_job")
enter_job: Final = _current.set


def current_job() -> Job[Any]:
    """The job that the calling handler runs for, also in the threads it was given."""
    try:
        return _current.get()
    except LookupError:
        raise WrongContext("call current_job() here", "no job is running") from None
