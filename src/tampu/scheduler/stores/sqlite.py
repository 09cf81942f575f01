"""A store in one SQLite file."""

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

from tampu.errors import DecodeError, OptionError, StoreFailed
from tampu.scheduler.stores.store import Loaded, Store
from tampu.wire.task_state import TaskState, encode_task_state, try_decode

_BUSY_S: Final = 5.0
_LOOK_AGAIN_S: Final = 0.01
_MAKE: Final = "CREATE TABLE IF NOT EXISTS tasks (id TEXT PRIMARY KEY, state TEXT NOT NULL)"
_LOAD: Final = "SELECT state FROM tasks WHERE id = ?"
_SAVE: Final = "INSERT OR REPLACE INTO tasks (id, state) VALUES (?, ?)"
_DELETE: Final = "DELETE FROM tasks WHERE id = ?"
_PROBLEMS: Final = {
    sqlite3.SQLITE_BUSY: f"another program has kept it locked for {_BUSY_S:g} s",
    sqlite3.SQLITE_LOCKED: f"another program has kept it locked for {_BUSY_S:g} s",
    sqlite3.SQLITE_CANTOPEN: "its file cannot be opened; its directory may be missing",
    sqlite3.SQLITE_NOTADB: "its file is not an SQLite database",
    sqlite3.SQLITE_CORRUPT: "its file is damaged",
    sqlite3.SQLITE_FULL: "its disk is full",
    sqlite3.SQLITE_IOERR: "its file cannot be read or written; its disk may be full",
    sqlite3.SQLITE_READONLY: "its file may not be written to",
    sqlite3.SQLITE_PERM: "its file may not be opened",
}
T = TypeVar("T")


class SqliteStore(Store):
    """Keeps states in a file that several processes may share; each batch is one transaction.

    All work is done in a thread of its own. What goes wrong with the file is a `StoreFailed`.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        # Absolute, so that a program that changes its directory keeps its file.
        self._path = _checked(path).absolute()
        self._opening = asyncio.Lock()
        self._users = 0
        self._thread: ThreadPoolExecutor | None = None
        self._database: sqlite3.Connection | None = None  # the thread's

    def __repr__(self) -> str:
        return f"<SqliteStore {self._path}>"

    async def open(self) -> None:
        """Open the file, or make it."""
        async with self._opening:
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, thread_name_prefix="tampu-sqlite")
                try:
                    await self._do(self._connect)
                except BaseException:
                    await self._let_go()
                    raise
            self._users += 1

    async def close(self) -> None:
        """Close the file, once the last scheduler that uses it has closed it."""
        async with self._opening:
            self._users -= 1
            if self._users == 0:
                await self._let_go()

    async def load(self, task_ids: Sequence[str]) -> list[Loaded]:
        """What is stored of each task, all as of one moment."""
        asked = list(task_ids)
        return await self._do(lambda: self._load(asked))

    async def save(self, states: Sequence[TaskState]) -> None:
        """Keep these in place of what was there: all of them or none."""
        rows = [(state.task_id, encode_task_state(state).decode()) for state in states]
        await self._do(lambda: self._write(_SAVE, rows))

    async def delete(self, task_ids: Sequence[str]) -> None:
        """Forget these: all of them or none."""
        rows = [(task_id,) for task_id in task_ids]
        await self._do(lambda: self._write(_DELETE, rows))

    async def _do(self, work: Callable[[], T]) -> T:
        """Have the thread do something; what nobody waits for any more is done as well."""
        if self._thread is None:
            raise StoreFailed(str(self._path), "it is not open")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _let_go(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            closing = asyncio.get_running_loop().run_in_executor(thread, self._disconnect)
            thread.shutdown(wait=False)  # behind the work that has begun
            await closing

    # --- in the thread --------------------------------------------------------------------------

    def _connect(self) -> None:
        with self._failures():
            self._database = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None)
            self._database.text_factory = bytes  # others may have written what is no Unicode
            self._prepare(self._database)

    def _prepare(self, database: sqlite3.Connection) -> None:
        """Set the file up; here SQLite does not always wait by itself for who writes to it."""
        limit = time.monotonic() + _BUSY_S
        while True:
            try:
                database.execute("PRAGMA journal_mode=WAL").fetchall()
                database.execute(_MAKE)
            except sqlite3.OperationalError as error:
                if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > limit:
                    raise
                time.sleep(_LOOK_AGAIN_S)
            else:
                return

    def _disconnect(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            database.close()

    def _load(self, task_ids: list[str]) -> list[Loaded]:
        with self._transaction() as database:
            found = [database.execute(_LOAD, (task_id,)).fetchone() for task_id in task_ids]
        return [_loaded(row, task_id) for row, task_id in zip(found, task_ids, strict=True)]

    def _write(self, statement: str, rows: Sequence[tuple[str, ...]]) -> None:
        with self._transaction() as database:
            database.executemany(statement, rows)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        database = self._database
        if database is None:
            raise StoreFailed(str(self._path), "it is not open")
        with self._failures():
            database.execute("BEGIN")
            try:
                yield database
                database.execute("COMMIT")
            except BaseException:
                if database.in_transaction:  # a full disk may have ended it already
                    database.execute("ROLLBACK")
                raise

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreFailed(str(self._path), _problem(error)) from error


def _checked(path: object) -> Path:
    accepted = "expected the path of a file"
    if not isinstance(path, str | os.PathLike):
        raise OptionError("path", path, accepted)
    text = os.fspath(path)
    if not isinstance(text, str) or not text.strip() or "\0" in text:
        raise OptionError("path", path, accepted)
    if text == ":memory:":
        raise OptionError("path", path, f"{accepted}; a MemoryStore keeps states in memory")
    return Path(text)


def _loaded(row: tuple[object] | None, task_id: str) -> Loaded:
    if row is None:
        return None
    body = row[0]
    if not isinstance(body, bytes):
        return DecodeError("task state", "it is not JSON")
    return try_decode(body, task_id)


def _problem(error: sqlite3.Error) -> str:
    return _PROBLEMS.get(_code(error), str(error))


def _code(error: sqlite3.Error) -> int:
    """The kind of error, without what makes it more precise."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
