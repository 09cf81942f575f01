"""Jobs: what a producer adds, and what producers and handlers get."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import suppress
from contextvars import ContextVar
from datetime import datetime
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Generic,
    Literal,
    Protocol,
    TypedDict,
    TypeVar,
)

from msgspec import Struct

from tampu.backoff import Backoff
from tampu.errors import OptionError, WrongContext
from tampu.limits.model import AnyLimit, Breaker, Debounce
from tampu.limits.reasons import Why
from tampu.unique import Unique
from tampu.util.clock import Duration, instant
from tampu.util.options import Word, check_choice
from tampu.wire.dead import Failure
from tampu.wire.event import EventKind
from tampu.wire.extras import NO_EXTRAS, Extras
from tampu.wire.lines import limit_of, parse_line
from tampu.wire.output import Chunk, ChunkId, JobOutput, OutputRules, Restarted, check_chunk_id
from tampu.wire.result import NodeResults

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
    priority: int | None  # 0 to 9, larger is sooner; None: 5
    key: str | int | None  # keys take turns; ordered jobs of a key run one after the other
    weight: float | None  # the share of its key; None: 1
    limits: Sequence[AnyLimit] | None
    ordered: bool | None
    on_dead: str | None  # for ordered jobs: "halt" stops the key when one of them is buried
    cost: int | None  # tokens that it takes of rates; None: 1
    debounce: Debounce | None
    keep: str | None  # "latest": it replaces the jobs of its key that wait
    max_waiting: int | None  # as many jobs of its name and key wait at most
    on_full: str | None  # then "raise", "wait", "drop_new" or "drop_old"
    breaker: Breaker | None  # none of its name starts for a while if too many attempts fail


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
    priority: int | None = None
    key: str | int | None = None
    weight: float | None = None
    limits: Sequence[AnyLimit] | None = None
    ordered: bool | None = None
    on_dead: str | None = None
    cost: int | None = None
    debounce: Debounce | None = None
    keep: str | None = None
    max_waiting: int | None = None
    on_full: str | None = None
    breaker: Breaker | None = None


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
    """What happened to a job that was to be cancelled."""

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
    priority: int = 5
    key: str | None = None

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

    async def why(self, job_id: str) -> Why:
        """Why the job is not running yet."""

    def events(self, job_id: str, after: str | None) -> AsyncGenerator[JobEvent]:
        """The events of the job, up to its end."""

    def stream(
        self, job_id: str, after: ChunkId, *, raises: bool
    ) -> AsyncGenerator[Chunk[Any] | Restarted]:
        """What the handler of the job yields, up to its end."""


class Host(Protocol):
    """What a job needs from the queue or worker that it came from."""

    @property
    def actions(self) -> JobActions:
        """What can be done with the job; raises `WrongContext` where that is not possible."""

    async def wait_for_result(self, job_id: str, timeout: Duration) -> object:
        """Wait for the value that the job's handler returned."""

    def report_progress(self, job: "Job[Any]", percent: int) -> None:
        """Write a progress event for a running job; may be called from any thread."""

    def charge(self, resources: list[str], tokens: int) -> None:
        """Take tokens of rates; may be called from any thread."""

    def read_results(self, of: NodeResults) -> AsyncIterator[object]:
        """The results of the jobs of a node of a flow."""

    def open_output(self, job: "Job[Any]", rules: OutputRules) -> JobOutput:
        """The stream of a running job; may be called from any thread."""


class Job(Struct, Generic[R], frozen=True, eq=False, gc=False):
    """One job. A handler gets the job to run, a producer the job that was added.

    `attempt` counts from 1 and includes attempts that ended because their worker died. For a
    producer it is 0. `data` is decoded in a handler, and as it was given for a producer.
    """

    is_batch: ClassVar[bool] = False  # whether it stands for several jobs: a `JobBatch`

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
    dropped: bool = False  # for a producer: its line was full, and nothing was added

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
    def priority(self) -> int:
        """Its level, from 0 to 9."""
        return 5 if self.extras.line is None else parse_line(self.extras.line).level

    @property
    def key(self) -> str | None:
        """The key that flow control groups it by, if any."""
        return None if self.extras.line is None else parse_line(self.extras.line).key

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

    async def why(self) -> Why:
        """Why the job is not running yet: what it waits for, who holds that, when it opens."""
        return await self.host.actions.why(self.id)

    def events(self, after: str | None = None) -> AsyncGenerator[JobEvent]:
        """The events of the job, up to its end; `after` one of them, those that follow it."""
        return self.host.actions.events(self.id, after)

    def stream(
        self, after: str | None = None, *, on_restart: Literal["yield", "raise"] = "yield"
    ) -> AsyncGenerator[Chunk[Any] | Restarted]:
        """What the job has yielded and will yield, up to its end; its task is a generator.

        With the id of a chunk as `after`, only what follows it. If another attempt begins, gives a
        `Restarted`, or with `on_restart="raise"` raises `StreamRestarted`. Raises `JobFailed` or
        `JobCancelled` at the end of such a job, `NoStream` if there is no stream and will be none,
        and `StreamGap` if chunks that follow are no longer kept.
        """
        check_choice("on_restart", on_restart, ("yield", "raise"))
        chunk = check_chunk_id("after", after)
        return self.host.actions.stream(self.id, chunk, raises=on_restart == "raise")

    async def result(self, timeout: Duration = DEFAULT_RESULT_WAIT_S) -> R:
        """Wait for the value that the handler returned.

        Raises `JobFailed` if the job was buried, `JobCancelled` if it was cancelled, and
        `ResultTimeout` after `timeout`. The worker must store results: an `AppWorker` does, a
        `Worker` with `store_results=True`.
        """
        value: Any = await self.host.wait_for_result(self.id, timeout)
        return value  # type: ignore[no-any-return] # only the caller knows R

    def charge(self, limit: str, tokens: int) -> None:
        """Take more tokens of a rate than the job took when it started; below 0 gives some back.

        For a cost that is known only afterwards. Never waits. May be called from any thread.
        """
        needed = () if self.extras.line is None else parse_line(self.extras.line).resources
        resources = [each for each in needed if limit_of(each)[0] == limit]
        if not resources:
            raise OptionError("limit", limit, "the job has no limit of this name")
        if isinstance(tokens, bool) or not isinstance(tokens, int):
            raise OptionError("tokens", tokens, "must be a whole number")
        self.host.charge(resources, tokens)

    def progress(self, percent: int) -> None:
        """Write an event that says how far this job is, from 0 to 100.

        Never waits and never raises. Numbers out of range are clamped. May be called from any
        thread.
        """
        with suppress(TypeError, ValueError, OverflowError):  # a wrong number must not fail the job
            self.host.report_progress(self, max(0, min(100, int(percent))))


_current: ContextVar[Job[Any]] = ContextVar("tampu_current_job")
enter_job: Final = _current.set
_queue: ContextVar[str | None] = ContextVar("tampu_current_queue", default=None)
enter_queue: Final = _queue.set
current_queue: Final = _queue.get
"""The queue that the calling handler's job comes from; None where that is not known."""
_cancelled: Final[set[Job[Any]]] = set()  # only jobs that run; they are equal if identical
mark_cancelled: Final = _cancelled.add
unmark_cancelled: Final = _cancelled.discard


def current_run() -> Job[Any] | None:
    """The job or batch that the calling handler runs, if any."""
    return _current.get(None)


def current_job() -> Job[Any]:
    """The job that the calling handler runs, also in threads that inherit its context."""
    job = current_run()
    if job is None:
        raise WrongContext("call current_job() here", "no job is running")
    if job.is_batch:
        problem = "a batch of jobs is running; use the JobBatch that its handler gets"
        raise WrongContext("call current_job() here", problem)
    return job
