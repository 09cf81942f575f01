"""Takes entries in: decodes them, and gives them to the pool or to the dead letters."""

import logging
from time import monotonic
from typing import Final

from tampu.consumer.intake import Accepted, Arrival, Intake
from tampu.consumer.pool import Pool
from tampu.consumer.reporter import Reporter
from tampu.consumer.settler import Settler
from tampu.metrics.facts import BatchRead
from tampu.server.scripts.workers import TakenEntry
from tampu.server.streams import RawEntry
from tampu.util.clock import now_ms

logger = logging.getLogger(__name__)
# Deliveries that have waited for a slot for so long are released, for other workers to run.
_STALE_S: Final = 1.0


class Feed:
    """What is between the server and the pool. After `stop` it releases what it is given."""

    def __init__(self, intake: Intake, pool: Pool, settler: Settler, *, reporter: Reporter) -> None:
        self._intake = intake
        self._pool = pool
        self._settler = settler
        self._reporter = reporter
        self._is_stopped = False
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

    def release_stale(self) -> None:
        """Release all deliveries that wait for a slot, if one has waited too long."""
        if self._pool.oldest_wait_s(monotonic()) >= _STALE_S:
            self.release_waiting()

    def release_waiting(self) -> None:
        """Release all deliveries that wait for a slot."""
        for delivery in self._pool.withdraw():
            self._settler.release(delivery)

    def stop(self) -> None:
        """Start nothing more: release what is taken in from now on."""
        self._is_stopped = True

    def _offer(self, entries: list[RawEntry], *, deliveries: int, first: bool = False) -> None:
        accepted = self._accept(entries, Arrival(monotonic(), now_ms(), deliveries))
        for burial in accepted.refused:
            self._settler.bury(burial)
        if self._is_stopped:
            for delivery in accepted.deliveries:
                self._settler.release(delivery)
        else:
            self._pool.offer(accepted.deliveries, first=first)

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
