"""ChasquiMQ runs jobs that fail once and then succeed: jobs a second."""

import asyncio
from typing import Any

from chasquimq import Job, Worker

from benchmarks.peers.told import answer
from benchmarks.sample import CONCURRENCY, QUEUE
from benchmarks.tally import Tally


async def retry(asked: dict[str, Any]) -> float:
    tally = Tally(asked["jobs"])

    async def handle(job: Job) -> None:
        tally.start()
        if job.attempts_made == 0:
            raise RuntimeError("the first attempt")
        tally.count()

    worker = Worker(
        QUEUE, handle, redis_url=asked["url"], concurrency=CONCURRENCY, events_enabled=False
    )
    running = asyncio.ensure_future(worker.run())
    per_s = await tally.done()
    await worker.close()
    await running
    return per_s


if __name__ == "__main__":
    answer(retry)
