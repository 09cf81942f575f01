"""What hundreds of workers on one queue cost the server, and how fast they take over."""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from statistics import median
from time import monotonic
from typing import Any, Final

from benchmarks.bench import Bench
from benchmarks.figures import Comparison, Figure, Unit, Value, run_rounds
from benchmarks.workload import NAME, QUEUE
from tampu import NewJob, Queue

KILLED: Final = 50
PROCESSES: Final = (KILLED, 150, 150, 150)
"""How many workers each process has."""
WORKERS: Final = sum(PROCESSES)
LONE_QUEUE: Final = "lone"
SETTLE_S: Final = 45.0  # until each worker knows how many there are
MEASURE_S: Final = 20.0
ROUNDS: Final = 7
ADDS: Final = 300
HELD: Final = WORKERS * 88 // 100
REAP_COMMANDS: Final = ("xinfo|consumers", "mget", "client|list", "pttl")


async def run(bench: Bench) -> list[Figure]:
    """The cost of idle workers, and the time from a kill to the next run of each job.

    The worker that they are compared with is alone on its queue, on the same server.
    """
    bench.empty()
    async with _fleet(bench, LONE_QUEUE, [1]) as lone, _fleet(bench, QUEUE, PROCESSES) as fleet:
        await asyncio.sleep(SETTLE_S)
        idle_percent, reap_percent = await _idle_cost(bench)
        contenders = {
            each.queue: partial(_dispatch, bench, each, idle_percent=idle_percent)
            for each in (lone, fleet)
        }
        rounds = await run_rounds(contenders, ROUNDS)
        takeover_s = await _takeover(bench, fleet)
    add_us, late_ms = (
        {name: median(each[field] for each in taken) for name, taken in rounds.items()}
        for field in (0, 1)
    )
    what = f"{WORKERS} workers on a queue"
    alone = "a worker alone on its queue"
    return [
        Value(f"{what}, idle: server", idle_percent, Unit.PERCENT),
        Value(f"{what}, idle: reaping", reap_percent, Unit.PERCENT, 1.0),
        Value(f"{what}: one add", add_us[QUEUE], Unit.US, 150.0),
        Value(f"{alone}: one add", add_us[LONE_QUEUE], Unit.US),
        Comparison(
            "add to handler, p50", late_ms[QUEUE], alone, late_ms[LONE_QUEUE], 1 / 1.2, Unit.MS
        ),
        Value(f"{what}, {KILLED} killed: last job runs again", takeover_s, Unit.S, 10.0),
    ]


class _Fleet:
    """Processes with workers, and the jobs that they have started."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.processes: list[asyncio.subprocess.Process] = []
        self.started: asyncio.Queue[tuple[int, str, float]] = asyncio.Queue()

    async def start(self, url: str, workers: int) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "benchmarks.fleet_workers",
            url,
            self.queue,
            str(workers),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        await process.stdout.readline()
        self.processes.append(process)

    async def follow(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            job_id, late_s = line.decode().split()
            self.started.put_nowait((process.pid, job_id, float(late_s)))


@asynccontextmanager
async def _fleet(bench: Bench, queue: str, processes: Sequence[int]) -> AsyncIterator[_Fleet]:
    fleet = _Fleet(queue)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(_end, fleet)
        for workers in processes:
            await fleet.start(bench.url, workers)
        following = [asyncio.create_task(fleet.follow(each)) for each in fleet.processes]
        yield fleet
    await asyncio.gather(*following)


async def _end(fleet: _Fleet) -> None:
    for process in fleet.processes:
        if process.stdin is not None:
            process.stdin.close()
    for process in fleet.processes:
        await process.wait()


def _job(*, lasts_s: float) -> NewJob:
    return NewJob(NAME, {"added_at": monotonic(), "lasts_s": lasts_s})


async def _idle_cost(bench: Bench) -> tuple[float, float]:
    """The percentages of a core that idle workers take, in all and for reaping."""
    with bench.server.admin() as admin:
        admin.config_resetstat()
        before = _cpu_s(bench)
        await asyncio.sleep(MEASURE_S)
        spent_s = _cpu_s(bench) - before
        stats: dict[str, Any] = admin.info("commandstats")
    reaping = [stats.get(f"cmdstat_{name}", {"usec": 0})["usec"] for name in REAP_COMMANDS]
    return 100 * spent_s / MEASURE_S, 100 * sum(reaping) / 1e6 / MEASURE_S


async def _dispatch(bench: Bench, fleet: _Fleet, *, idle_percent: float) -> tuple[float, float]:
    """Microseconds of server time for an add and its job, and milliseconds until it starts."""
    late_ms = []
    async with Queue(fleet.queue, bench.url) as queue:
        cpu_s, began = _cpu_s(bench), monotonic()
        for _ in range(ADDS):
            await queue.add_many([_job(lasts_s=0.0)])
            _, _, late_s = await fleet.started.get()
            late_ms.append(late_s * 1000)
        spent_s = _cpu_s(bench) - cpu_s - (monotonic() - began) * idle_percent / 100
    return spent_s / ADDS * 1e6, median(late_ms)


async def _takeover(bench: Bench, fleet: _Fleet) -> float:
    """Kill a process whose workers hold jobs; seconds until the last of these runs again."""
    async with Queue(QUEUE, bench.url) as queue:
        await queue.add_many([_job(lasts_s=3600.0) for _ in range(HELD)])
    held = [(await fleet.started.get())[:2] for _ in range(HELD)]
    victim = fleet.processes[0]
    lost = {job_id for pid, job_id in held if pid == victim.pid}
    victim.kill()
    killed_at = monotonic()
    while lost:
        async with asyncio.timeout(60):
            lost.discard((await fleet.started.get())[1])
    return monotonic() - killed_at


def _cpu_s(bench: Bench) -> float:
    with bench.server.admin() as admin:
        info: dict[str, Any] = admin.info("cpu")
    return float(info["used_cpu_user"] + info["used_cpu_sys"])
