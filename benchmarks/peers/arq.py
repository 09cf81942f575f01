"""arq: asyncio in one process, 100 jobs at a time.

uvloop is more than its documentation asks for. It looks for jobs every half second, and for
results alike: its defaults, on which its documentation gives no other advice. What it takes at
each look is set larger than the default of 500, which would be a limit of 1000 jobs a second. It
has no call that adds many: many tasks add at once.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import uvloop
from arq import create_pool
from arq.connections import ArqRedis, RedisSettings
from arq.worker import run_worker

from benchmarks.peers.handler import RESULTS, URL, ran
from benchmarks.peers.tasks import from_tasks
from benchmarks.sample import CONCURRENCY, DATA


async def job(context: object, data: object) -> object:
    del context
    return ran(data)


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
        await from_tasks(self.add, jobs)

    async def add_at(self, due: float) -> object:
        at = datetime.fromtimestamp(due, UTC)
        return await self._redis.enqueue_job("job", due, _defer_until=at)

    async def result(self) -> object:
        added = await self._redis.enqueue_job("job", DATA)
        return await added.result(timeout=10)


@asynccontextmanager
async def producer() -> AsyncGenerator[Producer]:
    yield Producer(await create_pool(WorkerSettings.redis_settings))
