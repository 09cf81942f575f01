"""`tampu inspect`, `tampu watch` and `tampu version`."""

from typing import Annotated

import typer

from tampu.cli.shared import Group, Running, Shared, command

OneOrAll = Annotated[
    str | None,
    typer.Argument(metavar="QUEUE", help="One queue; else all of them.", show_default=False),
]
SomeOrAll = Annotated[
    list[str] | None,
    typer.Argument(metavar="QUEUE", help="Some queues; else all of them.", show_default=False),
]
Every = Annotated[str, typer.Option("--every", metavar="DURATION", help="From look to look.")]
Count = Annotated[
    int | None,
    typer.Option("--count", metavar="N", min=1, help="Leave after so many.", show_default=False),
]


def add_to(app: typer.Typer) -> None:
    """Register them."""
    command(app, "inspect")(inspect)
    command(app, "watch")(watch)
    command(app, "version")(version)


def inspect(shared: Shared, queue: OneOrAll = None, group: Group = "default") -> Running:
    """Show what queues hold, since when, and who works on them."""
    from tampu.cli.acts import inspect as act

    return act.inspect(shared, queue, group=group)


def watch(
    shared: Shared,
    queues: SomeOrAll = None,
    every: Every = "1s",
    count: Count = None,
    group: Group = "default",
) -> Running:
    """Show queues as they change, until q or Ctrl-C.

    Where standard output is no terminal: one line a queue and look.
    """
    from tampu.cli.acts import watch as act

    return act.watch(shared, queues or [], act.Pace(every, count), group=group)


def version(shared: Shared) -> Running:
    """Show the versions of tampu and of what it runs on."""
    from tampu.cli.acts import version as act

    return act.version(shared)
