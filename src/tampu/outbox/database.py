"""The relay's own connection to a database: one statement at a time, each committed at once."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from tampu.errors import MissingExtra, OptionError
from tampu.outbox.drivers import Driver, SqlDialect, driver_of

if TYPE_CHECKING:
    from tampu.outbox.schema import Statement

T = TypeVar("T")
Row: TypeAlias = Sequence[Any]
Database: TypeAlias = Any
"""What a relay gets its connection from: an engine of SQLAlchemy, a URL, or a function.

The function gives a new connection of psycopg, asyncpg, sqlite3 or aiosqlite, also asynchronously.
The relay sets it to commit each statement at once, and closes it.
"""
_CLOSE_S: Final = 2.0
_LIMIT_S: Final = 30.0
"""A statement without an answer by then has failed: the connection may be half open."""
_EXPECTED: Final = (
    "expected an engine of SQLAlchemy, a URL such as postgresql://... or sqlite:///shop.db, or a "
    "function that connects"
)
_URL_EXPECTED: Final = (
    "a URL must start with postgresql:// or sqlite:///; for other drivers pass an engine, such as "
    "create_async_engine(url)"
)
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


class Connection(ABC):
    """An open connection of a relay."""

    dialect: SqlDialect

    @abstractmethod
    async def run(self, statement: Statement) -> list[Row]:
        """Run a statement and commit it; its rows. Raises what the driver raises."""

    @abstractmethod
    async def close(self) -> None:
        """Disconnect. Never raises."""


class AsyncConnection(Connection):
    """A connection whose driver is asynchronous."""

    def __init__(self, made: Any, close: Callable[[], Awaitable[object]]) -> None:  # noqa: ANN401 - of any driver
        self._driver = _own_driver(made, is_async=True)
        self.dialect = self._driver.dialect
        self._made, self._close = made, close

    async def begin(self) -> None:
        """Commit each statement at once from now on."""
        if self._driver is Driver.ASYNC_PSYCOPG:
            await self._made.set_autocommit(True)

    async def run(self, statement: Statement) -> list[Row]:
        """Run a statement."""
        text, values = self._driver.statement(statement[0]), statement[1]
        async with asyncio.timeout(_LIMIT_S):
            if self._driver is Driver.ASYNCPG:
                return [*await self._made.fetch(text, *values)]
            cursor = await self._made.execute(text, values)
            rows = [] if cursor.description is None else [*await cursor.fetchall()]
            if self._driver is Driver.AIOSQLITE:
                await cursor.close()
                await self._made.commit()
            return rows

    async def close(self) -> None:
        """Disconnect; a connection that is broken may say so once more."""
        with suppress(Exception):
            async with asyncio.timeout(_CLOSE_S):
                await self._close()


class BlockingConnection(Connection):
    """A connection whose driver blocks, in a thread of its own."""

    def __init__(self, thread: ThreadPoolExecutor, made: Any, close: Callable[[], object]) -> None:  # noqa: ANN401 - of any driver
        self._driver = _own_driver(made, is_async=False)
        self.dialect = self._driver.dialect
        self._thread, self._made, self._close = thread, made, close
        if self._driver is Driver.SQLITE:
            made.isolation_level = None
        else:
            made.autocommit = True

    async def run(self, statement: Statement) -> list[Row]:
        """Run a statement."""
        text, values = self._driver.statement(statement[0]), statement[1]
        return await _in_thread(self._thread, lambda: self._run(text, values))

    async def close(self) -> None:
        """Disconnect, if need be after this returns: when a statement in the thread has ended."""
        with suppress(Exception):
            await _in_thread(self._thread, self._close, limit_s=_CLOSE_S)
        self._thread.shutdown(wait=False)

    def _run(self, text: str, values: tuple[object, ...]) -> list[Row]:
        cursor = self._made.cursor()
        try:
            cursor.execute(text, values)
            return [] if cursor.description is None else [*cursor.fetchall()]
        finally:
            cursor.close()


async def connect_database(database: Database) -> Connection:
    """Connect; raises what the driver raises, and `OptionError` for what is no database."""
    driver = driver_of(check_database(database))
    if driver is Driver.ASYNC_ENGINE:
        return await _connect_engine(database)
    if driver is Driver.ENGINE:
        return await _call(lambda: _open_engine(database))
    connect = _from_url(database) if isinstance(database, str) else database
    return await _call(lambda: _with_close(connect()))


def check_database(given: Database) -> Database:
    """Refuse what no relay can connect to."""
    if isinstance(given, str):
        if not given.startswith(("postgresql://", "postgres://", "sqlite:///")):
            scheme = _SCHEME.match(given)  # the rest is not shown: it may have a password
            shown = f"{scheme[0]}..." if scheme else "a text"
            raise OptionError("database", shown, _URL_EXPECTED)
    elif driver_of(given) not in {Driver.ENGINE, Driver.ASYNC_ENGINE} and not callable(given):
        raise OptionError("database", type(given), _EXPECTED)
    return given


Opened: TypeAlias = tuple[Any, Callable[[], Any]]
"""A driver's connection, or what becomes one when it is awaited; and what closes it."""


async def _call(open_it: Callable[[], Opened]) -> Connection:
    """Connect in a new thread, since a connection may belong to the thread that made it."""
    thread = ThreadPoolExecutor(1, thread_name_prefix="tampu-outbox")
    try:
        made, close = await _in_thread(thread, open_it)
        if not isawaitable(made):
            return await _in_thread(thread, lambda: BlockingConnection(thread, made, close))
        thread.shutdown(wait=False)
        async with asyncio.timeout(_LIMIT_S):
            made = await made
        connection = AsyncConnection(made, made.close)
        await connection.begin()
    except BaseException:
        thread.shutdown(wait=False)
        raise
    return connection


def _with_close(made: Any) -> Opened:  # noqa: ANN401 - of any driver
    return made, bool if isawaitable(made) else made.close


def _open_engine(engine: Any) -> Opened:  # noqa: ANN401 - SQLAlchemy's
    connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")

    def close() -> None:
        connection.invalidate()  # so that nobody else gets it as we leave it
        connection.close()

    return connection.connection.driver_connection, close


async def _connect_engine(engine: Any) -> Connection:  # noqa: ANN401 - SQLAlchemy's
    async with asyncio.timeout(_LIMIT_S):
        connection = await engine.connect()

        async def close() -> None:
            await connection.invalidate()
            await connection.close()

        try:
            await connection.execution_options(isolation_level="AUTOCOMMIT")
            raw = await connection.get_raw_connection()
        except BaseException:  # also if the relay is stopped meanwhile
            with suppress(Exception):
                async with asyncio.timeout(_CLOSE_S):
                    await close()
            raise
    return AsyncConnection(raw.driver_connection, close)


def _from_url(url: str) -> Callable[[], Any]:
    if url.startswith("sqlite:///"):
        path = url.removeprefix("sqlite:///")
        return lambda: sqlite3.connect(path, timeout=_LIMIT_S / 2)
    try:
        import psycopg  # noqa: PLC0415 - optional extra
    except ModuleNotFoundError as error:
        raise MissingExtra("psycopg", "psycopg") from error
    return lambda: psycopg.AsyncConnection.connect(url)


def _own_driver(made: object, *, is_async: bool) -> Driver:
    """The driver of a connection that can be used as it is."""
    driver = driver_of(made)
    if driver is None or not driver.is_database or driver.is_async is not is_async:
        expected = (
            "it gives no connection of psycopg, asyncpg, sqlite3 or aiosqlite: an outbox is moved "
            "from PostgreSQL or SQLite"
        )
        raise OptionError("database", type(made), expected)
    return driver


async def _in_thread(
    thread: ThreadPoolExecutor, work: Callable[[], T], *, limit_s: float = _LIMIT_S
) -> T:
    async with asyncio.timeout(limit_s):
        return await asyncio.get_running_loop().run_in_executor(thread, work)
