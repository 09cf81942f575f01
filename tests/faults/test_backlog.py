"""A queue that fills faster than it is emptied keeps every job."""

import asyncio
from typing import Any

from tampu import Job, Queue
from tampu.worker import Worker
from tests.faults.conftest import QUEUE
from tests.faults.jobs import STREAM
from tests.servers import RunningServer
from tests.waiting import wait_until

WAITING = 100_000


async def test_as_many_jobs_wait_as_were_added(running: RunningServer, queue: Queue) -> None:
    begun = asyncio.Event()
    gate = asyncio.Event()

    async def handle(job: Job[Any]) -> None:
        begun.set()
        await gate.wait()

    async with Worker(QUEUE, handle, running.url, concurrency=1):
        for _ in range(WAITING // 10_000):
            await queue.add_each("slow", range(10_000))
        await asyncio.wait_for(begun.wait(), 10)
        counts = await queue.counts()
        assert counts.waiting + counts.active == WAITING
        gate.set()
        await wait_until(
            lambda: _length(running) < WAITING, within=60, sentence="the worker goes on"
        )
    counts = await queue.counts()
    assert (counts.active, counts.delayed, counts.dead) == (0, 0, 0)


def _length(running: RunningServer) -> int:
    with running.admin() as admin:
        return int(admin.xlen(STREAM))
