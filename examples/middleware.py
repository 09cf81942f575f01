"""Middleware: something around every run, such as a time, a trace or a lock.

It prints:

    [order-7] divide begins
    [order-7] divide ends
    0.5
    [order-8] divide begins
    [order-8] divide failed: ZeroDivisionError
    division by zero
    in all: 2 runs, less than a minute: True
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic

from tampu import App, AppWorker, Job, JobFailed

took_s: list[float] = []


@asynccontextmanager
async def timed(job: Job) -> AsyncIterator[None]:
    """Measure a run, whatever it ends in."""
    began = monotonic()
    try:
        yield
    finally:
        took_s.append(monotonic() - began)


@asynccontextmanager
async def traced(job: Job) -> AsyncIterator[None]:
    """Tell about a run. An error passes through: middleware cannot swallow it."""
    print(f"[{job.headers['request']}] {job.name} begins")
    try:
        yield
    except Exception as error:
        print(f"[{job.headers['request']}] {job.name} failed: {type(error).__name__}")
        raise
    print(f"[{job.headers['request']}] {job.name} ends")


app = App(default_queue="sums", middleware=[timed, traced])  # the first is outermost


@app.task(attempts=1)
async def divide(a: int, b: int) -> float:
    return a / b


async def main() -> None:
    async with app, AppWorker(app, store_results=True):
        # Headers travel beside the arguments.
        half = await divide.options(headers={"request": "order-7"}).enqueue(1, 2)
        print(await half.result(timeout=10))
        wrong = await divide.options(headers={"request": "order-8"}).enqueue(1, 0)
        try:
            await wrong.result(timeout=10)
        except JobFailed as failed:
            print(failed.message)
    print(f"in all: {len(took_s)} runs, less than a minute: {sum(took_s) < 60}")


if __name__ == "__main__":
    asyncio.run(main())
