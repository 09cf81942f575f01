"""A service that one of many processes runs for a queue: the leader."""

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Callable
from random import Random
from time import monotonic
from typing import Final

from tampu.errors import ServerError
from tampu.metrics.facts import LeadChanged
from tampu.metrics.sinks import Teller
from tampu.server.connect import Server
from tampu.server.lane import Lane, LaneOptions, Pauses
from tampu.server.scripts.workers import lead, resign
from tampu.server.streams import wait_for_ring
from tampu.services.service import Service
from tampu.wire.holders import LockHolder
from tampu.wire.keys import QueueKeys

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


logger = logging.getLogger(__name__)
_WAIT_S: Final = 1.0


class Wakeup:
    """Listens on a lane of its own, which it has only while it listens.

    Whoever cannot hear the bell is late, not wrong: services look from time to time anyway.
    """

    def __init__(self, server: Server, key: bytes, heard: Callable[[], None]) -> None:
        self._server = server
        self._key = key
        self._heard = heard
        self._task: asyncio.Task[None] | None = None
        self._deaf = False
        self._pauses = Pauses(LaneOptions(), Random())  # noqa: S311 - spreads clients

    def listen(self) -> None:
        """Listen, until `rest`."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="tampu-bell")

    async def rest(self) -> None:
        """Listen no more."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _run(self) -> None:
        while True:
            try:
                async with await Lane.open(self._server, self._key) as lane:
                    await self._listen_on(lane)
            except ServerError as error:
                if not self._deaf:
                    logger.warning("a bell cannot be heard", extra={"problem": str(error)})
                self._deaf = True
            await asyncio.sleep(self._pauses.next_s())

    async def _listen_on(self, lane: Lane) -> None:
        """Until the server refuses, or takes back the lane."""
        while True:
            if await wait_for_ring(lane, self._key, wait_s=_WAIT_S):
                self._heard()
            self._deaf = False
            self._pauses.reset()


_FOLLOW_S: Final = 0.5  # how often one that does not lead asks for the lead


class LeaderService(Service):
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
        self._bell = Wakeup(lane.server, self.bell_of(keys), self.wake)
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
