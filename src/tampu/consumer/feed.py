"""From reads to the pool: takes entries in, and holds reading back while there is no room."""

from __future__ import annotations

import asyncio
import logging
from time import monotonic
from typing import TYPE_CHECKING, Final

from tampu.consumer.batch_sender import BatchSender
from tampu.consumer.intake import Accepted, Arrival
from tampu.metrics.facts import BatchRead
from tampu.server.scripts.control import free_unique
from tampu.util.clock import now_ms
from tampu.wire.keys import UniqueUntil

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tampu.consumer.intake import Delivery, Intake
    from tampu.consumer.pool import Pool
    from tampu.consumer.reporter import Reporter
    from tampu.consumer.settler import Settler
    from tampu.server.lane import Lane
    from tampu.server.scripts.workers import TakenEntry
    from tampu.server.streams import RawEntry
    from tampu.wire.control import CancelRequest
    from tampu.wire.keys import QueueKeys

logger = logging.getLogger(__name__)
# Read ahead what the slots do in this time: at 100 jobs/s two entries wait here, at 100 000 jobs/s
# as many as two reads bring.
_AHEAD_S: Final = 0.02
_SAMPLE_S: Final = 0.001
# With more than this on its way to the server, reading waits: the server sets the pace.
_MOST_SETTLEMENTS: Final = 8192
_MOST_EVENTS: Final = 4096
_KEYS_A_CALL: Final = 500
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
        self._most = pool.share.most_a_read
        self._pace = Pace(2 * self._most)

    def wanted(self, *, coming: int = 0) -> int:
        """How many entries to ask for, with `coming` about to be offered to the pool; 0: none."""
        if self._is_congested():
            return 0
        pool = self._pool
        waiting, free = pool.waiting, pool.free
        ahead = self._pace.ahead(pool.offered - waiting - (pool.size - free))
        pool.low_mark = ahead // 2
        count = min(free + ahead - waiting - coming, self._most)
        return count if count >= max(1, min(ahead, self._most) // 2) else 0

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
    """How fast the slots work, and so how many entries to read ahead, at most so many."""

    def __init__(self, most: int) -> None:
        self._most = most
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
        return max(0, min(self._most, int(self._per_s * _AHEAD_S)))


class UniqueStarts:
    """Frees the unique keys of jobs that are about to start, and only then lets them start.

    A producer that finds such a key free knows that the job it would have got has started.
    """

    def __init__(self, lane: Lane, keys: QueueKeys) -> None:
        self._lane = lane
        self._keys = keys
        trouble = lane.server.outage.part(f"unique keys of queue {keys.name!r}")
        self._sender: BatchSender[Delivery] = BatchSender(
            "unique keys", self._free, trouble=trouble, most=_KEYS_A_CALL, awaited=True
        )
        self._start: Callable[[list[Delivery]], None] = list.clear

    def open(self, start: Callable[[list[Delivery]], None]) -> None:
        """Begin; `start` gets the jobs whose keys are free."""
        self._start = start
        self._sender.start()

    async def close(self) -> list[Delivery]:
        """End; the jobs that have not started."""
        await self._sender.stop()
        return self._sender.items

    def hold(self, delivery: Delivery) -> bool:
        """Take a job that must free its key first; False if it need not."""
        held = delivery.job.extras.unique
        # Also before a later attempt: the worker of the first one may have died before this.
        if held is None or held.until is not UniqueUntil.STARTED:
            return False
        self._sender.put(delivery)
        return True

    def entry_ids(self) -> Iterator[bytes]:
        """The ids of entries whose jobs have not started yet."""
        return (each.entry_id for each in self._sender.items)

    async def _free(self, batch: list[Delivery]) -> None:
        held = [(each.job.extras.unique, each.job.id) for each in batch]
        keys = [self._keys.unique(each.key) for each, _ in held if each is not None]
        await free_unique(self._lane, keys, [job_id for _, job_id in held])
        self._start(batch)


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
        starts: UniqueStarts,
        cancel_grace_s: float,
    ) -> None:
        self._intake = intake
        self._pool = pool
        self._settler = settler
        self._reporter = reporter
        self._cancellations = settler.cancellations
        self._starts = starts
        self._cancel_grace_s = cancel_grace_s
        self._is_stopped = False
        self._is_paused = False
        self._was_empty = True

    def open(self) -> None:
        """Begin to free the unique keys of jobs that start."""
        self._starts.open(self._start)

    async def close(self) -> None:
        """Release the jobs that still wait for that."""
        for delivery in await self._starts.close():
            self._settler.release(delivery)

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
        ids.update(self._starts.entry_ids())
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

    def cancel(self, request: CancelRequest) -> None:
        """Cancel a job if it waits or runs here, and when it comes."""
        self._cancellations.note(request)
        if any(self._cancellations.of(each) for each in self._pool.deliveries()):
            self._pool.cancel(request.job_id, grace_s=self._cancel_grace_s)

    def _offer(self, entries: list[RawEntry], *, deliveries: int, first: bool = False) -> None:
        accepted = self._accept(entries, Arrival(monotonic(), now_ms(), deliveries))
        for burial in accepted.refused:
            self._settler.bury(burial)
        ready = accepted.deliveries
        if any(each.extras for each in ready):
            ready = [each for each in ready if not self._starts.hold(each)]
        self._start(ready, first=first)

    def _start(self, ready: list[Delivery], *, first: bool = False) -> None:
        """Let jobs start, unless they were cancelled or nothing may start now."""
        if self._cancellations:
            ready = [each for each in ready if not self._cancel(each)]
        if self._is_stopped or self._is_paused:
            for delivery in ready:
                self._settler.release(delivery)
        else:
            self._pool.offer(ready, first=first)

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
