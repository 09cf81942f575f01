"""ChasquiMQ runs jobs that are due at instants of the next two seconds: how late each came."""

import asyncio
from datetime import UTC, datetime
from typing import Any

from chasquimq import Queue, Worker

from benchmarks.latency import Lateness, due_times
from benchmarks.peers.told import answer
from benchmarks.sample import CONCURRENCY, NAME, QUEUE


async def lateness(asked: dict[str, Any]) -> list[float]:
    late = Lateness(asked["jobs"])
    worker = Worker(
        QUEUE, late.handle, redis_url=asked["url"], concurrency=CONCURRENCY, events_enabled=False
    )
    running = asyncio.ensure_future(worker.run())
    async with Queue(QUEUE, redis_url=asked["url"]) as queue:
        adds = [
            queue.add(NAME, at, delay_ms=datetime.fromtimestamp(at, UTC))
            for at in due_times(asked["jobs"])
        ]
        await asyncio.gather(*adds)
        taken = await late.done()
    await worker.close()
    await running
    return taken


if __name__ == "__main__":
    answer(lateness)
