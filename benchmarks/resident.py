"""A worker in a process of its own: `python -m benchmarks.resident URL JOBS JOBS ...`.

Prints its resident memory in bytes after each of these numbers of jobs, as JSON.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Final

import uvloop

from benchmarks.sample import CONCURRENCY, QUEUE
from tampu.worker import Worker

_STATM: Final = Path("/proc/self/statm")


class _Watch:
    """A handler that reads the memory at some jobs and otherwise does nothing."""

    def __init__(self, marks: list[int]) -> None:
        self._marks, self._last = frozenset(marks), max(marks)
        self._jobs = 0
        self.seen: list[int] = []
        self.all = asyncio.Event()

    async def handle(self, job: object) -> None:
        del job
        self._jobs += 1
        if self._jobs in self._marks:
            self.seen.append(_resident_bytes())
            if self._jobs == self._last:
                self.all.set()


def _resident_bytes() -> int:
    return int(_STATM.read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def main(url: str, marks: list[int]) -> None:
    """Run jobs until the last mark."""
    watch = _Watch(marks)
    worker = Worker(QUEUE, watch.handle, url, concurrency=CONCURRENCY, events=False)
    async with worker:
        await watch.all.wait()
    print(json.dumps(watch.seen))


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], [int(each) for each in sys.argv[2:]]))
