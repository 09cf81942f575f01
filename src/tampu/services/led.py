"""A service that one of many does for a queue: whoever leads, until it is gone."""

from abc import abstractmethod
from typing import Final

from tampu.metrics.sink import Teller
from tampu.server.lane import Lane
from tampu.services.bell import Bell
from tampu.services.leader import Leader
from tampu.services.service import Service
from tampu.wire.keys import QueueKeys
from tampu.wire.lock import LockHolder

_FOLLOW_S: Final = 0.5  # how often one that does not lead asks for the lead


class LedService(Service):
    """Works while it leads, and listens to its bell meanwhile."""

    def __init__(
        self,
        lane: Lane,
        keys: QueueKeys,
        *,
        holder: LockHolder,
        events_max_len: int,
        teller: Teller,
    ) -> None:
        super().__init__()
        self._lane = lane
        self._keys = keys
        self._leader = Leader(
            lane, self.lock_of(keys), holder=holder, service=self.name, teller=teller
        )
        self._bell = Bell(lane.server, self.bell_of(keys), self.wake)
        self._events_max_len = events_max_len  # 0: nobody is told
        self._teller = teller

    @staticmethod
    @abstractmethod
    def lock_of(keys: QueueKeys) -> bytes:
        """The key that says who leads."""

    @staticmethod
    @abstractmethod
    def bell_of(keys: QueueKeys) -> bytes:
        """The key that is rung when there is work before its time."""

    @abstractmethod
    async def work(self) -> float:
        """Do what is due, or a part of it; the seconds until there is more, 0 for at once."""

    async def tick(self) -> float:
        """Work while there is work and the lead is ours."""
        while await self._leader.leads():
            self._bell.listen()
            wait_s = await self.work()
            if wait_s:
                return wait_s
        await self._bell.rest()
        return _FOLLOW_S

    async def ended(self) -> None:
        """Leave the lead to others; answered behind all that was sent before."""
        await self._bell.rest()
        await self._leader.resign()
