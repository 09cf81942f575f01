"""Workers and leaders: the scripts for heartbeats, takeover, reaping and leadership."""

from dataclasses import dataclass

from msgspec import Struct

from tampu.server.lane import Lane
from tampu.server.scripts.script import Script, as_numbers

MAX_RENEWALS = 1000


# --- leases -------------------------------------------------------------------------------------

_HEARTBEAT = Script("heartbeat")
_TAKEOVER = Script("takeover")
_REAP = Script("reap")


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """One consumer of a group, and the key that says that its worker lives."""

    stream: bytes
    group: bytes
    consumer: bytes
    key: bytes


class Heartbeat(Struct, frozen=True):
    """What a sign of life found: ms that the mark had left, None if it was gone; leases renewed."""

    left_ms: int | None
    renewed: int


async def heartbeat(
    lane: Lane, member: Membership, *, mark: bytes, ttl_ms: int, idle_ms: int
) -> Heartbeat:
    """Say that a worker lives, and renew what it holds and has idled for so long."""
    reply = await _HEARTBEAT.run(
        lane,
        (member.stream, member.key),
        (member.group, member.consumer, mark, ttl_ms, idle_ms, MAX_RENEWALS),
        repeatable=True,
    )
    left_ms, renewed = as_numbers(reply)
    return Heartbeat(left_ms if left_ms >= 0 else None, renewed)


class TakenEntry(Struct, frozen=True, gc=False):
    """An entry and how often it has been delivered, this time included."""

    entry_id: bytes
    fields: list[bytes]
    deliveries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Why a worker counts as gone: its mark (b"": it has none), and how much time that has left.

    Of a worker that may still live, only entries are taken that have idled for so long.
    """

    mark: bytes = b""
    left_ms: int = 0
    idle_ms: int = 0


async def takeover(
    lane: Lane, gone: Membership, *, judgement: Judgement, taker: bytes, count: int
) -> list[TakenEntry]:
    """Take entries of a consumer that is gone; none if it has given a sign of life since.

    Not sent again after a lost connection: what was taken is then among the taker's own.
    """
    args = (
        gone.group,
        taker,
        gone.consumer,
        judgement.mark,
        judgement.idle_ms,
        count,
        judgement.left_ms,
    )
    reply = await _TAKEOVER.run(lane, (gone.stream, gone.key), args)
    assert isinstance(reply, list)  # noqa: S101 - our own script
    return [TakenEntry(*entry) for entry in reply]  # type: ignore[misc] # entries are lists of three


async def reap(lane: Lane, member: Membership, *, mark: bytes = b"") -> bool:
    """Remove a consumer that holds nothing; with its own `mark`, while it still lives."""
    args = (member.group, member.consumer, mark)
    return bool(await _REAP.run(lane, (member.stream, member.key), args, repeatable=True))


# --- services -----------------------------------------------------------------------------------

_LEAD = Script("lead")
_RESIGN = Script("resign")


async def lead(lane: Lane, lock: bytes, *, holder: bytes, ttl_s: int) -> bool:
    """Take or keep the lead; whether it is ours now."""
    return bool(await _LEAD.run(lane, (lock,), (holder, ttl_s), repeatable=True))


async def resign(lane: Lane, lock: bytes, *, holder: bytes) -> bool:
    """Give up the lead; whether it was ours."""
    return bool(await _RESIGN.run(lane, (lock,), (holder,), repeatable=True))
