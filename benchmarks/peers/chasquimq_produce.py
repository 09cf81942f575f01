"""ChasquiMQ adds jobs, in calls that each task awaits one after another: jobs a second."""

import asyncio
from time import perf_counter
from typing import Any

from chasquimq import Queue

from benchmarks.peers.told import answer
from benchmarks.sample import DATA, NAME, QUEUE


async def produce(asked: dict[str, Any]) -> float:
    jobs, a_call, tasks = (int(asked[each]) for each in ("jobs", "a_call", "tasks"))
    many = [{"name": NAME, "data": DATA}] * a_call

    async def add(queue: Queue) -> None:
        for _ in range(jobs // tasks // a_call):
            if a_call == 1:
                await queue.add(NAME, DATA)
            else:
                await queue.add_bulk(many)

    async with Queue(QUEUE, redis_url=asked["url"]) as queue:
        await queue.add(NAME, DATA)
        began = perf_counter()
        await asyncio.gather(*(add(queue) for _ in range(tasks)))
        return jobs / (perf_counter() - began)


if __name__ == "__main__":
    answer(produce)
