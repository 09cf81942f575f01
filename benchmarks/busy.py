"""One busy queue and 19 empty ones in a worker, against a worker with one queue."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from statistics import median
from time import perf_counter
from typing import Any, Final

from benchmarks import probe
from benchmarks.bench import Bench
from benchmarks.figures import Comparison, Figure, Unit, run_rounds
from benchmarks.measuring import DispatchTimer, JobCounter, percentile, take_samples_ms
from benchmarks.workload import CONCURRENCY, DATA, NAME, QUEUE
from tampu import Job, Queue
from tampu.consumer.engine import Engine
from tampu.consumer.handler import handlers_by_name
from tampu.consumer.options import WorkerSettings
from tampu.consumer.queue_config import QueueConfig, new_consumer
from tampu.consumer.runners.local import make_plans
from tampu.wire.keys import QueueKeys

EMPTY: Final = 19
JOBS: Final = 60_000
ROUNDS: Final = 7
SAMPLES: Final = 200
ALONE: Final = "a worker with one queue"
FLOOD: Final = 400_000
_MANY: Final = "many"

Handle = Callable[[Job[Any]], Awaitable[object]]


async def run(bench: Bench) -> list[Figure]:
    """The rate of the busy queue, and the latency of an empty one beside it."""
    rates = await run_rounds(
        {_MANY: lambda: _consume(bench, EMPTY), ALONE: lambda: _consume(bench, 0)}, ROUNDS
    )
    late = await run_rounds(
        {_MANY: lambda: _dispatch(bench, EMPTY), ALONE: lambda: _dispatch(bench, 0)}, ROUNDS
    )
    flooded = await run_rounds(
        {_MANY: lambda: _probe(bench, EMPTY), ALONE: lambda: _probe(bench, 0)}, ROUNDS
    )
    many, alone = (median(rates[name]) for name in (_MANY, ALONE))
    many_ms, alone_ms = (median(late[name]) for name in (_MANY, ALONE))
    flooded_ms, quiet_ms = (median(flooded[name]) for name in (_MANY, ALONE))
    return [
        Comparison(f"consume beside {EMPTY} empty queues", many, ALONE, alone, 0.95),
        Comparison(
            f"add to handler, p50, beside {EMPTY} other queues",
            many_ms,
            ALONE,
            alone_ms,
            0.5,
            Unit.MS,
        ),
        Comparison(
            f"the same from another process, one of the {EMPTY} others flooded",
            flooded_ms,
            ALONE,
            quiet_ms,
            0.5,
            Unit.MS,
        ),
    ]


@asynccontextmanager
async def _worker(bench: Bench, handle: Handle, others: int) -> AsyncIterator[None]:
    settings = WorkerSettings(concurrency=CONCURRENCY, events=False)
    consumer = new_consumer(None)
    plans = make_plans(handlers_by_name(handle), settings)
    configs = [
        QueueConfig(QueueKeys(name), consumer, settings, plans=plans)
        for name in (QUEUE, *(f"other-{number}" for number in range(others)))
    ]
    engine = await Engine.open(configs, bench.url, None, on_drain=lambda: None)
    try:
        yield
    finally:
        await engine.close(0)


async def _consume(bench: Bench, others: int) -> float:
    await bench.fill(JOBS)
    counter = JobCounter(JOBS)
    async with _worker(bench, counter.handle, others):
        return await counter.wait()


async def _probe(bench: Bench, others: int) -> float:
    """The latency of jobs from another process: beside a flooded queue, or alone."""
    late_ms: list[float] = []

    async def handle(job: Job[Any]) -> None:
        if job.name == probe.TIMED:
            late_ms.append(1000 * (perf_counter() - job.data))

    await bench.fill(FLOOD if others else 0)
    async with _worker(bench, handle, others):
        adding = await probe.start(bench.url, "other-0" if others else QUEUE)
        await adding.wait()
        async with Queue(QUEUE, bench.url) as queue:
            is_flooded = (await queue.counts()).waiting > 0
    assert is_flooded or not others, "the flood was over too soon"
    return median(late_ms)


async def _dispatch(bench: Bench, others: int) -> float:
    bench.empty()
    timer = DispatchTimer()
    async with Queue(QUEUE, bench.url) as queue, _worker(bench, timer.handle, others):
        taken = await take_samples_ms(
            lambda: timer.time_one(lambda: queue.add(NAME, DATA)), SAMPLES
        )
    return percentile(taken, 50)
