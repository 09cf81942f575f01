"""Server memory per waiting job, and the memory of a worker over a million jobs."""

import asyncio
import json
import sys
from typing import Any, Final

from benchmarks.bench import Bench, ChasquiMQ
from benchmarks.figures import Figure, Unit, Value, run_for_medians
from benchmarks.memory_worker import STATM
from benchmarks.workload import PAYLOAD_BYTES

ROUNDS: Final = 3  # the first one includes what a server allocates only once
WAITING: Final = 100_000
JOBS_PER_CALL: Final = 1000
FLOOR: Final = 1.0
JOBS: Final = 1_000_000
WARM_AFTER: Final = 200_000
GROWTH_LIMIT_MIB: Final = 4.0
_MIB: Final = 1024 * 1024


async def run(bench: Bench) -> list[Figure]:
    """Bytes of server memory per waiting job, and how much a worker grows."""
    contenders = bench.contenders(lambda: _ours(bench), lambda theirs: _theirs(bench, theirs))
    medians = await run_for_medians(contenders, ROUNDS)
    what = f"server memory per waiting job of {PAYLOAD_BYTES} bytes"
    return [
        bench.compare(what, medians, floor=FLOOR, unit=Unit.BYTES),
        *await _worker_memory(bench),
    ]


async def _ours(bench: Bench) -> float:
    bench.empty()
    before = _used_bytes(bench)
    await bench.fill(WAITING)
    return (_used_bytes(bench) - before) / WAITING


async def _theirs(bench: Bench, chasquimq: ChasquiMQ) -> float:
    bench.empty()
    before = _used_bytes(bench)
    await chasquimq.run("produce", jobs=WAITING, jobs_per_call=JOBS_PER_CALL, tasks=1)
    return (_used_bytes(bench) - before) / WAITING


def _used_bytes(bench: Bench) -> int:
    with bench.server.admin() as admin:
        info: dict[str, Any] = admin.info("memory")
    return int(info["used_memory"])


async def _worker_memory(bench: Bench) -> list[Figure]:
    """The resident memory of a worker that has warmed up, and its growth until the end."""
    if not STATM.exists():
        print(f"  without a worker's memory: this system has no {STATM}")
        return []
    await bench.fill(JOBS)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.memory_worker",
        bench.url,
        *map(str, (WARM_AFTER, JOBS)),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    warm, end = (int(each) / _MIB for each in json.loads(output))
    growth = f"its growth over {JOBS - WARM_AFTER:,} more jobs"
    return [
        Value(f"worker's memory after {WARM_AFTER:,} jobs", warm, Unit.MIB),
        Value(growth, end - warm, Unit.MIB, GROWTH_LIMIT_MIB),
    ]
