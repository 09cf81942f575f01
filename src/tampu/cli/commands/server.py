"""`tampu server`."""

from typing import Annotated

import typer

from tampu.cli.shared import Running, Shared, command

Directory = Annotated[
    str | None,
    typer.Argument(
        metavar="DIRECTORY", help="Where its data is; else as --url says.", show_default=False
    ),
]


def add_to(app: typer.Typer) -> None:
    """Register it."""
    command(app, "server")(server)


def server(shared: Shared, directory: Directory = None) -> Running:
    """Keep the embedded server up, and say where it is, until Ctrl-C."""
    from tampu.cli.acts import server as act

    return act.server(shared, directory)
