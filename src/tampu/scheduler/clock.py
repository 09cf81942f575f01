"""The clock that a scheduler goes by."""

import asyncio
import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime
from heapq import heapify, heappop, heappush
from itertools import count
from time import monotonic_ns, time_ns
from typing import Final, Generic, Protocol, TypeVar

from tampu.util.clock import Duration, instant_ms, to_ms


class Alarm(Protocol):
    """A call that is to come."""

    def cancel(self) -> None:
        """Do not make it."""


class Clock(ABC):
    """Tells the time, and calls when it has come."""

    @abstractmethod
    def now_ms(self) -> int:
        """The wall clock: milliseconds since 1970."""

    @abstractmethod
    def steady_ms(self) -> int:
        """A clock that nobody sets: milliseconds since some moment."""

    @abstractmethod
    def call_at(self, at_ms: int, call: Callable[[], None]) -> Alarm:
        """Call when the wall clock shows an instant; a moment later, or earlier if it was set."""


class WallClock(Clock):
    """The machine's own."""

    def now_ms(self) -> int:
        """The wall clock: milliseconds since 1970."""
        return time_ns() // 1_000_000

    def steady_ms(self) -> int:
        """The machine's monotonic clock."""
        return monotonic_ns() // 1_000_000

    def call_at(self, at_ms: int, call: Callable[[], None]) -> Alarm:
        """Call by the loop's timer."""
        wait_s = (at_ms * 1_000_000 - time_ns()) / 1_000_000_000
        return asyncio.get_running_loop().call_later(max(0.0, wait_s), call)


class ManualClock(Clock):
    """A clock that stands still until it is turned, for tests."""

    def __init__(self, start: datetime) -> None:
        self._now_ms = instant_ms("start", start)
        self._steady_ms = 0
        self._alarms: list[tuple[int, int, _ManualAlarm]] = []
        self._numbers = count()

    def now_ms(self) -> int:
        """What it was last turned to."""
        return self._now_ms

    def steady_ms(self) -> int:
        """How far it was turned in all."""
        return self._steady_ms

    def call_at(self, at_ms: int, call: Callable[[], None]) -> Alarm:
        """Call when it is turned that far, or at the loop's next turn if it shows that already."""
        alarm = _ManualAlarm(call)
        if at_ms <= self._now_ms:
            asyncio.get_running_loop().call_soon(alarm.ring)
        else:
            rings_ms = self._steady_ms + at_ms - self._now_ms
            heapq.heappush(self._alarms, (rings_ms, next(self._numbers), alarm))
        return alarm

    def turn(self, by: Duration) -> None:
        """Let time pass."""
        by_ms = to_ms("by", by)
        self._now_ms += by_ms
        self._steady_ms += by_ms
        while self._alarms and self._alarms[0][0] <= self._steady_ms:
            heapq.heappop(self._alarms)[2].ring()

    def set(self, to: datetime) -> None:
        """Set the wall clock, while no time passes: as of the machine's own, no alarm knows."""
        self._now_ms = instant_ms("to", to)

    @property
    def next_alarm_ms(self) -> int | None:
        """What it will show at the next alarm; None if nobody waits for one."""
        while self._alarms and self._alarms[0][2].cancelled:
            heapq.heappop(self._alarms)
        return self._alarms[0][0] - self._steady_ms + self._now_ms if self._alarms else None


class _ManualAlarm:
    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True

    def ring(self) -> None:
        if not self.cancelled:
            self._call()


_FEW: Final = 1000  # turns that do not count any more, and are not worth a look


class Dated(Protocol):
    """What has a turn of its own."""

    turn_ms: int | None


T = TypeVar("T", bound=Dated)


class Agenda(Generic[T]):
    """Turns by their instants; of each who has one, only the last that was set counts."""

    def __init__(self) -> None:
        self._turns: list[tuple[int, int, T]] = []
        self._numbers = count()
        self._most = _FEW

    def set(self, one: T, at_ms: int | None) -> None:
        """Give somebody a turn in place of the one before; None for none."""
        one.turn_ms = at_ms
        if at_ms is not None:
            heappush(self._turns, (at_ms, next(self._numbers), one))
            if len(self._turns) > self._most:
                self._tidy()

    def due(self, now_ms: int, limit: int) -> list[T]:
        """Those whose turn has come, the earliest first; they have no turn then."""
        found: list[T] = []
        turns = self._turns
        while turns and len(found) < limit and turns[0][0] <= now_ms:
            at_ms, _, one = heappop(turns)
            if one.turn_ms == at_ms:
                one.turn_ms = None
                found.append(one)
        return found

    def next_ms(self) -> int | None:
        """When the next turn comes."""
        turns = self._turns
        while turns and turns[0][2].turn_ms != turns[0][0]:
            heappop(turns)
        return turns[0][0] if turns else None

    def _tidy(self) -> None:
        """Leave out what does not count any more; each time that there is twice as much."""
        counts = {id(turn[2]): turn for turn in self._turns if turn[2].turn_ms == turn[0]}
        self._turns = list(counts.values())
        heapify(self._turns)
        self._most = 2 * len(self._turns) + _FEW
