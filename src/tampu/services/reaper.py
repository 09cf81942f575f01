"""Takes over the jobs of dead workers, and removes their consumers."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import random, sample
from time import monotonic
from typing import Final, Protocol

from tampu.errors import DecodeError
from tampu.server.lane import Lane
from tampu.server.scripts.workers import Judgement, Membership, TakenEntry, reap, takeover
from tampu.server.service import Service
from tampu.server.streams import (
    ConsumerInfo,
    consumers,
    is_connected,
    pending_of,
    ttl_ms,
    values_of,
)
from tampu.util.clock import until_tick
from tampu.wire.holders import CONSUMER_PREFIX, decode_heartbeat, heartbeat_s, suspect_s
from tampu.wire.keys import QueueKeys

# A worker under constant load has no free slots, but must still take over from the dead.
_LEAST_A_TICK: Final = 8
_MOST_A_TICK: Final = 256
_STALE_S: Final = 1.0
_SURPLUS_S: Final = 0.1  # whoever takes over may take more than it has slots for
_PEER_GONE_MS: Final = 3_600_000
# All workers of a group together look about so often for each heartbeat, however many they are.
_LOOKS_A_HEARTBEAT: Final = 4
_IDLE_A_LOOK: Final = 4


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """How long a lease lasts, and the times that follow from it."""

    lease_ms: int

    @property
    def heartbeat_s(self) -> float:
        """From one heartbeat to the next."""
        return heartbeat_s(self.lease_ms)

    @property
    def suspect_s(self) -> float:
        """A worker without heartbeat for so long is dead if its connection is closed as well."""
        return suspect_s(self.lease_ms)

    @property
    def renew_s(self) -> float:
        """From one heartbeat that renews entries to the next."""
        return self.lease_ms / 6000

    @property
    def renew_idle_ms(self) -> int:
        """Renew entries that were idle for so long: a peer takes those idle for a whole lease."""
        return self.lease_ms // 3


@dataclass(slots=True)
class Fleet:
    """What our last look at the consumers of a group has shown."""

    size: int = 1  # consumers, our own included
    has_peers: bool = False  # some belong to ChasquiMQ


class Successor(Protocol):
    """Runs what dead workers left."""

    def release_stale(self, after_s: float) -> None:
        """Release entries for other workers to run, if one has waited so long for a slot."""

    def audit(self, pending: set[bytes]) -> None:
        """Compare the ids that the server says we hold with those that we know of."""

    async def take_over(self, claim: Callable[[int], Awaitable[list[TakenEntry]]]) -> None:
        """Run what `claim` returns for a number of free slots, even if its reply is lost."""


class ReapingService(Service):
    """Checks the other consumers of the group, again and again."""

    name = "reaper"

    def __init__(
        self,
        lane: Lane,
        keys: QueueKeys,
        *,
        member: Membership,
        terms: LeaseTerms,
        successor: Successor,
        fleet: Fleet,
    ) -> None:
        super().__init__(lane.server.outage, f"{self.name} of queue {keys.name!r}")
        self._lane = lane
        self._keys = keys
        self._member = member
        self._terms = terms
        self._successor = successor
        self._fleet = fleet
        self._audit_at = 0.0
        self._has_taken_over = False  # since the last tick

    async def tick(self) -> float:
        """Check our own entries from time to time, and in our turn all other consumers."""
        self._successor.release_stale(_SURPLUS_S if self._has_taken_over else _STALE_S)
        self._has_taken_over = False
        lane, us = self._lane, self._member
        if monotonic() >= self._audit_at:
            self._audit_at = monotonic() + self._terms.lease_ms / 3000
            held = await pending_of(lane, us.stream, group=us.group, consumer=us.consumer)
            self._successor.audit({each.entry_id for each in held})
        if random() * self._fleet.size < _LOOKS_A_HEARTBEAT:  # noqa: S311 - spreads the work
            await self._look()
        return _SURPLUS_S if self._has_taken_over else until_tick(self._terms.heartbeat_s)

    async def _look(self) -> None:
        lane, us = self._lane, self._member
        found = await consumers(lane, us.stream, us.group)
        others = [each for each in found if each.name != us.consumer]
        self._fleet.size = len(others) + 1
        self._fleet.has_peers = not all(map(_is_ours, others))
        if others:
            heartbeats = await values_of(lane, [self._keys.worker(each.name) for each in others])
            found_with = list(zip(others, heartbeats, strict=True))
            idle = [each for each in found_with if each[1] is not None and not each[0].pending]
            for consumer, heartbeat in found_with:
                if consumer.pending or heartbeat is None:
                    await self._check(consumer, heartbeat)
            # Few at a time: a dead one that holds nothing is in nobody's way.
            for consumer, heartbeat in sample(idle, min(len(idle), _IDLE_A_LOOK)):
                await self._check(consumer, heartbeat)

    async def _check(self, consumer: ConsumerInfo, heartbeat: bytes | None) -> None:
        member = Membership(
            stream=self._member.stream,
            group=self._member.group,
            consumer=consumer.name,
            key=self._keys.worker(consumer.name),
            gate=self._keys.gate,
        )
        if heartbeat is None and not consumer.pending:
            if _is_ours(consumer) or consumer.idle_ms > _PEER_GONE_MS:
                await reap(self._lane, member)
            return
        left_ms, connected = 0, None
        if heartbeat is not None:
            left_ms = await ttl_ms(self._lane, member.key)
            connected = await self._is_connected(heartbeat)
        judgement = judge(
            consumer, heartbeat, left_ms=left_ms, is_connected=connected, terms=self._terms
        )
        if judgement is None:
            return
        if consumer.pending:
            await self._take_over(member, judgement)
        elif heartbeat is not None:
            # Not if it has connected again: its heartbeat would be another one.
            await reap(self._lane, member, last_heartbeat=heartbeat)

    async def _take_over(self, dead: Membership, judgement: Judgement) -> None:
        async def claim(free_slots: int) -> list[TakenEntry]:
            count = min(max(free_slots, _LEAST_A_TICK), _MOST_A_TICK)
            taker = self._member.consumer
            self._has_taken_over = True
            return await takeover(self._lane, dead, judgement=judgement, taker=taker, count=count)

        await self._successor.take_over(claim)

    async def _is_connected(self, heartbeat: bytes) -> bool | None:
        try:
            client_id = decode_heartbeat(heartbeat).client_id
        except DecodeError:
            return None
        return await is_connected(self._lane, client_id) if client_id else None


def judge(
    consumer: ConsumerInfo,
    heartbeat: bytes | None,
    *,
    left_ms: int,
    is_connected: bool | None,
    terms: LeaseTerms,
) -> Judgement | None:
    """Whether a consumer is dead, with what the takeover script checks again.

    A worker of ours is dead when its heartbeat has expired, or when it is late and the connection
    it came from is closed. A ChasquiMQ consumer has no heartbeat: its entries are taken one by one
    when they have been idle for a whole lease.
    """
    if heartbeat is None:
        return Judgement(idle_ms=0 if _is_ours(consumer) else terms.lease_ms)
    try:
        is_late = decode_heartbeat(heartbeat).is_late(left_ms)
    except DecodeError:
        return None
    if is_connected is False and is_late:
        return Judgement(heartbeat=heartbeat, left_ms=left_ms)
    return None


def _is_ours(consumer: ConsumerInfo) -> bool:
    return consumer.name.startswith(CONSUMER_PREFIX)
