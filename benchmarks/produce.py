"""Adding jobs, many per call and one by one."""

import asyncio
import csv
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Final

from benchmarks.bench import OURS, Bench, ChasquiMQ
from benchmarks.envelope import CREATED_AT_MS, JOB_ID
from benchmarks.figures import Comparison, Figure, run_for_medians
from benchmarks.workload import DATA, NAME, PAYLOAD_BYTES, QUEUE
from tampu import NewJob, Queue
from tampu.wire.envelope import encode_fresh
from tampu.wire.keys import QueueKeys

ROUNDS: Final = 3
TASKS: Final = 100
RAW: Final = "redis-benchmark -P 50 -c 1 XADD"
RAW_JOBS: Final = 200_000
RAW_FLOOR: Final = 0.9


@dataclass(frozen=True, slots=True)
class _Case:
    what: str
    floor: float
    jobs: int
    their_jobs: int
    jobs_per_call: int = 1  # more than one: with add_many
    tasks: int = 1

    async def add_all(self, queue: Queue) -> None:
        """Add all jobs from all tasks. Each task makes one call after another."""
        calls = self.jobs // self.tasks // self.jobs_per_call
        await asyncio.gather(*(self._add(queue, calls) for _ in range(self.tasks)))

    async def _add(self, queue: Queue, calls: int) -> None:
        if self.jobs_per_call == 1:
            for _ in range(calls):
                await queue.add(NAME, DATA)
            return
        jobs = [NewJob(NAME, DATA)] * self.jobs_per_call
        for _ in range(calls):
            await queue.add_many(jobs)


BULK: Final = _Case("add_many of 1000", 2.8, 200_000, 100_000, jobs_per_call=1000)
CASES: Final = (
    _Case("add_many of 50", 2.0, 50_000, 25_000, jobs_per_call=50),
    BULK,
    _Case("add awaited one after another", 1.8, 5_000, 5_000),
    _Case(f"add from {TASKS} tasks", 9.0, 50_000, 10_000, tasks=TASKS),
)


async def run(bench: Bench) -> list[Figure]:
    """Each case against ChasquiMQ; large calls also against plain XADDs."""
    figures: list[Figure] = []
    raw = _find_redis_benchmark()
    for case in CASES:
        figures += await _measure(bench, case, raw if case is BULK else None)
    return figures


async def _measure(bench: Bench, case: _Case, raw: Path | None) -> list[Figure]:
    contenders = bench.contenders(
        lambda: _ours(bench, case), lambda theirs: _theirs(bench, theirs, case)
    )
    if raw is not None:
        contenders[RAW] = lambda: _raw(bench, raw)
    rates = await run_for_medians(contenders, ROUNDS)
    figures = [bench.compare(case.what, rates, floor=case.floor)]
    if RAW in rates:
        figures.append(Comparison(case.what, rates[OURS], RAW, rates[RAW], RAW_FLOOR))
    return figures


async def _ours(bench: Bench, case: _Case) -> float:
    bench.empty()
    async with Queue(QUEUE, bench.url) as queue:
        await queue.add(NAME, DATA)
        began = perf_counter()
        await case.add_all(queue)
        return case.jobs / (perf_counter() - began)


async def _theirs(bench: Bench, chasquimq: ChasquiMQ, case: _Case) -> float:
    bench.empty()
    per_s: float = await chasquimq.run(
        "produce", jobs=case.their_jobs, jobs_per_call=case.jobs_per_call, tasks=case.tasks
    )
    return per_s


def _find_redis_benchmark() -> Path | None:
    for name in ("redis-benchmark", "valkey-benchmark"):
        if (found := shutil.which(name)) is not None:
            return Path(found)
    print("  without redis-benchmark: it is not installed")
    return None


async def _raw(bench: Bench, program: Path) -> float:
    """Plain XADDs per second, with entries as long as ours."""
    bench.empty()
    size = len(encode_fresh(JOB_ID, bytes(PAYLOAD_BYTES), CREATED_AT_MS))
    entry = ("*", "d", "x" * size, "n", NAME)
    load = ("-P", "50", "-c", "1", "-n", str(RAW_JOBS), "--csv")
    command = ("XADD", QueueKeys(QUEUE).stream.decode(), *entry)
    output = await _output_of(program, ["-p", str(bench.server.port), *load, *command])
    return float(list(csv.DictReader(output.splitlines()))[-1]["rps"])


async def _output_of(program: Path, arguments: Sequence[str]) -> str:
    process = await asyncio.create_subprocess_exec(
        program, *arguments, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    return output.decode()
