"""Moves delayed jobs to the stream when they are due."""

import math
from time import monotonic
from typing import Final

from tampu.clock import now_ms
from tampu.events import EventWriter
from tampu.metrics.facts import Promotion
from tampu.metrics.sink import Teller
from tampu.server.lane import Lane
from tampu.server.scripts import promote
from tampu.server.streams import delete
from tampu.services.leader import Leader
from tampu.services.service import Service
from tampu.wire.event import EventKind, encode_event
from tampu.wire.fields import show_text
from tampu.wire.keys import QueueKeys

_BATCH: Final = 500
_LOOK_AGAIN_S: Final = 0.1  # another program may have added a job that is due sooner
_FOLLOW_S: Final = 0.5  # how often one that does not lead asks for the lead


class Promoter(Service):
    """Promotes while it leads; by the server's clock, never early."""

    name = "promoter"

    def __init__(
        self,
        lane: Lane,
        keys: QueueKeys,
        *,
        leader: Leader,
        writer: EventWriter | None,
        teller: Teller,
    ) -> None:
        super().__init__()
        self._lane = lane
        self._keys = keys
        self._leader = leader
        self._writer = writer
        self._teller = teller
        self._due_at = math.inf  # when the next job is due, by our own clock, as far as we know

    async def tick(self) -> float:
        """Promote what is due, all of it; the wait until the next job is due."""
        if not await self._leader.leads():
            return _FOLLOW_S
        keys = self._keys
        promoted = await promote(
            self._lane, keys.delayed, stream=keys.stream, dead=keys.dead, limit=_BATCH
        )
        self._teller.tell(Promotion(len(promoted.jobs), promoted.remaining))
        if promoted.jobs:
            await self._tell(promoted.jobs)
        wait_s = _LOOK_AGAIN_S
        if promoted.next_in_ms is not None:
            wait_s = min(promoted.next_in_ms / 1000, _LOOK_AGAIN_S)
        self._due_at = monotonic() + wait_s
        return wait_s

    def expect(self, wait_ms: int) -> None:
        """A job has been delayed by so much; wake in time if that is sooner than planned."""
        if monotonic() + wait_ms / 1000 < self._due_at:
            self.wake()

    async def ended(self) -> None:
        """Leave the lead to others."""
        await self._leader.resign()

    async def _tell(self, jobs: list[tuple[bytes, bytes]]) -> None:
        if self._writer is not None:
            stamp = now_ms()
            for job_id, name in jobs:
                fields = encode_event(
                    EventKind.WAITING, job_id=show_text(job_id), ts_ms=stamp, name=show_text(name)
                )
                self._writer.tell(fields)
        indexes = [self._keys.index(show_text(job_id)) for job_id, _ in jobs if job_id]
        if indexes:
            await delete(self._lane, indexes)
