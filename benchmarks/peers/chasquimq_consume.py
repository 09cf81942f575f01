"""ChasquiMQ runs the jobs of a filled queue: jobs a second."""

import asyncio
from typing import Any

from chasquimq import Worker

from benchmarks.peers.told import answer
from benchmarks.sample import CONCURRENCY, QUEUE
from benchmarks.tally import Tally


async def consume(asked: dict[str, Any]) -> float:
    tally = Tally(asked["jobs"], asked["result"])
    worker = Worker(
        QUEUE, tally.handle, redis_url=asked["url"], concurrency=CONCURRENCY, **asked["options"]
    )
    running = asyncio.ensure_future(worker.run())
    per_s = await tally.done()
    await worker.close()
    await running
    return per_s


if __name__ == "__main__":
    answer(consume)
