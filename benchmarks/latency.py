"""How long one job takes, again and again. Plain Python: rivals are timed with it too."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from statistics import quantiles
from time import perf_counter, time
from typing import Any, Final

PAUSE_S: Final = 0.003  # between two jobs: the worker is idle again
WARM_UP: Final = 20
LIMIT_S: Final = 10.0


class Arrivals:
    """A handler that says when it was entered."""

    def __init__(self) -> None:
        self._entered: asyncio.Future[float] | None = None

    async def handle(self, job: object) -> None:
        """Run one job."""
        at = perf_counter()
        del job
        if self._entered is not None and not self._entered.done():
            self._entered.set_result(at)

    async def once(self, add: Callable[[], Awaitable[object]]) -> float:
        """Seconds from the call of add to the handler."""
        self._entered = asyncio.get_running_loop().create_future()
        began = perf_counter()
        await add()
        return await self._entered - began


class Lateness:
    """A handler that notes how late jobs come; each has its due time as data."""

    def __init__(self, count: int) -> None:
        self._late_ms: list[float] = []
        self._count = count
        self._all = asyncio.Event()

    async def handle(self, job: Any) -> None:  # noqa: ANN401 - a job of anybody's
        """Run one job."""
        self._late_ms.append(1000 * (time() - job.data))
        if len(self._late_ms) == self._count:
            self._all.set()

    async def done(self) -> list[float]:
        """How many milliseconds each was late."""
        async with asyncio.timeout(LIMIT_S):
            await self._all.wait()
        return self._late_ms


def due_times(count: int, *, after_s: float = 0.2) -> list[float]:
    """When jobs are to be due: spread over the two seconds to come, in no order, always alike."""
    order = Random(1)  # noqa: S311 - spreads jobs, guards nothing
    begin = time() + after_s
    return [begin + order.uniform(0, 2) for _ in range(count)]


async def milliseconds(once: Callable[[], Awaitable[float]], count: int) -> list[float]:
    """So many samples, one after another, behind some that warm up."""
    taken = []
    for _ in range(WARM_UP + count):
        async with asyncio.timeout(LIMIT_S):
            taken.append(1000 * await once())
        await asyncio.sleep(PAUSE_S)
    return taken[WARM_UP:]


def percentile(samples: list[float], percent: int) -> float:
    """The value that so many percent of the samples do not exceed."""
    return quantiles(samples, n=100, method="inclusive")[percent - 1]
