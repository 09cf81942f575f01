"""tampu: asyncio in one process, with uvloop and without events."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import uvloop

from benchmarks.peers.shared import RESULTS, URL, run_job
from benchmarks.workload import CONCURRENCY, DATA, NAME, QUEUE
from tampu import NewJob, Queue, Worker
from tampu.job import Job
from tampu.util.clock import instant


async def handle(job: Job[Any]) -> object:
    return run_job(job.data)


def work() -> None:
    worker = Worker(
        QUEUE, handle, URL, concurrency=CONCURRENCY, events=False, store_results=RESULTS
    )
    uvloop.run(worker.run())


class Producer:
    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    async def add(self) -> object:
        return await self._queue.add(NAME, DATA)

    async def add_many(self, jobs: int) -> object:
        return await self._queue.add_many([NewJob(NAME, DATA)] * jobs)

    async def add_at(self, due: float) -> object:
        return await self._queue.add(NAME, due, at=instant(round(1000 * due)))

    async def result(self) -> object:
        job = await self._queue.add(NAME, DATA)
        return await job.result(timeout=10)


@asynccontextmanager
async def producer() -> AsyncGenerator[Producer]:
    async with Queue(QUEUE, URL) as queue:
        yield Producer(queue)
