"""`tampu inspect`: the jobs and workers of one queue or of all."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Final

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tampu.admin.queues import Counts, QueueSummary, queue_names, summarise_queue
from tampu.admin.workers import WorkerInfo, WorkerState, count_alive
from tampu.cli.command import command
from tampu.cli.options import SharedOptions, WorkerGroup, new_app
from tampu.cli.screen import (
    NOTHING,
    JsonObject,
    Screen,
    details,
    format_age,
    format_due,
    full_text,
    grid,
    short_text,
)
from tampu.cli.target import connect_to, name_server
from tampu.server.connect import Server, connect
from tampu.server.lane import Lane
from tampu.wire.keys import QueueKeys

_COLORS: Final = {
    WorkerState.ALIVE: "green",
    WorkerState.GONE: "red",
    WorkerState.UNKNOWN: "yellow",
}

app = new_app()

OneOrAll = Annotated[
    str | None,
    typer.Argument(metavar="QUEUE", help="One queue. Default: all queues.", show_default=False),
]


@command(app, "inspect")
async def inspect_queues(
    shared: SharedOptions, queue: OneOrAll = None, *, group: WorkerGroup = "default"
) -> None:
    """Show the jobs and workers of one queue or of all."""
    if queue is None:
        async with await connect(shared.url) as server:
            found = await summaries(server, group)
        data = {"server": server.name, "queues": [summary_json(each) for each in found]}
        name = name_server(server.name, shared.url)
        Screen(shared).show(data, lambda: Group(full_text(f"Server: {name}"), queues_table(found)))
        return
    async with connect_to(shared, queue) as connection:
        summary = await summarise_queue(connection.lane, connection.keys, group)
    data = {"server": connection.server.name, "queues": [summary_json(summary)]}
    name = name_server(connection.server.name, shared.url)
    Screen(shared).show(data, lambda: queue_page(summary, name))


async def summaries(server: Server, group: str) -> list[QueueSummary]:
    """All queues of a server. In a cluster each has its own node."""
    found: list[QueueSummary] = []
    for name in await queue_names(server):
        keys = QueueKeys(name)
        async with await Lane.open(server, keys.stream) as lane:
            found.append(await summarise_queue(lane, keys, group))
    return found


# --- what is printed ----------------------------------------------------------------------------


def counts_json(counts: Counts) -> JsonObject:
    """How many jobs there are in each state."""
    return {field: getattr(counts, field) for field in counts.__struct_fields__}


def summary_json(summary: QueueSummary) -> JsonObject:
    """One queue."""
    return {
        "queue": summary.queue,
        "group": summary.group,
        "at": summary.at,
        "paused": summary.paused,
        **counts_json(summary.counts),
        "in_lines": 0 if summary.gate is None else summary.gate.waiting,
        "dropped": 0 if summary.gate is None else summary.gate.dropped,
        "oldest_waiting_at": summary.oldest_waiting_at,
        "next_due_at": summary.next_due_at,
        "workers": [
            {field: getattr(worker, field) for field in worker.__struct_fields__}
            for worker in summary.workers
        ],
    }


def queues_table(found: Sequence[QueueSummary]) -> RenderableType:
    """Many queues, one a line."""
    if not found:
        return Text("There are no queues.")
    numbers = ("Waiting", "Active", "Delayed", "Dead", "Schedules", "Workers", "Oldest")
    table = grid("Queue", *numbers, numbers=numbers, shrink=("Queue",))
    for each in found:
        counts = each.counts
        table.add_row(
            short_text(f"{each.queue} (paused)" if each.paused else each.queue),
            *map(str, (counts.waiting, counts.active, counts.delayed, counts.dead)),
            str(counts.schedules),
            str(count_alive(each.workers)),
            format_age(each.oldest_waiting_at, each.at),
        )
    return table


def queue_page(summary: QueueSummary, server: str) -> RenderableType:
    """One queue in full."""
    counts, now = summary.counts, summary.at
    oldest = format_age(summary.oldest_waiting_at, now)
    due = format_due(summary.next_due_at, now)
    page: list[RenderableType] = [
        details(
            [
                ("Server", server),
                ("Queue", summary.queue),
                ("Group", summary.group),
                *([("State", "paused")] if summary.paused else []),
                ("Waiting", f"{counts.waiting}{_append(', the oldest for ', oldest)}"),
                *_gate_rows(summary),
                ("Active", counts.active),
                ("Delayed", f"{counts.delayed}{_append(', the next due ', due)}"),
                ("Dead", counts.dead),
                ("Schedules", counts.schedules),
                ("Workers", f"{count_alive(summary.workers)} alive"),
            ]
        )
    ]
    if summary.workers:
        page += [Text(""), workers_table(summary.workers, now)]
    return Group(*page)


def _gate_rows(summary: QueueSummary) -> list[tuple[str, str]]:
    """What flow control does, if there is anything to tell."""
    gate = summary.gate
    if gate is None:
        return []
    rows = [("In lines", f"{gate.waiting} of those that wait")] if gate.waiting else []
    if gate.dropped:
        rows.append(("Dropped", f"{gate.dropped}, for a newer job or because a line was full"))
    return rows


def workers_table(workers: Sequence[WorkerInfo], now: datetime) -> Table:
    """The workers of a queue; `Active` is how many jobs one runs, and how many it can."""
    columns = ("Worker", "State", "Host", "Pid", "Active", "Up")
    table = grid(*columns, numbers=("Pid", "Active", "Up"), shrink=("Host",))
    for each in workers:
        limit = NOTHING if each.concurrency is None else str(each.concurrency)
        table.add_row(
            full_text(each.id),
            Text(each.state.value, style=_COLORS[each.state]),
            short_text(each.host or NOTHING),
            NOTHING if each.pid is None else str(each.pid),
            f"{each.active}/{limit}",
            format_age(each.started_at, now),
        )
    return table


def _append(words: str, value: str) -> str:
    return "" if value == NOTHING else words + value
