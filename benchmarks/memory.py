"""What waiting jobs take of the server's memory, and a worker's own memory over a million jobs."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any, Final

from benchmarks.bench import Bench
from benchmarks.figure import Measured, Unit, Value, in_turns
from benchmarks.peer import Peer
from benchmarks.sample import PAYLOAD_BYTES

ROUNDS: Final = 3  # the first also pays for what a server allocates once
WAITING: Final = 100_000
A_CALL: Final = 1000
FLOOR: Final = 1.0
RUN: Final = 1_000_000
WARM_AT: Final = 200_000
GROWTH_LIMIT_MIB: Final = 4.0
_MIB: Final = 1024 * 1024


async def run(bench: Bench) -> list[Measured]:
    """Bytes of the server's memory for one waiting job; what a worker grows by."""
    ways = bench.ways(lambda: _ours(bench), lambda peer: _theirs(bench, peer))
    medians = await in_turns(ways, ROUNDS)
    what = f"server memory a waiting job of {PAYLOAD_BYTES} bytes"
    return [
        bench.compared(what, medians, floor=FLOOR, unit=Unit.BYTES),
        *await _resident(bench),
    ]


async def _ours(bench: Bench) -> float:
    bench.empty()
    before = _used(bench)
    await bench.fill(WAITING)
    return (_used(bench) - before) / WAITING


async def _theirs(bench: Bench, peer: Peer) -> float:
    bench.empty()
    before = _used(bench)
    await peer.run("produce", jobs=WAITING, a_call=A_CALL, tasks=1)
    return (_used(bench) - before) / WAITING


def _used(bench: Bench) -> int:
    with bench.server.admin() as admin:
        told: dict[str, Any] = admin.info("memory")
    return int(told["used_memory"])


def _tells() -> bool:
    return Path("/proc/self/statm").exists()


async def _resident(bench: Bench) -> list[Measured]:
    """A worker's resident memory when it has warmed up, and what it has grown by at the end."""
    if not _tells():
        print("  a worker's memory is left out: this system does not tell it")
        return []
    await bench.fill(RUN)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.resident",
        bench.url,
        *map(str, (WARM_AT, RUN)),
        stdout=asyncio.subprocess.PIPE,
    )
    told, _ = await process.communicate()
    warm, end = (int(each) / _MIB for each in json.loads(told))
    growth = f"its growth over {RUN - WARM_AT:,} jobs more"
    return [
        Value(f"worker's memory after {WARM_AT:,} jobs", warm, Unit.MIB),
        Value(growth, end - warm, Unit.MIB, GROWTH_LIMIT_MIB),
    ]
