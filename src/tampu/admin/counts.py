"""How many jobs a queue has, and in which state."""

from msgspec import Struct

from tampu.server.lane import Lane
from tampu.server.streams import sizes
from tampu.wire.keys import QueueKeys


class Counts(Struct, frozen=True):
    """The jobs of a queue at one moment."""

    waiting: int  # in the stream, and no worker has them yet
    active: int  # with a worker
    delayed: int  # to be run later, retries included
    dead: int
    schedules: int


async def count_jobs(lane: Lane, keys: QueueKeys, group: bytes) -> Counts:
    """Ask the server; `active` are the jobs of one group of workers."""
    found = await sizes(lane, keys, group)
    return Counts(
        waiting=max(0, found.stream - found.pending),
        active=found.pending,
        delayed=found.delayed,
        dead=found.dead,
        schedules=found.repeat,
    )
