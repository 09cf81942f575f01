"""The clock of a scheduler, and the queue of what is due when."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime
from heapq import heapify, heappop, heappush
from itertools import count
from time import monotonic_ns, time_ns
from typing import Final, Generic, Protocol, TypeVar

from tampu.util.clock import Duration, instant_ms, to_ms

_MIN_TIDY: Final = 1000  # fewer outdated entries than this are not worth removing


class Alarm(Protocol):
    """A pending call of `Clock.call_at`."""

    def cancel(self) -> None:
        """Drop the call."""


class Clock(ABC):
    """Tells the time, and makes calls at an instant."""

    @abstractmethod
    def now_ms(self) -> int:
        """The wall clock: milliseconds since 1970."""

    @abstractmethod
    def steady_ms(self) -> int:
        """A clock that is never set: milliseconds since some moment."""

    @abstractmethod
    def call_at(self, at_ms: int, call: Callable[[], None]) -> Alarm:
        """Call when the wall clock shows `at_ms`. It may be early or late if the clock is set."""


class WallClock(Clock):
    """The clock of this machine."""

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return time_ns() // 1_000_000

    def steady_ms(self) -> int:
        """The monotonic clock of this machine."""
        return monotonic_ns() // 1_000_000

    def call_at(self, at_ms: int, call: Callable[[], None]) -> Alarm:
        """Call with a timer of the running loop."""
        wait_s = (at_ms * 1_000_000 - time_ns()) / 1_000_000_000
        return asyncio.get_running_loop().call_later(max(0.0, wait_s), call)


class ManualClock(Clock):
    """A clock for tests: it stands still until you `turn` or `set` it."""

    def __init__(self, start: datetime) -> None:
        self._now_ms = instant_ms("start", start)
        self._steady_ms = 0
        self._alarms: list[tuple[int, int, _ManualAlarm]] = []
        self._numbers = count()

    def now_ms(self) -> int:
        """The instant that it was last turned or set to."""
        return self._now_ms

    def steady_ms(self) -> int:
        """How far it was turned in all."""
        return self._steady_ms

    def call_at(self, at_ms: int, call: Callable[[], None]) -> Alarm:
        """Call when the clock is turned that far, or soon if it already shows `at_ms`."""
        alarm = _ManualAlarm(call)
        if at_ms <= self._now_ms:
            asyncio.get_running_loop().call_soon(alarm.fire)
        else:
            fires_ms = self._steady_ms + at_ms - self._now_ms
            heappush(self._alarms, (fires_ms, next(self._numbers), alarm))
        return alarm

    def turn(self, by: Duration) -> None:
        """Let time pass."""
        by_ms = to_ms("by", by)
        self._now_ms += by_ms
        self._steady_ms += by_ms
        while self._alarms and self._alarms[0][0] <= self._steady_ms:
            heappop(self._alarms)[2].fire()

    def set(self, to: datetime) -> None:
        """Set the wall clock while no time passes; no alarm fires, as on a real machine."""
        self._now_ms = instant_ms("to", to)

    @property
    def next_alarm_ms(self) -> int | None:
        """The instant of the next alarm; None if there is no alarm."""
        while self._alarms and self._alarms[0][2].cancelled:
            heappop(self._alarms)
        return self._alarms[0][0] - self._steady_ms + self._now_ms if self._alarms else None


class _ManualAlarm:
    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True

    def fire(self) -> None:
        if not self.cancelled:
            self._call()


class HasDueTime(Protocol):
    """An item of a `DueQueue`."""

    due_ms: int | None


T = TypeVar("T", bound=HasDueTime)


class DueQueue(Generic[T]):
    """Items by the instant at which each is due next.

    Setting another instant leaves the old entry in the heap; it is ignored when it comes up.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, T]] = []
        self._numbers = count()
        self._tidy_above = _MIN_TIDY

    def set(self, item: T, at_ms: int | None) -> None:
        """Make an item due at another instant, or never if that is None."""
        item.due_ms = at_ms
        if at_ms is not None:
            heappush(self._heap, (at_ms, next(self._numbers), item))
            if len(self._heap) > self._tidy_above:
                self._tidy()

    def pop_due(self, now_ms: int, limit: int) -> list[T]:
        """Remove and return the items that are due, earliest first, at most `limit` of them."""
        found: list[T] = []
        heap = self._heap
        while heap and len(found) < limit and heap[0][0] <= now_ms:
            at_ms, _, item = heappop(heap)
            if item.due_ms == at_ms:
                item.due_ms = None
                found.append(item)
        return found

    def next_ms(self) -> int | None:
        """When the next item is due; None if no item is."""
        heap = self._heap
        while heap and heap[0][2].due_ms != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def _tidy(self) -> None:
        """Remove outdated entries, each time the heap has doubled."""
        valid = {id(entry[2]): entry for entry in self._heap if entry[2].due_ms == entry[0]}
        self._heap = list(valid.values())
        heapify(self._heap)
        self._tidy_above = 2 * len(self._heap) + _MIN_TIDY
