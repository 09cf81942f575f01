"""Celery: a pool of 100 greenlets in one process.

Its guide on optimizing recommends a large prefetch multiplier (128) for short jobs, and to store no
result if none is needed. Prefork, its default, uses one process per running job. We compare one
process, and of the pools that run 100 jobs in one process gevent was the fastest. It has no call
that adds many jobs: its guide on calling reuses one connection for them. Groups are chords, as its
guide on canvas has them.

Priorities are set up as its guide on routing shows for Redis, where 0 is the most urgent one. The
worker then reserves one job for each greenlet (prefetch multiplier 1), because urgent jobs cannot
overtake those that it has reserved.
"""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from subprocess import run
from time import sleep
from typing import Final

from celery import Celery, chord

from benchmarks.peers import protocol
from benchmarks.peers.shared import RESULTS, SCENARIO, SLOW, URL, run_job, run_join
from benchmarks.workload import CONCURRENCY, DATA, QUEUE

LEVELS: Final = range(10)
HIGHEST: Final = LEVELS[0]
LOWEST: Final = LEVELS[-1]
OPTIONS: Final[list[dict[str, int]]] = {  # of the jobs that a filled queue repeats
    protocol.PRIORITIES: [{"priority": LOWEST}, {"priority": HIGHEST}],
    protocol.OVERTAKE: [{"priority": LOWEST}],
}.get(SCENARIO, [{}])
PRIORITIES: Final = OPTIONS != [{}]

app = Celery(QUEUE, broker=URL, backend=URL if RESULTS else None)
app.conf.update(
    task_default_queue=QUEUE,
    task_ignore_result=not RESULTS,
    worker_prefetch_multiplier=1 if PRIORITIES else 128,
    broker_connection_retry_on_startup=True,
)
if PRIORITIES:
    app.conf.broker_transport_options = {
        "priority_steps": list(LEVELS),
        "sep": ":",
        "queue_order_strategy": "priority",
    }


@app.task(name="job")
def job(data: object) -> object:
    returned = run_job(data)
    if SLOW:
        sleep(protocol.SLOW_JOB_S)  # gevent lets other jobs run
    return returned


@app.task(name="join")
def join(values: list[object]) -> int:
    return run_join(values)


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
            options = OPTIONS * (jobs // len(OPTIONS))
            return [job.apply_async((DATA,), producer=reused, **each) for each in options]

    async def add_urgent(self) -> object:
        return job.apply_async((protocol.URGENT,), priority=HIGHEST)

    async def add_group(self, size: int) -> object:
        return chord(job.s(DATA) for _ in range(size))(join.s())

    async def add_at(self, due: float) -> object:
        return job.apply_async((due,), eta=datetime.fromtimestamp(due, UTC))

    async def result(self) -> object:
        return job.delay(DATA).get(timeout=10)


@asynccontextmanager
async def producer() -> AsyncGenerator[Producer]:
    yield Producer()
