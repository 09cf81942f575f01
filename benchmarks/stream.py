"""What jobs yield: how fast it is written, how soon it is read, and what plain jobs pay for it."""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from statistics import median
from time import perf_counter, process_time
from typing import Final

from benchmarks.bench import Bench
from benchmarks.figures import Comparison, Figure, Unit, Value, run_for_medians
from benchmarks.measuring import JobCounter, take_samples_ms
from benchmarks.workload import CONCURRENCY, NAME, QUEUE
from tampu import App, AppWorker

JOBS: Final = 200
CHUNKS: Final = 500
TEXT: Final = " token"
PLAIN_JOBS: Final = 60_000
SAMPLES: Final = 200
ROUNDS: Final = 5
CHUNKS_PER_S: Final = 20_000
FIRST_LIMIT_MS: Final = 3.0
PLAIN_FLOOR: Final = 0.98
_ASYNC, _PLAIN = "async", "plain"
_READ: Final = "async, all read in another process"
_BESIDE, _ALONE = "beside a task that yields", "without one"


async def run(bench: Bench) -> list[Figure]:
    """Chunks a second over many jobs, the first chunk of a job, and jobs that do not yield."""
    rates = await run_for_medians(
        {
            _ASYNC: lambda: _write(bench, _ASYNC),
            _PLAIN: lambda: _write(bench, _PLAIN),
            _READ: lambda: _write(bench, _READ),
        },
        ROUNDS,
    )
    first = await run_for_medians({"first": lambda: _first(bench)}, ROUNDS)
    jobs = await run_for_medians(
        {
            _BESIDE: lambda: _consume(bench, beside=True),
            _ALONE: lambda: _consume(bench, beside=False),
        },
        2 * ROUNDS,
    )
    what = f"chunks of {JOBS} jobs in one worker"
    written = [
        Comparison(f"{what}, {name}", rates[name], "required", CHUNKS_PER_S, floor)
        for name, floor in ((_ASYNC, 1), (_READ, 1), (_PLAIN, None))
    ]
    beside = "plain jobs with results for a second of processor time, beside a task that yields"
    return [
        *written,
        Value("from yield to the reader, p50", first["first"], Unit.MS, FIRST_LIMIT_MS),
        Comparison(beside, jobs[_BESIDE], _ALONE, jobs[_ALONE], PLAIN_FLOOR),
    ]


async def _write(bench: Bench, kind: str) -> float:
    """Chunks a second, from the first yield until all jobs are done, or all chunks read."""
    bench.empty()
    app = App(bench.url, default_queue=QUEUE)
    began: list[float] = []

    @app.task
    async def stream() -> AsyncIterator[str]:
        began.append(perf_counter())
        for _ in range(CHUNKS):
            yield TEXT

    @app.task
    def plain() -> Iterator[str]:
        began.append(perf_counter())
        for _ in range(CHUNKS):
            yield TEXT

    task = plain if kind == _PLAIN else stream
    async with app:
        jobs = await task.enqueue_many([task.call()] * JOBS)
        async with _readers(bench, [job.id for job in jobs] if kind == _READ else []) as readers:
            async with AppWorker(app, concurrency=JOBS, events=False):
                if readers is not None and readers.stdout is not None:
                    await readers.stdout.readline()  # "read"
                else:
                    await app.queue().drain()
                ended = perf_counter()
    return JOBS * CHUNKS / (ended - min(began))


@asynccontextmanager
async def _readers(
    bench: Bench, job_ids: list[str]
) -> AsyncIterator[asyncio.subprocess.Process | None]:
    """A process that follows these jobs; it says when it does, and when it has read all."""
    if not job_ids:
        yield None
        return
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-m", "benchmarks.stream_readers", bench.url, QUEUE, str(CHUNKS))
    process = await asyncio.create_subprocess_exec(*command, *job_ids, stdout=pipe)
    assert process.stdout is not None
    await process.stdout.readline()  # "following"
    try:
        yield process
    finally:
        await process.wait()


async def _first(bench: Bench) -> float:
    """Milliseconds from a yield until a reader that waits for it has the chunk, p50."""
    bench.empty()
    app = App(bench.url, default_queue=QUEUE)
    wanted: asyncio.Queue[None] = asyncio.Queue()

    @app.task
    async def stream() -> AsyncIterator[float]:
        await wanted.get()
        yield perf_counter()

    async def time_one() -> float:
        job = await stream.enqueue()
        async with aclosing(job.stream()) as items:
            following = asyncio.create_task(anext(items))
            await asyncio.sleep(0.02)  # its worker has begun, and the reader waits
            wanted.put_nowait(None)
            item = await following
            return perf_counter() - item.value  # type: ignore[union-attr] # nothing restarts

    async with app, AppWorker(app, events=False):
        return median(await take_samples_ms(time_one, SAMPLES))


async def _consume(bench: Bench, *, beside: bool) -> float:
    """Jobs for each second of the worker's processor time, of a task that returns a number."""
    await bench.fill(PLAIN_JOBS)
    app = App(bench.url, default_queue=QUEUE)
    counter = JobCounter(PLAIN_JOBS)

    @app.task(name=NAME)
    async def plain(to: str) -> int:
        counter.count()
        return 1

    if beside:

        @app.task
        async def stream() -> AsyncIterator[int]:
            yield 1

    async with app, AppWorker(app, concurrency=CONCURRENCY, events=False):
        began = process_time()
        await counter.wait()
        return PLAIN_JOBS / (process_time() - began)
