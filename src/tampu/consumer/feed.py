"""From reads to the pool: takes entries in, and holds reading back while there is no room."""

from __future__ import annotations

import asyncio
import logging
from time import monotonic
from typing import TYPE_CHECKING, Final

from tampu.consumer.intake import Accepted, Arrival
from tampu.metrics.facts import BatchRead
from tampu.util.clock import now_ms

if TYPE_CHECKING:
    from tampu.consumer.control import Cancellations
    from tampu.consumer.intake import Delivery, Intake
    from tampu.consumer.pool import Pool
    from tampu.consumer.reporter import Reporter
    from tampu.consumer.settler import Settler
    from tampu.server.scripts.workers import TakenEntry
    from tampu.server.streams import RawEntry

logger = logging.getLogger(__name__)
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


class Feed:
    """What is between the server and the pool.

    After `stop`, and while the queue is paused, it releases what it is given. Jobs that somebody
    has asked to cancel do not start.
    """

    def __init__(
        self,
        intake: Intake,
        pool: Pool,
        settler: Settler,
        *,
        reporter: Reporter,
        cancellations: Cancellations,
    ) -> None:
        self._intake = intake
        self._pool = pool
        self._settler = settler
        self._reporter = reporter
        self._cancellations = cancellations
        self._is_stopped = False
        self._is_paused = False
        self._was_empty = True

    def take_in(self, entries: list[RawEntry]) -> None:
        """Take in entries of a read."""
        self._was_empty = False
        self._reporter.sink.record([BatchRead(len(entries))])
        self._offer(entries, deliveries=1)

    def take_in_lost(self, entry: RawEntry, *, deliveries: int) -> None:
        """Take in an entry that a lost reply held."""
        if deliveries == 1:
            self._reporter.sink.record([BatchRead(1)])
        self._offer([entry], deliveries=deliveries)

    def take_over(self, taken: list[TakenEntry]) -> None:
        """Take in entries of a dead worker, before all that wait."""
        if taken:
            self._reporter.sink.record([BatchRead(len(taken), taken_over=len(taken))])
        for each in reversed(taken):  # each is put before the one taken in last
            self._offer([(each.entry_id, each.fields)], deliveries=each.deliveries, first=True)

    def note_empty_read(self) -> None:
        """Report that the queue is empty, if it was not before."""
        if not self._was_empty and not self._is_stopped:
            self._reporter.report_drained()
        self._was_empty = True

    @property
    def free_slots(self) -> int:
        """How many more entries could run at once."""
        return self._pool.free

    def entry_ids(self) -> set[bytes]:
        """The ids of all entries that wait, run, or are being settled."""
        ids = {each.entry_id for each in self._pool.deliveries()}
        ids.update(self._settler.entry_ids())
        return ids

    def release_stale(self, after_s: float) -> None:
        """Release all deliveries that wait for a slot, if one has waited for so long."""
        if self._pool.oldest_wait_s(monotonic()) >= after_s:
            self.release_waiting()

    def release_waiting(self) -> None:
        """Release all deliveries that wait for a slot."""
        for delivery in self._pool.withdraw():
            self._settler.release(delivery)

    def stop(self) -> None:
        """Start nothing more: release what is taken in from now on."""
        self._is_stopped = True

    def pause(self, *, paused: bool) -> None:
        """Start nothing until resumed: release what waits for a slot and what is taken in."""
        self._is_paused = paused
        if paused:
            self.release_waiting()

    def cancel_requested(self) -> None:
        """Cancel the jobs that wait or run here and that somebody has asked to cancel."""
        for delivery in self._pool.deliveries():
            if self._cancellations.of(delivery) is None:
                continue
            if self._pool.remove(delivery):
                self._settler.cancel(delivery)
            else:
                self._pool.cancel(delivery.entry_id)

    def _offer(self, entries: list[RawEntry], *, deliveries: int, first: bool = False) -> None:
        accepted = self._accept(entries, Arrival(monotonic(), now_ms(), deliveries))
        for burial in accepted.refused:
            self._settler.bury(burial)
        taken = accepted.deliveries
        if self._cancellations:
            taken = [each for each in taken if not self._cancel(each)]
        if self._is_stopped or self._is_paused:
            for delivery in taken:
                self._settler.release(delivery)
        else:
            self._pool.offer(taken, first=first)

    def _cancel(self, delivery: Delivery) -> bool:
        """Cancel a job that has not started, if somebody has asked for that."""
        if self._cancellations.of(delivery) is None:
            return False
        self._settler.cancel(delivery)
        return True

    def _accept(self, entries: list[RawEntry], arrival: Arrival) -> Accepted:
        try:
            return self._intake.accept(entries, arrival)
        except Exception:  # border: bytes from anywhere must not end the reader
            if len(entries) == 1:
                entry_id = entries[0][0].decode()
                logger.exception("entry %s cannot be taken in: it stays pending", entry_id)
                return Accepted([], [])
        parts = [self._accept([entry], arrival) for entry in entries]
        return Accepted(
            [each for part in parts for each in part.deliveries],
            [each for part in parts for each in part.refused],
        )
