"""What schedulers that share their tasks agree on; one call for each script.

All of them may be sent again after a lost reply, and are then answered as they were the first time.
"""

from enum import Enum
from typing import Any

from msgspec import Struct

from tampu.server.lane import Lane
from tampu.server.script import Script
from tampu.wire.guard_keys import CourseKeys
from tampu.wire.task_state import Waiting

_LOOK = Script("look")
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


class Look(Struct, frozen=True):
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


async def look(lane: Lane, keys: CourseKeys) -> Look:
    """What is stored of a task."""
    reply: Any = await _LOOK.run(lane, (keys.course, keys.plain), (), repeatable=True)
    now_ms, version, state, ended, token, until_ms, at_ms, catch_up, manual = reply
    flight = None
    if token is not None:
        run = Waiting(int(at_ms), catch_up=catch_up == b"1", manual=manual == b"1")
        flight = Flight(run, token.decode("utf-8", "replace"), int(until_ms))
    return Look(int(now_ms), int(version), state, ended is not None, flight)


async def advance(lane: Lane, keys: CourseKeys, decided: Decided, *, call_token: str) -> bool:
    """Store a state; False if there is another version by now. A run in flight stays as it is."""
    args = (decided.version, decided.state, call_token)
    return bool(await _ADVANCE.run(lane, (keys.course,), args, repeatable=True))


async def claim(
    lane: Lane, keys: CourseKeys, decided: Decided, *, run: Waiting, term: Term
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


async def reclaim(lane: Lane, keys: CourseKeys, term: Term, *, before: str) -> bool:
    """Take over the run of another token, if its lease has run out."""
    args = (before, term.token, term.lease_ms)
    return bool(await _RECLAIM.run(lane, (keys.course,), args, repeatable=True))


async def renew_claim(lane: Lane, keys: CourseKeys, term: Term) -> bool:
    """Renew the lease on a run; False if it is not ours any more."""
    args = (term.token, term.lease_ms)
    return bool(await _RENEW_CLAIM.run(lane, (keys.course,), args, repeatable=True))


async def complete(lane: Lane, keys: CourseKeys, decided: Decided, *, token: str) -> Completion:
    """Store a state, the run of this token being over."""
    args = (decided.version, decided.state, token)
    return Completion(await _COMPLETE.run(lane, (keys.course,), args, repeatable=True))


async def forget(lane: Lane, keys: CourseKeys, *, version: int, notice_ms: int) -> bool:
    """Delete a task; False if there is another version by now, or a run in flight.

    For so long others can see that it has ended.
    """
    where = (keys.course, keys.plain)
    return bool(await _FORGET.run(lane, where, (version, notice_ms), repeatable=True))
