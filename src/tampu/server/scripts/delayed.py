"""The scripts of delayed jobs: promoted, taken back, put off, run at once, counted."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from tampu.server.lane import Lane
from tampu.server.scripts.script import Script, as_numbers
from tampu.wire.keys import QueueKeys

_PROMOTE = Script("promote")
_CANCEL = Script("cancel")
_RESCHEDULE = Script("reschedule")
_RUN_NOW = Script("run_now")
_LEFT = Script("left")


class Promoted(Struct, frozen=True):
    """What one promotion did: how many jobs it moved, how many stay, us until the next is due.

    `indexed` are the ids of those moved that may have an index, as they stand in the envelopes.
    """

    moved: int
    remaining: int
    next_in_us: int | None
    indexed: list[bytes]


async def promote(lane: Lane, keys: QueueKeys, *, limit: int, events_max_len: int) -> Promoted:
    """Move due jobs to the stream. Not sent again: what it did would not be told a second time.

    With an `events_max_len` above 0 it writes an event for each of them.
    """
    reply: Any = await _PROMOTE.run(
        lane, (keys.delayed, keys.stream, keys.dead, keys.events), (limit, events_max_len)
    )
    moved, remaining, next_in = as_numbers(reply[:3])
    return Promoted(moved, remaining, next_in if next_in >= 0 else None, reply[3:])


async def left(lane: Lane, keys: QueueKeys) -> int:
    """How many jobs wait, run or are due at one moment."""
    reply: Any = await _LEFT.run(lane, (keys.stream, keys.delayed), (), repeatable=True)
    return int(reply)


class Delayed(Struct, frozen=True):
    """A delayed job: its id and its member, b"" for the one that its index holds."""

    job_id: str
    member: bytes = b""


async def cancel(lane: Lane, keys: QueueKeys, jobs: Sequence[Delayed]) -> list[bytes | None]:
    """Take delayed jobs back; of each its name, or None if it was not there.

    Not sent again after a lost connection: the answer would be wrong, the jobs would not run.
    """
    own = [key for job in jobs for key in (keys.index(job.job_id), keys.marker(job.job_id))]
    reply: Any = await _CANCEL.run(lane, (keys.delayed, *own), [job.member for job in jobs])
    return list(reply)


class Move(Struct, frozen=True):
    """A delayed job that is to be due at another time: its member, and the one it has from then on.

    `due` is as the add script takes it; `index_s` is how long its index is kept, if it has one.
    """

    job_id: str
    member: bytes
    moved: bytes
    due: bytes
    index_s: int


async def reschedule(lane: Lane, keys: QueueKeys, move: Move) -> bool:
    """Have a delayed job be due at another time; whether it still was delayed.

    Not sent again after a lost connection: it might have been moved, and be missed then.
    """
    own = (keys.delayed, keys.bell, keys.index(move.job_id), keys.marker(move.job_id))
    args = (move.member, move.moved, move.due, move.index_s)
    return bool(await _RESCHEDULE.run(lane, own, args))


async def run_now(lane: Lane, keys: QueueKeys, job: Delayed, *, events_max_len: int) -> bool:
    """Move a delayed job to the stream; whether it still was delayed.

    Not sent again after a lost connection: the answer would be wrong. With an `events_max_len`
    above 0 it writes an event.
    """
    own = (keys.delayed, keys.stream, keys.events, keys.index(job.job_id))
    return bool(await _RUN_NOW.run(lane, own, (job.member, events_max_len)))
