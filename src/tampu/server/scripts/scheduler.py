"""The in-process scheduler's scripts and commands: leases, shared tasks, states."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Struct

from tampu.errors import CommandRefused, DecodeError
from tampu.server.protocol import pack
from tampu.server.scripts.script import Script
from tampu.util.lifecycle import ignore_outcome
from tampu.wire.task_state import Waiting

if TYPE_CHECKING:
    from tampu.server.lane import Lane
    from tampu.server.lanes import Lanes
    from tampu.server.protocol import Reply
    from tampu.wire.keys import GuardKeys, SharedTaskKeys

MOST_DONE: Final = 10_000
"""How many occurrences of one resource are remembered as done."""
_ACQUIRE_LEASE = Script("acquire_lease")
_RENEW_LEASE = Script("renew_lease")
_RELEASE_LEASE = Script("release_lease")


class LeaseAnswer(Enum):
    """The reply to a request for a lease."""

    HELD = 0  # another process holds it
    OURS = 1
    DONE = 2  # the occurrence has been run


class LeaseClaim(Struct, frozen=True):
    """A lease to acquire or renew: its field, its token and its duration."""

    field: bytes
    member: bytes
    token: str
    lease_ms: int


async def acquire_lease(lane: Lane, keys: GuardKeys, claim: LeaseClaim) -> LeaseAnswer:
    """Take a lease, or learn why that is not possible."""
    args = (claim.field, claim.token, claim.lease_ms, claim.member)
    return LeaseAnswer(
        await _ACQUIRE_LEASE.run(lane, (keys.held, keys.done), args, repeatable=True)
    )


async def renew_lease(lane: Lane, keys: GuardKeys, claim: LeaseClaim) -> bool:
    """Renew a lease; False if it is no longer ours."""
    args = (claim.field, claim.token, claim.lease_ms)
    return bool(await _RENEW_LEASE.run(lane, (keys.held,), args, repeatable=True))


async def release_lease(
    lane: Lane, keys: GuardKeys, claim: LeaseClaim, *, remember_ms: int
) -> bool:
    """Release a lease and mark its occurrence as done; False if it was no longer ours."""
    args = (claim.field, claim.token, claim.lease_ms, claim.member, remember_ms, MOST_DONE)
    return bool(await _RELEASE_LEASE.run(lane, (keys.held, keys.done), args, repeatable=True))


# --- shared tasks -------------------------------------------------------------------------------

_READ_TASK = Script("read_task")
_ADVANCE = Script("advance")
_CLAIM = Script("claim")
_RECLAIM = Script("reclaim")
_RENEW_CLAIM = Script("renew_claim")
_COMPLETE = Script("complete")
_FORGET = Script("forget")


class Flight(Struct, frozen=True):
    """A run in progress: which one, whose, and when its lease ends by the server's clock."""

    run: Waiting
    token: str
    until_ms: int


class SharedTask(Struct, frozen=True):
    """A task at an instant of the server's clock; version 0 is the state of a plain store."""

    now_ms: int
    version: int
    state: bytes | None
    ended: bool  # and deleted, but still visible to other schedulers for a while
    flight: Flight | None


class Term(Struct, frozen=True):
    """The token that makes a run ours, and how long its lease lasts."""

    token: str
    lease_ms: int


class Decided(Struct, frozen=True):
    """A new state, and the version that the decision is based on."""

    version: int
    state: bytes


class Completion(Enum):
    """The reply to the end of a run."""

    LOST = 0  # the run was no longer ours: its outcome does not count
    DONE = 1
    STALE = 2  # the state has a newer version: read it, decide and try again


async def read_task(lane: Lane, keys: SharedTaskKeys) -> SharedTask:
    """Everything that is stored about a task."""
    reply: Any = await _READ_TASK.run(lane, (keys.task, keys.plain), (), repeatable=True)
    now_ms, version, state, ended, token, until_ms, at_ms, catch_up, manual = reply
    flight = None
    if token is not None:
        run = Waiting(int(at_ms), catch_up=catch_up == b"1", manual=manual == b"1")
        flight = Flight(run, token.decode("utf-8", "replace"), int(until_ms))
    return SharedTask(int(now_ms), int(version), state, ended is not None, flight)


async def advance(lane: Lane, keys: SharedTaskKeys, decided: Decided, *, call_token: str) -> bool:
    """Store a state; False if there is a newer version. A run in progress stays as it is."""
    args = (decided.version, decided.state, call_token)
    return bool(await _ADVANCE.run(lane, (keys.task,), args, repeatable=True))


async def claim(
    lane: Lane, keys: SharedTaskKeys, decided: Decided, *, run: Waiting, term: Term
) -> bool:
    """Store a state and start a run; False if there is a newer version or another run."""
    args = (
        decided.version,
        decided.state,
        term.token,
        term.lease_ms,
        run.at_ms,
        int(run.catch_up),
        int(run.manual),
    )
    return bool(await _CLAIM.run(lane, (keys.task,), args, repeatable=True))


async def reclaim(lane: Lane, keys: SharedTaskKeys, term: Term, *, before: str) -> bool:
    """Take over a run from another token, if its lease has expired."""
    args = (before, term.token, term.lease_ms)
    return bool(await _RECLAIM.run(lane, (keys.task,), args, repeatable=True))


async def renew_claim(lane: Lane, keys: SharedTaskKeys, term: Term) -> bool:
    """Renew the lease of a run; False if it is no longer ours."""
    args = (term.token, term.lease_ms)
    return bool(await _RENEW_CLAIM.run(lane, (keys.task,), args, repeatable=True))


async def complete(lane: Lane, keys: SharedTaskKeys, decided: Decided, *, token: str) -> Completion:
    """Store a state and end the run of this token."""
    args = (decided.version, decided.state, token)
    return Completion(await _COMPLETE.run(lane, (keys.task,), args, repeatable=True))


async def forget(lane: Lane, keys: SharedTaskKeys, *, version: int, notice_ms: int) -> bool:
    """Delete a task; False if there is a newer version or a run in progress.

    For `notice_ms`, other schedulers can see that it has ended.
    """
    fixed = (keys.task, keys.plain)
    return bool(await _FORGET.run(lane, fixed, (version, notice_ms), repeatable=True))


# --- states -------------------------------------------------------------------------------------

_AT_ONCE: Final = 1000
"""Commands in flight: with more, the last would spend its time limit waiting for the first."""
Body: TypeAlias = bytes | DecodeError | None
"""The value of a key: the bytes of a state, an error for another type, or None."""
_Answer: TypeAlias = "Reply | BaseException"


async def fetch(lanes: Lanes, keys: Sequence[bytes]) -> list[Body]:
    """The values of keys, in order."""
    replies = await _call_each(lanes, keys, [pack(b"GET", key) for key in keys])
    return [_body(reply) for reply in replies]


async def put(lanes: Lanes, keys: Sequence[bytes], bodies: Sequence[bytes]) -> None:
    """Set each key to its body; if this raises, some may be set."""
    packed = [pack(b"SET", key, body) for key, body in zip(keys, bodies, strict=True)]
    for reply in await _call_each(lanes, keys, packed):
        _raise_error(reply)


async def drop(lanes: Lanes, keys: Sequence[bytes]) -> None:
    """Delete keys; if this raises, some may be deleted."""
    for reply in await _call_each(lanes, keys, [pack(b"DEL", key) for key in keys]):
        _raise_error(reply)


async def _call_each(lanes: Lanes, keys: Sequence[bytes], packed: Sequence[bytes]) -> list[_Answer]:
    """Send each command to the node of its key; returns replies and errors in the same order.

    All of them are safe to repeat.
    """
    replies: list[_Answer] = [None] * len(keys)
    order = await lanes.order_by_lane(keys) if keys else []
    for start in range(0, len(order), _AT_ONCE):
        chosen = order[start : start + _AT_ONCE]
        calls: list[asyncio.Future[Reply]] = []
        for index in chosen:
            lane = await lanes.to(keys[index])
            call = lane.send(packed[index], repeatable=True)
            call.add_done_callback(ignore_outcome)  # the next lane may fail before we await this
            calls.append(call)
        for index, reply in zip(
            chosen, await asyncio.gather(*calls, return_exceptions=True), strict=True
        ):
            replies[index] = reply
    return replies


def _body(reply: _Answer) -> Body:
    if isinstance(reply, CommandRefused) and reply.code == "WRONGTYPE":
        return DecodeError("task state", "its key holds a value of another type")
    body = _raise_error(reply)
    return body if isinstance(body, bytes) else None


def _raise_error(reply: _Answer) -> Reply:
    if isinstance(reply, BaseException):
        raise reply
    return reply
