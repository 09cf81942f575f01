"""Huey: 100 threads in one process, started by its own consumer.

Its documentation calls threads the safest choice, and recommends greenlets for jobs that wait and
processes for jobs that compute. For results it is notified (notify_result). Its scheduler polls
every second, which is the shortest interval it accepts. It has no call that adds many jobs: map
comes closest.
"""

import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from subprocess import run

from huey import RedisHuey
from redis import ConnectionPool

from benchmarks.peers.shared import RESULTS, URL, run_job
from benchmarks.workload import CONCURRENCY, DATA, QUEUE

pool = ConnectionPool.from_url(URL, max_connections=2 * CONCURRENCY)  # one for each thread
huey = RedisHuey(QUEUE, connection_pool=pool, results=RESULTS, notify_result=RESULTS)


@huey.task()
def job(data: object) -> object:
    return run_job(data)


def work() -> None:
    command = [sys.executable, "-m", "huey.bin.huey_consumer", "benchmarks.peers.huey.huey"]
    options = ["--worker-type", "thread", "--workers", str(CONCURRENCY), "--quiet"]
    run([*command, *options], check=True)


class Producer:
    async def add(self) -> object:
        return job(DATA)

    async def add_many(self, jobs: int) -> object:
        return job.map([DATA] * jobs)

    async def add_at(self, due: float) -> object:
        return job.schedule(args=(due,), delay=max(0.0, due - time.time()))

    async def result(self) -> object:
        return job(DATA).get(blocking=True, timeout=10)


@asynccontextmanager
async def producer() -> AsyncGenerator[Producer]:
    yield Producer()
