"""`tampu bench`: how fast jobs are added and run on this machine and server."""

import asyncio
from time import perf_counter
from typing import Annotated, Final

import typer
from msgspec import Struct
from rich.table import Table

from tampu.admin.queues import remove_queue
from tampu.cli.command import command
from tampu.cli.options import SharedOptions, new_app
from tampu.cli.screen import Screen, details
from tampu.job import Job
from tampu.queue import Queue
from tampu.server.connect import Server, connect
from tampu.util.clock import now_ms
from tampu.util.ids import new_id
from tampu.wire.keys import QueueKeys
from tampu.worker import Worker

_BATCH: Final = 1000
_MOST_JOBS: Final = 300_000  # about 30 MB on the server
_DATA: Final = {"n": 1}

app = new_app()

Seconds = Annotated[
    int, typer.Option("--seconds", metavar="N", min=1, max=60, help="How long it takes in all.")
]


class BenchReport(Struct, frozen=True, kw_only=True):
    """Jobs per second, and milliseconds from adding a job to having its result."""

    add_many_per_s: float
    add_per_s: float
    consume_per_s: float
    round_trip_p50_ms: float
    round_trip_p99_ms: float


@command(app, "bench")
async def bench(shared: SharedOptions, *, seconds: Seconds = 20) -> None:
    """Measure how fast jobs are added and run here.

    Uses a queue of its own and removes it afterwards.
    """
    keys = QueueKeys(f"tampu-bench-{new_id(now_ms())}")
    async with await connect(shared.url) as server:
        try:
            async with Queue(keys.name, shared.url) as queue:
                report = await _measure(server, queue, shared.url, each_s=seconds / 4)
        finally:
            await remove_queue(server, keys)
    about = {"server": server.name, "version": str(server.dialect), "seconds": seconds}
    figures = {field: round(getattr(report, field), 3) for field in report.__struct_fields__}
    Screen(shared).show(about | figures, lambda: bench_page(server, report, seconds / 4))


async def _measure(server: Server, queue: Queue, url: str | None, *, each_s: float) -> BenchReport:
    add_many = await _measure_add_many(queue, each_s)
    add = await _measure_add(queue, each_s)
    consume = await _measure_consume(queue, url, each_s)
    await remove_queue(server, QueueKeys(queue.name))  # jobs that are left would be in the way
    trips = sorted(await _measure_round_trips(queue, url, each_s))
    return BenchReport(
        add_many_per_s=add_many,
        add_per_s=add,
        consume_per_s=consume,
        round_trip_p50_ms=percentile(trips, 50) * 1000,
        round_trip_p99_ms=percentile(trips, 99) * 1000,
    )


async def _measure_add_many(queue: Queue, limit_s: float) -> float:
    count, start = 0, perf_counter()
    while perf_counter() - start < limit_s and count < _MOST_JOBS:
        await queue.add_each("bench", [_DATA] * _BATCH)
        count += _BATCH
    return count / (perf_counter() - start)


async def _measure_add(queue: Queue, limit_s: float) -> float:
    count, start = 0, perf_counter()
    while perf_counter() - start < limit_s:
        await queue.add("bench", _DATA)
        count += 1
    return count / (perf_counter() - start)


class _CountingHandler:
    """A handler that only counts, and notes when the first and the last job ran."""

    def __init__(self, expected: int) -> None:
        self.count, self.began_at, self.ended_at = 0, 0.0, 0.0
        self._expected = expected
        self.all_done = asyncio.Event()

    async def __call__(self, job: Job[object]) -> None:
        del job
        if not self.count:
            self.began_at = perf_counter()
        self.count += 1
        if self.count == self._expected:
            self.ended_at = perf_counter()
            self.all_done.set()


async def _measure_consume(queue: Queue, url: str | None, limit_s: float) -> float:
    """Run the jobs that were added before, as many as there is time for."""
    handler = _CountingHandler((await queue.counts()).waiting)
    worker = Worker(queue.name, handler, url, events=False)
    async with worker:
        try:
            async with asyncio.timeout(limit_s):
                await handler.all_done.wait()
        except TimeoutError:
            handler.ended_at = perf_counter()
        count = handler.count
        await worker.stop(grace=1)
    return count / (handler.ended_at - handler.began_at)


async def _measure_round_trips(queue: Queue, url: str | None, limit_s: float) -> list[float]:
    """Seconds from adding a job to its result, one job at a time on an idle queue."""
    trips: list[float] = []
    async with Worker(queue.name, _echo, url, events=False, store_results=True) as worker:
        end = perf_counter() + limit_s
        while perf_counter() < end or not trips:
            start = perf_counter()
            await (await queue.add("bench", _DATA)).result()
            trips.append(perf_counter() - start)
        await worker.stop(grace=1)
    return trips


async def _echo(job: Job[object]) -> object:
    return job.data


def percentile(ordered: list[float], percent: int) -> float:
    """The smallest value that so many per cent of the values do not exceed."""
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def bench_page(server: Server, report: BenchReport, each_s: float) -> Table:
    """The figures for people."""
    return details(
        [
            ("Server", f"{server.dialect} at {server.name}"),
            ("Add, 1000 in a call", f"{report.add_many_per_s:.0f} jobs/s"),
            ("Add, one by one", f"{report.add_per_s:.0f} jobs/s"),
            ("Run, empty handler", f"{report.consume_per_s:.0f} jobs/s"),
            ("Add to result, median", f"{report.round_trip_p50_ms:.2f} ms"),
            ("Add to result, 99 %", f"{report.round_trip_p99_ms:.2f} ms"),
            ("Measured", f"in one process, {each_s:g} s each, events off"),
        ]
    )
