"""What tests of outboxes share: transactions by every driver, and what reached the queues."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    closing,
)
from typing import Any, Final, TypeAlias

import aiosqlite
import asyncpg
import psycopg
import redis
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker, create_async_engine
from sqlalchemy.orm import sessionmaker

from tampu import App, Queue
from tampu.outbox import Outbox
from tampu.tasks.calls import Call
from tampu.wire.entry import decode_entry
from tampu.wire.envelope import decode_envelope
from tampu.wire.keys import QueueKeys


class Transaction:
    """An open transaction of some driver. `run` runs a statement of the test's own."""

    def __init__(
        self,
        outbox: Outbox,
        connection: Any,  # noqa: ANN401 - of any driver
        run: Callable[[str], Any],
        *,
        is_async: bool,
    ) -> None:
        self.outbox, self.connection, self.run, self.is_async = outbox, connection, run, is_async

    async def enqueue(self, call: Call[Any]) -> str:
        if self.is_async:
            job_id = (await self.outbox.enqueue(self.connection, call)).id
        else:
            job_id = (await asyncio.to_thread(self._enqueue, call)).id
        return str(job_id)

    def _enqueue(self, call: Call[Any]) -> Any:  # noqa: ANN401 - a SyncJob
        return self.outbox.enqueue_sync(self.connection, call)

    async def execute(self, statement: str) -> None:
        done = self.run(statement)
        if self.is_async:
            await done


Begin: TypeAlias = Callable[[Outbox, str], AbstractAsyncContextManager[Transaction]]
"""Opens a transaction on a database; commits it at the end, or rolls it back after an error."""


@asynccontextmanager
async def _sqlite3(outbox: Outbox, url: str) -> AsyncIterator[Transaction]:
    with closing(sqlite3.connect(url, check_same_thread=False)) as made, made:
        yield Transaction(outbox, made, made.execute, is_async=False)


@asynccontextmanager
async def _aiosqlite(outbox: Outbox, url: str) -> AsyncIterator[Transaction]:
    async with aiosqlite.connect(url) as made:
        try:
            yield Transaction(outbox, made, made.execute, is_async=True)
        except BaseException:
            await made.rollback()
            raise
        await made.commit()


@asynccontextmanager
async def _psycopg(outbox: Outbox, url: str) -> AsyncIterator[Transaction]:
    with psycopg.connect(url) as made:
        yield Transaction(
            outbox=outbox,
            connection=made,
            is_async=False,
            run=lambda text: made.execute(text.encode()),
        )


@asynccontextmanager
async def _async_psycopg(outbox: Outbox, url: str) -> AsyncIterator[Transaction]:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as made:
        async with made.transaction():
            yield Transaction(
                outbox=outbox,
                connection=made,
                is_async=True,
                run=lambda text: made.execute(text.encode()),
            )


@asynccontextmanager
async def _asyncpg(outbox: Outbox, url: str) -> AsyncIterator[Transaction]:
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool, pool.acquire() as made:
        async with made.transaction():
            yield Transaction(outbox, made, made.execute, is_async=True)


def _blocking(driver: str, open_it: Callable[[sa.Engine], AbstractContextManager[Any]]) -> Begin:
    """A session or a connection of SQLAlchemy, with an open transaction."""

    @asynccontextmanager
    async def begin(outbox: Outbox, url: str) -> AsyncIterator[Transaction]:
        engine = sa.create_engine(alchemy_url(url, driver))
        try:
            with open_it(engine) as made:
                yield Transaction(
                    outbox=outbox,
                    connection=made,
                    is_async=False,
                    run=lambda text: made.execute(sa.text(text)),
                )
        finally:
            engine.dispose()

    return begin


def _async(
    driver: str, open_it: Callable[[AsyncEngine], AbstractAsyncContextManager[Any]]
) -> Begin:
    """The same, asynchronous."""

    @asynccontextmanager
    async def begin(outbox: Outbox, url: str) -> AsyncIterator[Transaction]:
        async with async_engine(url, driver) as engine, open_it(engine) as made:
            yield Transaction(
                outbox=outbox,
                connection=made,
                is_async=True,
                run=lambda text: made.execute(sa.text(text)),
            )

    return begin


def _session(driver: str) -> Begin:
    return _blocking(driver, lambda engine: sessionmaker(engine).begin())


def _connection(driver: str) -> Begin:
    return _blocking(driver, lambda engine: engine.begin())


def _async_session(driver: str) -> Begin:
    return _async(driver, lambda engine: async_sessionmaker(engine).begin())


def _async_connection(driver: str) -> Begin:
    return _async(driver, lambda engine: engine.begin())


SQLITE: Final[dict[str, Begin]] = {
    "sqlite3": _sqlite3,
    "aiosqlite": _aiosqlite,
    "session": _session("pysqlite"),
    "connection": _connection("pysqlite"),
    "async session": _async_session("aiosqlite"),
    "async connection": _async_connection("aiosqlite"),
}
POSTGRES: Final[dict[str, Begin]] = {
    "psycopg": _psycopg,
    "async psycopg": _async_psycopg,
    "asyncpg": _asyncpg,
    "session": _session("psycopg"),
    "connection": _connection("psycopg"),
    "async session on psycopg": _async_session("psycopg"),
    "async session on asyncpg": _async_session("asyncpg"),
    "async connection on asyncpg": _async_connection("asyncpg"),
}


def alchemy_url(url: str, driver: str) -> str:
    """A URL of PostgreSQL, or the path of a file, for SQLAlchemy with this driver."""
    if url.startswith("postgresql://"):
        return url.replace("postgresql://", f"postgresql+{driver}://")
    return f"sqlite+{driver}:///{url}"


@asynccontextmanager
async def async_engine(url: str, driver: str) -> AsyncIterator[AsyncEngine]:
    """An engine that is disposed of afterwards."""
    engine = create_async_engine(alchemy_url(url, driver))
    try:
        yield engine
    finally:
        await engine.dispose()


async def row_ids(outbox: Outbox, *, refused: bool = False) -> list[str | None]:
    """The ids of the jobs in the table, in the order of the rows."""
    rows = outbox.rows()
    try:
        return [each.job_id for each in await rows.list_rows(10_000, refused=refused)]
    finally:
        await rows.close()


def queued_ids(admin: redis.Redis, queue: str = "default") -> list[str]:
    """The ids of the jobs in the stream of a queue, in its order."""
    found: Any = admin.xrange(QueueKeys(queue).stream)
    flat = [[part for pair in fields.items() for part in pair] for _, fields in found]
    return [decode_envelope(decode_entry(each).envelope or b"").id for each in flat]


def new_app(url: str) -> App:
    """An app with one task, whose jobs do nothing."""
    app = App(url)

    @app.task(name="note")
    async def note(number: int) -> int:
        return number

    return app


def call(app: App, number: int = 0, **options: Any) -> Call[Any]:  # noqa: ANN401 - any options
    """A call of the task."""
    task = app.tasks["note"]
    return (task.options(**options) if options else task).call(number)


async def waiting(url: str, queue: str = "default") -> int:
    """How many jobs wait in a queue."""
    async with Queue(queue, url) as opened:
        return (await opened.counts()).waiting
