"""Doing away with jobs that nobody is to run."""

from collections.abc import Collection
from enum import Enum
from typing import Final

from msgspec import Struct

from tampu.errors import DecodeError
from tampu.server.lane import Lane
from tampu.server.looks import take_delayed
from tampu.server.scripts import purge
from tampu.server.streams import delete, drop_all
from tampu.wire.delayed import id_of_member
from tampu.wire.envelope import decode_envelope
from tampu.wire.extras import split_extras
from tampu.wire.keys import QueueKeys

_JOBS_A_CALL: Final = 500


class Purgeable(Enum):
    """Where jobs can be done away with; one that runs belongs to its worker."""

    WAITING = "waiting"
    DELAYED = "delayed"
    DEAD = "dead"


class Purged(Struct, frozen=True):
    """How many jobs were removed."""

    waiting: int = 0
    delayed: int = 0
    dead: int = 0


async def purge_jobs(
    lane: Lane, keys: QueueKeys, states: Collection[Purgeable] = tuple(Purgeable)
) -> Purged:
    """Remove jobs for good; their ids are free again. Jobs that run are left alone.

    What is added meanwhile may go as well. After a lost connection this raises, and more may have
    been removed than was told.
    """
    waiting = await _purge_waiting(lane, keys) if Purgeable.WAITING in states else 0
    delayed = await _purge_delayed(lane, keys) if Purgeable.DELAYED in states else 0
    dead = await drop_all(lane, keys.dead) if Purgeable.DEAD in states else 0
    return Purged(waiting, delayed, dead)


async def _purge_waiting(lane: Lane, keys: QueueKeys) -> int:
    removed = 0
    while bodies := await purge(lane, keys.stream, count=_JOBS_A_CALL):
        removed += len(bodies)
        await _free(lane, keys, [_id_of(body) for body in bodies])
    return removed


async def _purge_delayed(lane: Lane, keys: QueueKeys) -> int:
    removed = 0
    while members := await take_delayed(lane, keys.delayed, count=_JOBS_A_CALL):
        removed += len(members)
        await _free(lane, keys, [id_of_member(member) for member in members])
    return removed


async def _free(lane: Lane, keys: QueueKeys, job_ids: list[str | None]) -> None:
    """Have ids be free again; most were never taken, which does not matter."""
    known = [job_id for job_id in job_ids if job_id is not None]
    if known:
        await delete(lane, [make(job_id) for job_id in known for make in (keys.marker, keys.index)])


def _id_of(body: bytes) -> str | None:
    try:
        return decode_envelope(split_extras(body)[0]).id
    except DecodeError:
        return None
