"""The tree of commands. A new command is a module in `commands/` with `add_to`, named here."""

import typer

from tampu.cli.commands import (
    bench,
    dead,
    demo,
    doctor,
    enqueue,
    events,
    job,
    look,
    queue,
    schedule,
    server,
    worker,
)
from tampu.cli.shared import root

_MODULES = (worker, enqueue, look, events, queue, job, dead, schedule, server, doctor, bench, demo)


def tree() -> typer.Typer:
    """All commands, none of what they need."""
    app = root("Run workers, add jobs, look at queues and tend them.")
    for module in _MODULES:
        module.add_to(app)
    return app
