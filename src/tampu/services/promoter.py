"""Moves delayed jobs to the stream when they are due."""

from typing import Final

from tampu.metrics.facts import Promotion
from tampu.metrics.sink import Teller
from tampu.server.delays import promote
from tampu.server.lane import Lane
from tampu.server.link import ignore_outcome
from tampu.server.streams import delete
from tampu.services.bell import Bell
from tampu.services.leader import Leader
from tampu.services.service import Service
from tampu.wire.keys import QueueKeys

_BATCH: Final = 500
_LOOK_AGAIN_S: Final = 0.1  # a peer that adds a job which is due sooner does not ring
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
        self._bell = Bell(lane.server, keys.bell, self.wake)
        self._events_max_len = events_max_len  # 0: nobody is told
        self._teller = teller

    async def tick(self) -> float:
        """Promote what is due, all of it; the wait until the next job is due."""
        while await self._leader.leads():
            self._bell.listen()
            wait_s = await self._promote()
            if wait_s:
                return wait_s
        await self._bell.rest()
        return _FOLLOW_S

    async def ended(self) -> None:
        """Leave the lead to others."""
        await self._bell.rest()
        await self._leader.resign()  # answered behind all that was deleted

    async def _promote(self) -> float:
        """Promote one batch; how long until there is more to do."""
        promoted = await promote(
            self._lane, self._keys, limit=_BATCH, events_max_len=self._events_max_len
        )
        self._teller.tell(Promotion(promoted.moved, promoted.remaining))
        if promoted.indexed:
            # Nobody waits for it: an index that stays finds nothing, and ends by itself.
            deleting = delete(self._lane, self._keys.indexes(promoted.indexed))
            deleting.add_done_callback(ignore_outcome)
        if promoted.next_in_us is None:
            return _LOOK_AGAIN_S
        return min(promoted.next_in_us / 1_000_000, _LOOK_AGAIN_S)
