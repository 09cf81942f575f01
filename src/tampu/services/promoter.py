"""Moves delayed jobs to the stream when they are due."""

from math import inf
from typing import Final

from tampu.metrics.facts import Promotion
from tampu.server.lane import Lane
from tampu.server.scripts.delayed import Promoted, promote
from tampu.server.streams import delete, note_place
from tampu.services.leader import LeaderService, Upcoming
from tampu.util.lifecycle import ignore_outcome
from tampu.wire.keys import QueueKeys

_BATCH: Final = 500


def note_promoted(lane: Lane, keys: QueueKeys, promoted: Promoted) -> None:
    """Note where jobs are that can be found by their ids.

    Not awaited: an index that stays points to nothing, and expires; and a marker without the place
    of its job makes it slower to find.
    """
    if promoted.findable:
        delete(lane, keys.indexes(promoted.findable)).add_done_callback(ignore_outcome)
    for raw_id, entry_id in promoted.findable.items():
        if entry_id:
            noting = note_place(lane, keys.raw_marker(raw_id), entry_id)
            noting.add_done_callback(ignore_outcome)


class PromotionService(LeaderService):
    """Promotes while it leads; by the server's clock, never early."""

    name = "promoter"
    peer_look_s = 0.1

    @staticmethod
    def lock_key(keys: QueueKeys) -> bytes:
        """The key that ChasquiMQ uses too."""
        return keys.promoter_lock

    @staticmethod
    def wakeup_key(keys: QueueKeys) -> bytes:
        """A wakeup arrives when a job is delayed that is due before all others."""
        return keys.wakeup

    @staticmethod
    def due_key(keys: QueueKeys) -> bytes:
        """The delayed jobs."""
        return keys.delayed

    async def work(self) -> Upcoming:
        """Promote one batch; the wait until the next job is due."""
        promoted = await promote(
            self._lane,
            self._keys,
            limit=_BATCH,
            events_max_len=self._events_max_len,
            history=self._history,
        )
        self._sink.record([Promotion(promoted.moved, promoted.remaining)])
        note_promoted(self._lane, self._keys, promoted)
        wait_s = inf if promoted.next_in_us is None else promoted.next_in_us / 1_000_000
        return Upcoming(wait_s, promoted.first)
