"""Middleware: wrap every attempt, for example to measure it or to write a trace.

It prints:

    [order-7] divide starts
    [order-7] divide succeeds
    0.5
    [order-8] divide starts
    [order-8] divide fails: ZeroDivisionError
    division by zero
    2 attempts, in less than a minute: True
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic

from tampu import App, AppWorker, Job, JobFailed

took_s: list[float] = []


@asynccontextmanager
async def timed(job: Job) -> AsyncIterator[None]:
    """Measure an attempt, however it ends."""
    began = monotonic()
    try:
        yield
    finally:
        took_s.append(monotonic() - began)


@asynccontextmanager
async def traced(job: Job) -> AsyncIterator[None]:
    """Print when an attempt starts and ends. Middleware cannot hide an error."""
    print(f"[{job.headers['request']}] {job.name} starts")
    try:
        yield
    except Exception as error:
        print(f"[{job.headers['request']}] {job.name} fails: {type(error).__name__}")
        raise
    print(f"[{job.headers['request']}] {job.name} succeeds")


app = App(default_queue="sums", middleware=[timed, traced])  # the first is outermost


@app.task(attempts=1)
async def divide(a: int, b: int) -> float:
    return a / b


async def main() -> None:
    async with app, AppWorker(app):
        # Headers travel next to the arguments.
        half = await divide.options(headers={"request": "order-7"}).enqueue(1, 2)
        print(await half.result(timeout=10))
        wrong = await divide.options(headers={"request": "order-8"}).enqueue(1, 0)
        try:
            await wrong.result(timeout=10)
        except JobFailed as failed:
            print(failed.message)
    print(f"{len(took_s)} attempts, in less than a minute: {sum(took_s) < 60}")


if __name__ == "__main__":
    asyncio.run(main())
