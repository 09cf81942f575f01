"""Reads entries from the stream, one read ahead of the work."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from tampu.consumer.watch import HAND_ON_S
from tampu.errors import CommandRefused, ConnectionLost, ServerError
from tampu.server.service import Background
from tampu.server.streams import NO_GROUP, create_group, pack_read, read_entries
from tampu.util.lifecycle import cancel_all, ignore_outcome

if TYPE_CHECKING:
    from tampu.consumer.backpressure import Backpressure
    from tampu.consumer.feed import Feed
    from tampu.consumer.recovery import Recovery
    from tampu.consumer.watch import Watch
    from tampu.server.lane import Lane
    from tampu.server.protocol import Reply
    from tampu.server.scripts.workers import Membership
    from tampu.server.streams import RawEntry

logger = logging.getLogger(__name__)

BLOCK_MS: Final = 5000
_WORTH_READING_AHEAD: Final = 16  # the work on fewer entries begins sooner without
_STOP_LIMIT_S: Final = 2.0
_RESTART_S: Final = 1.0


class Reader(Background):
    """Feeds the pool from the stream. Nothing that a server answers ends it."""

    name = "reader"

    def __init__(
        self,
        lane: Lane,
        member: Membership,
        *,
        feed: Feed,
        backpressure: Backpressure,
        recovery: Recovery,
        watch: Watch,
    ) -> None:
        self._lane = lane
        self._member = member
        self._feed = feed
        self._backpressure = backpressure
        self._recovery = recovery
        self._watch = watch
        self._is_blocking = False  # the last read
        self._stopping = False
        self.is_paused = False  # because the queue is: nothing is read
        self._unblocking: set[asyncio.Task[None]] = set()
        self._trouble = lane.server.outage.part(f"reading {member.stream.decode()}")

    async def run(self) -> None:
        """Read until stopped, whatever goes wrong."""
        while True:
            try:
                return await self._read()
            except Exception:  # border: a worker that does not read is worse than a long log
                stream = self._member.stream.decode()
                facts = {"stream": stream}
                logger.exception("reading %s failed, starting again", stream, extra=facts)
                await asyncio.sleep(_RESTART_S)

    def halt(self) -> None:
        """Read nothing more, and start nothing that was read."""
        self._stopping = True
        self._backpressure.refuse()
        self._feed.stop()
        self._backpressure.wake()

    def pause(self, *, paused: bool) -> None:
        """Read nothing and start nothing until resumed; what is held is released."""
        self._feed.pause(paused=paused)
        if paused and not self.is_paused and not self._stopping:
            unblocking = asyncio.create_task(self._lane.unblock(), name="tampu-pause")
            self._unblocking.add(unblocking)
            unblocking.add_done_callback(self._unblocking.discard)
            unblocking.add_done_callback(ignore_outcome)
        self.is_paused = paused
        if paused:
            self._backpressure.refuse()
        self._backpressure.wake()

    async def stop(self) -> None:
        """Halt; release the entries that a read has been given already."""
        self.halt()
        with suppress(TimeoutError):
            async with asyncio.timeout(_STOP_LIMIT_S):  # a server that is away answers nothing
                await self._end_read()
        await cancel_all(self._unblocking)
        await super().stop()
        self._trouble.end(recovered=False)

    async def _end_read(self) -> None:
        try:
            await self._lane.unblock()
        except ServerError as error:
            logger.debug("the blocked read ends by itself: %s", error)
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _read(self) -> None:
        reading: asyncio.Future[Reply] | None = None
        while True:
            if reading is None:
                if self._stopping:
                    self._watch.hand_on()
                    return
                count = await self._wait_for_turn()
                if not count:
                    continue
                reading = self._send(count)
            entries = await self._receive(reading)
            reading = None
            if entries:
                reading = self._send_ahead(len(entries))
                if reading is not None:
                    await asyncio.sleep(0)  # it is written before the work on this batch begins
                self._feed.take_in(entries)

    async def _wait_for_turn(self) -> int:
        """How many entries to read; 0 if something else had to be done or waited for first."""
        if self._recovery.is_needed:
            await self._recover()
            return 0
        if self.is_paused:
            await self._wait_for_room()
            return 0
        count = self._backpressure.count_to_read()
        if not count:
            await self._wait_for_room()
        return count

    async def _wait_for_room(self) -> None:
        try:
            async with asyncio.timeout(HAND_ON_S if self._watch.must_hand_on else None):
                await self._backpressure.wait_for_room()
        except TimeoutError:
            self._watch.hand_on()

    async def _recover(self) -> None:
        try:
            await self._recovery.run()
        except ServerError as error:
            await self._handle(error)
        else:
            self._trouble.end()

    def _send_ahead(self, coming: int) -> asyncio.Future[Reply] | None:
        """Let the server read on while we work on a batch."""
        if coming < _WORTH_READING_AHEAD or self._stopping or self.is_paused:
            return None
        if self._recovery.is_needed:
            return None
        count = self._backpressure.count_to_read(coming=coming)
        return self._send(count) if count else None

    def _send(self, count: int) -> asyncio.Future[Reply]:
        us = self._member
        self._is_blocking = self._watch.may_block
        block_ms = BLOCK_MS if self._is_blocking else 0
        packed = pack_read(
            us.stream, group=us.group, consumer=us.consumer, count=count, block_ms=block_ms
        )
        return self._lane.send(packed, block_s=block_ms / 1000)

    async def _receive(self, reading: asyncio.Future[Reply]) -> list[RawEntry]:
        """The entries of a read; none if it fails, which is handled here."""
        try:
            entries: list[RawEntry] = read_entries(await reading)
            if not entries:
                self._feed.note_empty_read()
                if not self._is_blocking and not self._stopping:
                    await self._watch.wait_for_turn()
        except ServerError as error:
            await self._handle(error)
            return []
        self._trouble.end()
        if entries:
            self._watch.note_entries()
        return entries

    async def _handle(self, error: ServerError) -> None:
        """Do what can be done about an error, then pause."""
        if isinstance(error, CommandRefused) and error.code == NO_GROUP:
            await self._create_group()
            return
        if isinstance(error, ConnectionLost):
            self._recovery.request()
        await asyncio.sleep(self._trouble.begin(error))

    async def _create_group(self) -> None:
        stream, group = self._member.stream.decode(), self._member.group.decode()
        facts = {"stream": stream, "group": group}
        logger.error("group %s of %s was deleted: creating it", group, stream, extra=facts)
        try:
            await create_group(self._lane, self._member.stream, self._member.group)
        except ServerError as error:
            await asyncio.sleep(self._trouble.begin(error))
