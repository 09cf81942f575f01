"""The rows of an outbox table, as its relay sees them."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Collection, Sequence
from hashlib import blake2b
from typing import Final

from msgspec import Struct

from tampu.errors import DecodeError, OutboxFailed, TampuError, text_of
from tampu.outbox.database import Connection, Database, Row, connect_database
from tampu.outbox.drivers import SqlDialect, is_missing_table
from tampu.outbox.schema import OutboxSql, Statement
from tampu.outbox.writing import HOW_TO_CREATE, missing_table
from tampu.wire.outbox import decode_outbox_job

_ROOM: Final = 128 * 1024
"""A row is this much larger than its payload at most."""


class FetchedRow(Struct, frozen=True):
    """A row that waits. `job` is None if it is too large."""

    id: int
    queue: str
    job: bytes | None
    size: int


class ListedRow(Struct, frozen=True):
    """A row for people: what can be told of its job, and why it was refused, if it was."""

    id: int
    queue: str
    job_id: str | None
    name: str | None
    stored_at_ms: int | None
    problem: str | None


class RowCounts(Struct, frozen=True):
    """How many rows wait and were refused, up to 100,000; when the oldest was stored."""

    waiting: int
    refused: int
    oldest_at_ms: int | None


class OutboxRows:
    """The rows of a table, over a connection that is opened when it is needed.

    Every statement is a transaction of its own. After an error the next call connects again.
    """

    def __init__(
        self, table: str, database: Database, *, max_job: int, how_to_create: str = HOW_TO_CREATE
    ) -> None:
        self.table, self._how_to_create = table, how_to_create
        self._database = database
        self._max_job = max_job + _ROOM
        self._connection: Connection | None = None

    @property
    def is_open(self) -> bool:
        """Whether there is a connection."""
        return self._connection is not None

    async def fetch(self, after: int, held: Collection[str]) -> list[FetchedRow]:
        """The next rows after an id, oldest first, without those of some queues."""
        rows = await self._run(lambda sql: sql.fetch(after, held))
        return [
            FetchedRow(row[0], row[1], None if row[2] is None else bytes(row[2]), row[3])
            for row in rows
        ]

    async def delete(self, ids: Collection[int]) -> None:
        """Delete rows whose jobs are on their queues."""
        if ids:
            await self._run(lambda sql: sql.delete(ids))

    async def refuse(self, row_id: int, problem: str) -> None:
        """Set a row aside that cannot be added. It stays, with the reason."""
        await self._run(lambda sql: sql.refuse(row_id, problem))

    async def retry(self, ids: Collection[int] = ()) -> list[int]:
        """Let rows that were refused wait again, all or some; their ids."""
        return sorted(int(row[0]) for row in await self._run(lambda sql: sql.retry(ids)))

    async def list_rows(self, most: int, *, refused: bool = False) -> list[ListedRow]:
        """The oldest rows, or only those that were refused."""
        rows = await self._run(lambda sql: sql.list_rows(most, refused=refused))
        return [_listed(row) for row in rows]

    async def count(self) -> RowCounts:
        """How many rows there are."""
        ((total, refused),) = await self._run(OutboxSql.count)
        oldest = await self._run(OutboxSql.oldest)
        stored_at_ms = _decoded(bytes(oldest[0][0]))[2] if oldest else None
        return RowCounts(int(total) - int(refused), int(refused), stored_at_ms)

    async def create(self) -> None:
        """Create the table unless it is there."""
        await self._run(OutboxSql.create)

    async def check(self) -> SqlDialect:
        """Look at every column that is needed; which kind of database it is."""
        await self._run(OutboxSql.look)
        assert self._connection is not None  # noqa: S101 - it has just answered
        return self._connection.dialect

    async def identify(self) -> str:
        """A text that only relays of the same table of the same database have."""
        dialect = await self.check()
        ((*parts,),) = await self._run(OutboxSql.identify)
        if dialect is SqlDialect.SQLITE:
            parts = [socket.gethostname(), await asyncio.to_thread(os.path.realpath, parts[0])]
        return blake2b("\n".join(parts).encode(), digest_size=8).hexdigest()

    async def close(self) -> None:
        """Disconnect. May be called twice; the next call connects again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    def _sql(self, connection: Connection) -> OutboxSql:
        return OutboxSql(self.table, connection.dialect, self._max_job)

    async def _run(self, statement: Callable[[OutboxSql], Statement]) -> Sequence[Row]:
        try:
            if self._connection is None:
                self._connection = await connect_database(self._database)
                for each in self._sql(self._connection).settings:
                    await self._connection.run(each)
            return await self._connection.run(statement(self._sql(self._connection)))
        except TampuError:
            raise
        except Exception as error:  # border: drivers raise what they like
            await self.close()
            if is_missing_table(error):
                raise missing_table(self.table, self._how_to_create) from error
            raise OutboxFailed(self.table, _problem(error)) from error
        except BaseException:
            await self.close()  # a statement that was interrupted: nobody knows its state
            raise


def _listed(row: Row) -> ListedRow:
    row_id, queue, job, problem = row
    job_id, name, stored_at_ms = _decoded(bytes(job))
    return ListedRow(row_id, queue, job_id, name, stored_at_ms, problem)


def _decoded(body: bytes) -> tuple[str | None, str | None, int | None]:
    """The id and the name of a job, and when it was stored; nothing of what cannot be decoded."""
    try:
        job = decode_outbox_job(body)
    except DecodeError:
        return None, None, None
    return job.job_id, job.name, job.stored_at_ms


def _problem(error: Exception) -> str:
    """The first line of what a driver says; the lines after it may quote a row."""
    text = next(iter(text_of(error).splitlines()), "")
    return f"{type(error).__name__}: {text}".rstrip(" :.")
