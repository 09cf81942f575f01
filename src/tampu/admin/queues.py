"""Whole queues: list, count, summarise, drain and purge them."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import Final

from msgspec import Struct

from tampu.admin.found import FoundJob, read_entry, read_member
from tampu.admin.lines import oldest_in_lines_ms
from tampu.admin.workers import WorkerInfo, workers_of
from tampu.server.connect import Server
from tampu.server.gates import GateState, read_gate
from tampu.server.inspection import any_exists, first_due_ms, groups_of, nodes_of, pop_delayed
from tampu.server.lane import Lane
from tampu.server.scripts.control import is_paused
from tampu.server.scripts.flows import end_members
from tampu.server.scripts.gate import pages_of_lines, purge_line
from tampu.server.scripts.settling import all_markers, purge
from tampu.server.streams import delete, drop_all, entries_from, server_time_ms, sizes
from tampu.util.clock import instant
from tampu.util.options import Word
from tampu.util.pauses import Pauses
from tampu.wire.flow import EndMessage, parse_member
from tampu.wire.keys import EVERY_QUEUE, QueueKeys, queue_of_key
from tampu.wire.result import encode_cancelled


class Counts(Struct, frozen=True):
    """The jobs of a queue at one moment."""

    waiting: int  # not taken by a worker yet
    active: int  # held by a worker
    delayed: int  # will run later; includes jobs that wait for a retry
    dead: int
    schedules: int


async def count_jobs(lane: Lane, keys: QueueKeys, group: bytes) -> Counts:
    """Count the jobs of a queue. `active` counts those of one group of workers."""
    found = await sizes(lane, keys, group)
    return Counts(
        waiting=max(0, found.stream - found.pending) + found.lines,
        active=found.pending,
        delayed=found.delayed,
        dead=found.dead,
        schedules=found.schedules,
    )


_KINDS: Final = ("stream", "zset")  # the types of the keys that make a queue exist


async def queue_names(server: Server) -> list[str]:
    """The names of all queues on a server, sorted; in a cluster, those of every node.

    Scans all keys of the server in small steps. Invalid names are left out.
    """
    names: set[str] = set()
    async with nodes_of(server) as nodes:
        for node in nodes:
            for kind in _KINDS:
                async for page in node.keys(EVERY_QUEUE, kind=kind):
                    names |= {name for key in page if (name := queue_of_key(key)) is not None}
    return sorted(names)


async def queue_exists(lane: Lane, keys: QueueKeys) -> bool:
    """Whether a job was ever added to the queue or a worker started on it."""
    return await any_exists(lane, keys.lasting)


async def remove_queue(server: Server, keys: QueueKeys) -> int:
    """Delete every key of a queue and return their number. Keys written meanwhile stay."""
    removed = 0
    async with nodes_of(server) as nodes:
        for node in nodes:
            async for page in node.keys(keys.pattern):
                removed += await node.delete(page)
    return removed


class QueueSummary(Struct, frozen=True, kw_only=True):
    """A queue at one moment, seen from one group of workers. Times are the server's."""

    queue: str
    group: str
    at: datetime
    counts: Counts
    oldest_waiting_at: datetime | None  # when the oldest waiting job was added
    gate: GateState | None = None  # None: no job of the queue ever needed flow control
    next_due_at: datetime | None  # when the next delayed job is due
    paused: bool
    workers: list[WorkerInfo]


async def summarise_queue(lane: Lane, keys: QueueKeys, group: str = "default") -> QueueSummary:
    """Summarise a queue. The values are read one after the other, within milliseconds."""
    raw_group = group.encode()
    due_ms = await first_due_ms(lane, keys.delayed)
    gate = await read_gate(lane, keys)
    lined = gate is not None and gate.waiting > 0
    return QueueSummary(
        queue=keys.name,
        group=group,
        at=instant(await server_time_ms(lane)),
        counts=await count_jobs(lane, keys, raw_group),
        oldest_waiting_at=await _oldest_waiting(lane, keys, raw_group, lined=lined),
        gate=gate,
        next_due_at=None if due_ms is None else instant(due_ms),
        paused=await is_paused(lane, keys),
        workers=await workers_of(lane, keys, raw_group),
    )


async def _oldest_waiting(
    lane: Lane, keys: QueueKeys, group: bytes, *, lined: bool
) -> datetime | None:
    """When the job was added that waits longest, in the stream or in some lines."""
    times = [await _oldest_entry_ms(lane, keys, group)]
    if lined:
        times.append(await oldest_in_lines_ms(lane, keys))
    return min((instant(at_ms) for at_ms in times if at_ms is not None), default=None)


async def _oldest_entry_ms(lane: Lane, keys: QueueKeys, group: bytes) -> int | None:
    """When the first entry was written that no worker of the group has taken."""
    groups = await groups_of(lane, keys.stream)
    last = next((each.last_id for each in groups if each.name == group), None)
    start = b"-" if last is None else b"(" + last
    page = await entries_from(lane, keys.stream, start=start, count=1)
    return int(page[0][0].partition(b"-")[0]) if page else None


_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 0.5


async def drain(
    lane: Lane,
    keys: QueueKeys,
    *,
    group: str = "default",
    delayed: bool = False,
    timeout_s: float | None = None,
    on_counts: Callable[[Counts], None] | None = None,
) -> Counts:
    """Wait until no job is waiting or active; with `delayed`, until none is delayed either.

    Returns the last counts, also when the time is up: check them with `is_drained`. `on_counts` is
    called with every count.
    """
    limit = None if timeout_s is None else asyncio.get_running_loop().time() + timeout_s
    pauses = Pauses(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
    while True:
        counts = await count_jobs(lane, keys, group.encode())
        if on_counts is not None:
            on_counts(counts)
        pause_s = pauses.next_s()
        left_s = pause_s if limit is None else limit - asyncio.get_running_loop().time()
        if is_drained(counts, delayed=delayed) or left_s <= 0:
            return counts
        await asyncio.sleep(min(pause_s, left_s))


def is_drained(counts: Counts, *, delayed: bool = False) -> bool:
    """Whether the queue is empty."""
    return not counts.waiting and not counts.active and not (delayed and counts.delayed)


_JOBS_PER_CALL: Final = 500


class Purgeable(Word):
    """States in which jobs can be purged. An active job belongs to its worker."""

    WAITING = "waiting"
    DELAYED = "delayed"
    DEAD = "dead"


class PurgeCounts(Struct, frozen=True):
    """How many jobs were removed, by state."""

    waiting: int = 0
    delayed: int = 0
    dead: int = 0


async def purge_jobs(
    lane: Lane, keys: QueueKeys, states: Collection[Purgeable] = tuple(Purgeable)
) -> PurgeCounts:
    """Delete jobs; their ids become free again. Active jobs are left alone.

    Jobs that are added meanwhile may be deleted too. If the connection breaks, this raises, and
    some jobs may have been deleted.
    """
    waiting = await _purge_waiting(lane, keys) if Purgeable.WAITING in states else 0
    delayed = await _purge_delayed(lane, keys) if Purgeable.DELAYED in states else 0
    dead = await drop_all(lane, keys.dead) if Purgeable.DEAD in states else 0
    return PurgeCounts(waiting, delayed, dead)


async def _purge_waiting(lane: Lane, keys: QueueKeys) -> int:
    removed = 0
    while entries := await purge(lane, keys, count=_JOBS_PER_CALL):
        removed += len(entries)
        await _free(lane, keys, [read_entry(b"", fields) for fields in entries])
    async with aclosing(pages_of_lines(lane, keys)) as pages:
        lines = [each.line async for page in pages for each in page]
    for line in lines:
        while members := await purge_line(lane, keys, line, count=_JOBS_PER_CALL):
            removed += len(members)
            await _free(lane, keys, [read_member(member) for member in members])
    return removed


async def _purge_delayed(lane: Lane, keys: QueueKeys) -> int:
    removed = 0
    while members := await pop_delayed(lane, keys.delayed, count=_JOBS_PER_CALL):
        removed += len(members)
        await _free(lane, keys, [read_member(member) for member in members])
    return removed


async def _free(lane: Lane, keys: QueueKeys, jobs: Sequence[FoundJob | None]) -> None:
    """Free what jobs may hold. Most held nothing, which does no harm."""
    held = [
        key
        for job in jobs
        if job is not None
        for key in (*all_markers(keys, job.id, job.extras).keys, keys.index(job.id))
    ]
    if held:
        await delete(lane, held)
    await _tell_flows(lane, keys, [job.id for job in jobs if job is not None])


async def _tell_flows(lane: Lane, keys: QueueKeys, job_ids: Iterable[str]) -> None:
    """Let flows know that jobs of theirs are cancelled; they would wait for them in vain."""
    by_home: dict[str, list[tuple[EndMessage, str]]] = {}
    for job_id in job_ids:
        if (member := parse_member(job_id)) is not None:
            home = member.home or keys.name
            end = EndMessage(home, job_id, "c", encode_cancelled(), b"")
            by_home.setdefault(home, []).append((end, keys.name))
    for home, ends in by_home.items():
        there = QueueKeys(home)
        async with await Lane.open(lane.server, there.stream) as other:
            await end_members(other, there, ends)
