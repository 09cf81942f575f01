"""streaQ: asyncio in one process, concurrency 100, with uvloop as its documentation shows.

It stores no result (ttl 0) unless the scenario needs one, and logs no line per job (silent).
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from streaq import Worker

from benchmarks.peers.shared import RESULTS, URL, run_job
from benchmarks.workload import CONCURRENCY, DATA, QUEUE

worker = Worker(
    redis_url=URL,
    queue_name=QUEUE,
    concurrency=CONCURRENCY,
    anyio_kwargs={"use_uvloop": True},
)


@worker.task(name="job", silent=True, ttl=60 if RESULTS else 0)
async def job(data: object) -> object:
    return run_job(data)


def work() -> None:
    worker.run_sync()


class Producer:
    async def add(self) -> object:
        return await job.enqueue(DATA)

    async def add_many(self, jobs: int) -> object:
        return await worker.enqueue_many([job.enqueue(DATA) for _ in range(jobs)])

    async def add_at(self, due: float) -> object:
        return await job.enqueue(due).start(schedule=datetime.fromtimestamp(due, UTC))

    async def result(self) -> object:
        added = await job.enqueue(DATA)
        return (await added.result(timeout=10)).result


@asynccontextmanager
async def producer() -> AsyncGenerator[Producer]:
    async with worker:
        yield Producer()
