"""Moves delayed jobs to the stream when they are due."""

from typing import Final

from tampu.metrics.facts import Promotion
from tampu.server.scripts.delayed import promote
from tampu.server.streams import delete
from tampu.services.leader import LeaderService
from tampu.util.lifecycle import ignore_outcome
from tampu.wire.keys import QueueKeys

_BATCH: Final = 500
_LOOK_AGAIN_S: Final = 0.1  # a ChasquiMQ producer sends no wakeup when it adds an earlier job


class PromotionService(LeaderService):
    """Promotes while it leads; by the server's clock, never early."""

    name = "promoter"

    @staticmethod
    def lock_key(keys: QueueKeys) -> bytes:
        """The key that ChasquiMQ uses too."""
        return keys.promoter_lock

    @staticmethod
    def wakeup_key(keys: QueueKeys) -> bytes:
        """A wakeup arrives when a job is delayed that is due before all others."""
        return keys.wakeup

    async def work(self) -> float:
        """Promote one batch; the wait until the next job is due."""
        promoted = await promote(
            self._lane, self._keys, limit=_BATCH, events_max_len=self._events_max_len
        )
        self._sink.record([Promotion(promoted.moved, promoted.remaining)])
        if promoted.indexed:
            # Not awaited: an index that stays points to nothing, and expires.
            deleting = delete(self._lane, self._keys.indexes(promoted.indexed))
            deleting.add_done_callback(ignore_outcome)
        if promoted.next_in_us is None:
            return _LOOK_AGAIN_S
        return min(promoted.next_in_us / 1_000_000, _LOOK_AGAIN_S)
