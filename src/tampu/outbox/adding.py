"""Adds the jobs of a batch of rows to their queues."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec import Struct, field

from tampu.errors import DecodeError, OptionError, ServerError, UnknownLimit
from tampu.outbox.encoding import read_request
from tampu.producer.request import Request
from tampu.util.clock import now_ms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tampu.app import App
    from tampu.outbox.rows import FetchedRow


class MovedBatch(Struct):
    """What became of rows: added, also if before; refused, with the reason; or kept for later."""

    added: list[int] = field(default_factory=list)
    duplicates: int = 0
    refused: list[tuple[int, str]] = field(default_factory=list)
    failed: dict[str, ServerError] = field(default_factory=dict)  # why, by queue
    queues: set[str] = field(default_factory=set)  # that have taken all of their jobs


class _Item(Struct, frozen=True):
    row_id: int
    request: Request


async def add_batch(app: App, rows: Sequence[FetchedRow]) -> MovedBatch:
    """Add the jobs of rows, each queue by itself, in the order of the rows."""
    adding = _Adding(app)
    by_queue = adding.decode(rows)
    # Each part ends in an entry of the batch, so that no queue waits for another one's trouble.
    await asyncio.gather(*(adding.add(queue, items) for queue, items in by_queue.items()))
    return adding.done


class _Adding:
    """A batch that is being added."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.done = MovedBatch()

    def decode(self, rows: Sequence[FetchedRow]) -> dict[str, list[_Item]]:
        """The rows that can be read, by queue."""
        at_ms, most = now_ms(), self._app.job_rules.max_payload
        by_queue: dict[str, list[_Item]] = {}
        for row in rows:
            if row.job is None:
                self.done.refused.append((row.id, f"it is too large: {row.size} bytes"))
                continue
            try:
                item = _Item(row.id, read_request(row.job, at_ms))
            except (DecodeError, OptionError) as error:
                self.done.refused.append((row.id, str(error)))
                continue
            size = len(item.request.payload)
            if size > most:
                self.done.refused.append((row.id, f"it is too large: {size} bytes"))
            else:
                by_queue.setdefault(row.queue, []).append(item)
        return by_queue

    async def add(self, queue: str, items: list[_Item]) -> None:
        """Add the jobs of one queue."""
        done = self.done
        try:
            jobs = await self._app.queue(queue).add_repeated([each.request for each in items])
        except (OptionError, UnknownLimit) as error:
            if len(items) == 1:
                done.refused.append((items[0].row_id, str(error)))
                return
            middle = len(items) // 2  # one cannot be added, and the others must not wait for it
            await self.add(queue, items[:middle])
            if queue not in done.failed:
                await self.add(queue, items[middle:])
        except ServerError as error:
            done.failed[queue] = error
            done.queues.discard(queue)
        else:
            done.added += [each.row_id for each in items]
            done.queues.add(queue)
            done.duplicates += sum(job.duplicate for job in jobs)
