"""Services that one process runs for a queue: its leader, elected among all that offer it."""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from random import uniform
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

from tampu.errors import CommandRefused
from tampu.metrics.facts import LeadChanged, SafeSink
from tampu.server.lane import Lane
from tampu.server.scripts.workers import lead, resign
from tampu.server.streams import first_score, wait_for_wakeup
from tampu.services.service import Service
from tampu.util.clock import until_tick
from tampu.util.lifecycle import cancel_all, ignore_outcome

if TYPE_CHECKING:
    from tampu.server.connect import Server
    from tampu.services.reaper import Fleet
    from tampu.wire.holders import LockHolder
    from tampu.wire.keys import QueueKeys

logger = logging.getLogger(__name__)

LEASE_S: Final = 5
_RENEW_S: Final = LEASE_S / 5
_FOLLOW_S: Final = 0.5  # how often a service that does not lead tries to, in a small fleet
_LOOK_S: Final = 2.0
_REMEMBER_PEERS_S: Final = 600.0
_LISTEN_S: Final = 5.0
_TRY_AGAIN_S: Final = 2.0
_RESIGN_S: Final = 2.0  # a server that is away does not hold up a service that stops
_GATHER_S: Final = 0.02  # the services of a process begin to listen at about the same time


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderContext:
    """What a service with a leader works with."""

    lane: Lane
    keys: QueueKeys
    holder: LockHolder
    events_max_len: int  # 0: it writes no events
    sink: SafeSink
    wakeups: Wakeups
    fleet: Fleet


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
        await resign(self._lane, self._lock, holder=self.holder, limit_s=_RESIGN_S)

    def _note(self, *, leads: bool) -> None:
        if leads != self._leads:
            self._leads = leads
            self._sink.record([LeadChanged(self._service, leads)])


class Wakeups:
    """Listens for the wakeups of all services of a process.

    One read blocks for all keys that a server lets it block for together: on a single server for
    all, in a cluster for those of a slot. A wakeup that is missed makes a service late, not wrong:
    it looks from time to time anyway.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._listeners: dict[int, _Listener] = {}  # by slot

    def listen(self, key: bytes, on_wakeup: Callable[[], None]) -> None:
        """Call `on_wakeup` whenever a wakeup arrives on a key. May be called again."""
        slot = self._server.slot(key)
        listener = self._listeners.get(slot)
        if listener is None:
            listener = self._listeners[slot] = _Listener(self._server)
            listener.start()
        listener.add(key, on_wakeup)

    async def ignore(self, key: bytes) -> None:
        """Listen no more; wakeups are left to others. May be called for any key."""
        slot = self._server.slot(key)
        listener = self._listeners.get(slot)
        if listener is not None:
            listener.callbacks.pop(key, None)
            if not listener.callbacks:
                del self._listeners[slot]
                await listener.stop()


class _Listener(Service):
    """Waits for wakeups on some keys, with a connection of its own."""

    name = "wakeups"

    def __init__(self, server: Server) -> None:
        super().__init__(server.outage, "listening for wakeups")
        self._server = server
        self._lane: Lane | None = None
        self._ending_read: asyncio.Task[None] | None = None
        self._refused: dict[bytes, float] = {}  # keys of another type: not to be read until then
        self.callbacks: dict[bytes, Callable[[], None]] = {}

    def add(self, key: bytes, on_wakeup: Callable[[], None]) -> None:
        """Listen on one more key, or on the same one as before."""
        is_new = key not in self.callbacks
        self.callbacks[key] = on_wakeup
        if is_new and self._lane is not None and self._ending_read is None:
            ending = asyncio.create_task(self._lane.unblock(), name="tampu-wakeup-keys")
            ending.add_done_callback(ignore_outcome)
            self._ending_read = ending

    async def tick(self) -> float:
        """Wait for one wakeup."""
        if self._lane is None:
            self._lane = await Lane.open(self._server, next(iter(self.callbacks)))
            return _GATHER_S
        if self._ending_read is not None:
            await asyncio.wait([self._ending_read])
            self._ending_read = None
        keys = [key for key in self.callbacks if self._refused.get(key, 0.0) < monotonic()]
        if not keys:
            return _TRY_AGAIN_S
        try:
            key = await wait_for_wakeup(self._lane, keys, wait_s=_LISTEN_S)
        except CommandRefused:
            if not await self._set_aside(self._lane, keys):
                raise
            return 0.0
        if key in self.callbacks:
            self.callbacks[key]()
        return 0.0

    async def clean_up(self) -> None:
        """Close the connection."""
        if self._ending_read is not None:
            await cancel_all([self._ending_read])
        lane, self._lane = self._lane, None
        if lane is not None:
            await lane.close()

    async def _set_aside(self, lane: Lane, keys: list[bytes]) -> bool:
        """Leave out the keys of a wrong type, which keep all others from their wakeups."""
        found = False
        for key in keys:
            try:
                await lane.call("LLEN", key, repeatable=True)
                self._refused.pop(key, None)
            except CommandRefused as error:
                found = True
                if key not in self._refused:
                    name = key.decode()
                    text = "no wakeups arrive on %s, looking from time to time instead: %s"
                    logger.warning(text, name, error, extra={"key": name})
                self._refused[key] = monotonic() + _TRY_AGAIN_S
        return found


class Upcoming(NamedTuple):
    """What a service will have to do next: in how many seconds, and the lowest score of its set."""

    wait_s: float
    first: bytes | None


class LeaderService(Service):
    """A service that works only while it leads: on what is due in a sorted set.

    It sleeps until the next is due, or until a wakeup says that there is something earlier. Peers
    send no wakeups, so it looks at the set from time to time, and more often where peers are.
    """

    peer_look_s: float
    """How often to look for what peers have added."""

    def __init__(self, context: LeaderContext) -> None:
        keys, server = context.keys, context.lane.server
        super().__init__(server.outage, f"{self.name} of queue {keys.name!r}")
        self._lane = context.lane
        self._keys = keys
        self._leader = Leader(context, self.lock_key(keys), service=self.name)
        self._wakeups = context.wakeups
        self._fleet = context.fleet
        self._events_max_len = context.events_max_len
        self._sink = context.sink
        self._is_woken = True
        self._work_at = 0.0
        self._first: bytes | None = None  # the lowest score of the set when we last worked
        self._peers_until = 0.0

    @staticmethod
    @abstractmethod
    def lock_key(keys: QueueKeys) -> bytes:
        """The key that holds the leader's id."""

    @staticmethod
    @abstractmethod
    def wakeup_key(keys: QueueKeys) -> bytes:
        """The key on which a wakeup arrives when there is work earlier than expected."""

    @staticmethod
    @abstractmethod
    def due_key(keys: QueueKeys) -> bytes:
        """The sorted set of what will be due."""

    @abstractmethod
    async def work(self) -> Upcoming:
        """Do a batch of what is due. Its wait is 0 if there may be more."""

    def wake(self) -> None:
        """Work now."""
        self._is_woken = True
        super().wake()

    async def tick(self) -> float:
        """Work while we lead and there is work."""
        while await self._leader.leads():
            self._wakeups.listen(self.wakeup_key(self._keys), self.wake)
            if self._is_woken or monotonic() >= self._work_at:
                wait_s = await self._work()
            else:
                wait_s = await self._look()
            if wait_s:
                return wait_s
        await self._wakeups.ignore(self.wakeup_key(self._keys))
        self._is_woken = True  # what was known is old when we lead again
        # However many follow, about eight of them try each second.
        return _FOLLOW_S * max(1.0, self._fleet.size / 4) * uniform(0.75, 1.25)  # noqa: S311

    async def clean_up(self) -> None:
        """Let another process lead. The server answers this after all that was sent before."""
        await self._wakeups.ignore(self.wakeup_key(self._keys))
        await self._leader.resign()

    async def _work(self) -> float:
        self._is_woken, self._work_at = False, 0.0  # if it fails, work again
        wait_s, self._first = await self.work()
        self._work_at = monotonic() + wait_s
        return min(wait_s, self._look_pause_s())

    async def _look(self) -> float:
        """Work if the set has changed. If no wakeup has told us, a peer has changed it."""
        first = await first_score(self._lane, self.due_key(self._keys))
        if first == self._first:
            return min(self._work_at - monotonic(), self._look_pause_s())
        is_earlier = first is not None and (
            self._first is None or float(first) < float(self._first)
        )
        wait_s = await self._work()
        if is_earlier and not self._is_woken:
            self._peers_until = monotonic() + _REMEMBER_PEERS_S
            return min(wait_s, self.peer_look_s)
        return wait_s

    def _look_pause_s(self) -> float:
        if self._fleet.has_peers or monotonic() < self._peers_until:
            return self.peer_look_s
        return until_tick(_LOOK_S)
