"""`tampu queue`: whole queues."""

from enum import Enum
from typing import Annotated

import typer

from tampu.cli.shared import Group, QueueName, Running, Shared, Yes, command
from tampu.cli.shared import group as group_of


class State(Enum):
    """Where jobs can be removed from; `Purgeable` to the library, which is not imported yet."""

    waiting = "waiting"
    delayed = "delayed"
    dead = "dead"


Timeout = Annotated[
    str | None,
    typer.Option("--timeout", metavar="DURATION", help="Wait no longer.", show_default=False),
]
Delayed = Annotated[
    bool, typer.Option("--delayed", help="Wait for delayed jobs as well.", show_default=False)
]
States = Annotated[
    list[State] | None,
    typer.Option("--state", help="These only; may be given again.", show_default=False),
]
Everything = Annotated[
    bool,
    typer.Option(
        "--all", help="All the queue has: schedules, results and events too.", show_default=False
    ),
]


def add_to(app: typer.Typer) -> None:
    """Register them."""
    queues = group_of("queue", "Whole queues.")
    command(queues, "ls")(ls)
    command(queues, "drain")(drain)
    command(queues, "purge")(purge)
    app.add_typer(queues)


def ls(shared: Shared, group: Group = "default") -> Running:
    """List the queues of the server."""
    from tampu.cli.acts import queue as act

    return act.ls(shared, group=group)


def drain(
    shared: Shared,
    queue: QueueName,
    timeout: Timeout = None,
    delayed: Delayed = False,  # noqa: FBT002 - typer's way
    group: Group = "default",
) -> Running:
    """Wait until no job of a queue waits or runs.

    Workers must be there to run them. Exit code 1 when the time is up.
    """
    from tampu.cli.acts import queue as act

    return act.drain(shared, queue, act.Patience(timeout, delayed), group=group)


def purge(
    shared: Shared,
    queue: QueueName,
    state: States = None,
    everything: Everything = False,  # noqa: FBT002 - typer's way
    yes: Yes = False,  # noqa: FBT002
) -> Running:
    """Remove jobs that wait, are delayed or are dead.

    Those that run are left alone.
    """
    from tampu.cli.acts import queue as act

    return act.purge(
        shared, queue, [each.value for each in state or ()], everything=everything, yes=yes
    )
