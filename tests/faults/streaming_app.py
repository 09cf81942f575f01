"""The app of the test of streams whose workers are killed."""

import asyncio
from collections.abc import AsyncIterator

from tampu import INJECTED, App, Backoff, Job

QUEUE = "faults"
CHUNKS = 40

app = App(default_queue=QUEUE)


@app.task(attempts=3, backoff=Backoff.fixed(0), collect=len)
async def count(job: Job = INJECTED) -> AsyncIterator[list[int]]:
    """A few chunks, for as long as it takes to kill its worker."""
    for number in range(CHUNKS):
        yield [job.attempt, number]
        await asyncio.sleep(0.05)


@app.task(attempts=1)
async def once() -> AsyncIterator[int]:
    """It has one attempt, which its worker's death ends."""
    for number in range(10_000):
        yield number
        await asyncio.sleep(0.05)
