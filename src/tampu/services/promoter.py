"""Moves delayed jobs to the stream when they are due."""

import math
from time import monotonic
from typing import Final

from tampu.metrics.facts import Promotion
from tampu.metrics.sink import Teller
from tampu.server.lane import Lane
from tampu.server.scripts import promote
from tampu.server.streams import delete
from tampu.services.leader import Leader
from tampu.services.service import Service
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
        events_max_len: int,
        teller: Teller,
    ) -> None:
        super().__init__()
        self._lane = lane
        self._keys = keys
        self._leader = leader
        self._events_max_len = events_max_len  # 0: nobody is told
        self._teller = teller
        self._due_at = math.inf  # when the next job is due, by our own clock, as far as we know

    async def tick(self) -> float:
        """Promote what is due, all of it; the wait until the next job is due."""
        if not await self._leader.leads():
            self._due_at = -math.inf  # another's business
            return _FOLLOW_S
        promoted = await promote(
            self._lane, self._keys, limit=_BATCH, events_max_len=self._events_max_len
        )
        self._teller.tell(Promotion(len(promoted.jobs), promoted.remaining))
        indexes = [self._keys.index(show_text(job_id)) for job_id, _ in promoted.jobs if job_id]
        if indexes:
            await delete(self._lane, indexes)
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
