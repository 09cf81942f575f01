"""`tampu schedule`: the schedules of a queue."""

from typing import Annotated

import typer

from tampu.cli.shared import QueueName, Running, Shared, Yes, command, group

Key = Annotated[str, typer.Argument(metavar="KEY", help="The schedule's key.", show_default=False)]
Listed = Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, help="So many at most.")]
Many = Annotated[int, typer.Option("--count", "-n", metavar="N", min=1, help="So many instants.")]
Start = Annotated[
    str,
    typer.Option(
        "--start", metavar="INSTANT", help="The first, as 2026-01-31T09:00Z.", show_default=False
    ),
]
End = Annotated[
    str, typer.Option("--end", metavar="INSTANT", help="Up to here, left out.", show_default=False)
]
Most = Annotated[
    int, typer.Option("--max", metavar="N", min=1, help="If there are more, add none.")
]


def add_to(app: typer.Typer) -> None:
    """Register them."""
    schedules = group("schedule", "Schedules: rules by which workers add jobs.")
    command(schedules, "ls")(ls)
    command(schedules, "preview")(preview)
    command(schedules, "pause")(pause)
    command(schedules, "resume")(resume)
    command(schedules, "trigger")(trigger)
    command(schedules, "backfill")(backfill)
    command(schedules, "rm")(rm)
    app.add_typer(schedules)


def ls(shared: Shared, queue: QueueName, limit: Listed = 100) -> Running:
    """List the schedules of a queue by their next instants."""
    from tampu.cli.acts import schedule as act

    return act.ls(shared, queue, limit=limit)


def preview(shared: Shared, queue: QueueName, key: Key, count: Many = 5) -> Running:
    """Show the next instants of a schedule."""
    from tampu.cli.acts import schedule as act

    return act.preview(shared, queue, key, count=count)


def pause(shared: Shared, queue: QueueName, key: Key) -> Running:
    """Have a schedule not fire until it is resumed."""
    from tampu.cli.acts import schedule as act

    return act.pause(shared, queue, key)


def resume(shared: Shared, queue: QueueName, key: Key) -> Running:
    """Have a paused schedule fire again; what passed is only counted."""
    from tampu.cli.acts import schedule as act

    return act.resume(shared, queue, key)


def trigger(shared: Shared, queue: QueueName, key: Key) -> Running:
    """Add one job of a schedule now, out of turn."""
    from tampu.cli.acts import schedule as act

    return act.trigger(shared, queue, key)


def backfill(
    shared: Shared, queue: QueueName, key: Key, start: Start, end: End, most: Most = 1000
) -> Running:
    """Add a job for each instant of a schedule in a span of time."""
    from tampu.cli.acts import schedule as act

    return act.backfill(shared, queue, key, act.Span(start, end, most))


def rm(
    shared: Shared,
    queue: QueueName,
    key: Key,
    yes: Yes = False,  # noqa: FBT002 - typer's way
) -> Running:
    """Remove a schedule; what it has fired stays."""
    from tampu.cli.acts import schedule as act

    return act.rm(shared, queue, key, yes=yes)
