"""Connections to queues that exist."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from difflib import get_close_matches

from tampu.admin.queues import queue_exists, queue_names
from tampu.cli.options import SharedOptions
from tampu.cli.output import CommandFailed
from tampu.queue import Queue
from tampu.server.connect import Server, connect
from tampu.server.lane import Lane
from tampu.wire.keys import QueueKeys


@dataclass(frozen=True, slots=True)
class QueueLane:
    """A connection to the node that holds a queue."""

    server: Server
    lane: Lane
    keys: QueueKeys


@asynccontextmanager
async def connect_to(shared: SharedOptions, queue: str) -> AsyncIterator[QueueLane]:
    """Connect to a queue; `CommandFailed` if it does not exist."""
    keys = QueueKeys(queue)
    async with (
        await connect(shared.url) as server,
        await Lane.open(server, keys.stream) as lane,
    ):
        await check_queue(server, lane, keys)
        yield QueueLane(server, lane, keys)


@asynccontextmanager
async def open_queue(shared: SharedOptions, name: str) -> AsyncIterator[Queue]:
    """Open a queue as programs do; `CommandFailed` if it does not exist."""
    async with connect_to(shared, name), Queue(name, shared.url) as queue:
        yield queue


async def check_queue(server: Server, lane: Lane, keys: QueueKeys) -> None:
    """Raise `CommandFailed` if a queue does not exist, with names that are similar."""
    if not await queue_exists(lane, keys):
        hint = did_you_mean(keys.name, await queue_names(server))
        raise CommandFailed(f"There is no queue {keys.name!r} on {server.name}.{hint}")


def did_you_mean(typed: str, known: Sequence[str]) -> str:
    """A question to append to an error, if something similar is known; else nothing."""
    close = get_close_matches(typed, known, n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
