"""What observers are told: one type for each kind of fact. Instants are ms since 1970."""

import logging
from collections.abc import Sequence
from datetime import datetime
from enum import Enum, auto
from typing import Final, Protocol, TypeAlias

from msgspec import Struct, structs

from tampu.util.clock import instant


class Source(Enum):
    """Where a task's state came from when it was added."""

    NEW = auto()  # nothing was stored
    RESTORED = auto()  # as it was stored
    CHANGED = auto()  # stored under another schedule; the next instant was computed anew
    REPAIRED = auto()  # what was stored could not be


class SkipReason(Enum):
    """Why an occurrence did not run."""

    MISSED = auto()  # too late, by the missed policy
    OVERLAP = auto()  # an earlier run was active
    QUEUE_FULL = auto()  # an earlier run was active, and another occurrence waited already
    OUTSIDE_WINDOW = auto()
    PAUSED = auto()  # it fell into a pause, and the missed policy dropped it
    MAX_RUNS = auto()  # the task has had all its runs
    CONTENDED = auto()  # another scheduler runs it, or holds the resource
    DONE = auto()  # another scheduler has run it
    GUARD_AWAY = auto()  # the guard could not be asked


class RunStatus(Enum):
    """How a run ended."""

    SUCCESS = auto()
    FAILED = auto()  # it raised
    CANCELLED = auto()  # for a later occurrence, or when the scheduler was made to stop
    LOST = auto()  # its lease was lost: what it did does not count


class StopReason(Enum):
    """Why the scheduler is done with a task."""

    TERMINAL = auto()  # its schedule has ended
    CANCELLED = auto()  # by `cancel`
    SHUTDOWN = auto()  # by `shutdown`
    FAILED = auto()  # by an error that `run` or `serve` raises


class StoreOperation(Enum):
    """What a store was asked to do when it could not be reached."""

    LOAD = auto()
    SAVE = auto()
    DELETE = auto()


class TaskEvent(Struct, frozen=True, kw_only=True):
    """Something about one task."""

    task_id: str


class StateLoaded(TaskEvent, frozen=True, kw_only=True):
    """A task was added, and its state found or made."""

    source: Source
    fired: int
    next_ms: int | None


class StateRepaired(TaskEvent, frozen=True, kw_only=True):
    """What was stored could not be right, and was made right."""

    problem: str
    fired: int
    previous_next_ms: int | None
    next_ms: int | None


class ScheduleChanged(TaskEvent, frozen=True, kw_only=True):
    """The schedule is not the one that the stored state was made by."""

    fired: int
    previous_next_ms: int | None
    next_ms: int | None


class StateDeleted(TaskEvent, frozen=True, kw_only=True):
    """A schedule has ended, and its state was deleted."""

    fired: int


class TaskPaused(TaskEvent, frozen=True, kw_only=True):
    """No occurrence runs until the task is resumed."""


class TaskResumed(TaskEvent, frozen=True, kw_only=True):
    """Occurrences run again."""


class TaskStopped(TaskEvent, frozen=True, kw_only=True):
    """The scheduler is done with a task."""

    reason: StopReason
    fired: int


class RunEvent(TaskEvent, frozen=True, kw_only=True):
    """Something about one occurrence."""

    at_ms: int
    catch_up: bool = False
    manual: bool = False
    fired: int = 0

    @property
    def scheduled_at(self) -> datetime:
        """The instant it was scheduled for."""
        return instant(self.at_ms)


class RunStarted(RunEvent, frozen=True, kw_only=True):
    """An occurrence is about to run; with a guard, if that lets it."""

    replayed: bool = False  # somebody began it before and did not finish


class RunAsked(RunEvent, frozen=True, kw_only=True):
    """Somebody wants a run now, beside the schedule."""


class RunQueued(RunEvent, frozen=True, kw_only=True):
    """An occurrence waits for the run that is active."""


class RunSkipped(RunEvent, frozen=True, kw_only=True):
    """Occurrences that did not run: `count` of them, from `at_ms` to `last_ms`."""

    reason: SkipReason
    count: int = 1
    last_ms: int


class RunCompleted(RunEvent, frozen=True, kw_only=True):
    """A run has ended."""

    status: RunStatus
    error: str | None


class LeaseEvent(RunEvent, frozen=True, kw_only=True):
    """Something about the lease of one occurrence."""

    resource: str


class LeaseAcquired(LeaseEvent, frozen=True, kw_only=True):
    """The occurrence is ours to run."""


class LeaseContended(LeaseEvent, frozen=True, kw_only=True):
    """The occurrence is not ours to run: somebody else runs it or has run it."""


class LeaseRenewed(LeaseEvent, frozen=True, kw_only=True):
    """The occurrence stays ours."""

    renewals: int


class LeaseRenewFailed(LeaseEvent, frozen=True, kw_only=True):
    """The guard could not be asked to renew; it will be asked again while the lease lasts."""

    renewals: int
    failures: int
    error: str


class LeaseLost(LeaseEvent, frozen=True, kw_only=True):
    """The occurrence is not ours any more; its run is cancelled and does not count."""


class LeaseReleased(LeaseEvent, frozen=True, kw_only=True):
    """The run is over, and nobody will run this occurrence again."""


class LeaseReleaseFailed(LeaseEvent, frozen=True, kw_only=True):
    """The guard could not be told; the lease runs out by itself."""

    error: str


class StoreDegraded(Struct, frozen=True, kw_only=True):
    """A store could not be reached; a resilient one goes on from its mirror."""

    operation: StoreOperation
    error: str


class StoreRecovered(Struct, frozen=True, kw_only=True):
    """A store is back: states written back, and those that others had brought further."""

    written: int = 0
    kept: int = 0


class ClockJumped(Struct, frozen=True, kw_only=True):
    """The wall clock was set: forwards, or backwards if below 0."""

    by_ms: int


StoreEvent: TypeAlias = StoreDegraded | StoreRecovered
Event: TypeAlias = TaskEvent | StoreEvent | ClockJumped


logger = logging.getLogger("tampu.scheduler")
_INFO: Final = (StateLoaded, StateDeleted, TaskStopped, TaskPaused, TaskResumed, StoreRecovered)
_WARNING: Final = (
    ClockJumped,
    LeaseLost,
    LeaseReleaseFailed,
    LeaseRenewFailed,
    ScheduleChanged,
    StateRepaired,
    StoreDegraded,
)


class Observer(Protocol):
    """Is told of each event, in order, on the scheduler's loop."""

    def on_event(self, event: Event) -> None:
        """Take note; quickly, and without waiting for anything."""


class LogObserver:
    """Logs each event under `tampu.scheduler`: its kind, and its fields as extras."""

    def on_event(self, event: Event) -> None:
        """What goes wrong as a warning, the life of tasks as info, runs for debugging."""
        level = logging.DEBUG
        if isinstance(event, _WARNING):
            level = logging.WARNING
        elif isinstance(event, _INFO):
            level = logging.INFO
        if logger.isEnabledFor(level):
            fields = {f"event_{name}": value for name, value in structs.asdict(event).items()}
            logger.log(level, "%s", type(event).__name__, extra=fields)


class ObserverList:
    """Tells observers; one that fails is logged the first time and never stops the scheduler."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = tuple(observers)
        self._failed: set[int] = set()
        self.anybody = bool(self._observers)  # events that nobody hears need not be made

    def tell(self, event: Event) -> None:
        """Hand an event on."""
        for number, observer in enumerate(self._observers):
            try:
                observer.on_event(event)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException:  # border: an observer is somebody else's code
                if number not in self._failed:
                    self._failed.add(number)
                    logger.warning("an observer of the scheduler failed", exc_info=True)
