"""ChasquiMQ: asyncio over its Rust engine, in one process.

uvloop is more than its documentation asks for; it is faster with it. Events are off, all else is
as by default.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import uvloop
from chasquimq import Job, Queue, Worker

from benchmarks.peers.handler import RESULTS, URL, ran
from benchmarks.sample import CONCURRENCY, DATA, NAME, QUEUE


async def handle(job: Job) -> object:
    return ran(job.data)


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


class Chasquimq:
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
async def producer() -> AsyncGenerator[Chasquimq]:
    async with Queue(QUEUE, redis_url=URL) as queue:
        yield Chasquimq(queue)
