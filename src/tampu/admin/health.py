"""What is asked of a server to tell whether it is fit for queues."""

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from tampu.admin.queues import queue_names
from tampu.admin.workers import WorkerInfo, WorkerState, workers_of
from tampu.clock import now_ms
from tampu.server.connect import Server
from tampu.server.dialect import USED
from tampu.server.lane import Lane
from tampu.server.looks import Node, groups_of, nodes_of
from tampu.wire.fields import show_text
from tampu.wire.keys import EVERY_QUEUE, QueueKeys, must_expire

MOST_KEYS: Final = 100_000


class NodeFacts(Struct, frozen=True, kw_only=True):
    """What one node tells; an empty `info` and a `save` of None are what it will not."""

    name: str
    info: dict[str, str]
    save: str | None
    missing: list[str]
    skew_ms: float  # how far its clock is ahead of ours
    trip_ms: float  # how long it took to ask, and so how wrong that may be


class Left(Struct, frozen=True):
    """Workers of a group that are gone and hold jobs, and how many are there to take over."""

    queue: str
    group: str
    gone: list[WorkerInfo]
    alive: int


class Endless(Struct, frozen=True):
    """Keys that have no end and should; of how many that were looked at."""

    keys: list[str]
    looked_at: int
    searched_all: bool


class Facts(Struct, frozen=True, kw_only=True):
    """All that the findings rest on."""

    server: str
    version: str
    nodes: list[NodeFacts]
    queues: list[str]
    left: list[Left]
    endless: Endless


async def examine(
    server: Server, *, most_keys: int = MOST_KEYS, clock_ms: Callable[[], int] = now_ms
) -> Facts:
    """Ask every node, and look at every queue. It changes nothing.

    `clock_ms` is what the nodes' clocks are compared with.
    """
    queues = await queue_names(server)
    async with nodes_of(server) as nodes:
        told = [await _node_facts(node, clock_ms) for node in nodes]
        endless = await _endless(nodes, most_keys)
    left = [each for name in queues for each in await _left_on(server, QueueKeys(name))]
    return Facts(
        server=server.name,
        version=str(server.dialect),
        nodes=told,
        queues=queues,
        left=left,
        endless=endless,
    )


async def _node_facts(node: Node, clock_ms: Callable[[], int]) -> NodeFacts:
    before = clock_ms()
    theirs = await node.time_ms()
    trip_ms = float(clock_ms() - before)
    return NodeFacts(
        name=node.name,
        info=await node.info(),
        save=await node.setting("save"),
        missing=await node.missing(USED),
        skew_ms=theirs - before - trip_ms / 2,
        trip_ms=trip_ms,
    )


async def _endless(nodes: list[Node], most: int) -> Endless:
    found: list[str] = []
    looked_at = 0
    for node in nodes:
        async for page in node.keys(EVERY_QUEUE, kind="string"):
            expiring = [key for key in page if must_expire(key)]
            looked_at += len(expiring)
            if expiring:
                found += [show_text(key) for key in await node.endless(expiring)]
            if looked_at >= most:
                return Endless(sorted(set(found)), looked_at, searched_all=False)
    return Endless(sorted(set(found)), looked_at, searched_all=True)


async def _left_on(server: Server, keys: QueueKeys) -> list[Left]:
    found: list[Left] = []
    async with await Lane.open(server, keys.stream) as lane:
        for group in await groups_of(lane, keys.stream):
            workers = await workers_of(lane, keys, group.name)
            gone = [each for each in workers if each.state is WorkerState.GONE and each.active]
            alive = sum(each.state is not WorkerState.GONE for each in workers)
            if gone:
                found.append(Left(keys.name, show_text(group.name), gone, alive))
    return found
