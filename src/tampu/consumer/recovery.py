"""Recovery: runs entries that this worker holds at the server but has not been told of.

The reply to a read or a claim can be lost with its connection. The server then counts the entries
as ours, and nobody else gets them while we are alive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from tampu.errors import ConnectionLost
from tampu.server.streams import MAX_ACKS, ack_plainly, fields_of, pending_of

if TYPE_CHECKING:
    from tampu.consumer.feed import Feed
    from tampu.server.lane import Lane
    from tampu.server.scripts.workers import Membership, TakenEntry


class Recovery:
    """Takes over from dead workers, and finds entries whose delivery was lost."""

    def __init__(self, lane: Lane, member: Membership, *, feed: Feed, room: asyncio.Event) -> None:
        self._lane = lane
        self._member = member
        self._feed = feed
        self._room = room
        self._claiming = asyncio.Lock()
        self._unknown: set[bytes] = set()  # entries of ours that the last audit did not know
        self.is_needed = False

    def release_stale(self, after_s: float) -> None:
        """Release entries for other workers to run, if one has waited so long for a slot."""
        self._feed.release_stale(after_s)

    def request(self) -> None:
        """Recover before the next read: a reply may have been lost."""
        self.is_needed = True
        self._room.set()

    def audit(self, pending: set[bytes]) -> None:
        """Compare the ids that the server says we hold with those that we know of.

        An unknown id may be on its way to us. One that is still unknown at the next audit was lost,
        for instance because its read reached the server after we had given up the connection.
        """
        unknown = pending - self._feed.entry_ids()
        if unknown & self._unknown:
            self.request()
        self._unknown = unknown

    async def take_over(self, claim: Callable[[int], Awaitable[list[TakenEntry]]]) -> None:
        """Claim entries of a dead worker and run them before all that wait.

        `claim` gets the number of free slots. If its reply is lost, the entries are found after the
        read that is in flight.
        """
        # Finished even if the caller is cancelled: an entry that is claimed but not taken in would
        # lose an attempt that was never made.
        taking = asyncio.create_task(self._take_over(claim), name="tampu-takeover")
        await asyncio.shield(taking)

    async def wait_for_takeover(self) -> None:
        """Return when no takeover is in progress."""
        async with self._claiming:
            pass

    async def run(self) -> None:
        """Find and run what was lost. No read may be in flight."""
        async with self._claiming:
            await self._find_lost()
        self.is_needed = False

    async def _take_over(self, claim: Callable[[int], Awaitable[list[TakenEntry]]]) -> None:
        async with self._claiming:
            try:
                self._feed.take_over(await claim(self._feed.free_slots))
            except ConnectionLost:
                self.request()
                raise

    async def _find_lost(self) -> None:
        lane, us = self._lane, self._member
        known = self._feed.entry_ids()
        pending = await pending_of(lane, us.stream, group=us.group, consumer=us.consumer)
        lost = [each for each in pending if each.entry_id not in known]
        found = await fields_of(lane, us.stream, [each.entry_id for each in lost])
        both = list(zip(lost, found, strict=True))
        if deleted := [each.entry_id for each, fields in both if fields is None]:
            await ack_plainly(lane, deleted[:MAX_ACKS], stream=us.stream, group=us.group)
        for each, fields in both:
            self._feed.take_in_lost((each.entry_id, fields), deliveries=each.deliveries)
