"""A scheduled task: what the user declares, what its function receives, what is reported of it."""

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, tzinfo
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    Protocol,
    TypeAlias,
    TypeVar,
    Unpack,
    cast,
)

from msgspec import Struct

from tampu.errors import OptionError
from tampu.job import Job, JobOptions
from tampu.scheduler.events import RunStatus, SkipReason, StopReason
from tampu.scheduler.guard import Scope
from tampu.timing import Every, Missed, MissedKind, Overlap, Rule, TimeWindow
from tampu.util.clock import Duration, instant, to_positive_ms
from tampu.util.options import at_least, check_flag, check_type, is_async, yields
from tampu.wire.names import check_job_name, check_task_id
from tampu.wire.task_state import TaskState

if TYPE_CHECKING:
    import typing_extensions  # which every type checker has; `TaskRun` alone means `TaskRun[Any]`

    D = typing_extensions.TypeVar("D", default=Any)
else:
    D = TypeVar("D")
_NO_DEPS: Final = cast("Any", None)


class TaskRun(Struct, Generic[D], kw_only=True):
    """One run of a task: the argument of the task's function.

    A function in a thread cannot be interrupted; it should look at `cancelled` and return early.
    """

    task_id: str
    at_ms: int
    deps: D
    zone: tzinfo  # the scheduler's
    catch_up: bool = False  # late, or in place of missed occurrences
    manual: bool = False  # by `trigger_now`
    replayed: bool = False  # another scheduler started it and did not finish
    cancelled: bool = False
    started_ms: int = 0

    @property
    def scheduled_at(self) -> datetime:
        """The instant of the occurrence, in the scheduler's time zone."""
        return instant(self.at_ms).astimezone(self.zone)


Function: TypeAlias = Callable[[TaskRun[D]], Awaitable[object]] | Callable[[TaskRun[D]], object]


class RunRecord(Struct, frozen=True, gc=False):
    """One run that has ended."""

    at_ms: int
    started_ms: int
    finished_ms: int
    status: RunStatus
    error: str | None = None
    catch_up: bool = False
    manual: bool = False

    @property
    def scheduled_at(self) -> datetime:
        """The instant of the occurrence."""
        return instant(self.at_ms)

    @property
    def started_at(self) -> datetime:
        """When the function was called."""
        return instant(self.started_ms)

    @property
    def finished_at(self) -> datetime:
        """When the function had ended."""
        return instant(self.finished_ms)


class TaskReport(Struct, frozen=True, kw_only=True):
    """The state of a task and its last runs, oldest first."""

    task_id: str
    state: TaskState
    history: tuple[RunRecord, ...] = ()
    last_skip_reason: SkipReason | None = None
    stopped: StopReason | None = None  # None while the task is scheduled


@dataclass(frozen=True, slots=True)
class ScheduledTask(Generic[D]):
    """A function that a `Scheduler` calls at the instants of a rule.

        ScheduledTask("cache", Every("5m"), refresh)
        ScheduledTask("report", Cron("0 9 * * 1-5"), build, blocking=True, missed=Missed.SKIP)

    The function takes one argument, a `TaskRun`. It may be async. A plain function runs on the
    event loop too, so it must be short, unless `blocking=True` runs it in a thread. The state of
    the task is stored under its `id`, so the id must stay the same between restarts.
    """

    id: str
    rule: Rule
    function: Function[D]
    _: KW_ONLY
    deps: D = _NO_DEPS  # passed to each run as `run.deps`
    window: TimeWindow | None = None  # occurrences outside it do not run
    align: bool = False  # occurrences outside the window move to its next opening
    missed: Missed = Missed.ONCE
    overlap: Overlap = Overlap.SKIP
    max_runs: int | None = None  # the task ends after this many runs
    max_fires: int | None = None  # the task ends after this many occurrences, run or not
    blocking: bool = False  # call the function in a thread
    stagger: bool | str = False  # a fixed phase of the interval, by the task's id or by this text
    jitter: Duration | None = None  # each run is late by less than this; the same on every machine
    resource: str | None = None  # what a guard locks; None: the task's id
    scope: Scope = Scope.OCCURRENCE  # what a guard excludes

    def __post_init__(self) -> None:
        check_task_id("id", self.id)
        check_type("rule", self.rule, Rule, accepted="Every(...), Cron(...) or At(...)")
        self._check_function()
        if self.window is not None:
            check_type("window", self.window, TimeWindow, accepted="a TimeWindow")
        check_type("missed", self.missed, Missed, accepted="Missed.SKIP, .ONCE or .all(...)")
        check_type("overlap", self.overlap, Overlap, accepted="a member of Overlap")
        check_type("scope", self.scope, Scope, accepted="a member of Scope")
        for option in ("max_runs", "max_fires"):
            if (limit := getattr(self, option)) is not None:
                at_least(option, limit, 0)
        if self.resource is not None:
            check_task_id("resource", self.resource)
        self._check_overlap()
        self._check_align()
        self._check_stagger()
        self._check_jitter()

    def _check_function(self) -> None:
        function: object = self.function
        problem = "expected a function that takes one argument, the run"
        if not callable(function):
            raise OptionError("function", function, problem)
        if yields(function):
            raise OptionError("function", function, "a generator function is not supported")
        try:
            inspect.signature(function).bind(object())
        except TypeError:
            raise OptionError("function", function, problem) from None
        except ValueError:
            pass  # a function written in C may have no signature
        check_flag("blocking", self.blocking)
        if self.blocking and is_async(function):
            problem = "cannot be combined with an async function"
            raise OptionError("blocking", given=True, problem=problem)

    def _check_overlap(self) -> None:
        if self.overlap is not Overlap.CANCEL_RUNNING:
            return
        if self.blocking:
            problem = "CANCEL_RUNNING is not supported for a blocking function"
            raise OptionError("overlap", self.overlap, problem)
        if self.missed.kind is MissedKind.ALL:
            problem = f"CANCEL_RUNNING cannot be combined with missed={self.missed!r}"
            raise OptionError("overlap", self.overlap, problem)

    def _check_align(self) -> None:
        check_flag("align", self.align)
        if self.align and self.window is None:
            raise OptionError("align", given=True, problem="needs a window")

    def _check_stagger(self) -> None:
        if not isinstance(self.stagger, str):
            check_flag("stagger", self.stagger)
        if self.stagger is False:
            return
        if not isinstance(self.rule, Every):
            raise OptionError("stagger", self.stagger, "needs an interval, Every(...)")
        if self.rule.anchor_ms is not None:
            raise OptionError("stagger", self.stagger, "cannot be combined with an anchor")

    def _check_jitter(self) -> None:
        if self.jitter is None:
            return
        jitter_ms = to_positive_ms("jitter", self.jitter)
        if isinstance(self.rule, Every) and jitter_ms > self.rule.interval_ms:
            raise OptionError("jitter", self.jitter, "must not be longer than the interval")


class _JobTarget(Protocol):
    """What `AddJob` adds jobs to: a `Queue`."""

    async def add(self, name: str, data: object = None, **options: Unpack[JobOptions]) -> Job[Any]:
        """Add one job."""
        ...


class AddJob:
    """The function of a task that adds a job to a queue at each occurrence.

        ScheduledTask("digest", Cron("0 9 * * *"), AddJob(queue, "send_digest", {"to": "ada"}))

    The job's id is made from the task's id and the instant. So only one job is added, even if many
    schedulers run the task or an occurrence is replayed, for as long as the queue keeps ids unique
    (one hour by default). `data` may be a function that takes the run. The options are those of
    `Queue.add` without `job_id`.
    """

    def __init__(
        self,
        queue: _JobTarget,
        name: str,
        data: object | Callable[[TaskRun[Any]], object] = None,
        **options: Unpack[JobOptions],
    ) -> None:
        if not callable(getattr(queue, "add", None)):
            raise OptionError("queue", queue, "expected a Queue")
        if "job_id" in options:
            problem = "AddJob makes the id from the task's id and the instant"
            raise OptionError("job_id", options["job_id"], problem)
        self._queue = queue
        self._name = check_job_name(name)
        self._data = data
        self._options = options

    async def __call__(self, run: TaskRun[Any]) -> None:
        """Add the job of one occurrence."""
        data = self._data(run) if callable(self._data) else self._data
        options: JobOptions = {**self._options, "job_id": f"{run.task_id}@{run.at_ms}"}
        await self._queue.add(self._name, data, **options)
