"""Facts about queues that say whether their jobs run: is anybody there, and on time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from tampu.admin.queues import count_jobs
from tampu.admin.workers import count_alive, workers_of
from tampu.errors import duration_text
from tampu.server.inspection import any_exists, first_due_ms, groups_of
from tampu.server.lane import Lane
from tampu.server.scripts.control import is_paused
from tampu.server.streams import server_time_ms
from tampu.wire.keys import QueueKeys

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tampu.server.connect import Server

LATE_MS: Final = 15_000
"""Longer than it takes until another process leads."""
_DEFAULT_GROUP: Final = b"default"


class QueueFacts(Struct, frozen=True, kw_only=True):
    """What is there of a queue, and who looks after it."""

    queue: str
    waiting: int = 0
    workers: int = 1  # of all groups
    paused: bool = False
    job_late_ms: int = 0  # how long the first delayed job has been due
    schedule_late_ms: int = 0
    has_promoter: bool = True
    has_firer: bool = True


async def read_queue_health(server: Server, names: Iterable[str]) -> list[QueueFacts]:
    """What there is to know of some queues."""
    return [await _read(server, QueueKeys(name)) for name in names]


async def _read(server: Server, keys: QueueKeys) -> QueueFacts:
    async with await Lane.open(server, keys.stream) as lane:
        groups = [each.name for each in await groups_of(lane, keys.stream)] or [_DEFAULT_GROUP]
        counts = [await count_jobs(lane, keys, group) for group in groups]
        return QueueFacts(
            queue=keys.name,
            waiting=min(each.waiting for each in counts),
            workers=sum([count_alive(await workers_of(lane, keys, each)) for each in groups]),
            paused=await is_paused(lane, keys),
            job_late_ms=await _late_ms(lane, keys.delayed),
            schedule_late_ms=await _late_ms(lane, keys.repeat),
            has_promoter=await any_exists(lane, [keys.promoter_lock]),
            has_firer=await any_exists(lane, [keys.scheduler_lock]),
        )


async def _late_ms(lane: Lane, key: bytes) -> int:
    due_ms = await first_due_ms(lane, key)
    return 0 if due_ms is None else max(0, await server_time_ms(lane) - due_ms)


def unattended(found: Iterable[QueueFacts]) -> Iterator[str]:
    """A sentence for each queue that does not get on with its waiting jobs."""
    for each in found:
        if not each.waiting:
            continue
        where = f"queue {each.queue}: {each.waiting} jobs wait"
        if each.paused:
            yield f"{where} and it is paused: tampu queue resume {each.queue}"
        elif not each.workers:
            yield f"{where} and no worker is alive: start one"


def unserved(found: Iterable[QueueFacts]) -> Iterator[str]:
    """A sentence for each queue whose delayed jobs or schedules nobody looks after."""
    fix = "start a worker, or tampu serve-time"
    for each in found:
        if each.job_late_ms >= LATE_MS and not each.has_promoter:
            late = _duration(each.job_late_ms)
            yield f"queue {each.queue}: nobody promotes delayed jobs, due for {late}: {fix}"
        if each.schedule_late_ms >= LATE_MS and not each.has_firer:
            late = _duration(each.schedule_late_ms)
            yield f"queue {each.queue}: nobody fires schedules, due for {late}: {fix}"


def behind(found: Iterable[QueueFacts]) -> Iterator[str]:
    """A sentence for each queue that is late although somebody looks after it."""
    fix = "see the log of its workers; at its memory limit the server adds nothing"
    for each in found:
        if each.job_late_ms >= LATE_MS and each.has_promoter:
            late = _duration(each.job_late_ms)
            yield f"queue {each.queue}: delayed jobs are due for {late}: {fix}"
        if each.schedule_late_ms >= LATE_MS and each.has_firer:
            late = _duration(each.schedule_late_ms)
            yield f"queue {each.queue}: schedules are due for {late}: {fix}"


def _duration(late_ms: int) -> str:
    return duration_text(round(late_ms / 1000))
