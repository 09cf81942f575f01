"""Adding jobs: the `add` script, called once for a batch."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec import Struct

from tampu.server.errors import ScriptUnknown
from tampu.server.scripts.script import Script, as_flags
from tampu.wire.control import KEPT_MS

if TYPE_CHECKING:
    from tampu.server.lane import Lane
    from tampu.server.protocol import Argument, Reply

# How long the replies to a silent producer's last calls are kept: far longer than any resend takes.
PRODUCER_MEMORY_MS = 600_000
_ADD = Script("add")


@dataclass(frozen=True, slots=True, kw_only=True)
class AddKeys:
    """The keys of one producer: its queue's stream, delayed set and wakeup, and its own memory."""

    stream: bytes
    delayed: bytes
    memory: bytes
    wakeup: bytes
    gate: bytes
    control: bytes
    notices: bytes


class PlainJobs(Struct, frozen=True):
    """Jobs without options, to be run at once: envelope, name, ..."""

    flat: Sequence[bytes]


class FullJobs(Struct, frozen=True):
    """Jobs with options: what the script gets for each of them, one after the other.

    `keys` are the keys of each job that has some, in the order of the jobs.
    """

    flat: Sequence[bytes]
    keys: Sequence[bytes]


class LinedJobs(Struct, frozen=True, kw_only=True):
    """Jobs with options, of which some wait in lines; the columns as the script gets them.

    `limits` are the names and definitions of the limits that they need, one after the other.
    `flags` say what the gate must look for in them.
    """

    flat: Sequence[bytes]
    keys: Sequence[bytes]
    limits: Sequence[bytes]
    flags: bytes


class AddRequest(Struct, frozen=True, kw_only=True):
    """One call of a producer: its jobs, its number, and the longest stream allowed (0: any).

    Numbers increase by one from call to call. At most 16 calls may be in flight, because the script
    remembers that many: an older call fails with `ConnectionLost`. For the same reason `limit_s`
    must be below `PRODUCER_MEMORY_MS`.
    """

    keys: AddKeys
    jobs: PlainJobs | FullJobs | LinedJobs
    number: int
    max_len: int = 0
    limit_s: float | None = None

    def operands(self) -> Sequence[Argument]:
        """What the script gets."""
        keys, jobs = self.keys, self.jobs
        head = (self.number, PRODUCER_MEMORY_MS, self.max_len)
        few = (keys.stream, keys.delayed, keys.memory, keys.gate)
        if isinstance(jobs, PlainJobs):
            return 4, *few, *head, b"plain", *jobs.flat
        own = (*few, keys.wakeup, keys.control, keys.notices, *jobs.keys)
        if isinstance(jobs, FullJobs):
            return len(own), *own, *head, b"full", *jobs.flat
        lined = (b"lined", jobs.flags, KEPT_MS, len(jobs.limits) // 2)
        return len(own), *own, *head, *lined, *jobs.limits, *jobs.flat


def send_add(lane: Lane, request: AddRequest) -> asyncio.Future[Reply]:
    """Send a request; `add` takes the future if it does not simply succeed."""
    packed = _ADD.pack(lane, request.operands())
    return lane.send(packed, repeatable=True, limit_s=request.limit_s)


async def add(
    lane: Lane, request: AddRequest, *, sent: asyncio.Future[Reply] | None = None
) -> bytes:
    """Add jobs in one step; a repeated number of the same producer adds nothing again.

    Returns b"" if all were added, else one flag per job: b"0" where its id was taken. Raises
    `QueueFull`, and adds nothing, if the stream would grow beyond `max_len`. `sent` is the future
    of a request that has been sent already.
    """
    try:
        reply = await (send_add(lane, request) if sent is None else sent)
    except ScriptUnknown as unknown:
        reply = await _ADD.load_and_run(
            lane, request.operands(), unknown, repeatable=True, limit_s=request.limit_s
        )
    return as_flags(reply)


def load_add(lane: Lane) -> None:
    """Load the script, so that the first calls in flight keep their order."""
    _ADD.load(lane)
