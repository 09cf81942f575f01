"""`tampu schedule`: list, preview, pause, fire and remove the schedules of a queue."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Final

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from tampu.cli.command import add_group, command
from tampu.cli.options import QueueName, SharedOptions, Yes, new_app
from tampu.cli.output import CommandFailed, confirm, print_error
from tampu.cli.screen import (
    NOTHING,
    JsonObject,
    Screen,
    count_of,
    format_due,
    format_instant,
    format_span,
    full_text,
    grid,
    parse_instant,
    short_text,
)
from tampu.cli.target import did_you_mean, open_queue
from tampu.queue import Queue
from tampu.schedules.model import Schedule
from tampu.timing import Cron, Every, Missed, TimeWindow
from tampu.timing.policies import MissedKind
from tampu.timing.zones import parse_zone
from tampu.util.clock import Duration, to_s

_ALL: Final = 1_000_000
_MOST_PREVIEWED: Final = 10_000  # the library searches no further

app = new_app()
schedule = add_group(app, "schedule", "List, preview, pause, fire or remove schedules.")

Key = Annotated[str, typer.Argument(metavar="KEY", help="Key of the schedule.", show_default=False)]
ScheduleLimit = Annotated[
    int, typer.Option("--limit", "-n", metavar="N", min=1, help="List at most N.")
]
Instants = Annotated[
    int,
    typer.Option("--count", "-n", metavar="N", min=1, max=_MOST_PREVIEWED, help="Show N instants."),
]
Start = Annotated[
    str,
    typer.Option(
        "--start",
        metavar="INSTANT",
        help="Start of the range, such as 2026-01-31T09:00Z.",
        show_default=False,
    ),
]
End = Annotated[
    str,
    typer.Option(
        "--end", metavar="INSTANT", help="End of the range, excluded.", show_default=False
    ),
]
Most = Annotated[
    int, typer.Option("--max", metavar="N", min=1, help="Add nothing if there are more instants.")
]


@command(schedule, "ls")
async def list_schedules(
    shared: SharedOptions, queue: QueueName, *, limit: ScheduleLimit = 100
) -> None:
    """List the schedules of a queue, the next to fire first."""
    async with open_queue(shared, queue) as opened:
        found = await opened.schedules.list(limit)
    data = {"queue": queue, "schedules": [schedule_json(each) for each in found]}
    Screen(shared).show(data, lambda: schedules_table(found, datetime.now(UTC)))


@command(schedule, "preview")
async def preview_schedule(
    shared: SharedOptions, queue: QueueName, key: Key, *, count: Instants = 5
) -> None:
    """Show the next instants of a schedule."""
    async with open_queue(shared, queue) as opened:
        found = await _find(opened, key)
        instants = await opened.schedules.preview(found.raw_key, count)
    zone = found.rule.tz if isinstance(found.rule, Cron) else "UTC"
    data = {"queue": queue, "key": found.key, "zone": zone, "instants": instants}
    Screen(shared).show(data, lambda: preview_page(instants, zone))
    if len(instants) < count:
        why = f"the schedule ends there, or its window rules out the rest of {_MOST_PREVIEWED}"
        print_error(f"Only {len(instants)} of {count_of(count, 'instant')}: {why}.")


@command(schedule, "pause")
async def pause_schedule(shared: SharedOptions, queue: QueueName, key: Key) -> None:
    """Stop a schedule from firing until it is resumed."""
    async with open_queue(shared, queue) as opened:
        found = await _find(opened, key)
        if not await opened.schedules.pause(found.raw_key):
            raise CommandFailed(f"Schedule {found.key!r} is already paused.")
    data = {"queue": queue, "key": found.key, "paused": True}
    Screen(shared).show(data, lambda: f"{found.key} is paused.")


@command(schedule, "resume")
async def resume_schedule(shared: SharedOptions, queue: QueueName, key: Key) -> None:
    """Let a paused schedule fire again.

    Instants that passed meanwhile are counted, but do not fire.
    """
    async with open_queue(shared, queue) as opened:
        found = await _find(opened, key)
        if not await opened.schedules.resume(found.raw_key):
            raise CommandFailed(f"Schedule {found.key!r} is not paused.")
    data = {"queue": queue, "key": found.key, "paused": False}
    Screen(shared).show(data, lambda: f"{found.key} is resumed.")


@command(schedule, "trigger")
async def trigger_schedule(shared: SharedOptions, queue: QueueName, key: Key) -> None:
    """Add one job of a schedule now."""
    async with open_queue(shared, queue) as opened:
        found = await _find(opened, key)
        job = await opened.schedules.trigger(found.raw_key)
    data = {"queue": queue, "key": found.key, "job_id": job.id}
    Screen(shared).show(data, lambda: f"Job {job.id} added.")


@command(schedule, "backfill")
async def backfill_schedule(
    shared: SharedOptions,
    queue: QueueName,
    key: Key,
    *,
    start: Start,
    end: End,
    most: Most = 1000,
) -> None:
    """Add a job for each instant of a schedule in a range of time."""
    first, last = parse_instant("start", start), parse_instant("end", end)
    async with open_queue(shared, queue) as opened:
        found = await _find(opened, key)
        jobs = await opened.schedules.backfill(found.raw_key, first, last, max=most)
    data = {"queue": queue, "key": found.key, "job_ids": [job.id for job in jobs]}
    Screen(shared).show(data, lambda: f"{count_of(len(jobs), 'job')} added.")


@command(schedule, "rm")
async def remove_schedule(
    shared: SharedOptions, queue: QueueName, key: Key, *, yes: Yes = False
) -> None:
    """Remove a schedule. Jobs that it has added stay."""
    async with open_queue(shared, queue) as opened:
        found = await _find(opened, key)
        confirm(f"Remove schedule {found.key} of {queue}?", yes=yes)
        removed = await opened.schedules.remove(found.raw_key)
    data = {"queue": queue, "key": found.key, "removed": removed}
    Screen(shared).show(data, lambda: f"{found.key} was removed.")


async def _find(queue: Queue, key: str) -> Schedule:
    """The schedule with a key as it is listed; `CommandFailed` if there is none."""
    schedules = await queue.schedules.list(_ALL)
    for each in schedules:
        if each.key == key:
            return each
    hint = did_you_mean(key, [each.key for each in schedules])
    raise CommandFailed(f"Queue {queue.name!r} has no schedule {key!r}.{hint}")


# --- what is printed ----------------------------------------------------------------------------


def schedule_json(found: Schedule) -> JsonObject:
    """One schedule."""
    settings, counts = found.settings, found.counts
    return {
        "key": found.key,
        "name": found.name,
        **_rule_json(found),
        "next_at": found.next_at,
        "paused": found.paused,
        "problem": found.problem,
        "counts": {field: getattr(counts, field) for field in counts.__struct_fields__},
        **_missed_json(settings.missed),
        "overlap": settings.overlap.name.lower(),
        "window": _window_json(settings.window),
        "limit": settings.limit,
        "start": settings.start,
        "end": settings.end,
        "jitter_s": _seconds(settings.jitter),
        "attempts": settings.attempts,
        "timeout_s": _seconds(settings.timeout),
        "data": found.data,
    }


def _rule_json(found: Schedule) -> JsonObject:
    """The rule: either `cron` or `every_s`, and in words."""
    rule = found.rule
    return {
        "cron": rule.text if isinstance(rule, Cron) else None,
        "tz": rule.tz if isinstance(rule, Cron) else None,
        "every_s": rule.interval_ms / 1000 if isinstance(rule, Every) else None,
        "explained": None if rule is None else rule.explain(),
    }


def _window_json(window: TimeWindow | None) -> JsonObject | None:
    if window is None:
        return None
    return {"tz": window.tz, "days": window.days, "segments": window.segments}


def _missed_json(missed: Missed) -> JsonObject:
    return {
        "missed": missed.kind.name.lower(),
        "missed_max": missed.max if missed.kind is MissedKind.ALL else None,
        "missed_grace_s": missed.grace_ms / 1000,
        "missed_catch_up_s": missed.catch_up_ms / 1000,
    }


def _seconds(duration: Duration | None) -> float | None:
    return None if duration is None else to_s("duration", duration)


def preview_page(instants: Sequence[datetime], zone: str) -> RenderableType:
    """Instants as the schedule's own clock shows them."""
    if zone == "UTC":
        return Group(*(Text(format_instant(each)) for each in instants))
    local = [each.astimezone(parse_zone("tz", zone)) for each in instants]
    return Group(*(Text(f"{each.isoformat(' ', 'seconds')} {zone}") for each in local))


def schedules_table(schedules: Sequence[Schedule], now: datetime) -> RenderableType:
    """Schedules, one a line. A long key wraps, since other commands need all of it."""
    if not schedules:
        return Text("There are no schedules.")
    columns = ("Key", "Job", "Next", "Fired", "Rule")
    table = grid(*columns, numbers=("Next", "Fired"), shrink=("Key", "Job", "Rule"))
    for each in schedules:
        table.add_row(
            full_text(each.key),
            short_text(each.name),
            "paused" if each.paused else format_due(each.next_at, now),
            str(each.counts.fired),
            short_text(_rule_text(each)),
        )
    return table


def _rule_text(found: Schedule) -> str:
    rule = found.rule
    if isinstance(rule, Cron):
        return f"{rule.text} {rule.tz or 'UTC'}"
    if isinstance(rule, Every):
        return f"every {format_span(rule.interval_ms / 1000)}"
    return found.problem or NOTHING
