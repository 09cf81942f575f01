"""What a worker costs that has many queues and nothing to do."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any, Final

from benchmarks.bench import Bench
from benchmarks.figures import Figure, Unit, Value

QUEUES: Final = 20
MANY_QUEUES: Final = 100
STARTS: Final = 5
SETTLE_S: Final = 5.0
MEASURE_S: Final = 60.0  # what happens once a minute is part of it once
_TICKS_A_S: Final = os.sysconf("SC_CLK_TCK")


async def run(bench: Bench) -> list[Figure]:
    """Processor time, connections and commands with some queues; time to start with many."""
    figures: list[Figure] = []
    for queues, limits in ((1, _Limits()), (QUEUES, _Limits(1.0, 0.5, QUEUES + 6, 8))):
        bench.empty()
        async with _worker(bench, queues) as worker:
            await asyncio.sleep(SETTLE_S)
            figures += await _measure(bench, worker, queues, limits=limits)
    return [*figures, await _start(bench)]


@dataclass(frozen=True, slots=True)
class _Limits:
    core_percent: float | None = None
    server_percent: float | None = None
    connections: float | None = None
    commands: float | None = None


@dataclass(frozen=True, slots=True)
class _Worker:
    pid: int
    start_s: float

    @property
    def cpu_s(self) -> float:
        """The processor time that it has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text("ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_A_S


@asynccontextmanager
async def _worker(bench: Bench, queues: int) -> AsyncIterator[_Worker]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.idle_worker",
        bench.url,
        str(queues),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield _Worker(process.pid, float(await process.stdout.readline()))
    finally:
        process.stdin.close()
        await process.wait()


async def _measure(bench: Bench, worker: _Worker, queues: int, *, limits: _Limits) -> list[Figure]:
    with bench.server.admin() as admin:

        def read() -> tuple[float, float, float, int]:
            info: dict[str, Any] = admin.info()
            server_s = info["used_cpu_user"] + info["used_cpu_sys"]
            return monotonic(), worker.cpu_s, server_s, info["total_commands_processed"]

        before = read()
        await asyncio.sleep(MEASURE_S)
        took_s, cpu_s, server_s, commands = (
            now - then for now, then in zip(read(), before, strict=True)
        )
        connections = admin.info("clients")["connected_clients"] - 1
    what = f"{queues} idle queue{'s' if queues > 1 else ''}"
    return [
        Value(f"{what}: worker", 100 * cpu_s / took_s, Unit.PERCENT, limits.core_percent),
        Value(f"{what}: server", 100 * server_s / took_s, Unit.PERCENT, limits.server_percent),
        Value(f"{what}: connections", connections, Unit.COUNT, limits.connections),
        Value(
            f"{what}: commands a second for each",
            (commands - 1) / took_s / queues,
            Unit.COUNT,
            limits.commands,
        ),
    ]


async def _start(bench: Bench) -> Value:
    took = []
    for _ in range(STARTS):
        bench.empty()
        async with _worker(bench, MANY_QUEUES) as worker:
            took.append(worker.start_s)
    return Value(f"start with {MANY_QUEUES} queues", median(took), Unit.S, 0.3)
