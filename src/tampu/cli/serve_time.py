"""`tampu serve-time`: what queues need while no worker runs, such as delayed jobs and schedules."""

import asyncio
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.table import Table

from tampu._version import __version__
from tampu.admin.metrics import MetricsReader
from tampu.app import App
from tampu.app_worker import bind_app_alerts, home_queue, store_declared
from tampu.cli.command import Running, command
from tampu.cli.options import SharedOptions, new_app
from tampu.cli.output import discard_output
from tampu.cli.screen import JsonObject, Screen, details
from tampu.cli.signals import StopRequest
from tampu.cli.target import find_app, name_server
from tampu.cli.worker.arguments import (
    Format,
    HealthFile,
    HealthHost,
    HealthPort,
    Imports,
    Level,
    Quiet,
)
from tampu.cli.worker.health import Answers, HealthReport, check_file, show_health
from tampu.cli.worker.log import LogFormat, LogLevel, set_up_log
from tampu.cli.worker.options import HealthOptions
from tampu.consumer.options import WorkerSettings
from tampu.server.connect import Target, connect
from tampu.standalone import TimeServer
from tampu.tasks.handlers import parse_worker_options
from tampu.util.lifecycle import Runnable

logger = logging.getLogger("tampu.time")

app = new_app()

OptionalTarget = Annotated[
    str | None,
    typer.Argument(
        metavar="[MODULE:APP]",
        help="Serve the queues of this app, and store the schedules and limits it declares.",
        show_default=False,
    ),
]
Queues = Annotated[
    list[str] | None,
    typer.Option(
        "--queue",
        "-q",
        metavar="NAME",
        help="Serve this queue. Can be repeated. Default: those of the app, or all of the server.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True)
class ServedTime:
    """What the command serves: an app, or queues by their names."""

    server: TimeServer
    settings: WorkerSettings
    url: Target
    app: App | None = None
    relays: tuple[Runnable, ...] = ()  # of the outboxes of the app

    @classmethod
    def of_app(cls, found: App, queues: list[str] | None) -> "ServedTime":
        """Serve the queues of an app, or some of them."""
        settings = bind_app_alerts(found, parse_worker_options("App", found.worker))
        server = TimeServer(
            queues or found.queues,
            found.url,
            credentials=found.credentials,
            settings=settings,
            home=home_queue(found),
        )
        relays = tuple(each.relay() for each in found.outboxes)
        return cls(server, settings, found.url, found, relays)

    @classmethod
    def of_queues(cls, queues: list[str] | None, url: str | None) -> "ServedTime":
        """Serve queues by their names, or all of a server."""
        return cls(TimeServer(queues or None, url), WorkerSettings(), url)


@command(app, "serve-time", print_warnings=False)
def serve_time(
    shared: SharedOptions,
    target: OptionalTarget = None,
    *,
    queue: Queues = None,
    health_file: HealthFile = None,
    health_port: HealthPort = None,
    health_host: HealthHost = "127.0.0.1",
    imports: Imports = None,
    log_level: Level = LogLevel.info,
    log_format: Format = LogFormat.text,
    quiet: Quiet = False,
) -> Running:
    """Promote delayed jobs and fire schedules, without a worker.

    For queues whose workers scale to zero; workers do the same. Runs no job. Run two of them, and
    the other one takes over if one fails.
    """
    set_up_log(log_level, log_format, color=False)
    health = HealthOptions(health_file, health_port, health_host)
    check_file(health)
    if target is None:
        served = ServedTime.of_queues(queue, shared.url)
    else:
        # The app is imported before there is an event loop: its module may run its own.
        served = ServedTime.of_app(find_app(target, shared, imports or ()), queue)
    return _serve(shared, served, health, quiet=quiet)


async def _serve(
    shared: SharedOptions, served: ServedTime, health: HealthOptions, *, quiet: bool
) -> None:
    with StopRequest().listen() as stop:
        async with _metrics_of(served) as metrics:
            answers = Answers(lambda: _health(served.server, stop), metrics.page)
            async with show_health(health, answers):
                starting = asyncio.create_task(_start(served), name="tampu-start")
                stopping = asyncio.create_task(stop.requested.wait(), name="tampu-stopping")
                await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if starting.done():
                    facts = starting.result()
                    if not quiet:
                        _show_start(shared, facts)
                    await stopping
                logger.info("stopping (told to stop)")
                starting.cancel()
                await asyncio.wait({starting, stopping})
                for relay in served.relays:
                    await relay.stop()
                await served.server.stop()
                logger.info("stopped")


@asynccontextmanager
async def _metrics_of(served: ServedTime) -> AsyncIterator[MetricsReader]:
    """Reads the metrics of all queues that are served, also of those found later."""
    credentials = None if served.app is None else served.app.credentials
    reader = MetricsReader(
        served.url,
        served.server.queues,
        credentials=credentials,
        group=served.settings.group,
    )
    async with reader:
        yield reader


async def _start(served: ServedTime) -> JsonObject:
    """Store what the app declares, begin to serve; what runs."""
    credentials = None
    if served.app is not None:
        credentials = served.app.credentials
        async with served.app:
            await store_declared(served.app, served.server.queues)
    async with await connect(served.url, credentials=credentials) as server:
        facts: JsonObject = {
            "tampu": __version__,
            "server": server.name,
            "version": str(server.dialect),
            "queues": list(served.server.queues) or None,
            "alerts": len(served.settings.alerts),
        }
    await served.server.start()
    for relay in served.relays:
        await relay.start()
    return facts


def _health(server: TimeServer, stop: StopRequest) -> HealthReport:
    silent_s = server.silent_s
    return HealthReport(
        live=True,  # it is: this code runs
        started=silent_s is not None,
        stopping=stop.requested.is_set(),
        running=0,
        processes=1,
        server_seen_s_ago=silent_s,
    )


# --- what is printed ----------------------------------------------------------------------------


def _show_start(shared: SharedOptions, facts: JsonObject) -> None:
    """Print what is served. It is served even if that cannot be printed."""
    try:
        if shared.as_json:
            Screen(shared).show_line(facts, lambda each: each, str)
        else:
            Screen(shared).show(None, lambda: start_page(facts, shared.url))
        sys.stdout.flush()
    except OSError:
        discard_output()


def start_page(facts: JsonObject, url: str | None) -> Table:
    """What is served, for people."""
    queues = facts["queues"]
    return details(
        [
            ("Version", facts["tampu"]),
            ("Server", f"{facts['version']} at {name_server(str(facts['server']), url)}"),
            ("Queues", ", ".join(queues) if isinstance(queues, list) else "all of the server"),
            ("Alerts", facts["alerts"]),
        ]
    )
