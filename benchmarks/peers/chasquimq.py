"""ChasquiMQ: asyncio over its Rust engine, in one process.

Its documentation does not ask for uvloop, but it is faster with it. Events are off; everything else
is the default.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import uvloop
from chasquimq import Job, Queue, Worker

from benchmarks.peers.shared import RESULTS, URL, run_job
from benchmarks.workload import CONCURRENCY, DATA, NAME, QUEUE


async def handle(job: Job) -> object:
    return run_job(job.data)


def work() -> None:
    async def run() -> None:
        await Worker(
            QUEUE,
            handle,
            redis_url=URL,
            concurrency=CONCURRENCY,
            events_enabled=False,
            store_results=RESULTS,
        ).run()

    uvloop.run(run())


class Producer:
    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    async def add(self) -> object:
        return await self._queue.add(NAME, DATA)

    async def add_many(self, jobs: int) -> object:
        return await self._queue.add_bulk([{"name": NAME, "data": DATA}] * jobs)

    async def add_at(self, due: float) -> object:
        return await self._queue.add(NAME, due, delay_ms=datetime.fromtimestamp(due, UTC))

    async def result(self) -> object:
        job = await self._queue.add(NAME, DATA)
        return await job.wait_for_result(timeout=10)


@asynccontextmanager
async def producer() -> AsyncGenerator[Producer]:
    async with Queue(QUEUE, redis_url=URL) as queue:
        yield Producer(queue)
