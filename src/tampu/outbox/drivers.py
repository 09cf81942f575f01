"""Which driver a connection or engine belongs to, told without importing any driver."""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final

from tampu.errors import OptionError
from tampu.util.options import Word


class SqlDialect(Word):
    """The SQL of a database."""

    POSTGRESQL = "postgresql"
    SQLITE = "sqlite"


class Driver(Enum):
    """What a connection, session or engine is made by."""

    SQLITE = auto()
    AIOSQLITE = auto()
    PSYCOPG = auto()
    ASYNC_PSYCOPG = auto()
    PSYCOPG2 = auto()
    ASYNCPG = auto()
    DJANGO = auto()
    SESSION = auto()
    ASYNC_SESSION = auto()
    CONNECTION = auto()
    ASYNC_CONNECTION = auto()
    ENGINE = auto()
    ASYNC_ENGINE = auto()

    @property
    def is_async(self) -> bool:
        """Whether its calls are awaited."""
        return self in _ASYNC

    @property
    def is_database(self) -> bool:
        """Whether it is a connection as the database's own driver has it."""
        return self in _DIALECTS

    @property
    def dialect(self) -> SqlDialect:
        """The SQL that a driver's own connection speaks."""
        return _DIALECTS[self]

    def statement(self, text: str) -> str:
        """A statement with `?` for its values, as this driver writes it."""
        if self is Driver.ASYNCPG:
            parts = text.split("?")
            return parts[0] + "".join(f"${n}{part}" for n, part in enumerate(parts[1:], 1))
        return text if self in _QUESTION_MARKS else text.replace("?", "%s")


_ASYNC: Final = {
    *(Driver.AIOSQLITE, Driver.ASYNC_PSYCOPG, Driver.ASYNCPG),
    *(Driver.ASYNC_SESSION, Driver.ASYNC_CONNECTION, Driver.ASYNC_ENGINE),
}
_DIALECTS: Final = {
    Driver.SQLITE: SqlDialect.SQLITE,
    Driver.AIOSQLITE: SqlDialect.SQLITE,
    Driver.PSYCOPG: SqlDialect.POSTGRESQL,
    Driver.ASYNC_PSYCOPG: SqlDialect.POSTGRESQL,
    Driver.PSYCOPG2: SqlDialect.POSTGRESQL,
    Driver.ASYNCPG: SqlDialect.POSTGRESQL,
}
_QUESTION_MARKS: Final = {Driver.SQLITE, Driver.AIOSQLITE}
# By the package that a class is of, and its name. A subclass counts as its class.
_CLASSES: Final = {
    ("sqlite3", "Connection"): Driver.SQLITE,
    ("aiosqlite", "Connection"): Driver.AIOSQLITE,
    ("psycopg", "Connection"): Driver.PSYCOPG,
    ("psycopg", "AsyncConnection"): Driver.ASYNC_PSYCOPG,
    ("psycopg2", "connection"): Driver.PSYCOPG2,
    ("asyncpg", "Connection"): Driver.ASYNCPG,
    ("asyncpg", "PoolConnectionProxy"): Driver.ASYNCPG,
    ("django", "BaseDatabaseWrapper"): Driver.DJANGO,
    ("django", "ConnectionProxy"): Driver.DJANGO,
    ("sqlalchemy", "Session"): Driver.SESSION,
    ("sqlalchemy", "scoped_session"): Driver.SESSION,
    ("sqlalchemy", "AsyncSession"): Driver.ASYNC_SESSION,
    ("sqlalchemy", "async_scoped_session"): Driver.ASYNC_SESSION,
    ("sqlalchemy", "Connection"): Driver.CONNECTION,
    ("sqlalchemy", "AsyncConnection"): Driver.ASYNC_CONNECTION,
    ("sqlalchemy", "Engine"): Driver.ENGINE,
    ("sqlalchemy", "AsyncEngine"): Driver.ASYNC_ENGINE,
}
_MISSING: Final = re.compile(r"no such table|relation .* does not exist", re.IGNORECASE)
_UNDEFINED_TABLE: Final = "42P01"


def driver_of(given: object) -> Driver | None:
    """The driver of a connection, session or engine; None for anything else."""
    for each in type(given).__mro__:
        found = _CLASSES.get((each.__module__.partition(".")[0], each.__name__))
        if found is not None:
            return found
    return None


def find_driver(given: object) -> Driver:
    """As `driver_of`; `OptionError` for what an outbox cannot use."""
    found = driver_of(given)
    if found is None:
        expected = (
            "expected a session or connection of SQLAlchemy, or a connection of psycopg, asyncpg, "
            "sqlite3, aiosqlite or Django"
        )
        raise OptionError("connection", type(given), expected)
    return found


def is_missing_table(error: BaseException) -> bool:
    """Whether a driver's error says that a table does not exist."""
    causes = (error, getattr(error, "orig", None), error.__cause__)
    return any(
        getattr(each, "sqlstate", None) == _UNDEFINED_TABLE or _MISSING.search(str(each))
        for each in causes
        if each is not None
    )
