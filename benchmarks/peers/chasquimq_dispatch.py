"""ChasquiMQ's worker is idle and gets a job, again and again: milliseconds of each."""

import asyncio
from typing import Any

from chasquimq import Queue, Worker

from benchmarks.latency import Arrivals, milliseconds
from benchmarks.peers.told import answer
from benchmarks.sample import CONCURRENCY, DATA, NAME, QUEUE


async def dispatch(asked: dict[str, Any]) -> list[float]:
    arrivals = Arrivals()
    worker = Worker(
        QUEUE,
        arrivals.handle,
        redis_url=asked["url"],
        concurrency=CONCURRENCY,
        events_enabled=False,
    )
    running = asyncio.ensure_future(worker.run())
    async with Queue(QUEUE, redis_url=asked["url"]) as queue:
        taken = await milliseconds(
            lambda: arrivals.once(lambda: queue.add(NAME, DATA)), asked["samples"]
        )
    await worker.close()
    await running
    return taken


if __name__ == "__main__":
    answer(dispatch)
