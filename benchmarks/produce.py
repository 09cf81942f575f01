"""Adding jobs, in calls of many and one by one."""

import asyncio
import csv
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Final

from benchmarks.bench import OURS, Bench
from benchmarks.envelope import CREATED_AT_MS, JOB_ID
from benchmarks.figure import Figure, Measured, in_turns
from benchmarks.peer import Peer
from benchmarks.sample import DATA, NAME, PAYLOAD_BYTES, QUEUE
from tampu import NewJob, Queue
from tampu.wire.envelope import encode_fresh
from tampu.wire.keys import QueueKeys

ROUNDS: Final = 3
TASKS: Final = 100
RAW: Final = "redis-benchmark -P 50 -c 1 XADD"
RAW_JOBS: Final = 200_000
RAW_FLOOR: Final = 0.9


@dataclass(frozen=True, slots=True)
class _Way:
    what: str
    floor: float
    jobs: int
    peers_jobs: int
    a_call: int = 1  # more than one: in one add_many
    tasks: int = 1

    async def add(self, queue: Queue) -> None:
        """Add all the jobs, in calls that each task awaits one after another."""
        calls = self.jobs // self.tasks // self.a_call
        await asyncio.gather(*(self._calls(queue, calls) for _ in range(self.tasks)))

    async def _calls(self, queue: Queue, calls: int) -> None:
        if self.a_call == 1:
            for _ in range(calls):
                await queue.add(NAME, DATA)
            return
        jobs = [NewJob(NAME, DATA)] * self.a_call
        for _ in range(calls):
            await queue.add_many(jobs)


BULK: Final = _Way("add_many of 1000", 2.8, 200_000, 100_000, a_call=1000)
WAYS: Final = (
    _Way("add_many of 50", 2.0, 50_000, 25_000, a_call=50),
    BULK,
    _Way("add awaited one after another", 1.8, 5_000, 5_000),
    _Way(f"add from {TASKS} tasks", 9.0, 50_000, 10_000, tasks=TASKS),
)


async def run(bench: Bench) -> list[Measured]:
    """Each way against the rival's; the bulk also against bare XADDs."""
    lines: list[Measured] = []
    raw = _raw_program()
    for way in WAYS:
        lines += await _measured(bench, way, raw if way is BULK else None)
    return lines


async def _measured(bench: Bench, way: _Way, raw: Path | None) -> list[Measured]:
    ways = bench.ways(lambda: _ours(bench, way), lambda peer: _theirs(bench, peer, way))
    if raw is not None:
        ways[RAW] = lambda: _raw(bench, raw)
    rates = await in_turns(ways, ROUNDS)
    lines = [bench.compared(way.what, rates, floor=way.floor)]
    if RAW in rates:
        lines.append(Figure(way.what, rates[OURS], RAW, rates[RAW], RAW_FLOOR))
    return lines


async def _ours(bench: Bench, way: _Way) -> float:
    bench.empty()
    async with Queue(QUEUE, bench.url) as queue:
        await queue.add(NAME, DATA)
        began = perf_counter()
        await way.add(queue)
        return way.jobs / (perf_counter() - began)


async def _theirs(bench: Bench, peer: Peer, way: _Way) -> float:
    bench.empty()
    per_s: float = await peer.run(
        "produce", jobs=way.peers_jobs, a_call=way.a_call, tasks=way.tasks
    )
    return per_s


def _raw_program() -> Path | None:
    for name in ("redis-benchmark", "valkey-benchmark"):
        if (found := shutil.which(name)) is not None:
            return Path(found)
    print("  redis-benchmark is left out: not on this machine")
    return None


async def _raw(bench: Bench, program: Path) -> float:
    """What bare XADDs of entries as long as ours come to."""
    bench.empty()
    size = len(encode_fresh(JOB_ID, bytes(PAYLOAD_BYTES), CREATED_AT_MS))
    entry = ("*", "d", "x" * size, "n", NAME)
    load = ("-P", "50", "-c", "1", "-n", str(RAW_JOBS), "--csv")
    command = ("XADD", QueueKeys(QUEUE).stream.decode(), *entry)
    told = await _printed(program, ["-p", str(bench.server.port), *load, *command])
    return float(list(csv.DictReader(told.splitlines()))[-1]["rps"])


async def _printed(program: Path, arguments: Sequence[str]) -> str:
    process = await asyncio.create_subprocess_exec(
        program, *arguments, stdout=asyncio.subprocess.PIPE
    )
    told, _ = await process.communicate()
    return told.decode()
