"""Who works on a queue."""

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
    """What can be told of a worker from outside."""

    ALIVE = "alive"  # it gives signs of life
    GONE = "gone"  # it gave none for a whole lease
    UNKNOWN = "unknown"  # a peer's: those give no signs


class WorkerInfo(Struct, frozen=True, kw_only=True):
    """One worker of a group. What a peer does not tell is None."""

    id: str
    state: WorkerState
    active: int  # jobs that it holds
    idle_ms: int  # since it last took or acknowledged something
    host: str | None = None
    pid: int | None = None
    started_at: datetime | None = None
    concurrency: int | None = None


def alive(workers: Sequence[WorkerInfo]) -> int:
    """How many of them are not known to be gone."""
    return sum(worker.state is not WorkerState.GONE for worker in workers)


async def workers_of(lane: Lane, keys: QueueKeys, group: bytes) -> list[WorkerInfo]:
    """The workers of a group; none if there is no such group."""
    found = await consumers(lane, keys.stream, group)
    if not found:
        return []
    marks = await values_of(lane, [keys.worker(each.name) for each in found])
    return [_told(each, mark) for each, mark in zip(found, marks, strict=True)]


def _told(consumer: ConsumerInfo, raw: bytes | None) -> WorkerInfo:
    mark = _mark(raw)
    ours = consumer.name.startswith(CONSUMER_PREFIX)
    state = WorkerState.GONE if ours else WorkerState.UNKNOWN
    name, active, idle_ms = decode_text(consumer.name), consumer.pending, consumer.idle_ms
    if raw is not None:
        state = WorkerState.ALIVE
    if mark is None:
        return WorkerInfo(id=name, state=state, active=active, idle_ms=idle_ms)
    return WorkerInfo(
        id=name,
        state=state,
        active=active,
        idle_ms=idle_ms,
        host=mark.host,
        pid=mark.pid,
        started_at=instant(mark.started_at_ms),
        concurrency=mark.concurrency,
    )


def _mark(raw: bytes | None) -> WorkerHeartbeat | None:
    try:
        return None if raw is None else decode_heartbeat(raw)
    except DecodeError:
        return None
