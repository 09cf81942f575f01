"""What `tampu bench` does: a figure for this machine, not a promise."""

import asyncio
from time import perf_counter

from msgspec import Struct
from rich.table import Table

from tampu.admin.queues import remove_queue
from tampu.cli.screen import Screen
from tampu.cli.shared import Shared
from tampu.cli.show.grid import facts
from tampu.job import Job
from tampu.queue import Queue
from tampu.server.connect import Server, connect
from tampu.util.clock import now_ms
from tampu.util.ids import new_id
from tampu.wire.keys import QueueKeys
from tampu.worker import Worker

_BATCH = 1000
_MOST_JOBS = 300_000  # some 30 MB at the server
_DATA = {"n": 1}


class Bench(Struct, frozen=True, kw_only=True):
    """Jobs a second, and milliseconds from adding a job to having its result."""

    add_many_per_s: float
    add_per_s: float
    consume_per_s: float
    round_trip_p50_ms: float
    round_trip_p99_ms: float


async def bench(shared: Shared, *, seconds: int) -> None:
    """Measure each of four things for a quarter of the time, on a queue that is removed."""
    keys = QueueKeys(f"tampu-bench-{new_id(now_ms())}")
    async with await connect(shared.url) as server:
        try:
            async with Queue(keys.name, shared.url) as queue:
                found = await _measured(server, queue, shared=shared, each_s=seconds / 4)
        finally:
            await remove_queue(server, keys)
    shape = {field: round(getattr(found, field), 3) for field in found.__struct_fields__}
    about = {"server": server.name, "version": str(server.dialect), "seconds": seconds}
    Screen(shared).show(about | shape, lambda: _page(server, found, seconds / 4))


async def _measured(server: Server, queue: Queue, *, shared: Shared, each_s: float) -> Bench:
    add_many = await _add_many(queue, each_s)
    add = await _add(queue, each_s)
    consume = await _consume(shared, queue, each_s)
    await remove_queue(server, QueueKeys(queue.name))  # what is left would stand in the way
    trips = sorted(await _round_trips(shared, queue, each_s))
    return Bench(
        add_many_per_s=add_many,
        add_per_s=add,
        consume_per_s=consume,
        round_trip_p50_ms=percentile(trips, 50) * 1000,
        round_trip_p99_ms=percentile(trips, 99) * 1000,
    )


def _page(server: Server, found: Bench, each_s: float) -> Table:
    return facts(
        [
            ("server", f"{server.dialect} at {server.name}"),
            ("add_many, 1000 a call", f"{found.add_many_per_s:.0f} jobs/s"),
            ("add, one by one", f"{found.add_per_s:.0f} jobs/s"),
            ("run, doing nothing", f"{found.consume_per_s:.0f} jobs/s"),
            ("add to result, half within", f"{found.round_trip_p50_ms:.2f} ms"),
            ("add to result, 99 % within", f"{found.round_trip_p99_ms:.2f} ms"),
            ("measured", f"in one process, {each_s:g} s each, events off"),
        ]
    )


async def _add_many(queue: Queue, limit_s: float) -> float:
    count, start = 0, perf_counter()
    while perf_counter() - start < limit_s and count < _MOST_JOBS:
        await queue.add_each("bench", [_DATA] * _BATCH)
        count += _BATCH
    return count / (perf_counter() - start)


async def _add(queue: Queue, limit_s: float) -> float:
    count, start = 0, perf_counter()
    while perf_counter() - start < limit_s:
        await queue.add("bench", _DATA)
        count += 1
    return count / (perf_counter() - start)


class _Tally:
    """A handler that does nothing but count, and note when the first and the last came."""

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


async def _consume(shared: Shared, queue: Queue, limit_s: float) -> float:
    """What was added before is run; what is left when the time is up is not counted."""
    tally = _Tally((await queue.counts()).waiting)
    worker = Worker(queue.name, tally, shared.url, events=False)
    async with worker:
        try:
            async with asyncio.timeout(limit_s):
                await tally.all_done.wait()
        except TimeoutError:
            tally.ended_at = perf_counter()
        count = tally.count
        await worker.stop(grace=1)
    return count / (tally.ended_at - tally.began_at)


async def _round_trips(shared: Shared, queue: Queue, limit_s: float) -> list[float]:
    """Seconds from adding a job to its result, one after the other, on an idle queue."""
    trips: list[float] = []
    async with Worker(queue.name, _echo, shared.url, events=False, store_results=True) as worker:
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
