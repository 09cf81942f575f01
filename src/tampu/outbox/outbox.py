"""An outbox: stores jobs in a table, in the transaction of the data that they belong to."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from tampu.app import App
from tampu.errors import OptionError, TampuError, WrongContext
from tampu.job import Job, NewJob
from tampu.outbox.database import Database, check_database
from tampu.outbox.drivers import Driver, find_driver
from tampu.outbox.encoding import StoredJob, store_job
from tampu.outbox.relay import OutboxRelay
from tampu.outbox.rows import OutboxRows
from tampu.outbox.schema import DEFAULT_TABLE, check_table, create_sql, make_table
from tampu.outbox.writing import HOW_TO_CREATE, RowWriter
from tampu.tasks.calls import Call
from tampu.util.options import check_type
from tampu.wire.names import check_name

if TYPE_CHECKING:
    from sqlalchemy import MetaData, Table

    from tampu.metrics.facts import MetricsSink
    from tampu.producer.sync_job import SyncJob

R = TypeVar("R")
logger = logging.getLogger(__name__)


class Outbox:
    """Stores jobs in a table of your database, from where a relay moves them to their queues.

    A job is stored by the transaction that stores your data: both are committed, or none. `table`
    is the table, if need be with its schema. With a `database`, the workers of the app move its
    rows: an engine of SQLAlchemy, a URL, or a function that connects. Without one, start a relay
    with `outbox.relay(database)`. Give each outbox a `name` of its own if several databases have a
    table of this name and their apps share a server.
    """

    how_to_create: ClassVar[str] = HOW_TO_CREATE  # what to do if the table is missing

    def __init__(
        self,
        app: App,
        *,
        table: str = DEFAULT_TABLE,
        database: Database = None,
        name: str | None = None,
    ) -> None:
        check_type("app", app, App, accepted="an App")
        self.app = app
        self.table = check_table(table)
        self.name = self.table if name is None else check_name("name", name)
        self.database = None if database is None else check_database(database)
        self._waker = Waker(app, self.name)
        self._writer = RowWriter(self.table, self._waker.wake)
        if self.database is not None:
            app.outboxes.append(self)

    def __repr__(self) -> str:
        return f"<Outbox {self.name!r}>"

    # --- storing jobs ---------------------------------------------------------------------------

    async def enqueue(self, connection: object, call: Call[R]) -> Job[R]:
        """Store the job of `task.call(...)` in the transaction of an asynchronous connection.

        `connection` is an `AsyncSession` or `AsyncConnection` of SQLAlchemy, or a connection of
        psycopg, asyncpg or aiosqlite. The job reaches its queue after the commit. Its id is taken
        for a day, unless it has an `unique_for` of its own. Raises `WrongContext` if no transaction
        is open, and `OutboxFailed` if there is no table; what else goes wrong is the driver's.
        """
        job = await self.add(connection, _check_call(call).task.queue, call.task.job_of(call))
        return call.task.typed(job)

    def enqueue_sync(self, connection: object, call: Call[R]) -> SyncJob[R]:
        """As `enqueue`, with a connection that blocks.

        A `Session` or `Connection` of SQLAlchemy, or a connection of psycopg, sqlite3 or Django.
        """
        stored = self._store(_check_call(call).task.queue, call.task.job_of(call))
        self._writer.write_sync(connection, _driver(connection), stored)
        return self._sync_job(stored, call)

    async def add(self, connection: object, queue: str, job: NewJob) -> Job[Any]:
        """As `enqueue`, for a job that is not of a task of the app."""
        stored = self._store(queue, job)
        await self._writer.write(connection, _driver(connection, is_async=True), stored)
        return _job(self.app, stored)

    def add_sync(self, connection: object, queue: str, job: NewJob) -> str:
        """As `add`, with a connection that blocks. Returns the id of the job."""
        stored = self._store(queue, job)
        self._writer.write_sync(connection, _driver(connection), stored)
        return stored.job_id

    def wake(self) -> None:
        """Tell the relay of a commit, so that it looks at once and not within a second.

        Call it after a commit with psycopg, asyncpg, sqlite3 or aiosqlite; sessions of SQLAlchemy
        and connections of Django do so by themselves. Never waits and never raises.
        """
        self._waker.wake()

    def _store(self, queue: str, job: NewJob) -> StoredJob:
        return store_job(queue, job, self.app.job_rules, headers=self.app.trace_headers())

    def _sync_job(self, stored: StoredJob, call: Call[R]) -> SyncJob[R]:
        async def make() -> Job[R]:
            return call.task.typed(_job(self.app, stored))

        return call.task.in_portal(make)

    # --- moving rows to their queues ------------------------------------------------------------

    def relay(
        self, database: Database = None, *, metrics: MetricsSink | None = None
    ) -> OutboxRelay:
        """What moves the rows of a database to their queues, or of the outbox's own one.

        `AppWorker(app, outbox=outbox.relay(engine))` runs it in a worker, `await relay.run()` or
        `async with relay:` alone. One relay works at a time, of all that were started.
        """
        return OutboxRelay(self.app, self.rows(database), name=self.name, metrics=metrics)

    # --- the table ------------------------------------------------------------------------------

    def sql(self, dialect: str) -> str:
        """The statement that creates the table, for "postgresql" or "sqlite"."""
        return create_sql(self.table, dialect)

    def make_table(self, metadata: MetaData) -> Table:
        """The table for SQLAlchemy's `MetaData`, for `create_all` and migrations by Alembic."""
        return make_table(metadata, self.table)

    async def create_table(self, database: Database = None) -> None:
        """Create the table unless it is there, in a database as `relay` takes it."""
        rows = self.rows(database)
        try:
            await rows.create()
        finally:
            await rows.close()

    def rows(self, database: Database = None) -> OutboxRows:
        """The rows of the table, to look at them; close them afterwards."""
        given = self.database if database is None else check_database(database)
        if given is None:
            raise OptionError("database", given, "pass the database here, or to the Outbox")
        most = self.app.job_rules.max_payload
        return OutboxRows(self.table, given, max_job=most, how_to_create=self.how_to_create)


class Waker:
    """Wakes the relay of an outbox after commits, from any thread."""

    def __init__(self, app: App, name: str) -> None:
        self._app, self._name = app, name
        self._tasks: dict[asyncio.AbstractEventLoop, asyncio.Task[None]] = {}
        self._due_in = 0  # the process whose portal will wake it; a fork has another one

    def wake(self) -> None:
        """Wake it soon; never waits and never raises. Calls that meet are one."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._wake_in_thread()
            return
        if self._tasks.get(loop) is None:
            self._tasks[loop] = loop.create_task(self._run(loop), name="tampu-wake-relay")

    def _wake_in_thread(self) -> None:
        if self._due_in == os.getpid():
            return
        self._due_in = os.getpid()
        try:
            self._app.portal().start(self._run_in_portal)
        except TampuError:  # the app was closed, or this is a fork of its process
            self._due_in = 0

    async def _run_in_portal(self) -> None:
        self._due_in = 0  # a commit from now on needs another call
        await self._wake()

    async def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        kept = self._tasks.pop(loop, None)  # the same; held until the end
        await self._wake()
        del kept

    async def _wake(self) -> None:
        try:
            await self._app.queue().wake_relay(self._name)
        except TampuError as error:
            # The relay looks each second anyway, and a commit must not fail because of this.
            facts = {"outbox": self._name, "problem": str(error)}
            logger.debug("cannot wake the relay of %s: %s", self._name, error, extra=facts)


def _check_call(given: object) -> Call[Any]:
    check_type("call", given, Call, accepted="a call of a task: task.call(...)")
    assert isinstance(given, Call)  # noqa: S101 - checked above
    return given


def _driver(connection: object, *, is_async: bool = False) -> Driver:
    """The driver of a connection, for `enqueue` or `enqueue_sync`."""
    driver = find_driver(connection)
    if driver in {Driver.ENGINE, Driver.ASYNC_ENGINE}:
        problem = "an engine has no transaction; pass the session or connection that has one"
        raise OptionError("connection", type(connection), problem)
    if driver.is_async is not is_async:
        calls = ("await outbox.enqueue(...)", "outbox.enqueue_sync(...)")
        right = calls[0] if driver.is_async else calls[1]
        kind = "asynchronous" if driver.is_async else "one that blocks"
        raise WrongContext("enqueue with this connection", f"it is {kind}; use `{right}`")
    return driver


def _job(app: App, stored: StoredJob) -> Job[Any]:
    """The job for its producer, with what the app's queue of this event loop can do."""
    request, queue = stored.request, app.queue(stored.queue)
    at_ms = stored.stored_at_ms
    return Job(stored.job_id, request.name, request.data, 0, at_ms, queue, request.extras)
