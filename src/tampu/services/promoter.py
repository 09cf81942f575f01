"""Moves delayed jobs to the stream when they are due."""

from typing import Final

from tampu.metrics.facts import Promotion
from tampu.server.connection import ignore_outcome
from tampu.server.scripts.delayed import promote
from tampu.server.streams import delete
from tampu.services.leader import LeaderService
from tampu.wire.keys import QueueKeys

_BATCH: Final = 500
_LOOK_AGAIN_S: Final = 0.1  # a peer that adds a job which is due sooner does not ring


class PromotionService(LeaderService):
    """Promotes while it leads; by the server's clock, never early."""

    name = "promoter"

    @staticmethod
    def lock_of(keys: QueueKeys) -> bytes:
        """The key that peers use too."""
        return keys.promoter_lock

    @staticmethod
    def bell_of(keys: QueueKeys) -> bytes:
        """Rung by who delays a job that is due before all others."""
        return keys.bell

    async def work(self) -> float:
        """Promote one batch of what is due; the wait until the next job is."""
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
