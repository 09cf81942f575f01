"""PostgreSQL for the tests of databases: Debian's, started once for a session.

`python -m tests.postgres` says whether it is there, and installs it on a CI machine. With
`--install` it does so anywhere. `tests/selection.py` leaves out the tests where it is missing.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import mkdtemp
from typing import Final, Self

import psycopg

from tests.servers import IN_CI, START_LIMIT_S
from tests.waiting import block_until

MARK: Final = "postgres"
TITLE: Final = "PostgreSQL (run make setup-postgres)"

_DEBIAN: Final = Path("/usr/lib/postgresql")  # its programs are not on the path
_ACCOUNT: Final = "postgres"  # the server refuses to run as root
_INSTALL_LIMIT_S: Final = 600
_PROGRAMS: Final = ("initdb", "postgres")
_OPTIONS: Final = {
    "listen_addresses": "",  # a socket in a folder of our own and no port
    "fsync": "off",  # what is committed outlives the server, not the machine
    "full_page_writes": "off",
    "max_connections": "200",
    "shared_buffers": "32MB",
}
_BACKENDS: Final = """
    SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend'
    AND pid <> pg_backend_pid() AND (%s = '' OR application_name = %s)
"""
_numbers: Final = count(1)


@cache
def find_programs() -> Path | None:
    """The folder with the server's programs, if this machine has them: the newest release."""
    releases = sorted(_DEBIAN.glob("*/bin"), key=lambda each: float(each.parent.name))
    on_path = shutil.which("initdb")
    found = [*reversed(releases), *([Path(on_path).resolve().parent] if on_path else [])]
    return next((each for each in found if all((each / name).exists() for name in _PROGRAMS)), None)


def is_there() -> bool:
    """Whether the tests that need PostgreSQL can run."""
    return find_programs() is not None


def install() -> str | None:
    """Install Debian's server if there is none; the reason if that fails."""
    if is_there():
        return None
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        return "only root can install Debian's (apt-get install postgresql)"
    for command in (("update", "-qq"), ("install", "-qq", "-y", "postgresql")):
        subprocess.run(
            ["apt-get", *command], check=False, stdout=subprocess.DEVNULL, timeout=_INSTALL_LIMIT_S
        )
    find_programs.cache_clear()
    return None if is_there() else "apt-get cannot install postgresql"


@dataclass(frozen=True, slots=True)
class Database:
    """A database of a server: what clients need to connect to it."""

    folder: Path
    """Where the server's socket is; clients take it as the host."""
    name: str
    user: str = _ACCOUNT

    @property
    def url(self) -> str:
        """Its address for psycopg and asyncpg. SQLAlchemy wants `postgresql+psycopg://`."""
        return f"postgresql://{self.user}@/{self.name}?host={self.folder}"

    def execute(self, statement: str, *values: object) -> list[tuple[object, ...]]:
        """Run one statement in a connection and a transaction of its own; its rows."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            done = connection.execute(statement.encode(), values or None)
            return [] if done.description is None else done.fetchall()

    def connections(self, program: str = "") -> int:
        """How many connections clients hold, or those that call themselves by a name."""
        return len(self._backends(program))

    def drop_connections(self, program: str = "") -> int:
        """End these connections on the server's side; how many there were."""
        pids = self._backends(program)
        for each in pids:
            self.execute("SELECT pg_terminate_backend(%s)", each)
        return len(pids)

    def _backends(self, program: str) -> list[object]:
        rows = self.execute(_BACKENDS, program, program)
        return [pid for (pid,) in rows]


class PostgresServer:
    """A server of our own behind a socket, ended by its id."""

    def __init__(self) -> None:
        programs = find_programs()
        assert programs is not None, "tests of PostgreSQL are left out where it is missing"
        self._programs = programs
        self.folder = Path(mkdtemp(prefix="tampu-pg-"))
        if os.geteuid() == 0:
            shutil.chown(self.folder, _ACCOUNT)
        self._data = self.folder / "data"
        self._run(
            *("initdb", "--auth=trust", f"--username={_ACCOUNT}", "--no-sync", "--encoding=UTF8"),
            *("--locale=C", "--pgdata", str(self._data)),
        )
        self.process = self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.end()

    @contextmanager
    def database(self, template: str = "template1") -> Iterator[Database]:
        """A database that is dropped afterwards, with the connections that are left.

        It is empty, or a copy of another one.
        """
        made = Database(self.folder, f"test_{next(_numbers)}")
        admin = Database(self.folder, _ACCOUNT)
        admin.execute(f"CREATE DATABASE {made.name} TEMPLATE {template}")
        try:
            yield made
        finally:
            admin.execute(f"DROP DATABASE {made.name} WITH (FORCE)")

    def kill(self) -> None:
        """End without a word to clients. The data stays."""
        self.process.send_signal(signal.SIGQUIT)  # after a SIGKILL its children would live on
        self.process.wait(timeout=START_LIMIT_S)

    def restart(self) -> None:
        """Start again after `kill`, with the same data and socket."""
        self.process = self._start()

    def end(self) -> None:
        """End the server and remove its files."""
        if self.process.poll() is None:
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, program: str, *options: str) -> None:
        subprocess.run(
            [self._programs / program, *options],
            check=True,
            capture_output=True,
            cwd=self.folder,
            user=_account(),
        )

    def _start(self) -> "subprocess.Popen[bytes]":
        options = [f"--{name}={value}" for name, value in _OPTIONS.items()]
        options += [f"--unix_socket_directories={self.folder}"]
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [self._programs / "postgres", "-D", self._data, *options],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                user=_account(),
            )
        block_until(
            lambda: process.poll() is not None or self._accepts(),
            within=START_LIMIT_S,
            sentence="PostgreSQL accepts connections or has ended",
        )
        if process.poll() is not None:
            words = (self.folder / "log").read_text(errors="replace")[-500:]
            raise RuntimeError(f"PostgreSQL did not start: {words}")
        return process

    def _accepts(self) -> bool:
        try:
            psycopg.connect(Database(self.folder, _ACCOUNT).url).close()
        except psycopg.OperationalError:
            return False
        return True


def _account() -> str | None:
    return _ACCOUNT if os.geteuid() == 0 else None


def main(arguments: list[str]) -> int:
    """Print what is there; fail if it is not, and was asked for."""
    wanted = IN_CI or "--install" in arguments
    problem = install() if wanted else None if is_there() else "make setup-postgres"
    print(f"  postgres {find_programs()}" if problem is None else f"  postgres missing: {problem}")  # noqa: T201
    return int(problem is not None and wanted)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
