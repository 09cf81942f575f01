"""Delayed jobs: the scripts that promote, reschedule, run and count them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from tampu.metrics.history import KEPT_S
from tampu.server.scripts.script import Script, as_number, as_numbers

if TYPE_CHECKING:
    from tampu.server.lane import Lane
    from tampu.wire.keys import QueueKeys

_PROMOTE = Script("promote")
_RESCHEDULE = Script("reschedule")
_RUN_NOW = Script("run_now")
_COUNT_UNFINISHED = Script("count_unfinished")
_PURGE_DELAYED = Script("purge_delayed")


class Promoted(Struct, frozen=True):
    """What one promotion did: jobs moved, jobs that remain delayed, when the next is due.

    `next_in_us` is that from now, and `first` its score.

    `findable` are the ids of moved jobs that may be found by their id, as bytes from their
    envelopes. Where a user chose the id, it has the id of its entry, else b"".
    """

    moved: int
    remaining: int
    next_in_us: int | None
    first: bytes | None
    findable: dict[bytes, bytes]


async def promote(
    lane: Lane, keys: QueueKeys, *, limit: int, events_max_len: int, history: bool = True
) -> Promoted:
    """Move due jobs to the stream. Not sent again: the reply would lack the jobs of the first time.

    With an `events_max_len` above 0 it writes an event for each of them. With `history`, what it
    buries is among the counts of the queue.
    """
    reply: Any = await _PROMOTE.run(
        lane,
        (keys.delayed, keys.stream, keys.dead, keys.events, keys.counted, keys.gate),
        (limit, events_max_len, KEPT_S if history else 0),
    )
    moved, remaining, next_in = as_numbers(reply[:3])
    next_in_us = next_in if next_in >= 0 else None
    findable = dict(zip(reply[4::2], reply[5::2], strict=True))
    return Promoted(moved, remaining, next_in_us, reply[3] or None, findable)


async def count_unfinished(lane: Lane, keys: QueueKeys) -> int:
    """How many jobs are waiting, running or due, all at the same moment."""
    reply = await _COUNT_UNFINISHED.run(
        lane, (keys.stream, keys.delayed, keys.gate), (), repeatable=True
    )
    return as_number(reply)


class Delayed(Struct, frozen=True):
    """A delayed job: its id and its member, b"" for the member that its index holds."""

    job_id: str
    member: bytes = b""


class Move(Struct, frozen=True):
    """A delayed job that gets another due time: its present member and its new one.

    `due` is as the add script takes it; `index_s` is how long its index is kept, if it has one.
    """

    job_id: str
    member: bytes
    moved: bytes
    due: bytes
    index_s: int


async def reschedule(lane: Lane, keys: QueueKeys, move: Move) -> bool:
    """Change the due time of a delayed job; False if it was not delayed.

    Not sent again after a lost connection: a second call would not find the job it has moved.
    """
    own = (keys.delayed, keys.wakeup, keys.index(move.job_id), keys.marker(move.job_id))
    args = (move.member, move.moved, move.due, move.index_s)
    return bool(await _RESCHEDULE.run(lane, own, args))


async def run_now(lane: Lane, keys: QueueKeys, job: Delayed, *, events_max_len: int) -> bool:
    """Move a delayed job to the stream; False if it was not delayed.

    Not sent again after a lost connection: the reply would be wrong. With an `events_max_len`
    above 0 it writes an event.
    """
    own = (keys.delayed, keys.stream, keys.events, keys.index(job.job_id), keys.gate)
    return bool(await _RUN_NOW.run(lane, own, (job.member, events_max_len)))


async def purge_delayed(lane: Lane, keys: QueueKeys, *, count: int) -> list[bytes]:
    """Delete up to `count` delayed jobs, those that are due first; returns their members.

    Not sent again after a lost connection: the reply would not name the jobs of the first time.
    """
    reply: Any = await _PURGE_DELAYED.run(lane, (keys.delayed,), (count,))
    return list(reply)
