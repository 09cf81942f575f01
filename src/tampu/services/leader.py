"""Services that one process runs for a queue: its leader, elected among all that offer it."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Final

from tampu.metrics.facts import LeadChanged, SafeSink
from tampu.server.connect import Server
from tampu.server.lane import Lane
from tampu.server.scripts.workers import lead, resign
from tampu.server.streams import wait_for_wakeup
from tampu.services.service import Service
from tampu.wire.holders import LockHolder
from tampu.wire.keys import QueueKeys

LEASE_S: Final = 5
_RENEW_S: Final = LEASE_S / 5
_FOLLOW_S: Final = 0.5  # how often a service that does not lead tries to
_LISTEN_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderContext:
    """What a service with a leader works with."""

    lane: Lane
    keys: QueueKeys
    holder: LockHolder
    events_max_len: int  # 0: it writes no events
    sink: SafeSink


class Leader:
    """The lead of one service: a lock that this process takes and renews."""

    def __init__(self, context: LeaderContext, lock: bytes, *, service: str) -> None:
        self._lane = context.lane
        self._lock = lock
        self.holder = context.holder.to_bytes()  # the value of the lock while we lead
        self._service = service
        self._sink = context.sink
        self._leads = False
        self._asked_at = 0.0

    async def leads(self) -> bool:
        """Whether we lead. Takes the lead if it is free, and renews it well before it ends."""
        now = monotonic()
        if self._leads and now - self._asked_at < _RENEW_S:
            return True
        self._note(leads=await lead(self._lane, self._lock, holder=self.holder, ttl_s=LEASE_S))
        self._asked_at = now
        return self._leads

    def note_loss(self) -> None:
        """A script found that another process holds the lock."""
        self._note(leads=False)

    async def resign(self) -> None:
        """Give up the lead, so that another process can take it at once."""
        self._note(leads=False)
        await resign(self._lane, self._lock, holder=self.holder)

    def _note(self, *, leads: bool) -> None:
        if leads != self._leads:
            self._leads = leads
            self._sink.record([LeadChanged(self._service, leads)])


class Wakeup(Service):
    """Listens for wakeups and calls `on_wakeup`; has a connection of its own while it listens.

    A wakeup that is missed makes a service late, not wrong: it looks from time to time anyway.
    """

    def __init__(
        self, server: Server, key: bytes, on_wakeup: Callable[[], None], *, name: str, queue: str
    ) -> None:
        self.name = name
        super().__init__(server.outage, queue=queue)
        self._server = server
        self._key = key
        self._on_wakeup = on_wakeup
        self._lane: Lane | None = None

    async def tick(self) -> float:
        """Wait for one wakeup, but not for long."""
        if self._lane is None:
            self._lane = await Lane.open(self._server, self._key)
        if await wait_for_wakeup(self._lane, self._key, wait_s=_LISTEN_S):
            self._on_wakeup()
        return 0.0

    async def clean_up(self) -> None:
        """Close the connection."""
        lane, self._lane = self._lane, None
        if lane is not None:
            await lane.close()


class LeaderService(Service):
    """A service that works only while it leads, and then listens for wakeups."""

    def __init__(self, context: LeaderContext) -> None:
        keys, server = context.keys, context.lane.server
        super().__init__(server.outage, queue=keys.name)
        self._lane = context.lane
        self._keys = keys
        self._leader = Leader(context, self.lock_key(keys), service=self.name)
        self._wakeups = Wakeup(
            server,
            self.wakeup_key(keys),
            self.wake,
            name=f"wakeup of the {self.name}",
            queue=keys.name,
        )
        self._events_max_len = context.events_max_len
        self._sink = context.sink

    @staticmethod
    @abstractmethod
    def lock_key(keys: QueueKeys) -> bytes:
        """The key that holds the leader's id."""

    @staticmethod
    @abstractmethod
    def wakeup_key(keys: QueueKeys) -> bytes:
        """The key on which a wakeup arrives when there is work earlier than expected."""

    @abstractmethod
    async def work(self) -> float:
        """Do a batch of what is due. Returns the seconds until there is more, 0 for now."""

    async def tick(self) -> float:
        """Work while we lead and there is work."""
        while await self._leader.leads():
            self._wakeups.start()
            wait_s = await self.work()
            if wait_s:
                return wait_s
        await self._wakeups.stop()
        return _FOLLOW_S

    async def clean_up(self) -> None:
        """Let another process lead. The server answers this after all that was sent before."""
        await self._wakeups.stop()
        await self._leader.resign()
