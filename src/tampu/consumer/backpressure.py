"""How much to read: by the pace of the slots, and by what waits to be sent."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from tampu.consumer.batching import Batches
    from tampu.consumer.gate import GateRoom
    from tampu.consumer.pool import Pool
    from tampu.consumer.reporter import Reporter
    from tampu.consumer.settler import Settler

# Read ahead what the slots do in this time: at 100 jobs/s two entries wait here, at 100 000 jobs/s
# as many as two reads bring.
_AHEAD_S: Final = 0.02
# Of a queue with a gate less, unless jobs are very short: an urgent job waits for what was read.
_AHEAD_AT_GATE_S: Final = 0.008
_SHORT_PER_S: Final = 20_000
_SAMPLE_S: Final = 0.001
# Slots that began together end together: for a moment they seem ten times as fast as they are. At
# a gate, where an urgent job waits for what was read ahead, the pace is that of about so long.
_STEADY_S: Final = 0.02
# While slots are free and nothing waits, it is the server that is slow: the pace falls this slowly.
_STARVED_S: Final = 0.2
# With more than this on its way to the server, reading waits: the server sets the pace.
_MOST_SETTLEMENTS: Final = 8192
_MOST_EVENTS: Final = 4096
_CONGESTION_PAUSE_S: Final = 0.002


class Watched(NamedTuple):
    """What a worker reads for, and what it is held back by."""

    pool: Pool
    settler: Settler
    reporter: Reporter
    gate: GateRoom
    batches: Batches | None  # None: no handler takes any


class Backpressure:
    """Decides how much to read from the pace of the slots and what waits to be sent.

    `room` is set when the pool can take more.
    """

    def __init__(self, watched: Watched, *, room: asyncio.Event) -> None:
        self._pool, self._settler, self._reporter, self._gate, _ = watched
        self._room = room
        self._most = self._pool.share.most_a_read
        self._pace = Pace(2 * self._most)

    def count_to_read(self, *, coming: int = 0) -> int:
        """How many entries to ask for, with `coming` about to be offered to the pool; 0: none."""
        if self._is_congested():
            return 0
        pool = self._pool
        done = pool.offered - pool.waiting - (pool.size - pool.free)
        is_starved = pool.free > 0 and not pool.waiting
        ahead = self._pace.ahead(done, has_gate=self._gate.is_open, is_starved=is_starved)
        pool.low_mark = ahead // 2
        count = min(self._room_for(ahead) - coming, self._most)
        return count if count >= max(1, min(ahead, self._most) // 2) else 0

    def _room_for(self, ahead: int) -> int:
        """How many entries more the pool can take, with so many to read ahead."""
        pool = self._pool
        self._gate.offer(pool.size + ahead)
        return pool.free + ahead - pool.waiting

    def refuse(self) -> None:
        """Take nothing more, until `wanted` is called again."""
        self._gate.offer(0)

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


class BatchBackpressure(Backpressure):
    """Decides how much to read for a queue with handlers that take batches.

    A slot can take as many entries as a batch has jobs. How many of the next entries belong to
    batches is not known, so it is assumed of as many as lately.
    """

    def __init__(self, batches: Batches, watched: Watched, *, room: asyncio.Event) -> None:
        super().__init__(watched, room=room)
        self._batches = batches

    def _room_for(self, ahead: int) -> int:
        pool, batches = self._pool, self._batches
        share, size = batches.share, batches.size
        alone = pool.free + ahead - pool.waiting
        batched = (pool.free + ahead - pool.waiting_alone) * size - batches.held
        most = float(self._most)
        if share < 1:
            most = min(most, alone / (1 - share))
        if share > 0:
            most = min(most, batched / share)
        # What it has counts, not its slots: a batch that fills must not stop at the gate.
        has = pool.size - pool.free + pool.waiting_alone + batches.held + batches.running
        self._gate.offer(has + max(0, int(most)))
        return int(most)


def make_backpressure(watched: Watched, *, room: asyncio.Event) -> Backpressure:
    """The backpressure for a queue, with batches or without."""
    if watched.batches is None:
        return Backpressure(watched, room=room)
    return BatchBackpressure(watched.batches, watched, room=room)


class Pace:
    """How fast the slots work, and so how many entries to read ahead, at most so many."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._done = 0
        self._at = monotonic()
        self._per_s = self._steady_per_s = 0.0

    def ahead(self, done: int, *, has_gate: bool = False, is_starved: bool = False) -> int:
        """How many entries the slots will do in the next moment, given how many they have done.

        They are starved if some are free and nothing waits for them.
        """
        now = monotonic()
        elapsed_s = now - self._at
        if elapsed_s >= _SAMPLE_S:
            done = max(done, self._done)  # a slot that was just woken counts as busy too soon
            lately = (done - self._done) / elapsed_s
            self._per_s = (self._per_s + lately) / 2
            change = lately - self._steady_per_s
            memory_s = _STARVED_S if is_starved and change < 0 else _STEADY_S
            self._steady_per_s += change * min(1.0, elapsed_s / memory_s)
            self._done, self._at = done, now
        if not has_gate:
            return max(0, min(self._most, int(self._per_s * _AHEAD_S)))
        per_s = self._steady_per_s
        ahead_s = _AHEAD_AT_GATE_S if per_s < _SHORT_PER_S else _AHEAD_S
        return max(0, min(self._most, int(per_s * ahead_s)))
