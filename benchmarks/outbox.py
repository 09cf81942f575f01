"""Jobs through an outbox: from the commit to the handler, and rows that a relay moves a second."""

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any, Final, NamedTuple

import asyncpg
import psycopg
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from benchmarks.bench import Bench
from benchmarks.figures import Comparison, Figure, Unit, Value
from benchmarks.measuring import DispatchTimer, percentile, take_samples_ms
from benchmarks.workload import CONCURRENCY, DATA, NAME, QUEUE
from tampu import App, NewJob, Worker
from tampu.metrics import Fact, OutboxMoved
from tampu.outbox import Outbox
from tampu.outbox.encoding import store_job
from tests.postgres import PostgresServer, is_there
from tests.waiting import wait_until

ROWS: Final = 60_000
SAMPLES: Final = 300
ROUNDS: Final = 3
P50_LIMIT_MS: Final = 3.0
FLOOR: Final = 20_000
_JOB: Final = NewJob(NAME, DATA)
_INSERT: Final = "INSERT INTO tampu_outbox (queue, job) VALUES (?, ?)"

Commit = Callable[[], Awaitable[object]]
Open = Callable[[Outbox], AbstractAsyncContextManager[Callable[[], Awaitable[Commit]]]]
"""Opens a connection; what it gives stores a job, and gives what commits that."""


class _Kind(NamedTuple):
    """A database, what the relay connects with, and what the producer does."""

    what: str
    database: Any
    open: Open
    fill: Callable[[Sequence[tuple[str, bytes]]], object]
    empty: Callable[[], object]


async def run(bench: Bench) -> list[Figure]:
    """Producer, relay and worker are one process."""
    figures: list[Figure] = []
    with _kinds() as kinds:
        for kind in kinds:
            bench.empty()
            await Outbox(App(bench.url), database=kind.database).create_table()
            rounds = [await _latency(bench, kind) for _ in range(ROUNDS)]
            for percent, limit in ((50, P50_LIMIT_MS), (99, None)):
                found = median(percentile(samples, percent) for samples in rounds)
                what = f"commit to handler, p{percent}, {kind.what}"
                figures.append(Value(what, found, Unit.MS, limit))
            rates, per_cpu = zip(
                *[await _throughput(bench, kind) for _ in range(ROUNDS)], strict=True
            )
            what = f"rows moved, {kind.what}"
            figures.append(Comparison(what, median(rates), "required", FLOOR, 1))
            what = f"rows moved for a second of the relay's processor time, {kind.what}"
            figures.append(Value(what, median(per_cpu)))
    return figures


async def _latency(bench: Bench, kind: _Kind) -> list[float]:
    bench.empty()
    timer = DispatchTimer()
    app = App(bench.url, default_queue=QUEUE)
    outbox = Outbox(app, database=kind.database)
    worker = Worker(QUEUE, timer.handle, bench.url, concurrency=CONCURRENCY, events=False)
    async with app, outbox.relay(), worker, kind.open(outbox) as store:

        async def time_one() -> float:
            commit = await store()
            return await timer.time_one(commit)

        return await take_samples_ms(time_one, SAMPLES)


class _Clock:
    """A sink that notes when the first and the last batch of rows were moved."""

    def __init__(self) -> None:
        self.moved = self.first = 0
        self.began = self.ended = 0.0
        self.cpu_began = self.cpu_ended = 0.0  # of the process, with the threads of a driver

    def record(self, facts: Sequence[Fact]) -> None:
        for each in facts:
            if isinstance(each, OutboxMoved):
                self.ended, self.cpu_ended = perf_counter(), process_time()
                if not self.first:
                    self.began, self.cpu_began = self.ended, self.cpu_ended
                    self.first = each.moved
                self.moved += each.moved


async def _throughput(bench: Bench, kind: _Kind) -> tuple[float, float]:
    bench.empty()
    app, clock = App(bench.url, default_queue=QUEUE), _Clock()
    outbox = Outbox(app, database=kind.database)
    stored = (store_job(QUEUE, _JOB, app.job_rules, headers={}) for _ in range(ROWS))
    kind.fill([(each.queue, each.body) for each in stored])
    async with outbox.relay(metrics=clock):
        await wait_until(lambda: clock.moved == ROWS, within=120, sentence="all rows were moved")
    kind.empty()
    left = ROWS - clock.first
    return left / (clock.ended - clock.began), left / (clock.cpu_ended - clock.cpu_began)


# --- databases ----------------------------------------------------------------------------------


@contextmanager
def _kinds() -> Iterator[list[_Kind]]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "shop.db"
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode=wal")
        kinds = [_sqlite(path)]
        if not is_there():
            yield kinds
            return
        with PostgresServer() as server, server.database() as database:
            yield [*kinds, *_postgres(database.url)]


def _sqlite(path: Path) -> _Kind:
    def execute(statement: str, rows: Sequence[tuple[str, bytes]] = ()) -> None:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.executemany(statement, rows) if rows else connection.execute(statement)

    @asynccontextmanager
    async def open_one(outbox: Outbox) -> AsyncIterator[Callable[[], Awaitable[Commit]]]:
        with closing(sqlite3.connect(path, timeout=30)) as connection:
            connection.execute("PRAGMA synchronous=normal")

            async def commit() -> None:
                connection.commit()
                outbox.wake()

            async def store() -> Commit:
                outbox.add_sync(connection, QUEUE, _JOB)
                return commit

            yield store

    return _Kind(
        "SQLite in WAL mode, sqlite3",
        f"sqlite:///{path}",
        open_one,
        lambda rows: execute(_INSERT, rows),
        lambda: execute("DELETE FROM tampu_outbox"),
    )


def _postgres(url: str) -> list[_Kind]:
    @asynccontextmanager
    async def open_session(outbox: Outbox) -> AsyncIterator[Callable[[], Awaitable[Commit]]]:
        async with AsyncSession(engine) as session:

            async def store() -> Commit:
                await outbox.add(session, QUEUE, _JOB)
                return session.commit

            yield store
        await engine.dispose()

    @asynccontextmanager
    async def open_one(outbox: Outbox) -> AsyncIterator[Callable[[], Awaitable[Commit]]]:
        async with await psycopg.AsyncConnection.connect(url) as connection:

            async def commit() -> None:
                await connection.commit()
                outbox.wake()

            async def store() -> Commit:
                await outbox.add(connection, QUEUE, _JOB)
                return commit

            yield store

    engine = create_async_engine(url.replace("postgresql", "postgresql+asyncpg"))
    fill, empty = partial(_copy, url), partial(_vacuum, url)
    session, asynchronous = "a session of SQLAlchemy and asyncpg", lambda: asyncpg.connect(url)
    return [
        _Kind("PostgreSQL 15, psycopg", url, open_one, fill, empty),
        _Kind(f"PostgreSQL 15, {session}", asynchronous, open_session, fill, empty),
    ]


def _copy(url: str, rows: Sequence[tuple[str, bytes]]) -> None:
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        with cursor.copy("COPY tampu_outbox (queue, job) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)


def _vacuum(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM tampu_outbox")
