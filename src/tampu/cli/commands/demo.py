"""`tampu demo`."""

from typing import Annotated

import typer

from tampu.cli.shared import Running, Shared, command

Orders = Annotated[
    int, typer.Option("--orders", metavar="N", min=1, max=1000, help="How many are placed.")
]


def add_to(app: typer.Typer) -> None:
    """Register it."""
    command(app, "demo")(demo)


def demo(shared: Shared, orders: Orders = 24) -> Running:
    """Run a small shop for some ten seconds, to see it all at work.

    On queues of its own, named tampu-demo-...; what a demo before it left there is removed.
    """
    from tampu.cli.acts import demo as act

    return act.demo(shared, orders=orders)
