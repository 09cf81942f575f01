"""The health of a worker, shown by a file, an HTTP port, or both. The port has the metrics too."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.json import encode

from tampu.admin.metrics import MetricsPage
from tampu.cli.worker.options import HealthOptions
from tampu.errors import OptionError
from tampu.metrics.prometheus import CONTENT_TYPE

EVERY_S: Final = 1.0
TOO_SILENT_S: Final = 10.0
_REQUEST_S: Final = 5.0
_JSON: Final = "application/json"
_PATHS: Final = ("/live", "/ready", "/metrics")


class HealthReport(Struct, frozen=True, kw_only=True):
    """The health of a worker: all of its processes together."""

    live: bool  # every process that has started gave a heartbeat in time
    started: bool  # all processes have started
    stopping: bool
    running: int  # jobs
    processes: int
    server_seen_s_ago: float | None  # by the process that has not heard from it for longest

    @property
    def is_well(self) -> bool:
        """Whether it runs, or stops in good order, and reaches the server."""
        seen = self.server_seen_s_ago
        return self.live and self.started and seen is not None and seen < TOO_SILENT_S

    @property
    def is_ready(self) -> bool:
        """Whether it takes jobs."""
        return self.is_well and not self.stopping


class Answers(NamedTuple):
    """What is told to those who ask."""

    health: Callable[[], HealthReport]
    metrics: Callable[[], Awaitable[MetricsPage]]


@asynccontextmanager
async def show_health(options: HealthOptions, answers: Answers) -> AsyncIterator[None]:
    """Show the health inside the block, where the options say."""
    server = await _listen(options, answers)
    touching = asyncio.create_task(_keep_touching(options, answers.health), name="tampu-health")
    try:
        yield
    finally:
        touching.cancel()
        await asyncio.wait([touching])
        if options.file is not None:
            with suppress(OSError):
                os.unlink(options.file)
        if server is not None:
            server.close()


# --- the port -----------------------------------------------------------------------------------


async def _listen(options: HealthOptions, answers: Answers) -> asyncio.Server | None:
    if options.port is None:
        return None

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, ValueError, TimeoutError, asyncio.IncompleteReadError):
            async with asyncio.timeout(_REQUEST_S):
                await _serve(reader, writer, answers)
        writer.close()

    try:
        return await asyncio.start_server(serve, options.host, options.port)
    except OSError as error:
        # The loop's text repeats host and port. A number below 0 is the resolver's own.
        number = error.errno or 0
        problem = os.strerror(number) if number > 0 else error.strerror or error
        why = f"cannot listen on {options.host} ({problem})"
        raise OptionError("health_port", options.port, why) from None


async def _serve(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answers: Answers
) -> None:
    """Answer one request. Reads all of its headers, or else the answer may be cut off."""
    request = (await reader.readline()).decode("latin-1").strip()
    while (await reader.readline()).strip():
        pass
    if path_of(request) == "/metrics" and request.startswith(("GET ", "HEAD ")):
        kind, (status, body) = CONTENT_TYPE, answer_metrics(await answers.metrics())
    else:
        kind, (status, body) = _JSON, answer(request, answers.health())
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode() + (b"" if request.startswith("HEAD ") else body))
    await writer.drain()


def answer(request: str, health: HealthReport) -> tuple[HTTPStatus, bytes]:
    """The answer to the first line of a request."""
    path = path_of(request)
    if path not in _PATHS:
        return HTTPStatus.NOT_FOUND, encode({"paths": _PATHS})
    if not request.startswith(("GET ", "HEAD ")):
        return HTTPStatus.METHOD_NOT_ALLOWED, b'{"methods":["GET","HEAD"]}'
    good = health.is_ready if path == "/ready" else health.live
    return HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE, _body(health)


def path_of(request: str) -> str:
    """The path in the first line of a request."""
    return request.partition(" ")[2].partition(" ")[0].partition("?")[0]


def answer_metrics(page: MetricsPage) -> tuple[HTTPStatus, bytes]:
    """The metrics, or why there are none. Prometheus then sees that its target is down."""
    if page.problem:
        return HTTPStatus.SERVICE_UNAVAILABLE, f"# {page.problem}\n".encode()
    return HTTPStatus.OK, page.text.encode()


def _body(health: HealthReport) -> bytes:
    seen = health.server_seen_s_ago
    return encode(
        {
            "live": health.live,
            "ready": health.is_ready,
            "stopping": health.stopping,
            "running": health.running,
            "processes": health.processes,
            "server_seen_s_ago": None if seen is None else round(seen, 3),
        }
    )


# --- the file -----------------------------------------------------------------------------------


def check_file(options: HealthOptions) -> None:
    """Refuse a file that could never be written."""
    folder = os.path.dirname(options.file or "") or "."
    if not os.access(folder, os.W_OK | os.X_OK) or os.path.isdir(options.file or ""):
        problem = "expected a file in a directory that can be written to"
        raise OptionError("health_file", options.file, problem)


async def _keep_touching(options: HealthOptions, read: Callable[[], HealthReport]) -> None:
    while options.file is not None:
        if read().is_well:
            _touch(options.file)
        await asyncio.sleep(EVERY_S)


def _touch(path: str) -> None:
    with suppress(OSError):  # a full disk is no reason to stop
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
        os.utime(path)
