"""RQ: one SimpleWorker, which runs one job at a time in its own process.

Its notes on performance recommend SimpleWorker for very short jobs that are trusted; the default
worker forks for each job. To run more jobs at a time it needs more processes, but we compare one.
Its scheduler is a separate process that polls every second.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from redis import Redis
from rq import Queue, SimpleWorker

from benchmarks.peers.shared import DELAYS, RESULTS, URL, run_job
from benchmarks.workload import DATA, QUEUE

JOB = "benchmarks.peers.rq.job"
KEPT_S = 60 if RESULTS else 0


def job(data: object) -> object:
    return run_job(data)


def work() -> None:
    worker = SimpleWorker([QUEUE], connection=Redis.from_url(URL))
    worker.work(with_scheduler=DELAYS, logging_level="WARNING")


class Producer:
    def __init__(self) -> None:
        self._queue = Queue(QUEUE, connection=Redis.from_url(URL))

    async def add(self) -> object:
        return self._queue.enqueue(JOB, DATA, result_ttl=KEPT_S)

    async def add_many(self, jobs: int) -> object:
        return self._queue.enqueue_many(
            [Queue.prepare_data(JOB, (DATA,), result_ttl=KEPT_S) for _ in range(jobs)]
        )

    async def add_at(self, due: float) -> object:
        at = datetime.fromtimestamp(due, UTC)
        return self._queue.enqueue_at(at, JOB, due, result_ttl=KEPT_S)

    async def result(self) -> object:
        added = self._queue.enqueue(JOB, DATA, result_ttl=KEPT_S)
        return added.latest_result(timeout=10).return_value


@asynccontextmanager
async def producer() -> AsyncGenerator[Producer]:
    yield Producer()
