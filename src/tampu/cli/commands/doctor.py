"""`tampu doctor`."""

import typer

from tampu.cli.shared import Running, Shared, command


def add_to(app: typer.Typer) -> None:
    """Register it."""
    command(app, "doctor")(doctor)


def doctor(shared: Shared) -> Running:
    """Look whether the server is fit for queues.

    Where it is not, each finding says what to do. Exit code 1 if anything fails.
    """
    from tampu.cli.acts import doctor as act

    return act.doctor(shared)
