"""A worker in a process of its own: `python -m benchmarks.memory_worker URL JOBS JOBS ...`.

Prints its resident memory in bytes after each of these numbers of jobs, as JSON.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Final

import uvloop

from benchmarks.workload import CONCURRENCY, QUEUE
from tampu.worker import Worker

STATM: Final = Path("/proc/self/statm")


class _MemoryReader:
    """A handler that reads the memory after some of the jobs, and does nothing else."""

    def __init__(self, read_after: list[int]) -> None:
        self._read_after, self._last = frozenset(read_after), max(read_after)
        self._jobs = 0
        self.values: list[int] = []
        self.all_done = asyncio.Event()

    async def handle(self, job: object) -> None:
        del job
        self._jobs += 1
        if self._jobs in self._read_after:
            self.values.append(_resident_bytes())
            if self._jobs == self._last:
                self.all_done.set()


def _resident_bytes() -> int:
    return int(STATM.read_text("ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def main(url: str, read_after: list[int]) -> None:
    """Run jobs until the last number is reached."""
    reader = _MemoryReader(read_after)
    worker = Worker(QUEUE, reader.handle, url, concurrency=CONCURRENCY, events=False)
    async with worker:
        await reader.all_done.wait()
    print(json.dumps(reader.values))


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], [int(each) for each in sys.argv[2:]]))
