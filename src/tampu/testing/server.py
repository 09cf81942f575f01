"""The server for tests: an embedded one in a directory of its own, one for each process."""

import atexit
import os
import shutil
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tampu.errors import MissingExtra
from tampu.server.embedded.server import EmbeddedServer, join, stop

_lock = threading.Lock()
_EXTRA: Final = "testing"


@dataclass(frozen=True, slots=True)
class _Started:
    pid: int
    server: EmbeddedServer


_started: _Started | None = None


def start_server() -> str:
    """The URL of this process's server, which is started if needed and stopped at its end."""
    global _started  # noqa: PLW0603 - one for the process
    with _lock:
        if _started is None or _started.pid != os.getpid():  # a fork has none
            _started = _Started(os.getpid(), _start())
            atexit.register(stop_server)
        return f"unix://{_started.server.socket}"


def stop_server() -> None:
    """Stop the server and remove its directory. May be called twice, and started again."""
    global _started
    with _lock:
        started, _started = _started, None
    if started is not None and started.pid == os.getpid():
        atexit.unregister(stop_server)
        stop(started.server)
        shutil.rmtree(started.server.directory, ignore_errors=True)


def _start() -> EmbeddedServer:
    directory = Path(tempfile.mkdtemp(prefix="tampu-testing-"))
    try:
        return join(directory)
    except MissingExtra as error:
        raise MissingExtra(extra=_EXTRA, package=error.package) from None
