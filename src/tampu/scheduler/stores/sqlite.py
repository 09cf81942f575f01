"""A store in an SQLite file."""

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
from tampu.scheduler.stores.store import CountedStore, Loaded
from tampu.wire.task_state import TaskState, encode_task_state, try_decode

_BUSY_S: Final = 5.0
_RETRY_S: Final = 0.01
_CREATE: Final = "CREATE TABLE IF NOT EXISTS tasks (id TEXT PRIMARY KEY, state TEXT NOT NULL)"
_LOAD: Final = "SELECT state FROM tasks WHERE id = ?"
_SAVE: Final = "INSERT OR REPLACE INTO tasks (id, state) VALUES (?, ?)"
_DELETE: Final = "DELETE FROM tasks WHERE id = ?"
_PROBLEMS: Final = {
    sqlite3.SQLITE_BUSY: f"another program kept it locked for {_BUSY_S:g} s",
    sqlite3.SQLITE_LOCKED: f"another program kept it locked for {_BUSY_S:g} s",
    sqlite3.SQLITE_CANTOPEN: "its file cannot be opened; its directory may be missing",
    sqlite3.SQLITE_NOTADB: "its file is not an SQLite database",
    sqlite3.SQLITE_CORRUPT: "its file is damaged",
    sqlite3.SQLITE_FULL: "its disk is full",
    sqlite3.SQLITE_IOERR: "its file cannot be read or written; its disk may be full",
    sqlite3.SQLITE_READONLY: "its file is read-only",
    sqlite3.SQLITE_PERM: "there is no permission to open its file",
}
T = TypeVar("T")


class SqliteStore(CountedStore):
    """Keeps states in an SQLite file, which several processes may share.

        SqliteStore("tasks.db")

    Each save is one transaction. A separate thread does all the work. If the file cannot be read
    or written, a `StoreFailed` is raised and ends the scheduler.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__()
        # Absolute, so that the store keeps its file if the program changes its directory.
        self._path = _parse_path(path).absolute()
        self._thread: ThreadPoolExecutor | None = None
        self._database: sqlite3.Connection | None = None  # used in the thread only

    def __repr__(self) -> str:
        return f"<SqliteStore {self._path}>"

    async def load(self, task_ids: Sequence[str]) -> list[Loaded]:
        """The stored state of each task, in order, all read at one moment."""
        ids = list(task_ids)
        return await self._do(lambda: self._load(ids))

    async def save(self, states: Sequence[TaskState]) -> None:
        """Replace the stored states: all of them or none."""
        rows = [(state.task_id, encode_task_state(state).decode()) for state in states]
        await self._do(lambda: self._write(_SAVE, rows))

    async def delete(self, task_ids: Sequence[str]) -> None:
        """Delete the stored states: all of them or none."""
        rows = [(task_id,) for task_id in task_ids]
        await self._do(lambda: self._write(_DELETE, rows))

    async def _open(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tampu-sqlite")
        try:
            await self._do(self._connect)
        except BaseException:
            await self._close()
            raise

    async def _close(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            closing = asyncio.get_running_loop().run_in_executor(thread, self._disconnect)
            thread.shutdown(wait=False)  # the work that was submitted is still done
            await closing

    async def _do(self, work: Callable[[], T]) -> T:
        """Do something in the thread; it is done even if nobody waits for it any more."""
        if self._thread is None:
            raise StoreFailed(str(self._path), "it is not open")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    # --- in the thread --------------------------------------------------------------------------

    def _connect(self) -> None:
        with self._convert_errors():
            self._database = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None)
            self._database.text_factory = bytes  # another program may have written invalid text
            self._prepare(self._database)

    def _prepare(self, database: sqlite3.Connection) -> None:
        """Create the table; SQLite itself does not always wait here for another writer."""
        give_up_at = time.monotonic() + _BUSY_S
        while True:
            try:
                database.execute("PRAGMA journal_mode=WAL").fetchall()
                database.execute(_CREATE)
            except sqlite3.OperationalError as error:
                if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > give_up_at:
                    raise
                time.sleep(_RETRY_S)
            else:
                return

    def _disconnect(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            database.close()

    def _load(self, task_ids: list[str]) -> list[Loaded]:
        with self._transaction() as database:
            found = [database.execute(_LOAD, (task_id,)).fetchone() for task_id in task_ids]
        return [_decode_row(row, task_id) for row, task_id in zip(found, task_ids, strict=True)]

    def _write(self, statement: str, rows: Sequence[tuple[str, ...]]) -> None:
        with self._transaction() as database:
            database.executemany(statement, rows)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        database = self._database
        if database is None:
            raise StoreFailed(str(self._path), "it is not open")
        with self._convert_errors():
            database.execute("BEGIN")
            try:
                yield database
                database.execute("COMMIT")
            except BaseException:
                if database.in_transaction:  # a full disk may already have ended it
                    database.execute("ROLLBACK")
                raise

    @contextmanager
    def _convert_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreFailed(str(self._path), _problem(error)) from error


def _parse_path(path: object) -> Path:
    expected = "expected the path of a file"
    if not isinstance(path, str | os.PathLike):
        raise OptionError("path", path, expected)
    text = os.fspath(path)
    if not isinstance(text, str) or not text.strip() or "\0" in text:
        raise OptionError("path", path, expected)
    if text == ":memory:":
        raise OptionError("path", path, f"{expected}; to keep states in memory, use a MemoryStore")
    return Path(text)


def _decode_row(row: tuple[object] | None, task_id: str) -> Loaded:
    if row is None:
        return None
    body = row[0]
    if not isinstance(body, bytes):
        return DecodeError("task state", "it is not JSON")
    return try_decode(body, task_id)


def _problem(error: sqlite3.Error) -> str:
    return _PROBLEMS.get(_code(error), str(error))


def _code(error: sqlite3.Error) -> int:
    """The primary error code, without the extended part."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
