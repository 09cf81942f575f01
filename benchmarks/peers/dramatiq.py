"""dramatiq: 100 threads in one process, started by its own command.

Its guide recommends a process per core with 8 threads each. We compare one process, and with 100
threads it ran more jobs per second than with 8. It has no call that adds many jobs: a group comes
closest.
"""

import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from subprocess import run

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

from benchmarks.peers.shared import RESULTS, URL, run_job
from benchmarks.workload import CONCURRENCY, DATA

broker = RedisBroker(url=URL)
if RESULTS:
    broker.add_middleware(Results(backend=RedisBackend(url=URL), store_results=True))
dramatiq.set_broker(broker)


@dramatiq.actor(actor_name="job")
def job(data: object) -> object:
    return run_job(data)


def work() -> None:
    command = [sys.executable, "-m", "dramatiq", "benchmarks.peers.dramatiq"]
    run([*command, "--processes", "1", "--threads", str(CONCURRENCY)], check=True)


class Producer:
    async def add(self) -> object:
        return job.send(DATA)

    async def add_many(self, jobs: int) -> object:
        return dramatiq.group(job.message(DATA) for _ in range(jobs)).run()

    async def add_at(self, due: float) -> object:
        delay_ms = max(0, round(1000 * (due - time.time())))
        return job.send_with_options(args=(due,), delay=delay_ms)

    async def result(self) -> object:
        return job.send(DATA).get_result(block=True, timeout=10_000)


@asynccontextmanager
async def producer() -> AsyncGenerator[Producer]:
    yield Producer()
