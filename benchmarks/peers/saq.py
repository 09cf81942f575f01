"""SAQ: asyncio in one process, concurrency 100, started by its own command.

Its documentation does not ask for uvloop, but it gets it. Without results, it stores nothing about
a finished job (ttl -1). Its scheduler polls every second by default. We wait for results as in its
first example, with refresh, which is notified (apply polls every half second). refresh is called
again after a tenth of a second, because it misses a notification between its query and its
subscription. SAQ has no call that adds many jobs without waiting for their results: several tasks
add at once, as many as it allows.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from subprocess import run

import uvloop
from saq import Queue

from benchmarks.peers.shared import RESULTS, URL, add_from_tasks, run_job
from benchmarks.workload import CONCURRENCY, DATA, QUEUE

asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())

KEPT_S = 60 if RESULTS else -1


async def job(context: object, *, data: object) -> object:
    del context
    return run_job(data)


queue = Queue.from_url(URL, name=QUEUE)
settings = {"queue": queue, "functions": [job], "concurrency": CONCURRENCY}


def work() -> None:
    run([sys.executable, "-m", "saq", "benchmarks.peers.saq.settings", "--quiet"], check=True)


class Producer:
    async def add(self) -> object:
        return await queue.enqueue("job", data=DATA, ttl=KEPT_S)

    async def add_many(self, jobs: int) -> None:
        await add_from_tasks(self.add, jobs)

    async def add_at(self, due: float) -> object:
        return await queue.enqueue("job", data=due, ttl=KEPT_S, scheduled=due)

    async def result(self) -> object:
        added = await queue.enqueue("job", data=DATA, ttl=KEPT_S)
        while not added.completed:
            with suppress(TimeoutError):
                await added.refresh(0.1)
        return added.result


@asynccontextmanager
async def producer() -> AsyncGenerator[Producer]:
    await queue.connect()
    yield Producer()
    await queue.disconnect()
