"""The scripts and commands of the in-process scheduler: leases, shared tasks, states."""

import asyncio
from collections.abc import Sequence
from enum import Enum
from typing import Any, Final, TypeAlias

from msgspec import Struct

from tampu.errors import CommandRefused, DecodeError
from tampu.server.connection import ignore_outcome
from tampu.server.lane import Lane
from tampu.server.lanes import Lanes
from tampu.server.protocol import Reply, pack
from tampu.server.scripts.script import Script
from tampu.wire.keys import GuardKeys, SharedTaskKeys
from tampu.wire.task_state import Waiting

MOST_DONE: Final = 10_000
"""Occurrences of one resource that are remembered as done, however young they are."""
_ACQUIRE_LEASE = Script("acquire_lease")
_RENEW_LEASE = Script("renew_lease")
_RELEASE_LEASE = Script("release_lease")


class LeaseAnswer(Enum):
    """What became of a wish to hold something."""

    HELD = 0  # somebody else holds it
    OURS = 1
    DONE = 2  # it has been run


class LeaseClaim(Struct, frozen=True):
    """What is held or to be held, by whom, and for how long at a time."""

    field: bytes
    member: bytes
    token: str
    lease_ms: int


async def acquire_lease(lane: Lane, keys: GuardKeys, wanted: LeaseClaim) -> LeaseAnswer:
    """Take it, or learn why it is not to be had."""
    args = (wanted.field, wanted.token, wanted.lease_ms, wanted.member)
    return LeaseAnswer(
        await _ACQUIRE_LEASE.run(lane, (keys.held, keys.done), args, repeatable=True)
    )


async def renew_lease(lane: Lane, keys: GuardKeys, holding: LeaseClaim) -> bool:
    """Renew the lease; False if it is not ours any more."""
    args = (holding.field, holding.token, holding.lease_ms)
    return bool(await _RENEW_LEASE.run(lane, (keys.held,), args, repeatable=True))


async def release_lease(
    lane: Lane, keys: GuardKeys, holding: LeaseClaim, *, remember_ms: int
) -> bool:
    """Give it back, its occurrence done; False if it was not ours any more."""
    args = (holding.field, holding.token, holding.lease_ms, holding.member, remember_ms, MOST_DONE)
    return bool(await _RELEASE_LEASE.run(lane, (keys.held, keys.done), args, repeatable=True))


_READ_TASK = Script("read_task")
_ADVANCE = Script("advance")
_CLAIM = Script("claim")
_RECLAIM = Script("reclaim")
_RENEW_CLAIM = Script("renew_claim")
_COMPLETE = Script("complete")
_FORGET = Script("forget")


class Flight(Struct, frozen=True):
    """A run in flight: which one, whose, and until when by the server's clock."""

    run: Waiting
    token: str
    until_ms: int


class SharedTask(Struct, frozen=True):
    """A task at an instant of the server's clock; of version 0, `state` is a plain store's."""

    now_ms: int
    version: int
    state: bytes | None
    ended: bool  # and deleted: who has not noticed yet may do so
    flight: Flight | None


class Term(Struct, frozen=True):
    """By which token a run is ours, and for how long at a time."""

    token: str
    lease_ms: int


class Decided(Struct, frozen=True):
    """A state, and the version that it was decided from."""

    version: int
    state: bytes


class Completion(Enum):
    """What became of the end of a run."""

    LOST = 0  # it was not ours any more: what came of it does not count
    DONE = 1
    STALE = 2  # the state has another version by now: look, decide and try again


async def read_task(lane: Lane, keys: SharedTaskKeys) -> SharedTask:
    """What is stored of a task."""
    reply: Any = await _READ_TASK.run(lane, (keys.course, keys.plain), (), repeatable=True)
    now_ms, version, state, ended, token, until_ms, at_ms, catch_up, manual = reply
    flight = None
    if token is not None:
        run = Waiting(int(at_ms), catch_up=catch_up == b"1", manual=manual == b"1")
        flight = Flight(run, token.decode("utf-8", "replace"), int(until_ms))
    return SharedTask(int(now_ms), int(version), state, ended is not None, flight)


async def advance(lane: Lane, keys: SharedTaskKeys, decided: Decided, *, call_token: str) -> bool:
    """Store a state; False if there is another version by now. A run in flight stays as it is."""
    args = (decided.version, decided.state, call_token)
    return bool(await _ADVANCE.run(lane, (keys.course,), args, repeatable=True))


async def claim(
    lane: Lane, keys: SharedTaskKeys, decided: Decided, *, run: Waiting, term: Term
) -> bool:
    """Store a state and a run that begins; False if there is another version or another run."""
    args = (
        decided.version,
        decided.state,
        term.token,
        term.lease_ms,
        run.at_ms,
        int(run.catch_up),
        int(run.manual),
    )
    return bool(await _CLAIM.run(lane, (keys.course,), args, repeatable=True))


async def reclaim(lane: Lane, keys: SharedTaskKeys, term: Term, *, before: str) -> bool:
    """Take over the run of another token, if its lease has run out."""
    args = (before, term.token, term.lease_ms)
    return bool(await _RECLAIM.run(lane, (keys.course,), args, repeatable=True))


async def renew_claim(lane: Lane, keys: SharedTaskKeys, term: Term) -> bool:
    """Renew the lease on a run; False if it is not ours any more."""
    args = (term.token, term.lease_ms)
    return bool(await _RENEW_CLAIM.run(lane, (keys.course,), args, repeatable=True))


async def complete(lane: Lane, keys: SharedTaskKeys, decided: Decided, *, token: str) -> Completion:
    """Store a state, the run of this token being over."""
    args = (decided.version, decided.state, token)
    return Completion(await _COMPLETE.run(lane, (keys.course,), args, repeatable=True))


async def forget(lane: Lane, keys: SharedTaskKeys, *, version: int, notice_ms: int) -> bool:
    """Delete a task; False if there is another version by now, or a run in flight.

    For so long others can see that it has ended.
    """
    where = (keys.course, keys.plain)
    return bool(await _FORGET.run(lane, where, (version, notice_ms), repeatable=True))


_AT_ONCE: Final = 1000
"""Commands in flight: the time limit of the last is not spent on waiting for the first."""
Body: TypeAlias = bytes | DecodeError | None
"""What a key holds: a state's bytes, something else, or nothing."""
_Answer: TypeAlias = "Reply | BaseException"


async def fetch(lanes: Lanes, keys: Sequence[bytes]) -> list[Body]:
    """What each key holds, in order."""
    replies = await _answered(lanes, keys, [pack(b"GET", key) for key in keys])
    return [_body(reply) for reply in replies]


async def put(lanes: Lanes, keys: Sequence[bytes], bodies: Sequence[bytes]) -> None:
    """Have each key hold its body; if this raises, any of them may."""
    packed = [pack(b"SET", key, body) for key, body in zip(keys, bodies, strict=True)]
    for reply in await _answered(lanes, keys, packed):
        _check(reply)


async def drop(lanes: Lanes, keys: Sequence[bytes]) -> None:
    """Have the keys hold nothing; if this raises, any of them may be gone."""
    for reply in await _answered(lanes, keys, [pack(b"DEL", key) for key in keys]):
        _check(reply)


async def _answered(lanes: Lanes, keys: Sequence[bytes], packed: Sequence[bytes]) -> list[_Answer]:
    """Send each command to where its key lives; their replies and refusals in the same order.

    Each does no harm when it is sent again after a lost connection.
    """
    replies: list[_Answer] = [None] * len(keys)
    order = await lanes.by_place(keys) if keys else []
    for start in range(0, len(order), _AT_ONCE):
        chosen = order[start : start + _AT_ONCE]
        calls: list[asyncio.Future[Reply]] = []
        for number in chosen:
            lane = await lanes.to(keys[number])
            call = lane.send(packed[number], repeatable=True)
            call.add_done_callback(ignore_outcome)  # or the next lane may fail us before we look
            calls.append(call)
        for number, reply in zip(
            chosen, await asyncio.gather(*calls, return_exceptions=True), strict=True
        ):
            replies[number] = reply
    return replies


def _body(reply: _Answer) -> Body:
    if isinstance(reply, CommandRefused) and reply.code == "WRONGTYPE":
        return DecodeError("task state", "its key holds another type")
    body = _check(reply)
    return body if isinstance(body, bytes) else None


def _check(reply: _Answer) -> Reply:
    if isinstance(reply, BaseException):
        raise reply
    return reply
