"""Streams of jobs: writing chunks, following them, and saying how far they are read."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from tampu.server.scripts.script import Script, as_flags
from tampu.wire.output import MAX_CHUNKS, ChunkId

if TYPE_CHECKING:
    from tampu.server.lane import Lane
    from tampu.server.protocol import Argument
    from tampu.wire.keys import QueueKeys

_WRITE_CHUNKS: Final = Script("write_chunks")
_FOLLOW_OUTPUTS: Final = Script("follow_outputs")
_LEAVE_OUTPUT: Final = Script("leave_output")
_NOTE_READ: Final = Script("note_read")
_FIND_ABANDONED: Final = Script("find_abandoned")

KEPT_S: Final = 86_400
"""How long the stream of a job that has not ended is kept after its last chunk."""
FOLLOWED_S: Final = 3_600
"""How long a stream without a chunk is kept after somebody followed it."""
PRESENT_MS: Final = 30_000
"""How long a reader that has said nothing counts as one."""
SAY_EVERY_S: Final = 10.0
"""How often a reader says that it is there."""


class NewChunks(Struct, frozen=True):
    """Chunks of one job, one after the other, to be added to its stream.

    With `ask_every`, the worker asks to be told when each so-many-th one is read.
    """

    key: bytes
    first: ChunkId
    attempt: int
    chunks: list[bytes]
    ask_every: int = 0


async def write_chunks(lane: Lane, jobs: Sequence[NewChunks]) -> None:
    """Add chunks to the streams of several jobs."""
    keys = [each.key for each in jobs]
    args: list[Argument] = [MAX_CHUNKS, KEPT_S]
    for each in jobs:
        first = each.first
        args += b"%d" % first.run, each.attempt, first.number, each.ask_every, len(each.chunks)
        args += each.chunks
    await _WRITE_CHUNKS.run(lane, keys, args, repeatable=True)


class Followed(Struct, frozen=True):
    """A job whose stream is followed, and who follows it."""

    job_id: str
    reader: str


async def follow_outputs(lane: Lane, keys: QueueKeys, followed: Sequence[Followed]) -> list[bytes]:
    """Say that the streams of jobs are followed; the id of the newest entry of each."""
    own = [key for each in followed for key in _keys_of(keys, each.job_id)]
    args: list[Argument] = [PRESENT_MS, FOLLOWED_S, *[each.reader for each in followed]]
    reply = await _FOLLOW_OUTPUTS.run(lane, own, args, repeatable=True)
    assert isinstance(reply, list)  # noqa: S101 - our own script
    return reply  # type: ignore[return-value] # bytes, as the head of the script says


async def leave_output(lane: Lane, keys: QueueKeys, followed: Followed) -> None:
    """Say that the stream of a job is no longer followed by one."""
    own = _keys_of(keys, followed.job_id)
    await _LEAVE_OUTPUT.run(lane, own, (followed.reader,), repeatable=True)


def _keys_of(keys: QueueKeys, job_id: str) -> tuple[bytes, bytes]:
    return keys.output(job_id), keys.readers(job_id)


async def note_read(lane: Lane, keys: QueueKeys, job_id: str, *, chunk: ChunkId) -> None:
    """Say how far a reader is."""
    args = (chunk.encode(), FOLLOWED_S)
    own = (keys.output(job_id), keys.read_chunks(job_id))
    await _NOTE_READ.run(lane, own, args, repeatable=True)


class Readers(Enum):
    """Who reads the stream of a job."""

    PRESENT = ord("0")
    """Somebody does, or nobody ever did."""
    LEFT = ord("1")
    """All have said that they leave."""
    SILENT = ord("2")
    """Those that have not left have not said for long that they are there."""


async def find_abandoned(lane: Lane, keys: QueueKeys, job_ids: Sequence[str]) -> list[Readers]:
    """Whether anybody still reads the stream of each of the jobs."""
    own = [keys.readers(job_id) for job_id in job_ids]
    flags = as_flags(await _FIND_ABANDONED.run(lane, own, (), repeatable=True))
    return [Readers(flag) for flag in flags]
