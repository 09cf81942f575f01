"""Events of a scheduler, and the observers that receive them. Instants are ms since 1970."""

import logging
from collections.abc import Sequence
from datetime import datetime
from enum import Enum, auto
from typing import Final, Protocol, TypeAlias

from msgspec import Struct, structs

from tampu.util.clock import instant
from tampu.util.options import Word

logger = logging.getLogger("tampu.scheduler")


class Source(Word):
    """Where the state of a task came from when the task was added."""

    NEW = auto()  # nothing was stored
    RESTORED = auto()  # it was stored
    CHANGED = auto()  # stored for another rule: the next instant was computed again
    REPAIRED = auto()  # the stored state was invalid


class SkipReason(Word):
    """Why an occurrence did not run."""

    MISSED = auto()  # too late, by the missed policy
    OVERLAP = auto()  # an earlier run was active
    QUEUE_FULL = auto()  # an earlier run was active, and another occurrence was waiting
    OUTSIDE_WINDOW = auto()  # the time window was closed
    PAUSED = auto()  # the task was paused, and the missed policy dropped it
    MAX_RUNS = auto()  # the task has had all its runs
    CONTENDED = auto()  # another scheduler is running it, or holds the resource
    DONE = auto()  # another scheduler has run it
    GUARD_UNREACHABLE = auto()  # the guard could not be reached


class RunStatus(Word):
    """How a run ended."""

    SUCCESS = auto()
    FAILED = auto()  # the function raised an error
    CANCELLED = auto()  # by a later occurrence, or because the scheduler stopped
    LOST = auto()  # its lease was lost, so its result does not count


class StopReason(Word):
    """Why a task is no longer scheduled."""

    TERMINAL = auto()  # its rule has no more instants, or it has had all its runs
    CANCELLED = auto()  # by `cancel`
    SHUTDOWN = auto()  # by `shutdown`
    FAILED = auto()  # by an error that `run` or `serve` raises


class StoreOperation(Word):
    """The call of a store that failed."""

    LOAD = auto()
    SAVE = auto()
    DELETE = auto()


class TaskEvent(Struct, frozen=True, kw_only=True):
    """Base of the events about one task."""

    task_id: str


class StateLoaded(TaskEvent, frozen=True, kw_only=True):
    """A task was added, and its state was loaded or created."""

    source: Source
    fired: int
    next_ms: int | None


class StateRepaired(TaskEvent, frozen=True, kw_only=True):
    """The stored state was invalid and was corrected."""

    problem: str
    fired: int
    previous_next_ms: int | None
    next_ms: int | None


class ScheduleChanged(TaskEvent, frozen=True, kw_only=True):
    """The rule of a task is not the one its stored state was made for."""

    fired: int
    previous_next_ms: int | None
    next_ms: int | None


class StateDeleted(TaskEvent, frozen=True, kw_only=True):
    """A task has ended, and its state was deleted."""

    fired: int


class TaskPaused(TaskEvent, frozen=True, kw_only=True):
    """A task was paused: no occurrence runs until it is resumed."""


class TaskResumed(TaskEvent, frozen=True, kw_only=True):
    """A task was resumed: occurrences run again."""


class TaskStopped(TaskEvent, frozen=True, kw_only=True):
    """A task is no longer scheduled."""

    reason: StopReason
    fired: int


class RunEvent(TaskEvent, frozen=True, kw_only=True):
    """Base of the events about one occurrence."""

    at_ms: int
    catch_up: bool = False
    manual: bool = False
    fired: int = 0

    @property
    def scheduled_at(self) -> datetime:
        """The instant of the occurrence."""
        return instant(self.at_ms)


class RunStarted(RunEvent, frozen=True, kw_only=True):
    """An occurrence is about to run; a guard may still refuse it."""

    replayed: bool = False  # another scheduler started it and did not finish


class RunAsked(RunEvent, frozen=True, kw_only=True):
    """`trigger_now` asked for a run outside the schedule."""


class RunQueued(RunEvent, frozen=True, kw_only=True):
    """An occurrence waits until the active run ends."""


class RunSkipped(RunEvent, frozen=True, kw_only=True):
    """`count` occurrences, from `at_ms` to `last_ms`, do not run."""

    reason: SkipReason
    count: int = 1
    last_ms: int


class RunCompleted(RunEvent, frozen=True, kw_only=True):
    """A run has ended."""

    status: RunStatus
    error: str | None


class LeaseEvent(RunEvent, frozen=True, kw_only=True):
    """Base of the events about the lease of one occurrence."""

    resource: str


class LeaseAcquired(LeaseEvent, frozen=True, kw_only=True):
    """We hold the lease, and the run starts."""


class LeaseContended(LeaseEvent, frozen=True, kw_only=True):
    """The lease was refused: somebody else holds it, or has run the occurrence."""


class LeaseRenewed(LeaseEvent, frozen=True, kw_only=True):
    """The lease was renewed."""

    renewals: int


class LeaseRenewFailed(LeaseEvent, frozen=True, kw_only=True):
    """The guard could not be reached to renew; it is tried again until the lease expires."""

    renewals: int
    failures: int
    error: str


class LeaseLost(LeaseEvent, frozen=True, kw_only=True):
    """We no longer hold the lease: the run is cancelled and its result does not count."""


class LeaseReleased(LeaseEvent, frozen=True, kw_only=True):
    """The run has ended, and nobody will run this occurrence again."""


class LeaseReleaseFailed(LeaseEvent, frozen=True, kw_only=True):
    """The guard could not be reached to release the lease, which will expire."""

    error: str


class StoreDegraded(Struct, frozen=True, kw_only=True):
    """A store cannot be reached; a `ResilientStore` continues from memory."""

    operation: StoreOperation
    error: str


class StoreRecovered(Struct, frozen=True, kw_only=True):
    """A store can be reached again.

    A `ResilientStore` counts the states that it wrote back, and those that it kept as another
    scheduler had stored them meanwhile.
    """

    written: int = 0
    kept: int = 0


class ClockJumped(Struct, frozen=True, kw_only=True):
    """The wall clock was set: forwards, or backwards if `by_ms` is below 0."""

    by_ms: int


StoreEvent: TypeAlias = StoreDegraded | StoreRecovered
Event: TypeAlias = TaskEvent | StoreEvent | ClockJumped

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
_INSTANTS: Final = frozenset({"at_ms", "last_ms", "next_ms", "previous_next_ms"})


class Observer(Protocol):
    """Receives every event of a scheduler, in order, on the scheduler's loop."""

    def on_event(self, event: Event) -> None:
        """Handle one event; must be quick and must not block."""


class LogObserver:
    """Logs every event under `tampu.scheduler`.

    The text is the kind of the event and its fields. The fields are also in the record's extras,
    as `event_task_id` and so on. Problems are warnings, the life of tasks is info, runs are debug.
    """

    def on_event(self, event: Event) -> None:
        """Log one event."""
        level = logging.DEBUG
        if isinstance(event, _WARNING):
            level = logging.WARNING
        elif isinstance(event, _INFO):
            level = logging.INFO
        if logger.isEnabledFor(level):
            fields = structs.asdict(event)
            facts = " ".join(_fact(name, value) for name, value in fields.items())
            extra = {f"event_{name}": value for name, value in fields.items()}
            logger.log(level, "%s %s", type(event).__name__, facts, extra=extra)


class ObserverList:
    """The observers of a scheduler. One that raises is logged once and never stops the others."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = tuple(observers)
        self._failed: set[int] = set()
        self.is_empty = not self._observers  # then events need not be created

    def notify(self, event: Event) -> None:
        """Hand an event to each observer."""
        for number, observer in enumerate(self._observers):
            try:
                observer.on_event(event)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException:  # border: an observer is user code
                if number not in self._failed:
                    self._failed.add(number)
                    kinds = {"observer": type(observer).__name__, "event": type(event).__name__}
                    logger.warning(
                        "observer %s failed on %s; its further errors are not logged",
                        *kinds.values(),
                        exc_info=True,
                        extra=kinds,
                    )


def _fact(name: str, value: object) -> str:
    if name in _INSTANTS and isinstance(value, int):
        return f"{name.removesuffix('_ms')}={instant(value).isoformat()}"
    return f"{name}={value.name if isinstance(value, Enum) else repr(value)}"
