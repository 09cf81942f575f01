"""Lets jobs through a queue's gate when a limit opens, and frees what peers have settled."""

from math import inf
from time import monotonic
from typing import Final

from tampu.server.scripts.gate import admit, audit, regate
from tampu.services.leader import LeaderContext, LeaderService, Upcoming
from tampu.wire.keys import QueueKeys

_LONGEST_S: Final = 2.0  # also without a reason: a peer may have settled entries
_AUDITED: Final = 500
_AUDIT_S: Final = 0.4


class GateService(LeaderService):
    """Works while it leads and the queue has a gate.

    Entries that came by the gate, such as those of before there was one, get into their lines.
    """

    name = "gate"
    peer_look_s = 0.5

    def __init__(self, context: LeaderContext, group: bytes) -> None:
        super().__init__(context)
        self._group = group
        self._cursor = b"0"
        self._audit_at = 0.0

    @staticmethod
    def lock_key(keys: QueueKeys) -> bytes:
        """A key of our own: peers know no gate."""
        return keys.gate_lock

    @staticmethod
    def wakeup_key(keys: QueueKeys) -> bytes:
        """A wakeup arrives when something opens before all that was known."""
        return keys.gate_wakeup

    @staticmethod
    def due_key(keys: QueueKeys) -> bytes:
        """What opens, and when."""
        return keys.gate_wake

    async def work(self) -> Upcoming:
        """Let through what can pass, and look for entries that were settled without the gate."""
        if monotonic() >= self._audit_at and await self._audit():
            return Upcoming(0.0, None)
        admitted = await admit(self._lane, self._keys)
        if admitted is None:
            return Upcoming(_LONGEST_S, None)
        wait_s = inf if admitted.next_in_ms is None else admitted.next_in_ms / 1000
        return Upcoming(min(wait_s, _LONGEST_S), admitted.first)

    async def _audit(self) -> bool:
        """Do what is not urgent: between two instants of a fast rate there is no time for it."""
        audited = await audit(
            self._lane, self._keys, group=self._group, cursor=self._cursor, count=_AUDITED
        )
        self._cursor = b"0" if audited is None else audited.cursor
        taken_back = await regate(self._lane, self._keys, count=_AUDITED)
        has_more = taken_back == _AUDITED
        self._audit_at = 0.0 if has_more else monotonic() + _AUDIT_S
        return has_more
