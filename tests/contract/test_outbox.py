"""Storing jobs in a table, in the transaction of the data that they belong to."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from tampu import App, Concurrency, EncodeError, NewJob, OptionError, OutboxFailed, WrongContext
from tampu.outbox import Outbox, make_table
from tampu.outbox.database import connect_database
from tampu.outbox.drivers import Driver
from tampu.outbox.encoding import store_job
from tampu.outbox.writing import RowWriter
from tests.contract.outboxes import (
    POSTGRES,
    SQLITE,
    Begin,
    async_engine,
    call,
    new_app,
    row_ids,
)
from tests.postgres import Database
from tests.servers import RunningServer

URL = "redis://127.0.0.1:1"
"""No server: storing a job needs none."""


class Oops(Exception):
    pass


@pytest.fixture
def app() -> Iterator[App]:
    made = new_app(URL)
    yield made
    made.close_sync()


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "shop.db")


class Suite:
    """What holds for every driver."""

    async def test_a_job_is_there_after_the_commit_and_not_after_a_rollback(
        self, outbox: Outbox, url: str, begin: Begin
    ) -> None:
        async with begin(outbox, url) as transaction:
            kept = [await transaction.enqueue(call(outbox.app, n)) for n in range(3)]
        with pytest.raises(Oops):
            async with begin(outbox, url) as transaction:
                await transaction.enqueue(call(outbox.app))
                raise Oops
        assert await row_ids(outbox) == kept

    async def test_a_savepoint_that_is_rolled_back_takes_its_jobs_with_it(
        self, outbox: Outbox, url: str, begin: Begin
    ) -> None:
        async with begin(outbox, url) as transaction:
            first = await transaction.enqueue(call(outbox.app))
            await transaction.execute("SAVEPOINT inner_one")
            await transaction.enqueue(call(outbox.app))
            await transaction.execute("ROLLBACK TO SAVEPOINT inner_one")
            await transaction.execute("SAVEPOINT inner_two")
            second = await transaction.enqueue(call(outbox.app))
            await transaction.execute("RELEASE SAVEPOINT inner_two")
        assert await row_ids(outbox) == [first, second]

    async def test_a_missing_table_is_named(self, app: App, url: str, begin: Begin) -> None:
        outbox = Outbox(app, table="missing", database=None)
        with pytest.raises(OutboxFailed, match=r"Cannot use the outbox missing.*no such table"):
            async with begin(outbox, url) as transaction:
                await transaction.enqueue(call(app))


@pytest.mark.parametrize("begin", SQLITE.values(), ids=SQLITE)
class TestSqlite(Suite):
    @pytest.fixture
    def url(self, path: str) -> str:
        return path

    @pytest.fixture
    async def outbox(self, app: App, path: str) -> Outbox:
        made = Outbox(app, database=f"sqlite:///{path}")
        await made.create_table()
        return made


@pytest.mark.postgres
@pytest.mark.parametrize("begin", POSTGRES.values(), ids=POSTGRES)
class TestPostgres(Suite):
    @pytest.fixture
    def url(self, postgres: Database) -> str:
        return postgres.url

    @pytest.fixture
    async def outbox(self, app: App, url: str) -> Outbox:
        made = Outbox(app, database=url)
        await made.create_table()
        return made


class TestTransactions:
    def test_a_connection_that_commits_by_itself_is_refused(self, app: App, path: str) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as made:
            with pytest.raises(WrongContext, match=r'no transaction is open.*run "BEGIN" first'):
                Outbox(app).enqueue_sync(made, call(app))

    def test_begin_opens_a_transaction_on_such_a_connection(self, app: App, path: str) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as made:
            made.execute(Outbox(app).sql("sqlite"))
            made.execute("BEGIN")
            Outbox(app).enqueue_sync(made, call(app))
            made.execute("COMMIT")
            assert made.execute("SELECT queue FROM tampu_outbox").fetchall() == [("default",)]

    def test_autocommit_of_sqlalchemy_is_refused(self, app: App, path: str) -> None:
        engine = sa.create_engine(f"sqlite:///{path}").execution_options(
            isolation_level="AUTOCOMMIT"
        )
        with engine.connect() as made, pytest.raises(WrongContext, match="AUTOCOMMIT"):
            Outbox(app).enqueue_sync(made, call(app))
        with Session(engine) as made, pytest.raises(WrongContext, match="AUTOCOMMIT"):
            Outbox(app).enqueue_sync(made, call(app))
        engine.dispose()

    @pytest.mark.postgres
    async def test_postgresql_without_a_transaction_is_refused(
        self, app: App, postgres: Database
    ) -> None:
        outbox = Outbox(app)
        with psycopg.connect(postgres.url, autocommit=True) as made:
            with pytest.raises(WrongContext, match=r"`with connection.transaction"):
                outbox.enqueue_sync(made, call(app))
        connection = await asyncpg.connect(postgres.url)
        with pytest.raises(WrongContext, match=r"`async with connection.transaction"):
            await outbox.enqueue(connection, call(app))
        await connection.close()
        url = postgres.url.replace("postgresql", "postgresql+psycopg")
        engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
        with Session(engine) as session, pytest.raises(WrongContext, match="AUTOCOMMIT"):
            outbox.enqueue_sync(session, call(app))
        engine.dispose()


class TestWrongUse:
    async def test_what_is_no_connection_is_refused(self, app: App) -> None:
        for given in (None, "sqlite:///x", object()):
            with pytest.raises(OptionError, match="expected a session or connection"):
                await Outbox(app).enqueue(given, call(app))

    async def test_an_engine_has_no_transaction(self, app: App, path: str) -> None:
        async with async_engine(path, "aiosqlite") as engine:
            with pytest.raises(OptionError, match="an engine has no transaction"):
                await Outbox(app).enqueue(engine, call(app))

    async def test_each_kind_of_connection_has_its_method(self, app: App, path: str) -> None:
        with closing(sqlite3.connect(path)) as made:
            with pytest.raises(WrongContext, match=r"blocks; use `outbox.enqueue_sync"):
                await Outbox(app).enqueue(made, call(app))
        async with async_engine(path, "aiosqlite") as engine, AsyncSession(engine) as session:
            with pytest.raises(WrongContext, match=r"asynchronous; use `await outbox.enqueue"):
                Outbox(app).enqueue_sync(session, call(app))

    async def test_only_calls_are_stored(self, app: App, path: str) -> None:
        with closing(sqlite3.connect(path)) as made:
            for given in (app.tasks["note"], call(app).then(app.tasks["note"])):
                with pytest.raises(OptionError, match=r"a call of a task: task.call\(...\)"):
                    Outbox(app).enqueue_sync(made, given)  # type: ignore[arg-type]

    def test_what_is_no_database_is_refused_at_once(self, app: App) -> None:
        with pytest.raises(OptionError, match=r"Invalid database .*int.*: expected an engine"):
            Outbox(app, database=5)
        for given, shown in (
            ("postgresql+asyncpg://user:secret@host/db", "'postgresql+asyncpg://...'"),
            ("sqlite://host", "'sqlite://...'"),
            ("host=secret", "'a text'"),
        ):
            with pytest.raises(OptionError) as caught:
                Outbox(app, database=given)
            assert str(caught.value) == (
                f"Invalid database {shown}: a URL must start with postgresql:// or sqlite:///; "
                "for other drivers pass an engine, such as create_async_engine(url)."
            )
        with pytest.raises(OptionError, match="pass the database here"):
            Outbox(app).relay()

    async def test_a_relay_that_is_stopped_while_it_connects_leaves_no_connection(
        self, path: str
    ) -> None:
        async with async_engine(path, "aiosqlite") as engine:
            pool = engine.pool
            assert isinstance(pool, sa.AsyncAdaptedQueuePool)
            tasks: list[asyncio.Task[object]] = []
            sa.event.listen(engine.sync_engine, "checkout", lambda *_: tasks[0].cancel())
            tasks.append(asyncio.create_task(connect_database(engine)))
            with pytest.raises(asyncio.CancelledError):
                await tasks[0]
            assert pool.checkedout() == 0


class TestJobs:
    async def test_the_producer_gets_the_job_as_from_enqueue(self, app: App, path: str) -> None:
        outbox = Outbox(app, database=f"sqlite:///{path}")
        await outbox.create_table()
        async with async_engine(path, "aiosqlite") as engine, AsyncSession(engine) as session:
            job = await outbox.enqueue(session, call(app, 7, job_id="it", tenant="acme"))
            await session.commit()
        assert (job.id, job.name, job.data, job.tenant) == ("it", "note", {"number": 7}, "acme")
        assert await row_ids(outbox) == ["it"]

    def test_a_job_that_is_of_no_task_can_be_stored(self, app: App, path: str) -> None:
        with closing(sqlite3.connect(path)) as made, made:
            made.execute(Outbox(app).sql("sqlite"))
            job_id = Outbox(app).add_sync(made, "other", NewJob("anything", {"a": 1}))
            rows = made.execute("SELECT queue, length(job) FROM tampu_outbox").fetchall()
        assert rows[0][0] == "other"
        assert len(job_id) == 26

    def test_the_rules_of_the_app_hold(self, running: RunningServer, path: str) -> None:
        app = App(running.url, max_payload=100)

        @app.task(limits=[Concurrency(1, by="text")])
        async def small(text: str) -> None: ...

        with closing(sqlite3.connect(path)) as made:
            with pytest.raises(EncodeError, match="max_payload is 100"):
                Outbox(app).enqueue_sync(made, small.call("x" * 200))


class TestWaking:
    """Who enqueues with SQLAlchemy wakes the relay by committing."""

    @pytest.fixture
    def engine(self, path: str) -> Iterator[sa.Engine]:
        made = sa.create_engine(f"sqlite:///{path}")
        metadata = sa.MetaData()
        make_table(metadata)
        metadata.create_all(made)
        yield made
        made.dispose()

    @pytest.fixture
    def woken(self) -> list[int]:
        return []

    @pytest.fixture
    def writer(self, woken: list[int]) -> RowWriter:
        return RowWriter("tampu_outbox", lambda: woken.append(1))

    @staticmethod
    def store(app: App, writer: RowWriter, given: Any, driver: Driver = Driver.SESSION) -> None:  # noqa: ANN401 - of SQLAlchemy
        job = store_job("default", NewJob("note"), app.job_rules, headers={})
        writer.write_sync(given, driver, job)

    def test_once_after_the_outermost_commit(
        self, app: App, writer: RowWriter, woken: list[int], engine: sa.Engine
    ) -> None:
        with Session(engine) as session:
            with session.begin():
                with session.begin_nested():
                    self.store(app, writer, session)
                assert not woken  # `after_commit` came for the savepoint too
                self.store(app, writer, session)
            assert len(woken) == 1
            with session.begin():
                session.execute(sa.text("SELECT 1"))
            assert len(woken) == 1  # nothing was stored
            with session.begin():
                self.store(app, writer, session)
            assert len(woken) == 2

    def test_not_after_a_rollback(
        self, app: App, writer: RowWriter, woken: list[int], engine: sa.Engine
    ) -> None:
        with Session(engine) as session:
            self.store(app, writer, session)
            session.rollback()
            assert not woken

    def test_after_the_commit_of_a_connection(
        self, app: App, writer: RowWriter, woken: list[int], engine: sa.Engine
    ) -> None:
        with engine.connect() as connection:
            self.store(app, writer, connection, Driver.CONNECTION)
            connection.commit()
            assert len(woken) == 1

    def test_sessions_behind_a_registry_too(
        self, app: App, writer: RowWriter, woken: list[int], engine: sa.Engine
    ) -> None:
        sessions = scoped_session(sessionmaker(engine))
        self.store(app, writer, sessions)
        sessions.commit()
        sessions.remove()
        assert len(woken) == 1

    async def test_asynchronous_sessions_too(
        self, app: App, writer: RowWriter, woken: list[int], engine: sa.Engine, path: str
    ) -> None:
        del engine  # it has created the table
        job = store_job("default", NewJob("note"), app.job_rules, headers={})
        async with async_engine(path, "aiosqlite") as made:
            sessions = async_scoped_session(async_sessionmaker(made), scopefunc=lambda: 1)
            for session in (AsyncSession(made), sessions):
                await writer.write(session, Driver.ASYNC_SESSION, job)
                await session.commit()
                await session.close()
            assert len(woken) == 2
            async with made.connect() as connection:
                await writer.write(connection, Driver.ASYNC_CONNECTION, job)
                await connection.commit()
            assert len(woken) == 3
