"""Workers and leaders: the scripts for heartbeats, takeover, reaping and leadership."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec import Struct

from tampu.server.scripts.script import Script, as_numbers

if TYPE_CHECKING:
    from tampu.server.lane import Lane
    from tampu.wire.keys import QueueKeys

MAX_RENEWALS = 1000

# --- leases -------------------------------------------------------------------------------------

_HEARTBEAT = Script("heartbeat")
_TAKEOVER = Script("takeover")
_REAP = Script("reap")


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """One consumer of a group, and the key of its worker's heartbeat."""

    stream: bytes
    group: bytes
    consumer: bytes
    key: bytes
    gate: bytes


class Heartbeat(Struct, frozen=True):
    """The reply to a heartbeat: ms that the last one had left, None if expired; leases renewed."""

    left_ms: int | None
    renewed: int


async def heartbeat(
    lane: Lane, member: Membership, *, body: bytes, ttl_ms: int, idle_ms: int
) -> Heartbeat:
    """Write a worker's heartbeat, and renew its leases on entries idle for `idle_ms`."""
    reply = await _HEARTBEAT.run(
        lane,
        (member.stream, member.key),
        (member.group, member.consumer, body, ttl_ms, idle_ms, MAX_RENEWALS),
        repeatable=True,
    )
    left_ms, renewed = as_numbers(reply)
    return Heartbeat(left_ms if left_ms >= 0 else None, renewed)


class TakenEntry(Struct, frozen=True, gc=False):
    """An entry and how often it has been delivered, including this time."""

    entry_id: bytes
    fields: list[bytes]
    deliveries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Why a worker counts as dead: its last heartbeat (b"": none), and how long that still lasts.

    If the worker may still be alive, only entries idle for `idle_ms` are taken.
    """

    heartbeat: bytes = b""
    left_ms: int = 0
    idle_ms: int = 0


async def takeover(
    lane: Lane, dead: Membership, *, judgement: Judgement, taker: bytes, count: int
) -> list[TakenEntry]:
    """Take over entries of a dead consumer; none if it has written a heartbeat since.

    Not sent again after a lost connection: the taker finds the entries among its own.
    """
    args = (
        dead.group,
        taker,
        dead.consumer,
        judgement.heartbeat,
        judgement.idle_ms,
        count,
        judgement.left_ms,
    )
    reply = await _TAKEOVER.run(lane, (dead.stream, dead.key, dead.gate), args)
    assert isinstance(reply, list)  # noqa: S101 - our own script
    return [TakenEntry(*entry) for entry in reply]  # type: ignore[misc] # three values each


async def reap(lane: Lane, member: Membership, *, last_heartbeat: bytes = b"") -> bool:
    """Remove a consumer that holds nothing and has no heartbeat, or only its last one.

    So a worker removes itself, and others remove one whose connection is closed.
    """
    args = (member.group, member.consumer, last_heartbeat)
    own = (member.stream, member.key, member.gate)
    return bool(await _REAP.run(lane, own, args, repeatable=True))


# --- leaders ------------------------------------------------------------------------------------

_LEAD = Script("lead")
_RESIGN = Script("resign")


async def lead(lane: Lane, lock: bytes, *, holder: bytes, ttl_s: int) -> bool:
    """Become or stay the leader; False if another one leads."""
    return bool(await _LEAD.run(lane, (lock,), (holder, ttl_s), repeatable=True))


async def resign(lane: Lane, lock: bytes, *, holder: bytes, limit_s: float) -> bool:
    """Stop leading; False if another one leads."""
    reply = await _RESIGN.run(lane, (lock,), (holder,), repeatable=True, limit_s=limit_s)
    return bool(reply)


# --- watchers -----------------------------------------------------------------------------------

_WATCH = Script("watch")
_UNWATCH = Script("unwatch")
_WAKEUP_MS = 10_000


async def watch(lane: Lane, keys: QueueKeys, *, consumer: bytes, ttl_ms: int, most: int) -> bool:
    """Become or stay one of the consumers that block on the stream; False if there are enough."""
    args = (consumer, ttl_ms, most)
    return bool(await _WATCH.run(lane, (keys.watchers,), args, repeatable=True))


async def unwatch(lane: Lane, keys: QueueKeys, *, consumer: bytes, most: int) -> None:
    """Block on the stream no more, and wake a consumer that can do so instead."""
    await _UNWATCH.run(
        lane, (keys.watchers, keys.watch_wakeup), (consumer, most, _WAKEUP_MS), repeatable=True
    )
