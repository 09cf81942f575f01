"""Adds jobs that carry the time at which they were added, in a process of its own.

`python -m benchmarks.probe URL QUEUE`. Linux has one monotonic clock for all processes.
"""

import asyncio
import sys
from time import perf_counter
from typing import Final

import uvloop

from tampu import Queue

TIMED: Final = "timed"
SAMPLES: Final = 150
_PAUSE_S: Final = 0.004


async def start(url: str, queue: str) -> asyncio.subprocess.Process:
    """Start the process."""
    command = (sys.executable, "-m", "benchmarks.probe", url, queue)
    return await asyncio.create_subprocess_exec(*command)


async def main(url: str, name: str) -> None:
    """Add the jobs."""
    async with Queue(name, url) as queue:
        for _ in range(SAMPLES):
            await queue.add(TIMED, perf_counter())
            await asyncio.sleep(_PAUSE_S)


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
