"""Producers and relays of an outbox in processes of their own; a relay kills itself.

Run as a module it is such a process: `producer DATABASE FOLDER SEED`, or `relay URL DATABASE FOLDER
SEED`.
"""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

import psycopg

from tampu import App, NewJob
from tampu.outbox import Outbox, OutboxRelay
from tampu.outbox.rows import FetchedRow, OutboxRows
from tests.servers import ROOT

QUEUES: Final = ("default", "emails", "reports")
ROLLBACKS: Final = 0.2
POINTS: Final = ("fetched", "added", "deleted")
_LONGEST_S: Final = 0.03
_NO_SERVER: Final = "redis://127.0.0.1:1"
_ERRORS: Final = (psycopg.Error, sqlite3.Error)


def start(role: str, *arguments: object) -> "subprocess.Popen[bytes]":
    """Start such a process."""
    command = [sys.executable, "-m", __name__, role, *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT)


def kills(folder: Path) -> list[str]:
    """Where relays have killed themselves so far."""
    path = folder / "kills"
    return path.read_text("utf-8").split() if path.exists() else []


# --- the producer -------------------------------------------------------------------------------


class Producer:
    """Stores jobs until the file `stop` is there, and notes what became of each transaction."""

    def __init__(self, database: str, folder: Path, seed: int) -> None:
        self._database, self._folder = database, folder
        self._rng = Random(seed)  # noqa: S311 - what is stored, and when
        self._outbox = Outbox(App(_NO_SERVER))
        self._notes = (folder / f"producer-{seed}").open("a", buffering=1, encoding="utf-8")

    def run(self) -> None:
        """Work through outages of the database."""
        while not (self._folder / "stop").exists():
            try:
                with self._connect() as connection:
                    while not (self._folder / "stop").exists():
                        self._store(connection)
            except _ERRORS:
                time.sleep(0.02)

    @contextmanager
    def _connect(self) -> Iterator[Any]:
        if self._database.startswith("sqlite"):
            path = self._database.removeprefix("sqlite:///")
            with closing(sqlite3.connect(path, timeout=60)) as connection:
                yield connection
        else:
            with psycopg.connect(self._database) as connection:
                yield connection

    def _store(self, connection: Any) -> None:  # noqa: ANN401 - of either driver
        """One transaction. A savepoint in it may be rolled back, and all of it too."""
        rng, committing = self._rng, False
        kept, gone = [self._add(connection)], list[str]()
        try:
            if rng.random() < ROLLBACKS:
                connection.execute("SAVEPOINT inner_part")
                gone.append(self._add(connection))
                connection.execute("ROLLBACK TO SAVEPOINT inner_part")
            if rng.random() < ROLLBACKS:
                kept.append(self._add(connection))
            if rng.random() < 0.1:
                time.sleep(rng.random() * _LONGEST_S)  # its rows come after later ones
            if rng.random() < ROLLBACKS:
                connection.rollback()
                gone, kept = gone + kept, []
            else:
                committing = True
                connection.commit()
        except _ERRORS:
            self._note("unknown" if committing else "gone", kept)
            self._note("gone", gone)
            raise
        self._note("kept", kept)
        self._note("gone", gone)
        time.sleep(rng.random() * 0.02)  # the test has enough of them without using all cores

    def _add(self, connection: Any) -> str:  # noqa: ANN401 - of either driver
        return self._outbox.add_sync(connection, self._rng.choice(QUEUES), NewJob("note", 1))

    def _note(self, what: str, ids: Collection[str]) -> None:
        for job_id in ids:
            self._notes.write(f"{what} {job_id}\n")


def noted(folder: Path) -> dict[str, set[str]]:
    """The ids that producers have noted, by what became of them."""
    found: dict[str, set[str]] = {"kept": set(), "gone": set(), "unknown": set()}
    for path in folder.glob("producer-*"):
        for line in path.read_text("utf-8").splitlines():
            what, _, job_id = line.partition(" ")
            found[what].add(job_id)
    return found


# --- the relay ----------------------------------------------------------------------------------


class KillingRows(OutboxRows):
    """Rows whose relay dies at a point that the seed decides."""

    def __init__(self, database: str, folder: Path, seed: int) -> None:
        super().__init__("tampu_outbox", database, max_job=1_000_000)
        self._folder, self._point = folder, POINTS[seed % len(POINTS)]
        self._left = 1 + Random(seed).randrange(8)  # noqa: S311 - batches until then

    async def fetch(self, after: int, held: Collection[str]) -> list[FetchedRow]:
        """Fetch, and die then."""
        rows = await super().fetch(after, held)
        if rows:
            self._die("fetched")
        return rows

    async def delete(self, ids: Collection[int]) -> None:
        """Die, or delete and die then."""
        self._die("added")
        await super().delete(ids)
        self._die("deleted")

    def _die(self, point: str) -> None:
        if point != self._point:
            return
        self._left -= 1
        if not self._left:
            with (self._folder / "kills").open("a", encoding="utf-8") as file:
                file.write(f"{point}\n")
            os.kill(os.getpid(), signal.SIGKILL)


async def run_relay(url: str, database: str, folder: Path, seed: int) -> None:
    """Move rows until it dies."""
    app = App(url)
    relay = OutboxRelay(app, KillingRows(database, folder, seed), name="tampu_outbox")
    await relay.run()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["producer", database, folder, seed]:
            Producer(database, Path(folder), int(seed)).run()
        case ["relay", url, database, folder, seed]:
            asyncio.run(run_relay(url, database, Path(folder), int(seed)))
        case _:
            sys.exit("producer DATABASE FOLDER SEED, or relay URL DATABASE FOLDER SEED")
