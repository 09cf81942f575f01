"""Events and dead letters: the scripts `emit`, `replay` and `purge`."""

from collections.abc import Sequence

from msgspec import Struct

from tampu.server.lane import Lane
from tampu.server.scripts.script import Script, _number, as_flags

_EMIT = Script("emit")
_REPLAY = Script("replay")


async def emit(lane: Lane, events: bytes, packed: bytes, *, max_len: int) -> int:
    """Write packed events in one call; how many. Not sent again: listeners would be told twice."""
    return _number(await _EMIT.run(lane, (events,), (max_len, packed)))


class Replay(Struct, frozen=True):
    """A dead letter to put back: its id, what to add, and the key of its kept failure."""

    dead_id: bytes
    body: bytes
    name: bytes
    extras: bytes
    failure_key: bytes


async def replay(
    lane: Lane, dead: bytes, *, stream: bytes, letters: Sequence[Replay]
) -> list[bool]:
    """Put dead letters back on the queue; of each, whether it still was there.

    Not sent again after a lost connection: the answer would be wrong, the jobs would not.
    """
    keys = (dead, stream, *[letter.failure_key for letter in letters])
    args = [
        text
        for letter in letters
        for text in (letter.dead_id, letter.body, letter.name, letter.extras)
    ]
    return [letter == ord("1") for letter in as_flags(await _REPLAY.run(lane, keys, args))]


_PURGE = Script("purge")


async def purge(lane: Lane, stream: bytes, *, count: int) -> list[bytes]:
    """Delete up to so many jobs that no worker has been given; their envelopes.

    Not sent again after a lost connection: what it deleted would not be told a second time.
    """
    reply = await _PURGE.run(lane, (stream,), (count,))
    assert isinstance(reply, list)  # noqa: S101 - our own script
    return reply  # type: ignore[return-value] # texts, as the script's head says
