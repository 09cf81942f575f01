"""A queue under load: tasks that add without a pause to speak of, and one worker that must live."""

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tampu import Backoff, Bury, Job, Queue, QueueFull
from tampu.consumer.options import WorkerOptions
from tampu.worker import Worker
from tests.faults.jobs import add_all, is_at_rest
from tests.faults.ledger import Kind, Ledger, Report, check
from tests.waiting import wait_until

PRODUCERS = 20
REST_LIMIT_S = 20.0
_BURIED_OF = (50, 7)  # of so many jobs, this one asks to be buried
_FAILING_OF = (10, 3)  # of so many jobs, this one fails in its first attempt
_LONG_OF = (20, 5)  # of so many jobs, this one outlasts a reconnect


class Load:
    """Producers and a worker; each add, run and end is in the ledger."""

    def __init__(self, queue: Queue, ledger: Ledger) -> None:
        self.queue, self.ledger = queue, ledger
        self.refused = 0
        self.stopping = False
        self._tags = itertools.count()
        self._worker_id = ""

    @property
    def done(self) -> int:
        return self.ledger.count(Kind.DONE)

    async def more_done(self, count: int = 100, *, within: float = REST_LIMIT_S) -> None:
        """Return when so many more jobs have been done."""
        goal = self.done + count
        await wait_until(
            lambda: self.done >= goal, within=within, sentence=f"{count} more jobs are done"
        )

    async def add_backlog(self, count: int) -> None:
        """Have so many jobs wait."""
        tags = list(itertools.islice(self._tags, count))
        await add_all(self.queue, self.ledger, "work", tags)

    async def produce(self) -> None:
        """One producer: what it is told is that there is no room, or nothing at all."""
        while not self.stopping:
            tag = next(self._tags)
            self.ledger.sent(tag)
            try:
                await self.queue.add("work", tag)
            except QueueFull:
                self.refused += 1
            else:
                self.ledger.added(tag)
            await asyncio.sleep(0.01)

    async def work(self, job: Job[Any]) -> None:
        """The handler."""
        self.ledger.started(job, self._worker_id)
        await asyncio.sleep(0.3 if is_one_of(job.data, _LONG_OF) else 0.002)
        if is_one_of(job.data, _BURIED_OF) or (
            is_one_of(job.data, _FAILING_OF) and job.attempt == 1
        ):
            self.ledger.failed(job, self._worker_id)
            raise Bury("no more") if is_one_of(job.data, _BURIED_OF) else ValueError("once")
        self.ledger.done(job, self._worker_id)

    async def rest(self) -> Report:
        """Add no more; when all is done, what the ledger says."""
        self.stopping = True
        await wait_until(
            lambda: is_at_rest(self.queue), within=REST_LIMIT_S, sentence="every job is settled"
        )
        return check(self.ledger.lines(), await self.dead_tags())

    async def dead_tags(self) -> list[object]:
        """The tags of all dead letters."""
        letters = await self.queue.dead.peek(100_000)
        return [letter.data for letter in letters]


def is_one_of(tag: int, of: tuple[int, int]) -> bool:
    """Whether it is the one of so many."""
    return tag % of[0] == of[1]


@asynccontextmanager
async def load_on(
    url: str,
    ledger: Ledger,
    caplog: pytest.LogCaptureFixture,
    *,
    worker_url: str | None = None,
    backlog: int = 0,
    lease: float = 30,
) -> AsyncIterator[Load]:
    """A load that runs; nothing but what a producer expects may have been raised at the end."""
    async with Queue("load", url) as queue:
        load = Load(queue, ledger)
        options = WorkerOptions(concurrency=50, backoff=Backoff.fixed(0.05), lease=lease)
        worker = Worker("load", load.work, worker_url or url, **options)
        load._worker_id = worker.id
        await load.add_backlog(backlog)
        async with asyncio.TaskGroup() as producers, worker:
            for _ in range(PRODUCERS):
                producers.create_task(load.produce())
            try:
                await load.more_done(20)
                yield load
                await load.rest()
            finally:
                load.stopping = True
    raised = [each for each in caplog.records if each.exc_info and each.levelno >= logging.ERROR]
    assert not raised, raised
