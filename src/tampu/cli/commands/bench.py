"""`tampu bench`."""

from typing import Annotated

import typer

from tampu.cli.shared import Running, Shared, command

Seconds = Annotated[
    int, typer.Option("--seconds", metavar="N", min=1, max=60, help="How long, in all.")
]


def add_to(app: typer.Typer) -> None:
    """Register it."""
    command(app, "bench")(bench)


def bench(shared: Shared, seconds: Seconds = 20) -> Running:
    """Measure how fast jobs go on this machine and server.

    On a queue of its own, which is removed afterwards.
    """
    from tampu.cli.acts import bench as act

    return act.bench(shared, seconds=seconds)
