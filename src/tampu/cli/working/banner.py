"""What `tampu worker` says when it works."""

from rich.table import Table

from tampu.cli.show.grid import facts
from tampu.cli.show.shapes import Shape
from tampu.cli.show.text import NOTHING, counted
from tampu.cli.working.words import Started


def banner(started: Started, processes: int | None) -> Table:
    """For people; None: there is one process, and nobody above it."""
    return facts(
        [
            ("tampu", started.version),
            ("server", f"{started.dialect} at {started.server}"),
            ("it also has", ", ".join(started.can) or NOTHING),
            ("tasks", ", ".join(started.tasks)),
            ("queues", ", ".join(f"{name}={slots}" for name, slots in started.queues.items())),
            ("runs in", "this process" if processes is None else _counted(processes)),
        ]
    )


def start_shape(started: Started, processes: int | None) -> Shape:
    """For programs."""
    return {
        "tampu": started.version,
        "server": started.server,
        "version": started.dialect,
        "can": started.can,
        "tasks": started.tasks,
        "queues": started.queues,
        "processes": processes or 1,
        "grace_s": started.grace_s,
    }


def _counted(processes: int) -> str:
    return counted(processes, "process").replace("processs", "processes")
