"""Code without an event loop: scripts, threads, synchronous web frameworks.

It prints:

    [1, 4, 9]
    16
    counts: 0 waiting, 0 dead
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from tampu import App, AppWorker, SyncQueue

app = App(default_queue="squares")


@app.task
def square(number: int) -> int:
    """A plain function: the worker runs it in a thread."""
    return number * number


def one(number: int) -> int:
    """Add a job and wait for it. Any number of threads may do this at once."""
    return square.enqueue_sync(number).result(timeout=10)


def program() -> None:
    """Plain code only."""
    with ThreadPoolExecutor(3) as threads:
        print(list(threads.map(one, [1, 2, 3])))

    # If you cannot import the task, use its name and the names of its arguments.
    with SyncQueue("squares") as queue:
        print(queue.add("square", {"number": 4}).result(timeout=10))
        counts = queue.counts()
        print(f"counts: {counts.waiting} waiting, {counts.dead} dead")

    app.close_sync()  # optional: happens at the end of the program anyway


async def main() -> None:
    """Start the worker in the same program. Usually you run `tampu worker sync_code:app`."""
    async with AppWorker(app):
        await asyncio.to_thread(program)


if __name__ == "__main__":
    asyncio.run(main())
