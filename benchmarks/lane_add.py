"""Adding a thousand jobs at a time: a lane against redis-py on the same server."""

from collections.abc import Awaitable, Callable
from itertools import count
from time import perf_counter
from typing import Final

from redis.asyncio import Redis

from benchmarks.bench import Bench
from benchmarks.envelope import ENVELOPE
from benchmarks.figure import Figure, Measured, in_turns
from tampu.server.connect import connect
from tampu.server.lane import Lane
from tampu.server.scripts.adding import PRODUCER_MEMORY_MS, AddKeys, PlainJobs, add
from tampu.server.scripts.script import Script
from tampu.wire.keys import QueueKeys

BATCH: Final = 1000
BATCHES: Final = 60
PIPELINES: Final = 12


async def run(bench: Bench) -> list[Measured]:
    """One script call over a lane, the same call by redis-py's evalsha, a pipeline of XADDs."""
    async with await connect(bench.url) as ours, Redis(port=bench.server.port) as theirs:
        async with await Lane.open(ours, b"{chasqui:bench}") as lane:
            rates = await in_turns(_ways(lane, theirs))
    ours_per_s = rates["lane"]
    return [
        Figure(f"add {BATCH} against a pipeline of XADD", ours_per_s, "redis-py", rates["xadd"], 4),
        Figure(f"add {BATCH} against evalsha", ours_per_s, "redis-py", rates["evalsha"], 1.3),
    ]


class _Ways:
    def __init__(self, lane: Lane, client: Redis) -> None:
        names = QueueKeys("bench")
        self.keys = AddKeys(
            stream=names.stream,
            delayed=names.delayed,
            memory=names.producer("bench"),
            bell=names.bell,
        )
        self.lane, self.client, self.numbers = lane, client, count(1)
        self.flat = [ENVELOPE, b"job"] * BATCH

    async def by_lane(self) -> float:
        await self.client.delete(self.keys.stream)
        began = perf_counter()
        for _ in range(BATCHES):
            await add(self.lane, self.keys, PlainJobs(self.flat), number=next(self.numbers))
        return self._rate(began, BATCHES)

    async def by_evalsha(self) -> float:
        await self.client.delete(self.keys.stream)
        digest = Script("add").text(self.lane.server.dialect).digest.decode()
        keys = (self.keys.stream, self.keys.delayed, self.keys.memory)
        began = perf_counter()
        for _ in range(BATCHES):
            head = (next(self.numbers), PRODUCER_MEMORY_MS, 0, b"plain")
            await self.client.evalsha(digest, len(keys), *keys, *head, *self.flat)
        return self._rate(began, BATCHES)

    async def by_pipeline(self) -> float:
        await self.client.delete(self.keys.stream)
        began = perf_counter()
        for _ in range(PIPELINES):
            pipeline = self.client.pipeline(transaction=False)
            for _ in range(BATCH):
                pipeline.xadd(self.keys.stream, {b"d": ENVELOPE, b"n": b"job"})
            await pipeline.execute()
        return self._rate(began, PIPELINES)

    def _rate(self, began: float, batches: int) -> float:
        return batches * BATCH / (perf_counter() - began)


def _ways(lane: Lane, client: Redis) -> dict[str, Callable[[], Awaitable[float]]]:
    ways = _Ways(lane, client)
    return {"lane": ways.by_lane, "evalsha": ways.by_evalsha, "xadd": ways.by_pipeline}
