"""The workers of a queue."""

from collections.abc import Sequence
from datetime import datetime
from enum import Enum

from msgspec import Struct

from tampu.errors import DecodeError
from tampu.server.lane import Lane
from tampu.server.streams import ConsumerInfo, consumers, values_of
from tampu.util.clock import instant
from tampu.wire.fields import decode_text
from tampu.wire.holders import CONSUMER_PREFIX, WorkerHeartbeat, decode_heartbeat
from tampu.wire.keys import QueueKeys


class WorkerState(Enum):
    """The state of a worker, seen from outside."""

    ALIVE = "alive"  # its heartbeat is there
    GONE = "gone"  # its heartbeat has expired
    UNKNOWN = "unknown"  # a peer's worker: those have no heartbeat


class WorkerInfo(Struct, frozen=True, kw_only=True):
    """One worker of a group. Values that a peer does not provide are None."""

    id: str
    state: WorkerState
    active: int  # jobs that it holds
    idle_ms: int  # since it last took or acknowledged a job
    host: str | None = None
    pid: int | None = None
    started_at: datetime | None = None
    concurrency: int | None = None


def count_alive(workers: Sequence[WorkerInfo]) -> int:
    """How many of the workers are not gone."""
    return sum(worker.state is not WorkerState.GONE for worker in workers)


async def workers_of(lane: Lane, keys: QueueKeys, group: bytes) -> list[WorkerInfo]:
    """The workers of a group; none if there is no such group."""
    found = await consumers(lane, keys.stream, group)
    if not found:
        return []
    heartbeats = await values_of(lane, [keys.worker(each.name) for each in found])
    return [_worker_info(each, raw) for each, raw in zip(found, heartbeats, strict=True)]


def _worker_info(consumer: ConsumerInfo, raw: bytes | None) -> WorkerInfo:
    heartbeat = _heartbeat(raw)
    ours = consumer.name.startswith(CONSUMER_PREFIX)
    state = WorkerState.GONE if ours else WorkerState.UNKNOWN
    name, active, idle_ms = decode_text(consumer.name), consumer.pending, consumer.idle_ms
    if raw is not None:
        state = WorkerState.ALIVE
    if heartbeat is None:
        return WorkerInfo(id=name, state=state, active=active, idle_ms=idle_ms)
    return WorkerInfo(
        id=name,
        state=state,
        active=active,
        idle_ms=idle_ms,
        host=heartbeat.host,
        pid=heartbeat.pid,
        started_at=instant(heartbeat.started_at_ms),
        concurrency=heartbeat.concurrency,
    )


def _heartbeat(raw: bytes | None) -> WorkerHeartbeat | None:
    try:
        return None if raw is None else decode_heartbeat(raw)
    except DecodeError:
        return None
