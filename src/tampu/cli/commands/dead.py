"""`tampu dead`: dead letters."""

from typing import Annotated

import typer

from tampu.cli.shared import QueueName, Running, Shared, Yes, command
from tampu.cli.shared import group as group_of

DeadId = Annotated[
    str, typer.Argument(metavar="ID", help="The dead letter's own id.", show_default=False)
]
Ids = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID", help="These dead letters only.", show_default=False),
]
Listed = Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, help="So many at most.")]
After = Annotated[
    str | None,
    typer.Option("--after", metavar="ID", help="Those behind this one.", show_default=False),
]
Name = Annotated[
    str | None,
    typer.Option("--name", metavar="NAME", help="Jobs of this name only.", show_default=False),
]
Reason = Annotated[
    str | None,
    typer.Option("--reason", metavar="REASON", help="Buried for this only.", show_default=False),
]
OlderThan = Annotated[
    str | None,
    typer.Option(
        "--older-than", metavar="DURATION", help="Buried that long ago.", show_default=False
    ),
]
Everything = Annotated[bool, typer.Option("--all", help="All there are.", show_default=False)]


def add_to(app: typer.Typer) -> None:
    """Register them."""
    dead = group_of("dead", "Dead letters: jobs that were given up.")
    command(dead, "ls")(ls)
    command(dead, "show")(show)
    command(dead, "replay")(replay)
    command(dead, "purge")(purge)
    app.add_typer(dead)


def ls(shared: Shared, queue: QueueName, limit: Listed = 20, after: After = None) -> Running:
    """List the dead letters of a queue, oldest first."""
    from tampu.cli.acts import dead as act

    return act.ls(shared, queue, limit=limit, after=after)


def show(shared: Shared, queue: QueueName, dead_id: DeadId) -> Running:
    """Show one dead letter with its data and traceback."""
    from tampu.cli.acts import dead as act

    return act.show(shared, queue, dead_id)


def replay(
    shared: Shared,
    queue: QueueName,
    ids: Ids = None,
    limit: Listed = 100,
    name: Name = None,
    reason: Reason = None,
    yes: Yes = False,  # noqa: FBT002 - typer's way
) -> Running:
    """Put dead letters back on the queue, oldest first."""
    from tampu.cli.acts import dead as act

    return act.replay(shared, queue, act.Chosen(ids or None, name, reason), limit=limit, yes=yes)


def purge(
    shared: Shared,
    queue: QueueName,
    ids: Ids = None,
    older_than: OlderThan = None,
    name: Name = None,
    reason: Reason = None,
    everything: Everything = False,  # noqa: FBT002 - typer's way
    yes: Yes = False,  # noqa: FBT002
) -> Running:
    """Delete dead letters for good.

    Those that all filters given take, or --all.
    """
    from tampu.cli.acts import dead as act

    chosen = act.Chosen(ids or None, name, reason, older_than, everything)
    return act.purge(shared, queue, chosen, yes=yes)
