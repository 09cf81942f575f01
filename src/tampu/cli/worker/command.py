"""The command `tampu worker`: what is typed, what it prints, and its log."""

import logging
import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Annotated, Final

import typer
from rich.table import Table

from tampu.cli.command import Running, command
from tampu.cli.options import SharedOptions, new_app
from tampu.cli.output import ExitCode, discard_output, usage_error
from tampu.cli.screen import NOTHING, JsonObject, Screen, details
from tampu.cli.target import find_app, name_server, show_traceback
from tampu.cli.worker.arguments import (
    Format,
    HealthFile,
    HealthHost,
    HealthPort,
    Imports,
    Level,
    Quiet,
)
from tampu.cli.worker.drain import drain_worker
from tampu.cli.worker.health import check_file
from tampu.cli.worker.log import LogFormat, LogLevel, set_up_log
from tampu.cli.worker.messages import ProcessStarted, SupervisorPipe
from tampu.cli.worker.options import (
    HealthOptions,
    ProcessOptions,
    RecyclingOptions,
    WorkerCommandOptions,
)
from tampu.cli.worker.process import WorkerProcess
from tampu.cli.worker.supervisor import Supervisor
from tampu.errors import TampuError

logger = logging.getLogger("tampu.worker")

_WAIT_FOR_THREADS_S: Final = 0.5

app = new_app()


Target = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:APP",
        help="The app, such as shop:app. MODULE is enough if it contains one app.",
        show_default=False,
    ),
]
DrainName = Annotated[
    str | None,
    typer.Argument(
        metavar="[NAME]",
        help="With `drain` instead of MODULE:APP: the name or id of a running worker.",
        show_default=False,
    ),
]
Queues = Annotated[
    list[str] | None,
    typer.Option(
        "--queue",
        "-q",
        metavar="NAME[=CONCURRENCY]",
        help="Serve this queue, with so many jobs at a time. Can be repeated. Default: all queues.",
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
        help="Run in N processes under a supervisor.",
        show_default=False,
    ),
]
Reload = Annotated[
    bool, typer.Option("--reload", help="Restart when a .py file changes.", show_default=False)
]
ReloadDir = Annotated[
    str | None,
    typer.Option(
        "--reload-dir",
        metavar="DIRECTORY",
        help="With --reload: watch this directory. Default: where the app's module is.",
        show_default=False,
    ),
]
Burst = Annotated[
    bool, typer.Option("--burst", help="Stop when there is nothing to do.", show_default=False)
]
MaxJobs = Annotated[
    int | None,
    typer.Option(
        "--max-jobs",
        metavar="N",
        min=1,
        help="Recycle a process after about N attempts.",
        show_default=False,
    ),
]
MaxRss = Annotated[
    str | None,
    typer.Option(
        "--max-rss",
        metavar="SIZE",
        help="Recycle a process that uses more memory than this, such as 512MB.",
        show_default=False,
    ),
]
Grace = Annotated[
    str | None,
    typer.Option(
        "--grace",
        metavar="DURATION",
        help="Time for running jobs to finish. Default: the app's, 25s.",
        show_default=False,
    ),
]
StoreResults = Annotated[
    bool | None,
    typer.Option(
        "--store-results/--no-store-results",
        help="Keep results of tasks, or do not. Default: as the app says.",
        show_default=False,
    ),
]


@command(app, "worker", print_warnings=False)
def worker(
    shared: SharedOptions,
    target: Target,
    name: DrainName = None,
    *,
    queue: Queues = None,
    processes: Processes = None,
    reload: Reload = False,
    reload_dir: ReloadDir = None,
    burst: Burst = False,
    max_jobs: MaxJobs = None,
    max_rss: MaxRss = None,
    grace: Grace = None,
    health_file: HealthFile = None,
    health_port: HealthPort = None,
    health_host: HealthHost = "127.0.0.1",
    store_results: StoreResults = None,
    imports: Imports = None,
    log_level: Level = LogLevel.info,
    log_format: Format = LogFormat.text,
    quiet: Quiet = False,
) -> Running:
    """Run the tasks of an app until Ctrl-C or SIGTERM.

    Running jobs then get time to finish. A second signal returns them to their queues at once.
    `tampu worker drain NAME` asks a running worker to stop, wherever it runs.
    """
    if target == "drain":
        if name is None:
            raise usage_error("Name the worker to drain. `tampu inspect QUEUE` lists them.")
        return drain_worker(shared, name)
    if name is not None:
        raise usage_error(f"Got an unexpected extra argument ({name}).")
    set_up_log(log_level, log_format, color=reload and shared.color)
    options = WorkerCommandOptions(
        target=target,
        queue=queue or (),
        processes=ProcessOptions(processes=processes, reload=reload, reload_dir=reload_dir),
        recycling=RecyclingOptions(jobs=max_jobs, rss=max_rss),
        health=HealthOptions(health_file, health_port, health_host),
        burst=burst,
        grace=grace,
        store_results=store_results,
        imports=imports or (),
        quiet=quiet,
    )
    return _run(shared, options)


def _run(shared: SharedOptions, options: WorkerCommandOptions) -> Running:
    """Run the tasks in this process, or supervise others that do."""
    check_file(options.health)
    supervisor = SupervisorPipe.from_environment()
    show: Callable[[ProcessStarted], None] = partial(_show_start, shared, options)
    if supervisor is None and options.processes.is_supervised:
        return _supervise(options, show)
    if supervisor is not None:
        show = _show_nothing
    # The app is imported before there is an event loop: its module may run its own.
    found = find_app(options.target, shared, imports=options.imports)
    return _work(WorkerProcess(found, options, supervisor, show))


async def _supervise(options: WorkerCommandOptions, show: Callable[[ProcessStarted], None]) -> None:
    await Supervisor(options, show).run()


async def _work(process: WorkerProcess) -> None:
    try:
        await process.run()
    except TampuError:
        raise
    except Exception as error:  # noqa: BLE001 - border: the app's lifespan and dependencies
        raise show_traceback(error, "Cannot run the app", code=ExitCode.FAILED) from None
    _abandon_threads()


def _abandon_threads() -> None:
    """End the process although plain functions still run in threads: their jobs were returned.

    Python would wait for them, however long they take.
    """
    limit = monotonic() + _WAIT_FOR_THREADS_S
    threads = [each for each in threading.enumerate() if each.name.startswith("tampu-handler")]
    for each in threads:
        each.join(max(0.0, limit - monotonic()))
    left = sum(each.is_alive() for each in threads)
    if left:
        text = "exiting while functions still run in %d threads; their jobs were returned"
        logger.warning(text, left, extra={"threads": left})
        logging.shutdown()
        sys.stdout.flush()
        os._exit(0)


# --- what is printed ----------------------------------------------------------------------------


def _show_start(
    shared: SharedOptions, options: WorkerCommandOptions, started: ProcessStarted
) -> None:
    """Print what runs. The worker runs even if that cannot be printed."""
    if options.quiet:
        return
    count = options.processes.count
    try:
        if shared.as_json:
            Screen(shared).show_line(start_json(started, count), lambda each: each, str)
        else:
            Screen(shared).show(None, lambda: start_page(started, count, shared.url))
        sys.stdout.flush()
    except OSError:
        discard_output()


def _show_nothing(started: ProcessStarted) -> None:
    del started  # the supervisor shows it, once for all processes


def start_page(started: ProcessStarted, processes: int, url: str | None) -> Table:
    """What runs, for people."""
    return details(
        [
            ("Version", started.version),
            ("Server", f"{started.dialect} at {name_server(started.server, url)}"),
            ("Features", ", ".join(started.can) or NOTHING),
            ("Tasks", ", ".join(started.tasks)),
            ("Queues", ", ".join(f"{name}={slots}" for name, slots in started.queues.items())),
            ("Processes", processes),
        ]
    )


def start_json(started: ProcessStarted, processes: int) -> JsonObject:
    """What runs, for programs."""
    return {
        "tampu": started.version,
        "server": started.server,
        "version": started.dialect,
        "can": started.can,
        "tasks": started.tasks,
        "queues": started.queues,
        "processes": processes,
        "grace_s": started.grace_s,
    }
