"""The workers of a queue."""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from tampu.errors import DecodeError
from tampu.server.lane import Lane
from tampu.server.streams import ConsumerInfo, consumers, is_connected, ttl_ms, values_of
from tampu.util.clock import instant
from tampu.util.lifecycle import run_all
from tampu.util.options import Word
from tampu.wire.fields import decode_text
from tampu.wire.holders import CONSUMER_PREFIX, WorkerHeartbeat, decode_heartbeat
from tampu.wire.keys import QueueKeys


class WorkerState(Word):
    """The state of a worker, seen from outside."""

    ALIVE = "alive"  # its heartbeat is there
    GONE = "gone"  # its heartbeat has expired, or is late and its connection is closed
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
    states = await run_all(
        _state_of(lane, keys.worker(each.name), consumer=each, raw=raw)
        for each, raw in zip(found, heartbeats, strict=True)
    )
    return [_worker_info(*each) for each in zip(found, heartbeats, states, strict=True)]


async def _state_of(
    lane: Lane, key: bytes, *, consumer: ConsumerInfo, raw: bytes | None
) -> WorkerState:
    """Its state, judged as the other workers do it."""
    heartbeat = _heartbeat(raw)
    if raw is None:
        ours = consumer.name.startswith(CONSUMER_PREFIX)
        return WorkerState.GONE if ours else WorkerState.UNKNOWN
    if heartbeat is None or not heartbeat.client_id:
        return WorkerState.ALIVE
    if not heartbeat.is_late(await ttl_ms(lane, key)):
        return WorkerState.ALIVE
    connected = await is_connected(lane, heartbeat.client_id)
    return WorkerState.GONE if connected is False else WorkerState.ALIVE


def _worker_info(consumer: ConsumerInfo, raw: bytes | None, state: WorkerState) -> WorkerInfo:
    heartbeat = _heartbeat(raw)
    name, active, idle_ms = decode_text(consumer.name), consumer.pending, consumer.idle_ms
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
