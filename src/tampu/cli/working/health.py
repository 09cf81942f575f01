"""Whether a worker is well, for those who look from outside: a file, an HTTP port, or both."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Final

from msgspec import Struct
from msgspec.json import encode

from tampu.cli.working.orders import Probes
from tampu.errors import OptionError

EVERY_S: Final = 1.0
TOO_SILENT_S: Final = 10.0
_REQUEST_S: Final = 5.0


class Health(Struct, frozen=True, kw_only=True):
    """How a worker is, all of its processes together."""

    live: bool  # every process that has started still turns its loop
    started: bool  # all of them have
    stopping: bool
    running: int  # jobs
    processes: int
    server_seen_s_ago: float | None  # by the one that has not reached it for longest

    @property
    def is_well(self) -> bool:
        """Whether it works, or ends in good order, and reaches the server."""
        seen = self.server_seen_s_ago
        return self.live and self.started and seen is not None and seen < TOO_SILENT_S

    @property
    def is_ready(self) -> bool:
        """Whether it takes jobs."""
        return self.is_well and not self.stopping


@asynccontextmanager
async def shown(probes: Probes, look: Callable[[], Health]) -> AsyncIterator[None]:
    """Show it where it was asked for, inside the block."""
    server = await _listening(probes, look)
    touching = asyncio.create_task(_keep_touching(probes, look), name="tampu-health")
    try:
        yield
    finally:
        touching.cancel()
        await asyncio.wait([touching])
        if probes.file is not None:
            with suppress(OSError):
                os.unlink(probes.file)
        if server is not None:
            server.close()


def answer(request: str, health: Health) -> tuple[HTTPStatus, bytes]:
    """The answer to the first line of a request."""
    method, _, rest = request.partition(" ")
    path = rest.partition(" ")[0].partition("?")[0]
    good = {"/live": health.live, "/ready": health.is_ready}.get(path)
    if good is None:
        return HTTPStatus.NOT_FOUND, b'{"paths":["/live","/ready"]}'
    if method not in {"GET", "HEAD"}:
        return HTTPStatus.METHOD_NOT_ALLOWED, b'{"methods":["GET","HEAD"]}'
    return HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE, _body(health)


def _body(health: Health) -> bytes:
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


async def _listening(probes: Probes, look: Callable[[], Health]) -> asyncio.Server | None:
    if probes.port is None:
        return None

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, ValueError, TimeoutError, asyncio.IncompleteReadError):
            async with asyncio.timeout(_REQUEST_S):
                await _serve(reader, writer, look)
        writer.close()

    try:
        return await asyncio.start_server(serve, probes.host, probes.port)
    except OSError as error:
        # The loop's own text names host and port again; below 0 the number is the resolver's.
        number = error.errno or 0
        problem = os.strerror(number) if number > 0 else error.strerror or error
        why = f"cannot be opened on {probes.host} ({problem})"
        raise OptionError("health_port", probes.port, why) from None


async def _serve(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, look: Callable[[], Health]
) -> None:
    """Answer one request. Its headers are read to their end, else the answer may be cut off."""
    request = (await reader.readline()).decode("latin-1").strip()
    while (await reader.readline()).strip():
        pass
    status, body = answer(request, look())
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode() + (b"" if request.startswith("HEAD ") else body))
    await writer.drain()


async def _keep_touching(probes: Probes, look: Callable[[], Health]) -> None:
    while probes.file is not None:
        if look().is_well:
            _touch(probes.file)
        await asyncio.sleep(EVERY_S)


def check_file(probes: Probes) -> None:
    """Refuse a file that could never be touched."""
    folder = os.path.dirname(probes.file or "") or "."
    if not os.access(folder, os.W_OK | os.X_OK) or os.path.isdir(probes.file or ""):
        accepted = "expected a file, in a directory that we may write to"
        raise OptionError("health_file", probes.file, accepted)


def _touch(path: str) -> None:
    with suppress(OSError):  # a full disk is no reason to stop
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
        os.utime(path)
