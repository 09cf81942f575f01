"""Counts jobs that a worker runs, and takes the time. Plain Python: rivals count with it too."""

import asyncio
from time import perf_counter


class Tally:
    """A handler that does nothing but count, from the first job to the last."""

    def __init__(self, jobs: int, result: object = None) -> None:
        self._jobs = self._left = jobs
        self._result = result
        self._began = self._ended = 0.0
        self._all = asyncio.Event()

    async def handle(self, job: object) -> object:
        """Run one job."""
        del job
        self.count()
        return self._result

    def count(self) -> None:
        """One more is done."""
        if self._left == self._jobs:
            self.start()
        self._left -= 1
        if self._left == 0:
            self._ended = perf_counter()
            self._all.set()

    def start(self) -> None:
        """The clock runs from here, unless it does already."""
        self._began = self._began or perf_counter()

    async def done(self, limit_s: float = 60.0) -> float:
        """Wait for the last job; how many jobs a second that were."""
        async with asyncio.timeout(limit_s):
            await self._all.wait()
        return self._jobs / (self._ended - self._began)
