"""Code without an event loop: scripts, threads, web frameworks of the older kind.

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
    """What a view or a script does. All threads share one connection."""
    return square.enqueue_sync(number).result(timeout=10)


def program() -> None:
    """Everything in here is plain code."""
    with ThreadPoolExecutor(3) as threads:
        print(list(threads.map(one, [1, 2, 3])))

    # Where the task's code cannot be imported, its name and the names of its arguments will do.
    with SyncQueue("squares") as queue:
        print(queue.add("square", {"number": 4}).result(timeout=10))
        counts = queue.counts()
        print(f"counts: {counts.waiting} waiting, {counts.dead} dead")

    app.close_sync()  # a program that ends does this by itself


async def main() -> None:
    """The worker, for the example in the same program; else `tampu worker sync_code:app`."""
    async with AppWorker(app, store_results=True):
        await asyncio.to_thread(program)


if __name__ == "__main__":
    asyncio.run(main())
