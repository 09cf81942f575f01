"""One queue at a glance: how much there is, since when, and who works on it."""

from datetime import datetime

from msgspec import Struct

from tampu.admin.counts import Counts, count_jobs
from tampu.admin.workers import WorkerInfo, workers_of
from tampu.clock import instant
from tampu.server.lane import Lane
from tampu.server.looks import first_due_ms, groups_of
from tampu.server.streams import entries_between, server_time_ms
from tampu.wire.keys import QueueKeys


class Overview(Struct, frozen=True, kw_only=True):
    """A queue at one moment, seen from one group of workers; times are the server's."""

    queue: str
    group: str
    at: datetime
    counts: Counts
    oldest_waiting_at: datetime | None  # since when the first that waits does
    next_due_at: datetime | None  # of the delayed jobs
    workers: list[WorkerInfo]


async def look_over(lane: Lane, keys: QueueKeys, group: str = "default") -> Overview:
    """Ask the server; what it tells was true within a few milliseconds, not at one."""
    raw_group = group.encode()
    due_ms = await first_due_ms(lane, keys.delayed)
    return Overview(
        queue=keys.name,
        group=group,
        at=instant(await server_time_ms(lane)),
        counts=await count_jobs(lane, keys, raw_group),
        oldest_waiting_at=await _oldest_waiting(lane, keys, raw_group),
        next_due_at=None if due_ms is None else instant(due_ms),
        workers=await workers_of(lane, keys, raw_group),
    )


async def _oldest_waiting(lane: Lane, keys: QueueKeys, group: bytes) -> datetime | None:
    """When the first entry was written that nobody of the group was given."""
    groups = await groups_of(lane, keys.stream)
    last = next((each.last_id for each in groups if each.name == group), None)
    start = b"-" if last is None else b"(" + last
    page = await entries_between(lane, keys.stream, start=start, count=1)
    return instant(int(page[0][0].partition(b"-")[0])) if page else None
