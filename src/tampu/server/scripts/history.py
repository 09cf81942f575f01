"""The history of a queue: counting, recording and groups of failures, one call for each batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tampu.metrics.history import DAY_S, KEPT_S, RESOLUTIONS
from tampu.server.protocol import pack
from tampu.server.scripts.script import Script, as_number
from tampu.wire.history import encode_history

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping

    from tampu.server.lane import Lane
    from tampu.server.protocol import Argument, Reply
    from tampu.wire.history import Gauges, PackedFailures, PackedTimes
    from tampu.wire.keys import QueueKeys

_COUNT = Script("count")
_RECORD = Script("record")
_NOTE_FAILURES = Script("note_failures")
MAX_TASKS: Final = 200
"""So many names of a queue are counted by themselves, the others together as "other"."""
MAX_FAILURE_GROUPS: Final = 200
_FAILURES_KEPT_S: Final = 30 * DAY_S


def load_count(lane: Lane) -> None:
    """Load the script that `count` calls."""
    _COUNT.load(lane)


def count(lane: Lane, keys: QueueKeys, counts: Mapping[str, int]) -> asyncio.Future[Reply]:
    """Add to the counts of a queue; by a letter for the kind and the name of the task.

    Written at once, so that it goes to the server together with what is counted. Never sent twice:
    `ScriptUnknown` and refusals say that nothing was counted.
    """
    if len(counts) == 1:
        ((name, number),) = counts.items()
        return lane.send(pack(b"HINCRBY", keys.counted, name, number))
    args: list[Argument] = []
    for name, number in counts.items():
        args += (name, number)
    return lane.send(_COUNT.pack(lane, (1, keys.counted, *args)))


async def record(
    lane: Lane,
    keys: QueueKeys,
    times: Mapping[str, PackedTimes],
    *,
    at_s: float,
    gauges: Gauges | None = None,
) -> int:
    """Move the counts of a queue into its history, with times and gauges; the server's time in ms.

    `at_s` chooses the steps. Never sent twice: after a `ConnectionLost`, the times may be recorded
    or not, and the counts are either recorded or will be the next time.
    """
    steps = [keys.history(step.seconds, int(at_s) // step.seconds) for step in RESOLUTIONS]
    args: list[Argument] = [MAX_TASKS, b"" if gauges is None else encode_history(gauges)]
    args += (KEPT_S, *(step.kept_s for step in RESOLUTIONS))
    for name, each in times.items():
        args += (name, encode_history(each))
    reply = await _RECORD.run(lane, (keys.counted, keys.totals, *steps), args)
    return as_number(reply)


async def note_failures(lane: Lane, keys: QueueKeys, groups: Mapping[str, PackedFailures]) -> None:
    """Add failures to the groups of a queue, by their fingerprints."""
    args: list[Argument] = [MAX_FAILURE_GROUPS, _FAILURES_KEPT_S]
    for fingerprint, each in groups.items():
        args += (fingerprint, encode_history(each))
    await _NOTE_FAILURES.run(lane, (keys.failures, keys.recent_failures), args)


async def read_hashes(lane: Lane, keys: list[bytes]) -> list[dict[bytes, bytes]]:
    """The fields of each hash; empty for one that does not exist."""
    calls = [lane.send(pack("HGETALL", key), repeatable=True) for key in keys]
    replies: list[Any] = [await call for call in calls]
    return [dict(zip(flat[::2], flat[1::2], strict=True)) for flat in replies]
