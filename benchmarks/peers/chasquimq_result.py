"""ChasquiMQ's caller waits for the result of a job, again and again: milliseconds of each."""

import asyncio
from time import perf_counter
from typing import Any

from chasquimq import Job, Queue, Worker

from benchmarks.latency import milliseconds
from benchmarks.peers.told import answer
from benchmarks.sample import CONCURRENCY, DATA, NAME, QUEUE


async def result(asked: dict[str, Any]) -> list[float]:
    async def handle(job: Job) -> object:
        return job.data

    async def once() -> float:
        began = perf_counter()
        job = await queue.add(NAME, DATA)
        await job.wait_for_result(timeout=10)
        return perf_counter() - began

    worker = Worker(
        QUEUE,
        handle,
        redis_url=asked["url"],
        concurrency=CONCURRENCY,
        events_enabled=False,
        store_results=True,
    )
    running = asyncio.ensure_future(worker.run())
    async with Queue(QUEUE, redis_url=asked["url"]) as queue:
        taken = await milliseconds(once, asked["samples"])
    await worker.close()
    await running
    return taken


if __name__ == "__main__":
    answer(result)
