"""`tampu events`."""

from typing import Annotated

import typer

from tampu.cli.shared import QueueName, Running, Shared, command

Follow = Annotated[
    bool, typer.Option("--follow", "-f", help="Go on with what happens from now on.")
]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="ID|DURATION",
        help="Begin behind this event, so long ago (10m), or with the oldest (0).",
        show_default=False,
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(
        "--limit",
        "-n",
        metavar="N",
        min=1,
        help="So many at most; 100 without -f.",
        show_default=False,
    ),
]


def add_to(app: typer.Typer) -> None:
    """Register it."""
    command(app, "events")(events)


def events(
    shared: Shared,
    queue: QueueName,
    follow: Follow = False,  # noqa: FBT002 - typer's way
    begin: From = None,
    limit: Limit = None,
) -> Running:
    """Show what happened to jobs.

    The newest events, or those from a point on, or with -f what happens from now on.
    """
    from tampu.cli.acts import events as act

    return act.events(shared, queue, act.Wanted(follow, begin, limit))
