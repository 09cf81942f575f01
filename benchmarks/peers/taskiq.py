"""taskiq with taskiq-redis: asyncio, one worker process, 100 tasks at a time, by its own command.

The stream broker is the one of its documentation's first example; it acknowledges. The command
takes uvloop where it is installed. Delays need its scheduler, a process of its own that is told
to look every second, the least that it takes: its default is every minute. It has no call that
adds many: many tasks add at once.
"""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from subprocess import Popen, run

from taskiq import TaskiqScheduler
from taskiq_redis import ListRedisScheduleSource, RedisAsyncResultBackend, RedisStreamBroker

from benchmarks.peers.handler import DELAYS, RESULTS, URL, ran
from benchmarks.peers.tasks import from_tasks
from benchmarks.sample import CONCURRENCY, DATA, QUEUE

broker = RedisStreamBroker(URL, queue_name=QUEUE)
if RESULTS:
    broker = broker.with_result_backend(RedisAsyncResultBackend(URL, result_ex_time=60))
source = ListRedisScheduleSource(URL)
scheduler = TaskiqScheduler(broker, [source])


@broker.task(task_name="job")
async def job(data: object) -> object:
    return ran(data)


def work() -> None:
    taskiq = [sys.executable, "-m", "taskiq"]
    quiet = ["--log-level", "WARNING"]
    if DELAYS:
        often = ["--update-interval", "1", "--loop-interval", "1"]
        Popen([*taskiq, "scheduler", "benchmarks.peers.taskiq:scheduler", *often, *quiet])
    size = ["--workers", "1", "--max-async-tasks", str(CONCURRENCY)]
    run([*taskiq, "worker", "benchmarks.peers.taskiq:broker", *size, *quiet], check=True)


class Producer:
    async def add(self) -> object:
        return await job.kiq(DATA)

    async def add_many(self, jobs: int) -> None:
        await from_tasks(self.add, jobs)

    async def add_at(self, due: float) -> object:
        return await job.schedule_by_time(source, datetime.fromtimestamp(due, UTC), due)

    async def result(self) -> object:
        added = await job.kiq(DATA)
        return await added.wait_result(timeout=10)


@asynccontextmanager
async def producer() -> AsyncGenerator[Producer]:
    await broker.startup()
    await source.startup()
    yield Producer()
    await broker.shutdown()
