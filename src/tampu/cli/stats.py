"""`tampu stats` and `tampu mark`: the history of queues, and marks in it."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer
from msgspec import Struct

from tampu.admin.history import (
    add_mark,
    failure_groups,
    measure_gauges,
    processes_of,
    read_history,
    read_marks,
    read_unknown,
)
from tampu.admin.queues import queue_names
from tampu.cli.command import command
from tampu.cli.options import SharedOptions, WorkerGroup, new_app
from tampu.cli.output import CommandFailed
from tampu.cli.screen import JsonObject, Screen
from tampu.cli.stats_view import COUNTS, SPAN_NAMES, QueueStats, stats_pages, stats_table
from tampu.cli.target import check_queue, did_you_mean
from tampu.metrics.history import Figures, Mark, Span
from tampu.server.connect import Server, connect
from tampu.server.lane import Lane
from tampu.server.streams import server_time_ms
from tampu.util.clock import instant
from tampu.wire.keys import MARKS, QueueKeys

app = new_app()

Queues = Annotated[
    list[str] | None,
    typer.Argument(metavar="QUEUE", help="Some queues. Default: all queues.", show_default=False),
]
SpanBack = Annotated[Span, typer.Option("--span", help="How far to look back.")]
TaskName = Annotated[
    str | None,
    typer.Option("--task", metavar="NAME", help="Only jobs with this name.", show_default=False),
]
MarkText = Annotated[
    str, typer.Argument(metavar="TEXT", help="What happened, such as v1.4.", show_default=False)
]


@command(app, "stats")
async def show_stats(
    shared: SharedOptions,
    queues: Queues = None,
    *,
    span: SpanBack = Span.HOUR,
    task: TaskName = None,
    group: WorkerGroup = "default",
) -> None:
    """Show what happened in the last hour, day or month.

    Without a queue: all queues, one a line. Workers record what they do every ten seconds.
    """
    async with await connect(shared.url) as server:
        marks = await _read_marks(server, span)
        names = queues or await queue_names(server)
        found = [
            await _read_stats(server, name, span, group=group, marks=marks, must_exist=bool(queues))
            for name in names
        ]
    if task is not None:
        found = _only_task(found, task)
    data = {"server": server.name, "span": span, "queues": [stats_json(each) for each in found]}
    as_pages = bool(queues) or task is not None
    Screen(shared).show(data, lambda: stats_pages(found) if as_pages else stats_table(found))


@command(app, "mark")
async def mark_moment(shared: SharedOptions, text: MarkText) -> None:
    """Mark this moment in all charts, such as a deployment."""
    async with await connect(shared.url) as server, await Lane.open(server, MARKS) as lane:
        mark = await add_mark(lane, text)
    Screen(shared).show({"at": mark.at, "text": mark.text}, lambda: f"Marked: {mark.text}")


async def _read_marks(server: Server, span: Span) -> list[Mark]:
    since = datetime.now(UTC) - timedelta(seconds=span.steps * span.step_s)
    async with await Lane.open(server, MARKS) as lane:
        return await read_marks(lane, round(since.timestamp() * 1000))


async def _read_stats(
    server: Server, name: str, span: Span, *, group: str, marks: list[Mark], must_exist: bool
) -> QueueStats:
    keys, raw_group = QueueKeys(name), group.encode()
    async with await Lane.open(server, keys.stream) as lane:
        if must_exist:
            await check_queue(server, lane, keys)
        history = await read_history(lane, keys, span)
        first = instant(history.buckets[0].at_ms)
        failures = await failure_groups(lane, keys)
        processes = await processes_of(lane, keys, raw_group)
        return QueueStats(
            queue=name,
            span=span,
            at=instant(await server_time_ms(lane)),
            history=history,
            now=await measure_gauges(lane, keys, raw_group),
            failures=[each for each in failures if each.last_at >= first],
            processes=processes,
            marks=marks,
            unknown=await read_unknown(lane, keys),
        )


def _only_task(found: Sequence[QueueStats], task: str) -> list[QueueStats]:
    known = sorted({name for each in found for name in each.history.tasks})
    if task not in known:
        hint = did_you_mean(task, known)
        span = SPAN_NAMES[found[0].span] if found else "hour"
        raise CommandFailed(f"No job named {task!r} was recorded in the last {span}.{hint}")
    return [each.of_task(task) for each in found if task in each.history.tasks]


# --- for programs -------------------------------------------------------------------------------


def stats_json(stats: QueueStats) -> JsonObject:
    """One queue with all its steps."""
    return {
        "queue": stats.queue,
        "step_s": stats.history.step_s,
        "total": figures_json(stats.history.total),
        "tasks": {name: figures_json(each) for name, each in stats.history.tasks.items()},
        "steps": [
            {
                "at": instant(each.at_ms),
                **{name: getattr(each.total, name) for name in COUNTS},
                "gauges": None if each.last is None else _fields(each.last),
            }
            for each in stats.history.buckets
        ],
        "now": _fields(stats.now),
        "failures": [_fields(each) for each in stats.failures],
        "processes": [
            _fields(each) | {"running": [_fields(job) for job in each.running]}
            for each in stats.processes
        ],
        "marks": [_fields(each) for each in stats.marks],
        "unknown": stats.unknown,
    }


def figures_json(figures: Figures) -> JsonObject:
    """Counts, and times in seconds."""
    times: JsonObject = {}
    for name, times_of in (("run_s", figures.run), ("wait_s", figures.wait)):
        quantiles = {f"p{share:g}": times_of.quantile(share / 100) for share in (50, 95, 99)}
        times[name] = {"mean": times_of.mean_s, **quantiles}
    counts = {name: getattr(figures, name) for name in COUNTS}
    return {**counts, "failure_rate": figures.failure_rate, **times}


def _fields(value: Struct) -> JsonObject:
    return {name: getattr(value, name) for name in value.__struct_fields__}
