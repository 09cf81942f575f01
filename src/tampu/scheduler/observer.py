"""Who is told what happens."""

import logging
from collections.abc import Sequence
from typing import Final, Protocol

from msgspec import structs

from tampu.scheduler.events import (
    ClockJumped,
    Event,
    LeaseLost,
    LeaseReleaseFailed,
    LeaseRenewFailed,
    ScheduleChanged,
    StateDeleted,
    StateLoaded,
    StateRepaired,
    StoreDegraded,
    StoreRecovered,
    TaskPaused,
    TaskResumed,
    TaskStopped,
)

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


class Telling:
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
