"""Reads entries, no more of them than the slots can use soon, and one read ahead of the work."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from random import Random
from time import monotonic
from typing import Final

from tampu.consumer.intake import Accepted, Arrival, Intake
from tampu.consumer.pool import Pool
from tampu.consumer.reporter import Reporter
from tampu.consumer.settler import QueuePosition, Settler
from tampu.errors import CommandRefused, ConnectionLost, ServerError
from tampu.metrics.facts import BatchRead
from tampu.server.lane import Lane, LaneOptions, Pauses
from tampu.server.protocol import Reply
from tampu.server.scripts.workers import TakenEntry
from tampu.server.streams import (
    MAX_ACKS,
    NO_GROUP,
    RawEntry,
    ack,
    create_group,
    fields_of,
    packed_read,
    pending_of,
    read_entries,
)
from tampu.util.clock import now_ms

logger = logging.getLogger(__name__)

BLOCK_MS: Final = 5000
_MOST_A_READ: Final = 512
_WORTH_A_READ_AHEAD: Final = 16  # the work on fewer begins sooner than a read is written
# Slots are kept in work by what they do in this time: at 100 jobs/s two entries wait here, at
# 100 000 jobs/s as many as two reads bring.
_AHEAD_S: Final = 0.02
_MOST_AHEAD: Final = 2 * _MOST_A_READ
_SAMPLE_S: Final = 0.001
# What has waited here for so long goes back, for others to run.
_STALE_S: Final = 1.0
# With more than this on its way to the server, work waits: the server sets the pace.
_MOST_UNSETTLED: Final = 8192
_MOST_UNTOLD: Final = 4096
_CONGESTION_PAUSE_S: Final = 0.002


class Reader:
    """Feeds the pool from the stream until it is stopped; no answer of a server ends it."""

    def __init__(
        self,
        lane: Lane,
        place: QueuePosition,
        *,
        intake: Intake,
        settler: Settler,
        telling: Reporter,
    ) -> None:
        self._lane = lane
        self._place = place
        self._intake = intake
        self._settler = settler
        self._telling = telling
        self._teller = telling.teller
        self._pool: Pool | None = None
        self._stopping = False
        self._room: asyncio.Future[None] | None = None
        self._claiming = asyncio.Lock()
        self._strangers: set[bytes] = set()  # entries of ours that were unknown at the last audit
        self._lost_some = False  # we may hold entries that a lost reply told of
        self._pauses = Pauses(LaneOptions(), Random())  # noqa: S311 - spreads clients
        self._troubled = False
        self._emptied = True
        self._offered = 0
        self._pace = _Pace()

    def feed(self, pool: Pool) -> None:
        """Know whom to feed."""
        self._pool = pool

    def on_room(self) -> None:
        """The pool can use more."""
        room = self._room
        if room is not None:
            self._room = None
            if not room.done():
                room.set_result(None)

    async def run(self) -> None:
        """Read until `stop`."""
        reading: asyncio.Future[Reply] | None = None
        while True:
            if reading is None:
                if self._stopping:
                    return
                if self._lost_some and not await self._recovered():
                    continue
                count = self._wanted(coming=0)
                if count == 0:
                    await self._wait_for_room()
                    continue
                reading = self._send(count)
            entries = await self._reply(reading)
            reading = None
            if entries:
                reading = self._send_ahead(len(entries))
                if reading is not None:
                    await asyncio.sleep(0)  # it is written before the work on this batch begins
                self._take_in(entries)

    async def stop(self) -> None:
        """Read nothing more; what a read has been given already is handed back."""
        self._stopping = True
        self.on_room()
        try:
            await self._lane.unblock()
        except ServerError as error:
            logger.warning("a read ends by itself", extra={"problem": str(error)})

    async def take_over(self, claim: Callable[[], Awaitable[list[TakenEntry]]]) -> None:
        """Claim entries of a worker that is gone, and run them: the oldest, so they come first.

        What was claimed in a reply that was lost is found behind the read that is in flight.
        """
        # To its end, whoever is cancelled: entries that are claimed and not taken in would count
        # as an attempt that nobody made.
        taking = asyncio.create_task(self._take_over(claim), name="tampu-takeover")
        await asyncio.shield(taking)

    async def _take_over(self, claim: Callable[[], Awaitable[list[TakenEntry]]]) -> None:
        async with self._claiming:
            try:
                taken = await claim()
            except ConnectionLost:
                self._note_loss()
                raise
            if taken:
                self._teller.tell(BatchRead(len(taken), taken_over=len(taken)))
            for each in reversed(taken):  # each is put before the one before it
                entry = (each.entry_id, each.fields)
                self._take_in([entry], deliveries=each.deliveries, first=True)

    def audit(self, pending: set[bytes]) -> None:
        """Compare what we hold at the server with what we know of, however a gap came about.

        Such as by a read whose connection was given up and that reached the server all the same.
        What is unknown may just be on its way; what is still unknown the next time is lost.
        """
        strangers = pending - self._held()
        if strangers & self._strangers:
            self._note_loss()
        self._strangers = strangers

    async def claimed(self) -> None:
        """Return when no takeover is under way."""
        async with self._claiming:
            pass

    def _note_loss(self) -> None:
        self._lost_some = True
        self.on_room()

    async def _recovered(self) -> bool:
        """Whether what we were given in lost replies was found; if not, that is tried again."""
        try:
            await self._recover()
        except ServerError as error:
            await self._deal_with(error)
            return False
        self._lost_some = False
        return True

    async def _recover(self) -> None:
        """Run what we hold at the server and not here.

        Only while nothing is on its way to us: no read is in flight, and nobody claims for us.
        """
        place = self._place
        async with self._claiming:
            known = self._held()
            pending = await pending_of(
                self._lane, place.keys.stream, group=place.group, consumer=place.consumer
            )
            lost = [each for each in pending if each.entry_id not in known]
            ids = [each.entry_id for each in lost]
            found = await fields_of(self._lane, place.keys.stream, ids)
            gone = [each for each, fields in zip(ids, found, strict=True) if fields is None]
            if gone:
                await ack(self._lane, gone[:MAX_ACKS], stream=place.keys.stream, group=place.group)
            for each, fields in zip(lost, found, strict=True):
                self._take_in([(each.entry_id, fields)], deliveries=each.deliveries)

    def relieve(self) -> int:
        """Hand back what has waited here for too long; how many entries that were."""
        pool = self._fed()
        if pool.oldest_wait_s(monotonic()) < _STALE_S:
            return 0
        surplus = pool.withdraw()
        for delivery in surplus:
            self._settler.hand_back(delivery)
        return len(surplus)

    def spare(self) -> int:
        """How many more entries could run at once."""
        return self._fed().free

    def _fed(self) -> Pool:
        assert self._pool is not None  # noqa: S101 - fed before it runs
        return self._pool

    def _held(self) -> set[bytes]:
        held = {each.entry_id for each in self._fed().held()}
        held.update(self._settler.held())
        return held

    def _congested(self) -> bool:
        return len(self._settler) > _MOST_UNSETTLED or self._telling.backlog > _MOST_UNTOLD

    def _wanted(self, *, coming: int) -> int:
        """How many entries to ask for, given that so many are about to be offered; 0: not now."""
        pool = self._fed()
        if self._congested():
            return 0
        waiting, free = pool.waiting + coming, pool.free
        ahead = self._pace.ahead(self._offered - pool.waiting - (pool.size - free))
        pool.low_mark = ahead // 2
        count = min(free + ahead - waiting, _MOST_A_READ)
        return count if count >= max(1, min(ahead, _MOST_A_READ) // 2) else 0

    def _send_ahead(self, coming: int) -> asyncio.Future[Reply] | None:
        """Have the server read on while we work on a batch."""
        if coming < _WORTH_A_READ_AHEAD or self._stopping or self._lost_some:
            return None
        count = self._wanted(coming=coming)
        return self._send(count) if count else None

    def _send(self, count: int) -> asyncio.Future[Reply]:
        place = self._place
        packed = packed_read(
            place.keys.stream,
            group=place.group,
            consumer=place.consumer,
            count=count,
            block_ms=BLOCK_MS,
        )
        return self._lane.send(packed, block_s=BLOCK_MS / 1000)

    async def _reply(self, reading: asyncio.Future[Reply]) -> list[RawEntry]:
        """The entries that a read brings; none if it brings trouble, which is dealt with here."""
        try:
            entries: list[RawEntry] = read_entries(await reading)
        except ServerError as error:
            await self._deal_with(error)
            return []
        if self._troubled:
            logger.info("reading goes on")
            self._troubled = False
            self._pauses.reset()
        if not entries and not self._emptied and not self._stopping:
            self._telling.drained()
        self._emptied = not entries
        return entries

    async def _deal_with(self, error: ServerError) -> None:
        if not self._troubled:
            logger.warning("reading is interrupted", extra={"problem": str(error)})
        self._troubled = True
        try:
            if isinstance(error, CommandRefused) and error.code == NO_GROUP:
                place = self._place
                logger.error("the group is gone: made anew", extra={"queue": place.keys.name})
                await create_group(self._lane, place.keys.stream, place.group)
                return
            if isinstance(error, ConnectionLost):
                self._note_loss()
            await asyncio.sleep(self._pauses.next_s())
        except ServerError as further:
            logger.debug("still interrupted", extra={"problem": str(further)})

    def _take_in(
        self, entries: list[RawEntry], *, deliveries: int = 1, first: bool = False
    ) -> None:
        read_at = monotonic()
        accepted = self._accepted(entries, Arrival(read_at, now_ms(), deliveries))
        for rejected in accepted.rejected:
            self._settler.reject(rejected, read_at=read_at)
        if deliveries == 1:
            self._teller.tell(BatchRead(len(entries)))
        if self._stopping:
            for delivery in accepted.deliveries:
                self._settler.hand_back(delivery)
            return
        self._offered += len(accepted.deliveries)
        self._fed().offer(accepted.deliveries, first=first)

    def _accepted(self, entries: list[RawEntry], arrival: Arrival) -> Accepted:
        try:
            return self._intake.accept(entries, arrival)
        except Exception:  # border: bytes from anywhere must not end the reader
            logger.exception("an entry cannot be taken in: it stays")
        if len(entries) == 1:
            return Accepted([], [])
        apart = [self._accepted([entry], arrival) for entry in entries]
        return Accepted(
            [each for part in apart for each in part.deliveries],
            [each for part in apart for each in part.rejected],
        )

    async def _wait_for_room(self) -> None:
        if self._congested():
            await asyncio.sleep(_CONGESTION_PAUSE_S)
            return
        room = self._room = asyncio.get_running_loop().create_future()
        await room


class _Pace:
    """How fast the slots work, and so how much should lie ready for them."""

    def __init__(self) -> None:
        self._done = 0
        self._at = monotonic()
        self._per_s = 0.0

    def ahead(self, done: int) -> int:
        """How many entries the slots will be through with in a moment, having done so many."""
        now = monotonic()
        elapsed = now - self._at
        if elapsed >= _SAMPLE_S:
            done = max(done, self._done)  # a slot that was woken looks busy too soon
            self._per_s = (self._per_s + (done - self._done) / elapsed) / 2
            self._done, self._at = done, now
        return max(0, min(_MOST_AHEAD, int(self._per_s * _AHEAD_S)))
