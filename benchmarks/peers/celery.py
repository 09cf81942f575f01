"""Celery: a pool of 100 greenlets in one process.

Its guide on optimizing recommends a large prefetch multiplier (128) for short jobs, and to store no
result if none is needed. Prefork, its default, uses one process per running job. We compare one
process, and of the pools that run 100 jobs in one process gevent was the fastest. It has no call
that adds many jobs: its guide on calling reuses one connection for them.
"""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from subprocess import run

from celery import Celery

from benchmarks.peers.shared import RESULTS, URL, run_job
from benchmarks.workload import CONCURRENCY, DATA, QUEUE

app = Celery(QUEUE, broker=URL, backend=URL if RESULTS else None)
app.conf.update(
    task_default_queue=QUEUE,
    task_ignore_result=not RESULTS,
    worker_prefetch_multiplier=128,
    broker_connection_retry_on_startup=True,
)


@app.task(name="job")
def job(data: object) -> object:
    return run_job(data)


def work() -> None:
    pool = ["--pool", "gevent", "--concurrency", str(CONCURRENCY)]
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "WARNING"]
    celery = [sys.executable, "-m", "celery", "--app", "benchmarks.peers.celery"]
    run([*celery, "worker", *pool, *quiet], check=True)


class Producer:
    async def add(self) -> object:
        return job.delay(DATA)

    async def add_many(self, jobs: int) -> object:
        with app.producer_or_acquire() as reused:
            return [job.apply_async((DATA,), producer=reused) for _ in range(jobs)]

    async def add_at(self, due: float) -> object:
        return job.apply_async((due,), eta=datetime.fromtimestamp(due, UTC))

    async def result(self) -> object:
        return job.delay(DATA).get(timeout=10)


@asynccontextmanager
async def producer() -> AsyncGenerator[Producer]:
    yield Producer()
