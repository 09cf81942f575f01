"""The ways to run a handler: on the loop, with and without a time limit, in threads, in processes.

The handlers do nothing, so this is the cost of running them.
"""

import asyncio
import time
from collections.abc import Sequence
from time import perf_counter
from typing import Any, Final

from benchmarks.bench import Bench
from benchmarks.figures import Comparison, Figure, Value, run_for_medians
from benchmarks.measuring import JobCounter
from benchmarks.workload import CONCURRENCY, DATA, NAME, QUEUE
from tampu import Job, NewJob, Queue
from tampu.metrics import Fact, JobEnded
from tampu.worker import Worker

LOOP_JOBS: Final = 60_000
THREAD_JOBS: Final = 30_000
PROCESS_JOBS: Final = 8_000
ROUNDS: Final = 5
THREADS: Final = 20
CHILDREN: Final = 4
THREADS_PER_S: Final = 25_000
CHILDREN_PER_S: Final = 4_000
LIMIT_FLOOR: Final = 0.85
LIMIT: Final = "1m"
_WARM_UP: Final = "warm-up"
_WARM_UP_S: Final = 2.0
_ON_LOOP: Final = "async, without a time limit"
_LIMITED: Final = "async, with a time limit"
_IN_THREADS: Final = f"plain functions in {THREADS} threads"
_IN_CHILDREN: Final = f"functions in {CHILDREN} child processes"


async def run(bench: Bench) -> list[Figure]:
    """All ways take turns on one server; events are off."""
    contenders = {
        _ON_LOOP: lambda: _on_loop(bench, None),
        _LIMITED: lambda: _on_loop(bench, LIMIT),
        _IN_THREADS: lambda: _in_threads(bench),
        _IN_CHILDREN: lambda: _in_children(bench),
    }
    rates = await run_for_medians(contenders, ROUNDS)
    return [
        Value(_ON_LOOP, rates[_ON_LOOP]),
        Comparison(_LIMITED, rates[_LIMITED], _ON_LOOP, rates[_ON_LOOP], LIMIT_FLOOR),
        Comparison(_IN_THREADS, rates[_IN_THREADS], "required", THREADS_PER_S, 1),
        Comparison(_IN_CHILDREN, rates[_IN_CHILDREN], "required", CHILDREN_PER_S, 1),
    ]


def do_nothing(job: Job[Any]) -> None:
    """A handler; a job that warms up takes so long that each child process gets one."""
    if job.name == _WARM_UP:
        time.sleep(_WARM_UP_S)


class EndCounter:
    """A metrics sink that measures the time from the first end of a job to the last."""

    def __init__(self, name: str, jobs: int) -> None:
        self._name = name
        self._jobs = self._left = jobs
        self._began = self._ended = 0.0
        self._all_done = asyncio.Event()

    def record(self, facts: Sequence[Fact]) -> None:
        """Count the jobs that ended."""
        ended = sum(isinstance(fact, JobEnded) and fact.name == self._name for fact in facts)
        if ended:
            self._began = self._began or perf_counter()
            self._left -= ended
            if self._left == 0:
                self._ended = perf_counter()
                self._all_done.set()

    async def wait(self, limit_s: float = 120.0) -> float:
        """Wait for the last job. Returns jobs per second."""
        async with asyncio.timeout(limit_s):
            await self._all_done.wait()
        return self._jobs / (self._ended - self._began)


class EndCounters:
    """Two of them in one: for the jobs that warm up, and for those that are measured."""

    def __init__(self, warm_up: EndCounter, measured: EndCounter) -> None:
        self._both = warm_up, measured

    def record(self, facts: Sequence[Fact]) -> None:
        """Count the jobs that ended."""
        for each in self._both:
            each.record(facts)


async def _on_loop(bench: Bench, timeout: str | None) -> float:
    await bench.fill(LOOP_JOBS)
    counter = JobCounter(LOOP_JOBS)
    async with Worker(
        QUEUE, counter.handle, bench.url, concurrency=CONCURRENCY, events=False, timeout=timeout
    ):
        return await counter.wait()


async def _in_threads(bench: Bench) -> float:
    await bench.fill(THREAD_JOBS)
    counter = EndCounter(NAME, THREAD_JOBS)
    async with Worker(
        QUEUE, do_nothing, bench.url, concurrency=THREADS, events=False, metrics=counter
    ):
        return await counter.wait()


async def _in_children(bench: Bench) -> float:
    bench.empty()
    warm_up, counter = EndCounter(_WARM_UP, CHILDREN), EndCounter(NAME, PROCESS_JOBS)
    worker = Worker(
        QUEUE,
        do_nothing,
        bench.url,
        concurrency=CHILDREN,
        events=False,
        isolation="process",
        metrics=EndCounters(warm_up, counter),
    )
    async with Queue(QUEUE, bench.url) as queue, worker:
        await queue.add_each(_WARM_UP, range(CHILDREN))
        await warm_up.wait()
        await queue.add_many([NewJob(NAME, DATA)] * PROCESS_JOBS)
        return await counter.wait()
