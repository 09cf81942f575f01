"""Facts about the flows of a queue that say whether they will end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from tampu.admin.workers import WorkerState, workers_of
from tampu.server.flows import FlowReader, newest_flows
from tampu.server.inspection import groups_of
from tampu.server.lane import Lane
from tampu.util.lifecycle import run_all
from tampu.wire.fields import decode_text
from tampu.wire.keys import QueueKeys

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tampu.server.connect import Server

_MOST_FLOWS: Final = 500
_FIELDS: Final = ("s", "queues", "lost")
_RECENT_MS: Final = 86_400_000  # a peer that took nothing for longer is not at work any more


class FlowQueue(Struct, frozen=True, kw_only=True):
    """A queue that keeps flows."""

    queue: str
    job_queues: frozenset[str]  # that their jobs are on
    losing: list[str]  # the ids of flows whose jobs were lost


class FlowFacts(Struct, frozen=True):
    """The queues that keep flows, and foreign workers of those that their jobs are on."""

    queues: list[FlowQueue]
    peers: list[tuple[str, str]]  # a queue, and the id of a worker that knows no flows


async def read_flow_facts(server: Server, names: Iterable[str]) -> FlowFacts:
    """What there is to know; of each queue, the newest flows are looked at."""
    found = [await _read_queue(server, QueueKeys(name)) for name in names]
    queues = [each for each in found if each is not None]
    used = frozenset[str]().union(*(each.job_queues for each in queues))
    peers = [peer for name in sorted(used) for peer in await _peers_of(server, QueueKeys(name))]
    return FlowFacts(queues, peers)


async def _read_queue(server: Server, keys: QueueKeys) -> FlowQueue | None:
    async with await Lane.open(server, keys.stream) as lane:
        ids = await newest_flows(lane, keys, first=0, count=_MOST_FLOWS)
        if not ids:
            return None
        found = await run_all(FlowReader(lane, keys, each).fields(_FIELDS) for each in ids)
    queues = {name for _, listed, _ in found for name in decode_text(listed or b"").split("\n")}
    losing = [
        flow_id
        for flow_id, (state, _, lost) in zip(ids, found, strict=True)
        if state == b"running" and lost
    ]
    job_queues = frozenset(queues - {""})
    return FlowQueue(queue=keys.name, job_queues=job_queues, losing=losing)


async def _peers_of(server: Server, keys: QueueKeys) -> list[tuple[str, str]]:
    """The workers of a queue that have no heartbeat, as those of ChasquiMQ."""
    async with await Lane.open(server, keys.stream) as lane:
        found = [
            await workers_of(lane, keys, group.name) for group in await groups_of(lane, keys.stream)
        ]
    return [
        (keys.name, each.id)
        for workers in found
        for each in workers
        if each.state is WorkerState.UNKNOWN and each.idle_ms < _RECENT_MS
    ]
