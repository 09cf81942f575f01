"""Services that one process runs for a queue: its leader, elected among all that offer it."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from random import uniform
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from tampu.metrics.facts import LeadChanged, SafeSink
from tampu.server.scripts.workers import lead, resign
from tampu.server.service import Service
from tampu.server.streams import first_score
from tampu.util.clock import until_tick

if TYPE_CHECKING:
    from tampu.server.lane import Lane
    from tampu.server.listening import Wakeups
    from tampu.services.reaper import Fleet
    from tampu.wire.holders import LockHolder
    from tampu.wire.keys import QueueKeys

LEASE_S: Final = 5
_RENEW_S: Final = LEASE_S / 5
_FOLLOW_S: Final = 0.5  # how often a service that does not lead tries to, in a small fleet
_LOOK_S: Final = 2.0
_REMEMBER_PEERS_S: Final = 600.0
_RESIGN_S: Final = 2.0  # a server that is away does not hold up a service that stops


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
    history: bool = True  # it adds to the counts of the queue


class Candidate(Protocol):
    """What a process needs to take a lead."""

    @property
    def lane(self) -> Lane:
        """Where the lock is."""

    @property
    def holder(self) -> LockHolder:
        """Who leads then."""

    @property
    def sink(self) -> SafeSink:
        """Who is told."""


class Leader:
    """The lead of one service: a lock that this process takes and renews."""

    def __init__(self, context: Candidate, lock: bytes, *, service: str) -> None:
        self._lane = context.lane
        self._lock = lock
        self.holder = context.holder.to_bytes()  # the value of the lock while we lead
        self._service = service
        self._sink = context.sink
        self._leads = False
        self._asked_at = 0.0

    @property
    def is_ours(self) -> bool:
        """Whether we led when the server was last asked."""
        return self._leads

    @property
    def silent_s(self) -> float:
        """How long ago the server last answered who leads."""
        return monotonic() - self._asked_at

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
        self._history = context.history
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

    @property
    def is_leading(self) -> bool:
        """Whether we led when the server was last asked."""
        return self._leader.is_ours

    @property
    def silent_s(self) -> float:
        """How long ago the server last answered who leads."""
        return self._leader.silent_s

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
