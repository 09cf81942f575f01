"""From reads to the pool: takes entries in, and lets them start."""

from __future__ import annotations

import asyncio
import logging
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Final

from tampu.consumer.batch_sender import BatchSender, SendSteps
from tampu.consumer.intake import Accepted, Arrival
from tampu.metrics.facts import BatchRead
from tampu.server.scripts.control import free_unique
from tampu.util.clock import now_ms
from tampu.wire.control import HoldNotice
from tampu.wire.entry import is_from_the_delayed_set
from tampu.wire.flow import is_parked_group
from tampu.wire.lines import holds_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tampu.consumer.backpressure import Watched
    from tampu.consumer.inputs import InputReader
    from tampu.consumer.intake import Delivery, Intake
    from tampu.server.lane import Lane
    from tampu.server.scripts.workers import TakenEntry
    from tampu.server.streams import RawEntry
    from tampu.wire.control import CancelRequest
    from tampu.wire.keys import QueueKeys

logger = logging.getLogger(__name__)
_KEYS_A_CALL: Final = 500
_UNTIL_TOLD_MS: Final = 2000  # not longer: if the entry is no longer ours, nothing is closed


class UniqueStarts:
    """Frees the unique keys of jobs that are about to start, and only then lets them start.

    A producer that finds such a key free knows that the job it would have got has started.
    """

    def __init__(self, lane: Lane, keys: QueueKeys) -> None:
        self._lane = lane
        self._keys = keys
        trouble = lane.server.outage.part(f"unique keys of queue {keys.name!r}")
        self._sender: BatchSender[Delivery] = BatchSender(
            "unique keys", SendSteps(self._free), trouble=trouble, most=_KEYS_A_CALL, awaited=True
        )
        self._start: Callable[[list[Delivery]], None] = list.clear
        self._awaited: dict[bytes, asyncio.Future[bool]] = {}  # by entry: a batch waits for it

    def open(self, start: Callable[[list[Delivery]], None]) -> None:
        """Begin; `start` gets the jobs whose keys are free."""
        self._start = start
        self._sender.start()

    async def close(self) -> list[Delivery]:
        """End; the jobs that have not started."""
        await self._sender.stop()
        for each in self._awaited.values():
            if not each.done():
                each.set_result(False)
        return [each for each in self._sender.items if each.entry_id not in self._awaited]

    def hold(self, delivery: Delivery) -> bool:
        """Take a job that must free its key first; False if it need not."""
        # Also before a later attempt: the worker of the first one may have died before this.
        if delivery.plan.batch is not None or not delivery.frees_at_start:
            return False
        self._sender.put(delivery)
        return True

    async def free(self, deliveries: list[Delivery]) -> bool:
        """Free the keys of jobs whose batch starts; False if the worker stops before that."""
        loop = asyncio.get_running_loop()
        free: dict[bytes, asyncio.Future[bool]] = {
            each.entry_id: loop.create_future() for each in deliveries
        }
        self._awaited |= free
        for each in deliveries:
            self._sender.put(each)
        return all(await asyncio.gather(*free.values()))

    def entry_ids(self) -> Iterator[bytes]:
        """The ids of entries whose jobs have not started yet."""
        return (each.entry_id for each in self._sender.items)

    async def _free(self, batch: list[Delivery]) -> None:
        held = [(each.job.extras.unique, each.job.id) for each in batch]
        keys = [self._keys.unique(each.key) for each, _ in held if each is not None]
        await free_unique(self._lane, keys, [job_id for _, job_id in held])
        if self._awaited:
            batch = [each for each in batch if not self._tell(each)]
        self._start(batch)

    def _tell(self, delivery: Delivery) -> bool:
        """Tell the batch that waits for the key of this job; False if none does."""
        awaited = self._awaited.pop(delivery.entry_id, None)
        if awaited is not None and not awaited.done():
            awaited.set_result(True)
        return awaited is not None


class Holds:
    """Tasks, keys and limits that are paused, stopped or closed, and until when by our clock.

    A worker gives their jobs back to their lines.
    """

    def __init__(self) -> None:
        self._until: dict[str, tuple[float, int | None]] = {}

    def __bool__(self) -> bool:
        return bool(self._until)

    def add(self, notice: HoldNotice) -> None:
        """Hold jobs for that long, or until `remove`."""
        now, left_ms = monotonic(), notice.left_ms
        self._until = {what: held for what, held in self._until.items() if held[0] > now}
        end = inf if left_ms is None else now + left_ms / 1000
        self._until[notice.what] = (end, notice.until_ms)

    def remove(self, what: str) -> None:
        """Hold them no longer."""
        self._until.pop(what, None)

    def clear(self) -> None:
        """Hold nothing."""
        self._until.clear()

    def covers(self, delivery: Delivery) -> bool:
        """Whether a job is held."""
        job, now = delivery.job, monotonic()
        for what in holds_of(job.name, job.key, job.extras.line):
            end, until_ms = self._until.get(what, (0.0, None))
            # Later entries passed when what was closed had opened again.
            if end > now and (until_ms is None or int(delivery.entry_id.split(b"-")[0]) < until_ms):
                return True
        return False


class Feed:
    """What is between the server and the pool.

    After `stop`, and while the queue is paused, it releases what it is given. Jobs that somebody
    has asked to cancel do not start.
    """

    def __init__(
        self,
        intake: Intake,
        watched: Watched,
        *,
        starts: UniqueStarts,
        inputs: InputReader,
        cancel_grace_s: float,
    ) -> None:
        self._inputs = inputs
        self._intake = intake
        self._pool, self._settler, self._reporter, _, self._batches = watched
        self._cancellations = self._settler.cancellations
        self._starts = starts
        self._cancel_grace_s = cancel_grace_s
        self._gate = self._settler.gate
        self._is_stopped = False
        self._is_paused = False
        self._holds = Holds()
        self._was_empty = True

    def open(self) -> None:
        """Begin to free the unique keys of jobs that start."""
        self._starts.open(self._start)
        self._inputs.open(self._take_complete)
        self._settler.on_closed = self._hold_at_once
        if self._batches is not None:
            self._batches.open(self._pool.offer)

    async def close(self) -> None:
        """Release the jobs that still wait for that, or for values."""
        for delivery in [*await self._inputs.close(), *await self._starts.close()]:
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
        batches = self._batches
        return self._pool.free if batches is None else int(batches.a_slot * self._pool.free)

    def entry_ids(self) -> set[bytes]:
        """The ids of all entries that wait, run, or are being settled."""
        ids = {each.entry_id for each in self._pool.deliveries()}
        ids.update(self._settler.entry_ids())
        ids.update(self._starts.entry_ids())
        ids.update(self._inputs.entry_ids())
        if self._batches is not None:
            ids.update(each.entry_id for each in self._batches.waiting())
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
        """Start nothing more: release what is taken in from now on, and what waits in batches."""
        self._is_stopped = True
        self._release_batches()

    def _release_batches(self) -> None:
        for delivery in () if self._batches is None else self._batches.withdraw():
            self._settler.release(delivery)

    def pause(self, *, paused: bool) -> None:
        """Start nothing until resumed: release what waits for a slot and what is taken in."""
        self._is_paused = paused
        if paused:
            self._release_batches()
            self.release_waiting()

    def hold(self, notice: HoldNotice) -> None:
        """Give back jobs of a task, a key or a limit for that long."""
        self._holds.add(notice)
        self._start(self._pool.withdraw()[::-1])
        if self._batches is not None:
            for delivery in self._batches.take_out(self._holds.covers):
                self._settler.release(delivery)

    def _hold_at_once(self, resource: str, after_ms: int) -> None:
        """A job here has met a rate limit: start no others until the server says how long."""
        self.hold(HoldNotice(f"|{resource}", min(after_ms, _UNTIL_TOLD_MS)))

    def release_held(self, what: str | None = None) -> None:
        """Take in jobs of a task or key again; None: of all."""
        if what is None:
            self._holds.clear()
        else:
            self._holds.remove(what)

    def cancel(self, request: CancelRequest) -> None:
        """Cancel a job if it waits or runs here, and when it comes; or all jobs of a flow."""
        self._cancellations.note(request)
        if is_parked_group(request.job_id):
            self._start(self._pool.withdraw()[::-1])
            return
        for delivery in filter(self._cancellations.of, self._pool.deliveries()):
            self._pool.cancel(delivery.job.id, grace_s=self._cancel_grace_s)
        if self._batches is not None:
            for delivery in self._batches.take_out(self._cancellations.of):
                self._settler.cancel(delivery)

    def _offer(self, entries: list[RawEntry], *, deliveries: int, first: bool = False) -> None:
        accepted = self._accept(entries, Arrival(monotonic(), now_ms(), deliveries))
        for burial in accepted.refused:
            self._settler.bury(burial)
        if accepted.incomplete:
            self._inputs.put(accepted.incomplete)
        self._let_start(accepted.deliveries, entries, first=first)

    def _let_start(
        self, ready: list[Delivery], entries: list[RawEntry], *, first: bool = False
    ) -> None:
        if any(each.extras for each in ready):
            if self._gate.is_open:
                ready = self._send_back(ready, entries)
            hold = self._starts.hold
            ready = [each for each in ready if each.job.extras.unique is None or not hold(each)]
        self._start(ready, first=first)

    def _send_back(self, ready: list[Delivery], entries: list[RawEntry]) -> list[Delivery]:
        """Send jobs to their lines that a peer's promoter let pass the gate; the others."""
        # The gate takes the extras off the envelope; promoters that know no gate do not.
        past = {each[0] for each in entries if each[1] and is_from_the_delayed_set(each[1])}
        if not past:
            return ready
        kept = []
        for delivery in ready:
            if delivery.entry_id in past and delivery.job.extras.line is not None:
                self._settler.release(delivery, passed_gate=False)
            else:
                kept.append(delivery)
        return kept

    def _start(self, ready: list[Delivery], *, first: bool = False) -> None:
        """Let jobs start, unless they were cancelled or nothing may start now."""
        if self._cancellations:
            ready = [each for each in ready if not self._cancel(each)]
        if self._holds:
            for delivery in reversed(ready):  # each goes to the head of its line
                if self._holds.covers(delivery):
                    self._settler.release(delivery)
            ready = [each for each in ready if not self._holds.covers(each)]
        if self._is_stopped or self._is_paused:
            for delivery in ready:
                self._settler.release(delivery)
        else:
            if self._batches is not None:
                ready = self._batches.collect(ready)
            self._pool.offer(ready, first=first)

    def _take_complete(self, accepted: Accepted) -> None:
        """Take in jobs that have waited for values."""
        for burial in accepted.refused:
            self._settler.bury(burial)
        self._let_start(accepted.deliveries, [])

    def _cancel(self, delivery: Delivery) -> bool:
        """Cancel or take out a job that has not started, if somebody has asked for that."""
        if self._cancellations.of(delivery) is not None:
            self._settler.cancel(delivery)
            return True
        request = self._cancellations.parks(delivery)
        if request is None:
            return False
        self._settler.park(delivery, request)
        return True

    def _accept(self, entries: list[RawEntry], arrival: Arrival) -> Accepted:
        try:
            return self._intake.accept(entries, arrival)
        except Exception:  # border: bytes from anywhere must not end the reader
            if len(entries) == 1:
                entry_id = entries[0][0].decode()
                facts = {"entry_id": entry_id}
                logger.exception(
                    "entry %s cannot be taken in: it stays pending", entry_id, extra=facts
                )
                return Accepted([], [], [])
        parts = [self._accept([entry], arrival) for entry in entries]
        return Accepted(
            [each for part in parts for each in part.deliveries],
            [each for part in parts for each in part.refused],
            [each for part in parts for each in part.incomplete],
        )
