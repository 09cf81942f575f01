"""Reading and acking 512 entries at a time: two lanes against redis-py's execute_command."""

import asyncio
from collections import deque
from itertools import count
from time import perf_counter
from typing import Any, Final

from redis.asyncio import Redis

from benchmarks.bench import Bench
from benchmarks.envelope import ENVELOPE
from benchmarks.figures import Comparison, Figure, run_for_medians
from tampu.server.connect import connect
from tampu.server.lane import Lane
from tampu.server.protocol import pack
from tampu.server.scripts.adding import AddKeys, AddRequest, PlainJobs, add
from tampu.server.streams import ack_plainly
from tampu.wire.keys import QueueKeys

BATCH: Final = 512
BATCHES: Final = 120
GROUP: Final = b"default"
ACKS_IN_FLIGHT: Final = 4


async def run(bench: Bench) -> list[Figure]:
    """Both send the same commands. The lanes keep a read and some acks in flight."""
    async with await connect(bench.url) as ours, Redis(port=bench.server.port) as client:
        async with await Lane.open(ours, b"{chasqui:bench}") as reads:
            async with await Lane.open(ours, b"{chasqui:bench}") as acks:
                runs = _Reads(reads, acks, client)
                contenders = {"lanes": runs.with_lanes, "redis-py": runs.with_client}
                rates = await run_for_medians(contenders)
    what = f"read + ack {BATCH}"
    return [Comparison(what, rates["lanes"], "redis-py", rates["redis-py"], 1.2)]


class _Reads:
    def __init__(self, reads: Lane, acks: Lane, client: Redis) -> None:
        self.reads, self.acks, self.client = reads, acks, client
        self.keys, self.numbers = QueueKeys("bench"), count(1)
        stream = self.keys.stream
        self.read = ("XREADGROUP", "GROUP", GROUP, "me", "COUNT", BATCH, "STREAMS", stream, ">")

    async def with_lanes(self) -> float:
        await self._fill()
        packed, done, waiting = pack(*self.read), 0, deque[asyncio.Task[int]]()
        began = perf_counter()
        reading = self.reads.send(packed)
        while reply := await reading:
            reading = self.reads.send(packed)
            await asyncio.sleep(0)
            ids = _ids(reply)
            done += len(ids)
            acking = ack_plainly(self.acks, ids, stream=self.keys.stream, group=GROUP)
            waiting.append(asyncio.create_task(acking))
            if len(waiting) > ACKS_IN_FLIGHT:
                await waiting.popleft()
        await asyncio.gather(*waiting)
        return done / (perf_counter() - began)

    async def with_client(self) -> float:
        await self._fill()
        done, began = 0, perf_counter()
        while reply := await self.client.execute_command(*self.read):
            ids = _ids(reply)
            done += len(ids)
            await self._ack_with_client(ids)
        return done / (perf_counter() - began)

    async def _ack_with_client(self, ids: list[bytes]) -> None:
        client, stream = self.client, self.keys.stream
        if self.acks.server.dialect.ack_and_delete:
            await client.execute_command("XACKDEL", stream, GROUP, "IDS", len(ids), *ids)
        else:
            await client.execute_command("XDEL", stream, *ids)
            await client.execute_command("XACK", stream, GROUP, *ids)

    async def _fill(self) -> None:
        await self.client.delete(self.keys.stream)
        await self.client.xgroup_create(self.keys.stream, GROUP, "0", mkstream=True)
        keys = AddKeys(
            stream=self.keys.stream,
            delayed=self.keys.delayed,
            memory=self.keys.producer("bench"),
            wakeup=self.keys.wakeup,
            gate=self.keys.gate,
            control=self.keys.control,
            notices=self.keys.notices,
        )
        jobs = PlainJobs([ENVELOPE, b"job"] * BATCH)
        for _ in range(BATCHES):
            request = AddRequest(keys=keys, jobs=jobs, number=next(self.numbers))
            await add(self.acks, request)


def _ids(reply: Any) -> list[bytes]:  # noqa: ANN401 - a server's nested reply
    return [entry[0] for entry in reply[0][1]]
