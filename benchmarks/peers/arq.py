"""arq: asyncio in one process, 100 jobs at a time.

Its documentation does not ask for uvloop, but it gets it. It polls for jobs every half second, and
for results, too: these are its defaults, and its documentation recommends nothing else. The number
of jobs per poll is larger than the default of 500, which would limit it to 1000 jobs per second.
It has no call that adds many jobs: several tasks add at once.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import uvloop
from arq import create_pool
from arq.connections import ArqRedis, RedisSettings
from arq.worker import run_worker

from benchmarks.peers.shared import RESULTS, URL, add_from_tasks, run_job
from benchmarks.workload import CONCURRENCY, DATA


async def job(context: object, data: object) -> object:
    del context
    return run_job(data)


class WorkerSettings:
    functions = (job,)
    redis_settings = RedisSettings.from_dsn(URL)
    max_jobs = CONCURRENCY
    queue_read_limit = 10_000
    keep_result = 60 if RESULTS else 0
    log_results = False


def work() -> None:
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    run_worker(WorkerSettings)


class Producer:
    def __init__(self, redis: ArqRedis) -> None:
        self._redis = redis

    async def add(self) -> object:
        return await self._redis.enqueue_job("job", DATA)

    async def add_many(self, jobs: int) -> None:
        await add_from_tasks(self.add, jobs)

    async def add_at(self, due: float) -> object:
        at = datetime.fromtimestamp(due, UTC)
        return await self._redis.enqueue_job("job", due, _defer_until=at)

    async def result(self) -> object:
        added = await self._redis.enqueue_job("job", DATA)
        return await added.result(timeout=10)


@asynccontextmanager
async def producer() -> AsyncGenerator[Producer]:
    yield Producer(await create_pool(WorkerSettings.redis_settings))
