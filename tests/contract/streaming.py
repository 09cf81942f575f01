"""What tests of streams share."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import redis

from tampu import App, Chunk, Restarted
from tampu.admin.queues import purge_jobs
from tampu.server.connect import connect
from tampu.server.lane import Lane
from tampu.wire.keys import QueueKeys
from tests.contract.workers import SOON
from tests.waiting import wait_until

KEYS = QueueKeys("default")
Items = AsyncGenerator[Chunk[Any] | Restarted]


async def values(items: Items) -> list[object]:
    """What a stream gives up to its end: values, and each `Restarted` as it is."""
    return [item.value if isinstance(item, Chunk) else item async for item in items]


async def next_value(items: Items) -> object:
    async with asyncio.timeout(SOON):
        item = await anext(items)
    return item.value if isinstance(item, Chunk) else item


async def until_yielded(admin: redis.Redis, job_id: str, count: int) -> None:
    """Return when so many entries are in the stream of a job."""
    await wait_until(
        lambda: int(admin.xlen(KEYS.output(job_id))) >= count,
        within=SOON,
        sentence=f"{count} chunks are written",
    )


async def purge_queue(app: App) -> None:
    """Delete all jobs that wait, in lines too, or are delayed."""
    async with await connect(app.url) as server, await Lane.open(server, KEYS.stream) as lane:
        await purge_jobs(lane, KEYS)
