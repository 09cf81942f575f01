"""`tampu events`: what happened to the jobs of a queue."""

import re
from typing import Annotated, Final

import typer

from tampu.cli.command import command
from tampu.cli.options import QueueName, SharedOptions, new_app
from tampu.cli.output import print_error
from tampu.cli.screen import NOTHING, JsonObject, Screen, iso_instant, shorten
from tampu.cli.target import QueueLane, connect_to
from tampu.errors import OptionError
from tampu.events import QueueEvents, job_event
from tampu.job import JobEvent
from tampu.server.inspection import entries_down_from
from tampu.server.streams import entries_from, server_time_ms
from tampu.util.clock import to_ms
from tampu.wire.event import EventKind

_DEFAULT_LIMIT: Final = 100
_LONGEST_VALUE: Final = 80
_LONGEST_LINE: Final = 2000
_EVENT_ID: Final = re.compile(r"[0-9]{1,20}(?:-[0-9]{1,20})?")

app = new_app()

Follow = Annotated[
    bool,
    typer.Option("--follow", "-f", help="Print new events as they happen.", show_default=False),
]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="ID|DURATION",
        help="Start after this event, that long ago (10m), or at the oldest (0).",
        show_default=False,
    ),
]
EventLimit = Annotated[
    int | None,
    typer.Option(
        "--limit",
        "-n",
        metavar="N",
        min=1,
        help="Print at most N. Default: 100, or no limit with -f.",
        show_default=False,
    ),
]


@command(app, "events")
async def show_events(
    shared: SharedOptions,
    queue: QueueName,
    *,
    follow: Follow = False,
    begin: From = None,
    limit: EventLimit = None,
) -> None:
    """Show what happened to the jobs of a queue.

    Prints the newest events, the events from a point on, or with -f new events as they happen.
    """
    screen = Screen(shared)
    async with connect_to(shared, queue) as connection:
        after = None
        if begin is not None:
            after = start_id(begin, now_ms=await server_time_ms(connection.lane))
        if not follow:
            events = await _read_events(connection, after, limit or _DEFAULT_LIMIT)
            _print_all(screen, queue, events)
            return
    await _follow(screen, QueueEvents(queue, shared.url, after=after), limit)


def start_id(text: str, *, now_ms: int) -> str:
    """The event id to start after: the id that was typed, or one from that long ago."""
    if _EVENT_ID.fullmatch(text):
        return text
    try:
        ago_ms = to_ms("from", text)
    except OptionError:
        problem = "expected the id of an event, a duration such as 10m, or 0"
        raise OptionError("from", text, problem) from None
    return str(max(0, now_ms - ago_ms))


async def _read_events(connection: QueueLane, after: str | None, limit: int) -> list[JobEvent]:
    lane, key = connection.lane, connection.keys.events
    if after is None:
        entries = await entries_down_from(lane, key, count=limit)
        entries.reverse()
    else:
        entries = await entries_from(lane, key, start=b"(" + after.encode(), count=limit)
    return [job_event(entry_id, flat) for entry_id, flat in entries]


def _print_all(screen: Screen, queue: str, events: list[JobEvent]) -> None:
    if screen.as_json:
        screen.show_json({"queue": queue, "events": [event_json(each) for each in events]})
        return
    if not events:
        print_error("There are no events.")
    for event in events:
        screen.show_line(event, event_json, event_line)


async def _follow(screen: Screen, source: QueueEvents, limit: int | None) -> None:
    left = limit
    async with source:
        async for event in source:
            screen.show_line(event, event_json, event_line)
            left = None if left is None else left - 1
            if left == 0:
                return


# --- what is printed ----------------------------------------------------------------------------


def event_json(event: JobEvent) -> JsonObject:
    """One event."""
    return {
        "id": event.id,
        "at": event.at,
        "kind": event.kind,
        "job_id": event.job_id or None,
        "name": event.name,
        "fields": event.fields,
    }


def event_line(event: JobEvent) -> str:
    """One event in one line: when, its id, what happened, which job, and its other fields."""
    kind = event.kind.value if isinstance(event.kind, EventKind) else event.kind
    fields = " ".join(
        f"{field}={shorten(str(value), _LONGEST_VALUE)}"
        for field, value in sorted(event.fields.items())
    )
    head = f"{iso_instant(event.at)} {event.id} {kind} id={event.job_id or NOTHING}"
    return shorten(f"{head} name={event.name or NOTHING} {fields}", _LONGEST_LINE)
