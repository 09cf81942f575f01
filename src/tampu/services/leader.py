"""One of many: the lead of one kind of service on a queue, held by a lease."""

from time import monotonic
from typing import Final

from tampu.metrics.facts import LeadChanged
from tampu.metrics.sink import Teller
from tampu.server.lane import Lane
from tampu.server.scripts import lead, resign
from tampu.wire.lock import LockHolder

LEASE_S: Final = 5
_RENEW_S: Final = LEASE_S / 5


class Leader:
    """Takes and keeps the lead under the key that peers use too."""

    def __init__(
        self, lane: Lane, lock: bytes, *, holder: LockHolder, service: str, teller: Teller
    ) -> None:
        self._lane = lane
        self._lock = lock
        self._holder = holder.to_bytes()
        self._service = service
        self._teller = teller
        self._leads = False
        self._asked_at = 0.0

    async def leads(self) -> bool:
        """Whether the lead is ours; asked anew well before the lease ends."""
        now = monotonic()
        if self._leads and now - self._asked_at < _RENEW_S:
            return True
        self._note(leads=await lead(self._lane, self._lock, holder=self._holder, ttl_s=LEASE_S))
        self._asked_at = now
        return self._leads

    @property
    def holder(self) -> bytes:
        """What the lock holds while the lead is ours."""
        return self._holder

    def lost(self) -> None:
        """A script has found the lock to be somebody else's."""
        self._note(leads=False)

    async def resign(self) -> None:
        """Give the lead up, so that another takes it at once."""
        self._note(leads=False)
        await resign(self._lane, self._lock, holder=self._holder)

    def _note(self, *, leads: bool) -> None:
        if leads != self._leads:
            self._leads = leads
            self._teller.tell(LeadChanged(self._service, leads))
