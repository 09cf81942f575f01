"""Takes over from workers that are gone, and clears away what they leave behind."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Final, Protocol

from tampu.errors import DecodeError
from tampu.server.lane import Lane
from tampu.server.scripts.workers import Judgement, Membership, TakenEntry, reap, takeover
from tampu.server.streams import ConsumerInfo, connected, consumers, left_ms, pending_of, values_of
from tampu.services.service import Service
from tampu.wire.holders import CONSUMER_PREFIX, decode_heartbeat
from tampu.wire.keys import QueueKeys

# A worker under constant load has no spare slots, and still must not leave the dead to others.
_LEAST_A_TICK: Final = 8
_MOST_A_TICK: Final = 256
_PEER_GONE_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """How long a lease lasts, and what follows from that."""

    lease_ms: int

    @property
    def beat_s(self) -> float:
        """From one sign of life to the next."""
        return min(1.0, self.lease_ms / 6000)

    @property
    def doubt_s(self) -> float:
        """Without a sign of life and without its connection, a worker counts as gone after this."""
        return 3 * self.beat_s

    @property
    def renew_idle_ms(self) -> int:
        """What has idled for so long is renewed: a peer takes what idles for a whole lease."""
        return self.lease_ms // 3


class Successor(Protocol):
    """Who runs what others left."""

    def spare(self) -> int:
        """How many more entries could run at once."""

    def relieve(self) -> int:
        """Hand back what waits for too long."""

    def audit(self, pending: set[bytes]) -> None:
        """Compare what is held at the server with what is known."""

    async def take_over(self, claim: Callable[[], Awaitable[list[TakenEntry]]]) -> None:
        """Run what the claim brings, even if its reply is lost; raises what it raises."""


class ReapingService(Service):
    """Looks at the other consumers of the group, again and again."""

    name = "reaper"

    def __init__(
        self, lane: Lane, keys: QueueKeys, *, me: Membership, terms: LeaseTerms, heir: Successor
    ) -> None:
        super().__init__()
        self._lane = lane
        self._keys = keys
        self._me = me
        self._terms = terms
        self._heir = heir
        self._audit_at = 0.0

    async def tick(self) -> float:
        """Look at everybody once; at ourselves now and then."""
        self._heir.relieve()
        me = self._me
        if monotonic() >= self._audit_at:
            self._audit_at = monotonic() + self._terms.lease_ms / 3000
            held = await pending_of(self._lane, me.stream, group=me.group, consumer=me.consumer)
            self._heir.audit({each.entry_id for each in held})
        others = [
            each
            for each in await consumers(self._lane, me.stream, me.group)
            if each.name != me.consumer
        ]
        if others:
            keys = [self._member(each).key for each in others]
            marks = await values_of(self._lane, keys)
            for consumer, mark in zip(others, marks, strict=True):
                await self._look_at(consumer, mark)
        return self._terms.beat_s

    async def ended(self) -> None:
        """It holds nothing."""

    async def _look_at(self, consumer: ConsumerInfo, mark: bytes | None) -> None:
        member = self._member(consumer)
        if not consumer.pending:
            if mark is None and (_is_ours(consumer) or consumer.idle_ms > _PEER_GONE_MS):
                await reap(self._lane, member)
            return
        left, is_connected = 0, None
        if mark is not None:
            left = await left_ms(self._lane, member.key)
            is_connected = await self._is_connected(mark)
        judgement = judge(
            consumer, mark, left_ms=left, is_connected=is_connected, terms=self._terms
        )
        if judgement is not None:
            await self._take_over(member, judgement)

    async def _take_over(self, member: Membership, judgement: Judgement) -> None:
        count = min(max(self._heir.spare(), _LEAST_A_TICK), _MOST_A_TICK)
        claim = partial(
            takeover,
            self._lane,
            member,
            judgement=judgement,
            taker=self._me.consumer,
            count=count,
        )
        await self._heir.take_over(claim)

    async def _is_connected(self, mark: bytes) -> bool | None:
        try:
            client_id = decode_heartbeat(mark).client_id
        except DecodeError:
            return None
        return await connected(self._lane, client_id) if client_id else None

    def _member(self, consumer: ConsumerInfo) -> Membership:
        key = self._keys.worker(consumer.name)
        return Membership(
            stream=self._me.stream, group=self._me.group, consumer=consumer.name, key=key
        )


def judge(
    consumer: ConsumerInfo,
    mark: bytes | None,
    *,
    left_ms: int,
    is_connected: bool | None,
    terms: LeaseTerms,
) -> Judgement | None:
    """Whether a consumer that holds entries is gone, and by what that is to be proven again.

    A worker of ours is gone when its mark has run out, or when it has given no sign of life for a
    while and its connection is closed as well. A peer has no mark: what it holds is taken entry by
    entry, after a whole lease without a sign.
    """
    if mark is None:
        return Judgement(idle_ms=0 if _is_ours(consumer) else terms.lease_ms)
    try:
        theirs = LeaseTerms(decode_heartbeat(mark).lease_ms)
    except DecodeError:
        return None
    silent_s = (theirs.lease_ms - left_ms) / 1000
    # More time left than a sign of life gives: the server's clock was turned back since the last.
    doubtful = silent_s >= theirs.doubt_s or silent_s < 0
    if is_connected is False and doubtful:
        return Judgement(mark=mark, left_ms=left_ms)
    return None


def _is_ours(consumer: ConsumerInfo) -> bool:
    return consumer.name.startswith(CONSUMER_PREFIX)
