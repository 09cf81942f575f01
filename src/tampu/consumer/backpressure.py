"""Back-pressure: how many entries to ask for, so that slots have work and nothing piles up."""

import asyncio
from time import monotonic
from typing import Final

from tampu.consumer.pool import Pool
from tampu.consumer.reporter import Reporter
from tampu.consumer.settler import Settler

MOST_A_READ: Final = 512
# Read ahead what the slots do in this time: at 100 jobs/s two entries wait here, at 100 000 jobs/s
# as many as two reads bring.
_AHEAD_S: Final = 0.02
_MOST_AHEAD: Final = 2 * MOST_A_READ
_SAMPLE_S: Final = 0.001
# With more than this on its way to the server, reading waits: the server sets the pace.
_MOST_SETTLEMENTS: Final = 8192
_MOST_EVENTS: Final = 4096
_CONGESTION_PAUSE_S: Final = 0.002


class Backpressure:
    """Decides how much to read from the pace of the slots and what waits to be sent.

    `room` is set when the pool can take more.
    """

    def __init__(
        self, pool: Pool, settler: Settler, *, reporter: Reporter, room: asyncio.Event
    ) -> None:
        self._pool = pool
        self._settler = settler
        self._reporter = reporter
        self._room = room
        self._pace = Pace()

    def wanted(self, *, coming: int = 0) -> int:
        """How many entries to ask for, with `coming` about to be offered to the pool; 0: none."""
        if self._is_congested():
            return 0
        pool = self._pool
        waiting, free = pool.waiting, pool.free
        ahead = self._pace.ahead(pool.offered - waiting - (pool.size - free))
        pool.low_mark = ahead // 2
        count = min(free + ahead - waiting - coming, MOST_A_READ)
        return count if count >= max(1, min(ahead, MOST_A_READ) // 2) else 0

    def wake(self) -> None:
        """End `wait_for_room`."""
        self._room.set()

    async def wait_for_room(self) -> None:
        """Return when it is worth asking again."""
        if self._is_congested():
            await asyncio.sleep(_CONGESTION_PAUSE_S)
        else:
            self._room.clear()  # it may have been set since the last time
            await self._room.wait()

    def _is_congested(self) -> bool:
        return len(self._settler) > _MOST_SETTLEMENTS or self._reporter.backlog > _MOST_EVENTS


class Pace:
    """How fast the slots work, and so how many entries to read ahead."""

    def __init__(self) -> None:
        self._done = 0
        self._at = monotonic()
        self._per_s = 0.0

    def ahead(self, done: int) -> int:
        """How many entries the slots will do in the next 20 ms, given how many they have done."""
        now = monotonic()
        elapsed_s = now - self._at
        if elapsed_s >= _SAMPLE_S:
            done = max(done, self._done)  # a slot that was just woken counts as busy too soon
            self._per_s = (self._per_s + (done - self._done) / elapsed_s) / 2
            self._done, self._at = done, now
        return max(0, min(_MOST_AHEAD, int(self._per_s * _AHEAD_S)))
