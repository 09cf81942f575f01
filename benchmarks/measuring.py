"""Handlers that count and time jobs, and helpers for samples.

Only the standard library is imported, so ChasquiMQ's programs are measured with the same code.
"""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from statistics import quantiles
from time import perf_counter, time
from typing import Any, Final

PAUSE_S: Final = 0.003  # between two jobs, so that the worker is idle again
WARM_UP: Final = 20
LIMIT_S: Final = 10.0


class JobCounter:
    """A handler that only counts jobs, and measures the time from the first to the last."""

    def __init__(self, jobs: int, result: object = None) -> None:
        self._jobs = self._left = jobs
        self._result = result
        self._began = self._ended = 0.0
        self._all_done = asyncio.Event()

    async def handle(self, job: object) -> object:
        """Run one job."""
        del job
        self.count()
        return self._result

    def count(self) -> None:
        """Count one job as done."""
        if self._left == self._jobs:
            self.start()
        self._left -= 1
        if self._left == 0:
            self._ended = perf_counter()
            self._all_done.set()

    def start(self) -> None:
        """Start the clock, unless it is running."""
        self._began = self._began or perf_counter()

    async def wait(self, limit_s: float = 60.0) -> float:
        """Wait for the last job. Returns jobs per second."""
        async with asyncio.timeout(limit_s):
            await self._all_done.wait()
        return self._jobs / (self._ended - self._began)


class DispatchTimer:
    """A handler that records when it was entered."""

    def __init__(self) -> None:
        self._entered: asyncio.Future[float] | None = None

    async def handle(self, job: object) -> None:
        """Run one job."""
        at = perf_counter()
        del job
        if self._entered is not None and not self._entered.done():
            self._entered.set_result(at)

    async def time_one(self, add: Callable[[], Awaitable[object]]) -> float:
        """Seconds from the call of `add` to the handler."""
        self._entered = asyncio.get_running_loop().create_future()
        began = perf_counter()
        await add()
        return await self._entered - began


class LatenessRecorder:
    """A handler that records how late jobs run. The data of each job is its due time."""

    def __init__(self, jobs: int) -> None:
        self._late_ms: list[float] = []
        self._jobs = jobs
        self._all_done = asyncio.Event()

    async def handle(self, job: Any) -> None:  # noqa: ANN401 - a job of any queue
        """Run one job."""
        self._late_ms.append(1000 * (time() - job.data))
        if len(self._late_ms) == self._jobs:
            self._all_done.set()

    async def wait(self) -> list[float]:
        """Wait for the last job. Returns by how many milliseconds each job was late."""
        async with asyncio.timeout(LIMIT_S):
            await self._all_done.wait()
        return self._late_ms


def due_times(count: int, *, after_s: float = 0.2) -> list[float]:
    """Due times spread over two seconds, unordered, and the same in every run."""
    order = Random(1)  # noqa: S311 - only spreads jobs
    begin = time() + after_s
    return [begin + order.uniform(0, 2) for _ in range(count)]


async def take_samples_ms(time_one: Callable[[], Awaitable[float]], count: int) -> list[float]:
    """Take samples one after another, after some that only warm up; in milliseconds."""
    taken = []
    for _ in range(WARM_UP + count):
        async with asyncio.timeout(LIMIT_S):
            taken.append(1000 * await time_one())
        await asyncio.sleep(PAUSE_S)
    return taken[WARM_UP:]


def percentile(samples: list[float], percent: int) -> float:
    """The value that this many percent of the samples do not exceed."""
    return quantiles(samples, n=100, method="inclusive")[percent - 1]
