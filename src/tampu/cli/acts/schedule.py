"""What `tampu schedule` does."""

from dataclasses import dataclass
from datetime import UTC, datetime

from rich.console import Group
from rich.text import Text

from tampu.cli.acts.desk import near_misses, queue_for
from tampu.cli.ending import no
from tampu.cli.given import instant_of
from tampu.cli.screen import Screen, confirm
from tampu.cli.shared import Shared
from tampu.cli.show.shapes import schedule_shape
from tampu.cli.show.tables import schedules_table
from tampu.cli.show.text import clock, counted
from tampu.queue import Queue
from tampu.schedules.model import Schedule

_ALL = 1_000_000


@dataclass(frozen=True, slots=True)
class Span:
    """From when to when, and how many at most."""

    start: str
    end: str
    most: int


async def ls(shared: Shared, queue: str, *, limit: int) -> None:
    """List them."""
    async with queue_for(shared, queue) as opened:
        found = await opened.schedules(limit)
    shape = {"queue": queue, "schedules": [schedule_shape(each) for each in found]}
    Screen(shared).show(shape, lambda: schedules_table(found, datetime.now(UTC)))


async def preview(shared: Shared, queue: str, key: str, *, count: int) -> None:
    """Show the next instants of one."""
    async with queue_for(shared, queue) as opened:
        found = await _found(opened, key)
        instants = await opened.preview(found.raw_key, count)
    shape = {"queue": queue, "key": found.key, "instants": instants}
    Screen(shared).show(shape, lambda: Group(*(Text(clock(each)) for each in instants)))


async def pause(shared: Shared, queue: str, key: str) -> None:
    """Have one not fire."""
    async with queue_for(shared, queue) as opened:
        found = await _found(opened, key)
        if not await opened.pause(found.raw_key):
            raise no(f"schedule {found.key!r} is paused already.")
    shape = {"queue": queue, "key": found.key, "paused": True}
    Screen(shared).show(shape, lambda: f"{found.key} is paused.")


async def resume(shared: Shared, queue: str, key: str) -> None:
    """Have one fire again."""
    async with queue_for(shared, queue) as opened:
        found = await _found(opened, key)
        if not await opened.resume(found.raw_key):
            raise no(f"schedule {found.key!r} is not paused.")
    shape = {"queue": queue, "key": found.key, "paused": False}
    Screen(shared).show(shape, lambda: f"{found.key} fires again.")


async def trigger(shared: Shared, queue: str, key: str) -> None:
    """Add one job of it."""
    async with queue_for(shared, queue) as opened:
        found = await _found(opened, key)
        job = await opened.trigger(found.raw_key)
    shape = {"queue": queue, "key": found.key, "job_id": job.id}
    Screen(shared).show(shape, lambda: f"job {job.id} added.")


async def backfill(shared: Shared, queue: str, key: str, span: Span) -> None:
    """Add the jobs of a span of time."""
    start, end = instant_of("start", span.start), instant_of("end", span.end)
    async with queue_for(shared, queue) as opened:
        found = await _found(opened, key)
        jobs = await opened.backfill(found.raw_key, start, end, max=span.most)
    shape = {"queue": queue, "key": found.key, "job_ids": [job.id for job in jobs]}
    Screen(shared).show(shape, lambda: f"{counted(len(jobs), 'job')} added.")


async def rm(shared: Shared, queue: str, key: str, *, yes: bool) -> None:
    """Remove one."""
    async with queue_for(shared, queue) as opened:
        found = await _found(opened, key)
        confirm(f"Remove schedule {found.key} of {queue}?", yes=yes)
        removed = await opened.unschedule(found.raw_key)
    shape = {"queue": queue, "key": found.key, "removed": removed}
    Screen(shared).show(shape, lambda: f"{found.key} was removed.")


async def _found(queue: Queue, key: str) -> Schedule:
    """The schedule of a key as it is listed; ends the command if there is none."""
    schedules = await queue.schedules(_ALL)
    for each in schedules:
        if each.key == key:
            return each
    hint = near_misses(key, [each.key for each in schedules])
    raise no(f"queue {queue.name!r} has no schedule {key!r}{hint}")
