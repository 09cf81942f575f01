"""`tampu worker`."""

from enum import Enum
from typing import Annotated

import typer

from tampu.cli.shared import Running, Shared, command


class Level(Enum):
    """From which gravity on records are logged."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


Target = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:APP",
        help="The app, such as shop:app; MODULE alone if it has one.",
        show_default=False,
    ),
]
Queues = Annotated[
    list[str] | None,
    typer.Option(
        "--queue",
        "-q",
        metavar="NAME[=CONCURRENCY]",
        help="A queue to serve, and how many runs at a time; may be given again. Else all.",
        show_default=False,
    ),
]
Processes = Annotated[
    int | None,
    typer.Option(
        "--processes",
        "-p",
        metavar="N",
        min=1,
        max=1024,
        help="Work in so many processes, looked after by this one.",
        show_default=False,
    ),
]
Reload = Annotated[
    bool, typer.Option("--reload", help="Start anew when a .py file changes.", show_default=False)
]
Burst = Annotated[
    bool, typer.Option("--burst", help="End when there is nothing to do.", show_default=False)
]
MaxJobs = Annotated[
    int | None,
    typer.Option(
        "--max-jobs",
        metavar="N",
        min=1,
        help="A process ends after about so many runs.",
        show_default=False,
    ),
]
MaxRss = Annotated[
    str | None,
    typer.Option(
        "--max-rss",
        metavar="SIZE",
        help="A process ends when it has more memory than 512MB, say.",
        show_default=False,
    ),
]
Grace = Annotated[
    str | None,
    typer.Option(
        "--grace",
        metavar="DURATION",
        help="What running jobs get at the end; else as the app has it, 25s.",
        show_default=False,
    ),
]
HealthFile = Annotated[
    str | None,
    typer.Option(
        "--health-file",
        metavar="PATH",
        help="A file to touch every second while all is well.",
        show_default=False,
    ),
]
HealthPort = Annotated[
    int | None,
    typer.Option(
        "--health-port",
        metavar="N",
        min=1,
        max=65_535,
        help="A port that answers /live and /ready.",
        show_default=False,
    ),
]
HealthHost = Annotated[
    str, typer.Option("--health-host", metavar="HOST", help="Where that port is.")
]
LogLevel = Annotated[Level, typer.Option("--log-level", help="Log from this gravity on.")]
Quiet = Annotated[
    bool, typer.Option("--quiet", help="Print nothing at the start.", show_default=False)
]


def add_to(app: typer.Typer) -> None:
    """Register it."""
    command(app, "worker", notes=False)(worker)


def worker(
    shared: Shared,
    target: Target,
    queue: Queues = None,
    processes: Processes = None,
    reload: Reload = False,  # noqa: FBT002 - typer's way
    burst: Burst = False,  # noqa: FBT002
    max_jobs: MaxJobs = None,
    max_rss: MaxRss = None,
    grace: Grace = None,
    health_file: HealthFile = None,
    health_port: HealthPort = None,
    health_host: HealthHost = "127.0.0.1",
    log_level: LogLevel = Level.info,
    quiet: Quiet = False,  # noqa: FBT002
) -> Running:
    """Run the tasks of an app, until Ctrl-C or SIGTERM.

    Running jobs then get the grace; a second signal hands them back at once.
    """
    from tampu.cli.acts import worker as act

    orders = act.Orders(
        target=target,
        queue=queue or [],
        crew=act.Crew(processes=processes, reload=reload),
        recycling=act.Recycling(jobs=max_jobs, rss=max_rss),
        probes=act.Probes(health_file, health_port, health_host),
        burst=burst,
        grace=grace,
        log_level=log_level.value,
        quiet=quiet,
    )
    return act.worker(shared, orders)
