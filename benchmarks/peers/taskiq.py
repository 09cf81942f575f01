"""taskiq with taskiq-redis: asyncio, one worker process, 100 tasks at a time, its own command.

The stream broker is the one in the first example of its documentation, and it acknowledges jobs.
The command uses uvloop if it is installed. Delayed jobs need its scheduler, a separate process. We
let it poll every second, the shortest interval it accepts; its default is every minute. It has no
call that adds many jobs: several tasks add at once.
"""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from subprocess import Popen, run

from taskiq import TaskiqScheduler
from taskiq_redis import ListRedisScheduleSource, RedisAsyncResultBackend, RedisStreamBroker

from benchmarks.peers.shared import DELAYS, RESULTS, URL, add_from_tasks, run_job
from benchmarks.workload import CONCURRENCY, DATA, QUEUE

broker = RedisStreamBroker(URL, queue_name=QUEUE)
if RESULTS:
    broker = broker.with_result_backend(RedisAsyncResultBackend(URL, result_ex_time=60))
source = ListRedisScheduleSource(URL)
scheduler = TaskiqScheduler(broker, [source])


@broker.task(task_name="job")
async def job(data: object) -> object:
    return run_job(data)


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
        await add_from_tasks(self.add, jobs)

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
