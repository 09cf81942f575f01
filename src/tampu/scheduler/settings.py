"""The options of a scheduler."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from tampu.duration import Duration, to_ms
from tampu.errors import OptionError
from tampu.scheduler.clock import Clock, WallClock
from tampu.scheduler.coordinated_store import CoordinatedStore
from tampu.scheduler.guard import Guard
from tampu.scheduler.memory_store import MemoryStore
from tampu.scheduler.observer import Observer
from tampu.scheduler.store import Store
from tampu.settings import at_least, check_flag, check_type
from tampu.timing.zones import zone_of


class SchedulerOptions(TypedDict, total=False):
    """What may be said of a scheduler."""

    store: Store | CoordinatedStore
    guard: Guard | None
    timezone: str
    history: int
    observers: Sequence[Observer]
    keep_ended: bool
    grace: Duration | None
    threads: int
    clock: Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """The options of a scheduler, checked."""

    store: Store | CoordinatedStore = field(default_factory=MemoryStore)
    guard: Guard | None = None  # asked before each run
    timezone: str = "UTC"  # of cron rules and windows that name none
    history: int = 32  # records of runs kept for each task
    observers: Sequence[Observer] = ()
    keep_ended: bool = True  # keep the state of a task whose schedule has ended
    grace: Duration | None = None  # how long runs have at the end; None: as long as they take
    threads: int = 32  # for blocking functions
    clock: Clock = field(default_factory=WallClock)

    def __post_init__(self) -> None:
        accepted = "a store, such as MemoryStore() or RedisStore(...)"
        check_type("store", self.store, Store | CoordinatedStore, accepted=accepted)
        if self.guard is not None:
            check_type("guard", self.guard, Guard, accepted="a guard, such as RedisGuard(...)")
            if isinstance(self.store, CoordinatedStore):
                accepted = "cannot be given along with a CoordinatedStore, which guards by itself"
                raise OptionError("guard", self.guard, accepted)
        zone_of("timezone", self.timezone)
        at_least("history", self.history, 0)
        at_least("threads", self.threads, 1)
        check_flag("keep_ended", self.keep_ended)
        check_type("clock", self.clock, Clock, accepted="a Clock")
        if self.grace is not None:
            to_ms("grace", self.grace)
        check_type("observers", self.observers, Sequence, accepted="a list of observers")
        for observer in self.observers:
            if isinstance(observer, type) or not callable(getattr(observer, "on_event", None)):
                raise OptionError(
                    "observers", observer, "must be an object with a method on_event(event)"
                )
