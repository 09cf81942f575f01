"""What the acts share: a connection to a queue that is known to be there."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from difflib import get_close_matches

from tampu.admin.queues import queue_exists, queue_names
from tampu.cli.ending import Ended, no
from tampu.cli.shared import Shared
from tampu.queue import Queue
from tampu.server.connect import Server, connect
from tampu.server.lane import Lane
from tampu.wire.keys import QueueKeys


@dataclass(frozen=True, slots=True)
class Desk:
    """One queue, within reach."""

    server: Server
    lane: Lane
    keys: QueueKeys


@asynccontextmanager
async def desk_for(shared: Shared, queue: str) -> AsyncIterator[Desk]:
    """A way to look at a queue; ends the command if there is no such queue."""
    keys = QueueKeys(queue)
    async with (
        await connect(shared.url) as server,
        await Lane.open(server, keys.stream) as lane,
    ):
        if not await queue_exists(lane, keys):
            raise no_queue(queue, server.name, await queue_names(server))
        yield Desk(server, lane, keys)


@asynccontextmanager
async def queue_for(shared: Shared, queue: str) -> AsyncIterator[Queue]:
    """A queue as programs have it; ends the command if there is no such queue."""
    async with desk_for(shared, queue), Queue(queue, shared.url) as opened:
        yield opened


def no_queue(queue: str, server: str, names: list[str]) -> Ended:
    """What is said of a queue that is not there; near misses are named."""
    return no(f"there is no queue {queue!r} on {server}{near_misses(queue, names)}")


def near_misses(given: str, known: list[str]) -> str:
    """The end of a sentence: what may have been meant, if there is anything like it."""
    close = get_close_matches(given, known, n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(map(repr, close))}?" if close else "."
