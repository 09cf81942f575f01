"""Which queues a server has."""

from typing import Final

from tampu.server.connect import Server
from tampu.server.lane import Lane
from tampu.server.looks import exist, nodes_of
from tampu.wire.keys import EVERY_QUEUE, QueueKeys, queue_known_by

_KINDS: Final = ("stream", "zset")  # the types of the keys that a queue is known by


async def queue_names(server: Server) -> list[str]:
    """The queues of a server by their names, in order; those of every node of a cluster.

    It walks all keys of the server in small steps. Names that we could not open are left out.
    """
    names: set[str] = set()
    async with nodes_of(server) as nodes:
        for node in nodes:
            for kind in _KINDS:
                async for page in node.keys(EVERY_QUEUE, kind=kind):
                    names |= {name for key in page if (name := queue_known_by(key)) is not None}
    return sorted(names)


async def queue_exists(lane: Lane, keys: QueueKeys) -> bool:
    """Whether anything was ever added to a queue, or a worker started on it."""
    return await exist(lane, keys.lasting)


async def remove_queue(server: Server, keys: QueueKeys) -> int:
    """Remove every key of a queue; how many. What its workers write meanwhile stays."""
    removed = 0
    async with nodes_of(server) as nodes:
        for node in nodes:
            async for page in node.keys(keys.pattern):
                removed += await node.remove(page)
    return removed
