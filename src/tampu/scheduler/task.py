"""What a task's function gets, and what is told of a run afterwards."""

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, tzinfo
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar, Unpack, cast

from msgspec import Struct

from tampu.errors import OptionError
from tampu.job import Job, JobOptions
from tampu.scheduler.events import RunStatus, SkipReason, StopReason
from tampu.scheduler.guard import Scope
from tampu.timing import Every, Missed, MissedKind, Overlap, Rule, TimeWindow
from tampu.util.clock import Duration, instant, to_positive_ms
from tampu.util.functions import is_async, yields
from tampu.util.options import at_least, check_flag, check_type
from tampu.wire.keys import check_job_name, check_task_id
from tampu.wire.task_state import TaskState

D = TypeVar("D")


class TaskRun(Struct, Generic[D], kw_only=True):
    """One run of a task, as its function sees it.

    A function in a thread cannot be interrupted: it may look at `cancelled` and return.
    """

    task_id: str
    at_ms: int
    deps: D
    zone: tzinfo  # the scheduler's
    catch_up: bool = False  # late, or in place of others that were missed
    manual: bool = False  # by `trigger_now`
    replayed: bool = False  # another scheduler began it before and did not finish
    cancelled: bool = False
    started_ms: int = 0

    @property
    def scheduled_at(self) -> datetime:
        """The instant it was scheduled for, in the scheduler's zone."""
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
        """The instant it was scheduled for."""
        return instant(self.at_ms)

    @property
    def started_at(self) -> datetime:
        """When its function was called."""
        return instant(self.started_ms)

    @property
    def finished_at(self) -> datetime:
        """When its function was done."""
        return instant(self.finished_ms)


class TaskReport(Struct, frozen=True, kw_only=True):
    """How a task stands, and its last runs, the oldest first."""

    task_id: str
    state: TaskState
    history: tuple[RunRecord, ...] = ()
    last_skip_reason: SkipReason | None = None
    stopped: StopReason | None = None  # None while the scheduler still has it


_NO_DEPS: Final = cast("Any", None)


@dataclass(frozen=True, slots=True)
class ScheduledTask(Generic[D]):
    """A function that the scheduler calls with a `TaskRun` at the instants of a rule.

    An async function runs on the scheduler's loop, a plain one too unless it is `blocking`: then in
    a thread. `id` is what its state is stored under.
    """

    id: str
    rule: Rule
    function: Function[D]
    _: KW_ONLY
    deps: D = _NO_DEPS  # handed to each run
    window: TimeWindow | None = None  # occurrences outside of it do not run
    align: bool = False  # occurrences outside of the window move to its next opening
    missed: Missed = Missed.ONCE
    overlap: Overlap = Overlap.SKIP
    max_runs: int | None = None  # ends after so many runs
    max_fires: int | None = None  # ends after so many occurrences, run or not
    blocking: bool = False
    stagger: bool | str = False  # a stable phase by the task's id, or by this text
    jitter: Duration | None = None  # each run is late by less than this, always the same
    resource: str | None = None  # what a guard holds; None: the task's id
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
        self._check_times()

    def _check_function(self) -> None:
        function: object = self.function
        accepted = "must be a function that takes one argument, the run"
        if not callable(function):
            raise OptionError("function", function, accepted)
        if yields(function):
            raise OptionError("function", function, "must return, not yield")
        try:
            inspect.signature(function).bind(object())
        except TypeError:
            raise OptionError("function", function, accepted) from None
        except ValueError:
            pass  # one that is written in C may not tell
        check_flag("blocking", self.blocking)
        if self.blocking and is_async(function):
            accepted = "is for plain functions, and this one is async"
            raise OptionError("blocking", given=True, problem=accepted)

    def _check_overlap(self) -> None:
        if self.overlap is not Overlap.CANCEL_RUNNING:
            return
        if self.blocking:
            accepted = "cannot be had for a blocking function: a thread cannot be cancelled"
            raise OptionError("overlap", self.overlap, accepted)
        if self.missed.kind is MissedKind.ALL:
            accepted = (
                f"would cancel each of the missed runs for the next one under {self.missed!r}"
            )
            raise OptionError("overlap", self.overlap, accepted)

    def _check_times(self) -> None:
        check_flag("align", self.align)
        if self.align and self.window is None:
            raise OptionError("align", given=True, problem="needs a window to align with")
        self._check_stagger()
        if self.jitter is not None:
            jitter_ms = to_positive_ms("jitter", self.jitter)
            if isinstance(self.rule, Every) and jitter_ms > self.rule.interval_ms:
                raise OptionError("jitter", self.jitter, "must not be longer than the interval")

    def _check_stagger(self) -> None:
        if not isinstance(self.stagger, str):
            check_flag("stagger", self.stagger)
        if self.stagger is False:
            return
        if not isinstance(self.rule, Every):
            raise OptionError("stagger", self.stagger, "is for intervals, Every(...)")
        if self.rule.anchor_ms is not None:
            raise OptionError("stagger", self.stagger, "cannot be given along with an anchor")


class Adds(Protocol):
    """What a job can be added to."""

    async def add(self, name: str, data: object = None, **options: Unpack[JobOptions]) -> Job[Any]:
        """Add one job."""
        ...


class AddJob:
    """The function of a task that adds a job to a queue at each occurrence.

    The job's id is the task's and the occurrence's, so that however many schedulers run the task,
    and however often an occurrence is replayed, one job is added; as long as the queue keeps ids
    unique, by default for an hour. `data` may be a function of the run. Options are those of
    `Queue.add`, but for `job_id`.
    """

    def __init__(
        self,
        queue: Adds,
        name: str,
        data: object | Callable[[TaskRun[Any]], object] = None,
        **options: Unpack[JobOptions],
    ) -> None:
        if not callable(getattr(queue, "add", None)):
            raise OptionError("queue", queue, "must be a Queue")
        if "job_id" in options:
            raise OptionError("job_id", options["job_id"], "is made of the task and the occurrence")
        self._queue = queue
        self._name = check_job_name(name)
        self._data = data
        self._options = options

    async def __call__(self, run: TaskRun[Any]) -> None:
        """Add the job of one occurrence."""
        data = self._data(run) if callable(self._data) else self._data
        options: JobOptions = {**self._options, "job_id": f"{run.task_id}@{run.at_ms}"}
        await self._queue.add(self._name, data, **options)
