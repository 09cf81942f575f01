"""SAQ: asyncio in one process, concurrency 100, by its own command.

uvloop is more than its documentation asks for. It stores nothing of a job that is done (ttl -1)
where no result is asked for. Its scheduler looks every second by default. Results are awaited as
in its first example, by refresh, which is told of them (apply looks every half second); again
after a tenth of a second, because what it is told between its look and its subscription is lost.
It has no call that adds many without waiting for their results: many tasks add at once, as many
as it lets.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from subprocess import run

import uvloop
from saq import Queue

from benchmarks.peers.handler import RESULTS, URL, ran
from benchmarks.peers.tasks import from_tasks
from benchmarks.sample import CONCURRENCY, DATA, QUEUE

asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())

KEPT_S = 60 if RESULTS else -1


async def job(context: object, *, data: object) -> object:
    del context
    return ran(data)


queue = Queue.from_url(URL, name=QUEUE)
settings = {"queue": queue, "functions": [job], "concurrency": CONCURRENCY}


def work() -> None:
    run([sys.executable, "-m", "saq", "benchmarks.peers.saq.settings", "--quiet"], check=True)


class Producer:
    async def add(self) -> object:
        return await queue.enqueue("job", data=DATA, ttl=KEPT_S)

    async def add_many(self, jobs: int) -> None:
        await from_tasks(self.add, jobs)

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
