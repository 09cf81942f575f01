"""Cancel jobs, free what they hold, pause a queue, drain a worker; what workers read of that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from tampu.server.protocol import pack
from tampu.server.scripts.script import Script, as_number, as_numbers
from tampu.server.scripts.settling import Markers
from tampu.util.lifecycle import ignore_outcome
from tampu.wire.control import KEPT_MS, encode_drain
from tampu.wire.flow import awaited_id

if TYPE_CHECKING:
    from tampu.server.lane import Lane
    from tampu.server.protocol import Argument
    from tampu.wire.control import DrainRequest
    from tampu.wire.keys import QueueKeys

_CANCEL: Final = Script("cancel")
_PAUSE_QUEUE: Final = Script("pause_queue")
_FREE_UNIQUE: Final = Script("free_unique")

REMOVED: Final = 2
ASKED: Final = 1
ASK_NOW: Final = b"*"
"""Ask for every job with the id that has been added by now."""


class Cancel(Struct, frozen=True, kw_only=True):
    """A job to cancel: where it was found, b"" for nowhere, and what it holds.

    `latest` is the latest time of adding to ask workers for, b"" to ask for none.
    """

    job_id: str
    member: bytes = b""
    line: bytes = b""
    entry_id: bytes = b""
    latest: bytes = b""
    markers: Markers


async def cancel(
    lane: Lane,
    keys: QueueKeys,
    jobs: Sequence[Cancel],
    *,
    failure: bytes,
    notice: bytes,
    ttl_s: int,
) -> list[int]:
    """Cancel jobs; returns for each `REMOVED`, `ASKED` or 0.

    Not sent again after a lost connection: the reply would be wrong.
    """
    own = [keys.delayed, keys.stream, keys.control, keys.cancelled, keys.notices, keys.gate]
    args: list[Argument] = [KEPT_MS, ttl_s, failure, notice]
    for job in jobs:
        own += keys.index(job.job_id), keys.failure(awaited_id(job.job_id)), *job.markers.keys
        args += job.job_id, job.member, job.line, job.entry_id, job.latest, job.markers.kinds
    return as_numbers(await _CANCEL.run(lane, own, args))


async def pause_queue(lane: Lane, keys: QueueKeys, *, paused: bool) -> bool:
    """Pause or resume a queue; False if it was so already.

    Not sent again after a lost connection: the reply would be wrong.
    """
    own = (keys.pause, keys.control)
    return bool(await _PAUSE_QUEUE.run(lane, own, (int(paused), KEPT_MS)))


async def free_unique(lane: Lane, unique_keys: Sequence[bytes], holders: Sequence[str]) -> int:
    """Free unique keys that these jobs hold; returns how many they still held."""
    return as_number(await _FREE_UNIQUE.run(lane, unique_keys, holders, repeatable=True))


async def request_drain(lane: Lane, keys: QueueKeys, request: DrainRequest) -> None:
    """Ask a worker to stop. Sent again after a lost connection: a second request does no harm."""
    fields = encode_drain(request)
    await lane.call("XADD", keys.control, "MAXLEN", "~", 1000, "*", *fields, repeatable=True)
    await lane.call("PEXPIRE", keys.control, KEPT_MS, repeatable=True)


class ControlState(Struct, frozen=True):
    """Whether a queue is paused, has a gate, and has had flows; the requests to cancel jobs."""

    paused: bool
    requests: list[bytes]
    has_gate: bool
    has_flows: bool


async def read_control(lane: Lane, keys: QueueKeys) -> ControlState:
    """What a worker must know that has not followed the control stream."""
    asking = lane.send(pack("ZRANGE", keys.cancelled, 0, -1), repeatable=True)
    finding = lane.send(pack("EXISTS", keys.gate), repeatable=True)
    looking = lane.send(pack("EXISTS", keys.outbox, keys.flows), repeatable=True)
    for each in (asking, finding, looking):
        each.add_done_callback(ignore_outcome)
    paused = await is_paused(lane, keys)  # sent together
    requests: Any = await asking
    return ControlState(paused, list(requests), bool(await finding), bool(await looking))


async def is_paused(lane: Lane, keys: QueueKeys) -> bool:
    """Whether a queue is paused."""
    return bool(await lane.call("EXISTS", keys.pause, repeatable=True))
