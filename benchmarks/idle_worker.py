"""A worker with queues to serve and nothing to do: `python -m benchmarks.idle_worker URL QUEUES`.

Prints how many seconds it took to start, then works until its input is closed.
"""

import asyncio
import sys
from time import perf_counter

import uvloop

from tampu import App, AppWorker


async def main(url: str, queues: int) -> None:
    """Start, say so, and wait for the end of the input."""
    app = App(url)
    for number in range(queues):
        app.task(name=f"task-{number}", queue=f"queue-{number}")(_do_nothing)
    worker = AppWorker(app)
    began = perf_counter()
    async with worker:
        print(perf_counter() - began, flush=True)
        await asyncio.to_thread(sys.stdin.read)


async def _do_nothing() -> None:
    pass


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2])))
