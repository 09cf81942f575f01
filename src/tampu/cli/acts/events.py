"""What `tampu events` does."""

from dataclasses import dataclass

from tampu.cli.acts.desk import Desk, desk_for
from tampu.cli.given import event_before
from tampu.cli.screen import Screen
from tampu.cli.shared import Shared
from tampu.cli.show.shapes import event_shape
from tampu.cli.show.text import NOTHING, shortened, stamp
from tampu.events import JobEvent, QueueEvents, job_event
from tampu.server.inspection import newest_entries
from tampu.server.streams import entries_between, server_time_ms
from tampu.wire.event import EventKind

_DEFAULT_LIMIT = 100
_LONGEST_VALUE = 80
_LONGEST_LINE = 2000


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which events: whether from now on, from where, and how many."""

    follow: bool
    begin: str | None
    limit: int | None


async def events(shared: Shared, queue: str, wanted: Wanted) -> None:
    """Print events that there are, or those that come."""
    screen = Screen(shared)
    async with desk_for(shared, queue) as desk:
        after = None
        if wanted.begin is not None:
            now_ms = await server_time_ms(desk.lane)
            after = event_before(wanted.begin, now_ms=now_ms)
        if not wanted.follow:
            found = await _there(desk, after, wanted.limit or _DEFAULT_LIMIT)
            _print_all(screen, queue, found)
            return
    await _follow(screen, QueueEvents(queue, shared.url, after=after), wanted.limit)


async def _there(desk: Desk, after: str | None, limit: int) -> list[JobEvent]:
    key = desk.keys.events
    if after is None:
        entries = await newest_entries(desk.lane, key, count=limit)
        entries.reverse()
    else:
        entries = await entries_between(desk.lane, key, start=b"(" + after.encode(), count=limit)
    return [job_event(entry_id, flat) for entry_id, flat in entries]


def _print_all(screen: Screen, queue: str, found: list[JobEvent]) -> None:
    if screen.as_json:
        screen.tell_programs({"queue": queue, "events": [event_shape(each) for each in found]})
        return
    for event in found:
        screen.line(event, event_shape, event_line)


async def _follow(screen: Screen, source: QueueEvents, limit: int | None) -> None:
    left = limit
    async with source:
        async for event in source:
            screen.line(event, event_shape, event_line)
            left = None if left is None else left - 1
            if left == 0:
                return


def event_line(event: JobEvent) -> str:
    """One event in one line: when, what, which job, and the rest by name."""
    kind = event.kind.value if isinstance(event.kind, EventKind) else event.kind
    rest = " ".join(
        f"{field}={shortened(str(value), _LONGEST_VALUE)}"
        for field, value in sorted(event.fields.items())
    )
    told = f"{stamp(event.at)} {event.id} {kind} id={event.job_id or NOTHING}"
    return shortened(f"{told} name={event.name or NOTHING} {rest}", _LONGEST_LINE)
