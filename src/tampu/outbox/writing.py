"""Writes rows in the transaction of whoever enqueues, with the driver that this one uses."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from tampu.errors import OutboxFailed, WrongContext
from tampu.outbox.drivers import Driver, driver_of, is_missing_table
from tampu.outbox.schema import insert_sql

if TYPE_CHECKING:
    from types import TracebackType

    from sqlalchemy import TextClause

    from tampu.outbox.encoding import StoredJob

Wake = Callable[[], None]
HOW_TO_CREATE: Final = "create it in a migration, or with `await outbox.create_table(...)`"
HOW_TO_MIGRATE: Final = "run `python manage.py migrate`"
"""How the table comes into a database of Django."""


class TableErrors:
    """Turns a driver's error about a missing table into ours; others pass as they are."""

    def __init__(self, table: str, how_to_create: str = HOW_TO_CREATE) -> None:
        self._table, self._how_to_create = table, how_to_create

    def __enter__(self) -> None:
        return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if isinstance(error, Exception) and is_missing_table(error):
            raise missing_table(self._table, self._how_to_create) from error


def missing_table(table: str, how_to_create: str) -> OutboxFailed:
    """The error for a table that a database does not have."""
    return OutboxFailed(table, f"the database has no such table; {how_to_create}")


class RowWriter:
    """Writes the rows of one table. `wake` is called after the commit, where that can be seen."""

    def __init__(self, table: str, wake: Wake) -> None:
        self._table, self._wake = table, wake

    async def write(self, given: Any, driver: Driver, job: StoredJob) -> None:  # noqa: ANN401 - of any driver
        """Write a row with an asynchronous driver."""
        with TableErrors(self._table):
            if driver in {Driver.ASYNC_SESSION, Driver.ASYNC_CONNECTION}:
                session = driver is Driver.ASYNC_SESSION
                connection = await given.connection() if session else given
                check_transaction(connection.sync_connection, Driver.CONNECTION)
                await connection.execute(_insert(self._table), _values(job))
                _wake_after_commit(given, self._wake)
                return
            check_transaction(given, driver)
            text = driver.statement(insert_sql(self._table))
            if driver is Driver.ASYNCPG:
                await given.execute(text, job.queue, job.body)
            else:
                cursor = await given.execute(text, (job.queue, job.body))
                await cursor.close()

    def write_sync(self, given: Any, driver: Driver, job: StoredJob) -> None:  # noqa: ANN401 - of any driver
        """Write a row with a driver that blocks."""
        how_to_create = HOW_TO_MIGRATE if driver is Driver.DJANGO else HOW_TO_CREATE
        with TableErrors(self._table, how_to_create):
            if driver in {Driver.SESSION, Driver.CONNECTION}:
                connection = given.connection() if driver is Driver.SESSION else given
                check_transaction(connection, Driver.CONNECTION)
                connection.execute(_insert(self._table), _values(job))
                _wake_after_commit(given, self._wake)
                return
            check_transaction(given, driver)
            cursor = given.cursor()
            try:
                text = driver.statement(insert_sql(self._table))
                cursor.execute(text, (job.queue, job.body))
            finally:
                cursor.close()
            if driver is Driver.DJANGO and given.in_atomic_block:
                given.on_commit(self._wake, robust=True)  # not if its savepoint is rolled back


@lru_cache(maxsize=64)
def _insert(table: str) -> TextClause:
    import sqlalchemy as sa  # noqa: PLC0415 - optional extra, whose session we were given

    statement = sa.text(f"INSERT INTO {table} (queue, job) VALUES (:queue, :job)")  # noqa: S608
    return statement.bindparams(sa.bindparam("job", type_=sa.LargeBinary))


def _values(job: StoredJob) -> dict[str, object]:
    return {"queue": job.queue, "job": job.body}


# --- transactions -------------------------------------------------------------------------------


def check_transaction(connection: Any, driver: Driver) -> None:  # noqa: ANN401 - of any driver
    """Refuse a connection that would commit the row by itself."""
    if _commits_alone(connection, driver):
        reason = (
            "no transaction is open on this connection, so the job would be stored even if the "
            f"rest is rolled back; {_HOW_TO_BEGIN[driver]}"
        )
        raise WrongContext("enqueue in the outbox", reason)


_WITH_CONNECTION: Final = "use it inside of `with connection.transaction():`"
_ASYNC_WITH: Final = "use it inside of `async with connection.transaction():`"
_BEGIN: Final = 'run "BEGIN" first, or connect without isolation_level=None and autocommit=True'
_HOW_TO_BEGIN: Final = {
    Driver.SQLITE: _BEGIN,
    Driver.AIOSQLITE: _BEGIN,
    Driver.PSYCOPG: _WITH_CONNECTION,
    Driver.ASYNC_PSYCOPG: _ASYNC_WITH,
    Driver.PSYCOPG2: "set connection.autocommit = False",
    Driver.ASYNCPG: _ASYNC_WITH,
    Driver.DJANGO: "use it inside of `with transaction.atomic():`",
    Driver.CONNECTION: "do not use the isolation level AUTOCOMMIT for it",
}


def _commits_alone(connection: Any, driver: Driver) -> bool:  # noqa: ANN401 - of any driver
    match driver:
        case Driver.ASYNCPG:
            return not connection.is_in_transaction()
        case Driver.PSYCOPG | Driver.ASYNC_PSYCOPG:
            return bool(connection.autocommit) and not connection.info.transaction_status
        case Driver.PSYCOPG2:
            return bool(connection.autocommit)
        case Driver.SQLITE | Driver.AIOSQLITE:
            # From Python 3.12 on there is `autocommit`; -1 stands for the older way.
            alone = connection.isolation_level is None or _autocommit(connection) is True
            return alone and not connection.in_transaction
        case Driver.DJANGO:
            return not connection.in_atomic_block and connection.get_autocommit()
        case _:
            return _is_autocommit(connection)


def _autocommit(connection: Any) -> object:  # noqa: ANN401 - of sqlite3 or aiosqlite
    return getattr(getattr(connection, "_conn", connection), "autocommit", None)


def _is_autocommit(connection: Any) -> bool:  # noqa: ANN401 - SQLAlchemy's
    if connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT":
        return True
    made = connection.connection.driver_connection
    driver = driver_of(made)
    # asyncpg begins with the first statement only, so it cannot tell.
    return driver in _TELL_BEFORE and _commits_alone(made, driver)


_TELL_BEFORE: Final = {Driver.PSYCOPG, Driver.ASYNC_PSYCOPG, Driver.PSYCOPG2}


# --- waking the relay -----------------------------------------------------------------------------

_waiting: Final = WeakKeyDictionary[Any, set[Wake]]()
"""Who is to be woken after the commit of a session or connection that rows were written with."""


def _wake_after_commit(given: Any, wake: Wake) -> None:  # noqa: ANN401 - SQLAlchemy's
    """Listen for commits, once for each session or connection."""
    from sqlalchemy import event  # noqa: PLC0415 - optional extra, whose session we were given

    target = getattr(given, "registry", None)
    target = given if target is None else target()
    for inner in ("sync_session", "sync_connection"):
        target = getattr(target, inner, target)
    if target not in _waiting:
        is_session = hasattr(target, "in_nested_transaction") and hasattr(target, "flush")
        # A connection tells shortly before the commit: the relay looks a few times for that.
        event.listen(target, "after_commit" if is_session else "commit", _wake_all)
    _waiting.setdefault(target, set()).add(wake)


def _wake_all(target: Any) -> None:  # noqa: ANN401 - SQLAlchemy's
    if target.in_nested_transaction():
        return  # `after_commit` also comes after a savepoint
    waiting = _waiting[target]
    while waiting:
        waiting.pop()()
