"""Adding a thousand jobs per call: a lane against redis-py."""

from itertools import count
from time import perf_counter
from typing import Final

from redis.asyncio import Redis

from benchmarks.bench import Bench
from benchmarks.envelope import ENVELOPE
from benchmarks.figures import Comparison, Figure, Round, run_for_medians
from tampu.server.connect import connect
from tampu.server.lane import Lane
from tampu.server.scripts.adding import PRODUCER_MEMORY_MS, AddKeys, AddRequest, PlainJobs, add
from tampu.server.scripts.script import Script
from tampu.wire.keys import QueueKeys

BATCH: Final = 1000
BATCHES: Final = 60
PIPELINES: Final = 12


async def run(bench: Bench) -> list[Figure]:
    """The add script over a lane, the same script with redis-py's evalsha, a pipeline of XADDs."""
    async with await connect(bench.url) as ours, Redis(port=bench.server.port) as theirs:
        async with await Lane.open(ours, b"{chasqui:bench}") as lane:
            rates = await run_for_medians(_contenders(lane, theirs))
    per_s = rates["lane"]
    return [
        Comparison(f"add {BATCH} against a pipeline of XADD", per_s, "redis-py", rates["xadd"], 4),
        Comparison(f"add {BATCH} against evalsha", per_s, "redis-py", rates["evalsha"], 1.3),
    ]


class _Adds:
    def __init__(self, lane: Lane, client: Redis) -> None:
        names = QueueKeys("bench")
        self.keys = AddKeys(
            stream=names.stream,
            delayed=names.delayed,
            memory=names.producer("bench"),
            wakeup=names.wakeup,
            gate=names.gate,
            control=names.control,
            notices=names.notices,
        )
        self.lane, self.client, self.numbers = lane, client, count(1)
        self.flat = [ENVELOPE, b"job"] * BATCH

    async def with_lane(self) -> float:
        await self.client.delete(self.keys.stream)
        began = perf_counter()
        for _ in range(BATCHES):
            jobs = PlainJobs(self.flat)
            request = AddRequest(keys=self.keys, jobs=jobs, number=next(self.numbers))
            await add(self.lane, request)
        return self._rate(began, BATCHES)

    async def with_evalsha(self) -> float:
        await self.client.delete(self.keys.stream)
        digest = Script("add").text(self.lane.server.dialect).digest.decode()
        keys = (self.keys.stream, self.keys.delayed, self.keys.memory, self.keys.gate)
        began = perf_counter()
        for _ in range(BATCHES):
            head = (next(self.numbers), PRODUCER_MEMORY_MS, 0, b"plain")
            await self.client.evalsha(digest, len(keys), *keys, *head, *self.flat)
        return self._rate(began, BATCHES)

    async def with_pipeline(self) -> float:
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


def _contenders(lane: Lane, client: Redis) -> dict[str, Round[float]]:
    adds = _Adds(lane, client)
    return {"lane": adds.with_lane, "evalsha": adds.with_evalsha, "xadd": adds.with_pipeline}
