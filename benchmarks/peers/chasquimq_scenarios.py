"""`python -m benchmarks.peers.chasquimq_scenarios SCENARIO REQUEST`: ChasquiMQ's side of scenarios.

Runs with the Python of ChasquiMQ's environment. The request and the printed result are JSON.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from time import perf_counter
from typing import Any, Final

import uvloop
from chasquimq import Job, Queue, Worker

from benchmarks.measuring import (
    DispatchTimer,
    JobCounter,
    LatenessRecorder,
    due_times,
    take_samples_ms,
)
from benchmarks.workload import CONCURRENCY, DATA, NAME, QUEUE

Request = dict[str, Any]


@asynccontextmanager
async def _running(
    handler: Callable[[Any], Awaitable[object]], url: str, **options: object
) -> AsyncGenerator[None]:
    """Run a worker inside the block."""
    worker = Worker(QUEUE, handler, redis_url=url, concurrency=CONCURRENCY, **options)
    running = asyncio.ensure_future(worker.run())
    yield
    await worker.close()
    await running


async def consume(request: Request) -> float:
    """Run the jobs of a filled queue. Returns jobs per second."""
    counter = JobCounter(request["jobs"], request["result"])
    async with _running(counter.handle, request["url"], **request["options"]):
        return await counter.wait()


async def retry(request: Request) -> float:
    """Run jobs that fail once and then succeed. Returns jobs per second."""
    counter = JobCounter(request["jobs"])

    async def handle(job: Job) -> None:
        counter.start()
        if job.attempts_made == 0:
            raise RuntimeError("the first attempt")
        counter.count()

    async with _running(handle, request["url"], events_enabled=False):
        return await counter.wait()


async def produce(request: Request) -> float:
    """Add jobs from some tasks, each with one call after another. Returns jobs per second."""
    jobs, jobs_per_call, tasks = (int(request[each]) for each in ("jobs", "jobs_per_call", "tasks"))
    many = [{"name": NAME, "data": DATA}] * jobs_per_call

    async def add(queue: Queue) -> None:
        for _ in range(jobs // tasks // jobs_per_call):
            if jobs_per_call == 1:
                await queue.add(NAME, DATA)
            else:
                await queue.add_bulk(many)

    async with Queue(QUEUE, redis_url=request["url"]) as queue:
        await queue.add(NAME, DATA)
        began = perf_counter()
        await asyncio.gather(*(add(queue) for _ in range(tasks)))
        return jobs / (perf_counter() - began)


async def dispatch(request: Request) -> list[float]:
    """Milliseconds from add to handler, with an idle worker."""
    timer, url = DispatchTimer(), request["url"]
    async with _running(timer.handle, url, events_enabled=False):
        async with Queue(QUEUE, redis_url=url) as queue:
            return await take_samples_ms(
                lambda: timer.time_one(lambda: queue.add(NAME, DATA)), request["samples"]
            )


async def result(request: Request) -> list[float]:
    """Milliseconds from add to result, with an idle worker."""

    async def handle(job: Job) -> object:
        return job.data

    async def time_one() -> float:
        began = perf_counter()
        job = await queue.add(NAME, DATA)
        await job.wait_for_result(timeout=10)
        return perf_counter() - began

    url = request["url"]
    async with _running(handle, url, events_enabled=False, store_results=True):
        async with Queue(QUEUE, redis_url=url) as queue:
            return await take_samples_ms(time_one, request["samples"])


async def lateness(request: Request) -> list[float]:
    """By how many milliseconds delayed jobs are late."""
    recorder, url = LatenessRecorder(request["jobs"]), request["url"]
    async with _running(recorder.handle, url, events_enabled=False):
        async with Queue(QUEUE, redis_url=url) as queue:
            adds = [
                queue.add(NAME, at, delay_ms=datetime.fromtimestamp(at, UTC))
                for at in due_times(request["jobs"])
            ]
            await asyncio.gather(*adds)
            return await recorder.wait()


SCENARIOS: Final[dict[str, Callable[[Request], Awaitable[object]]]] = {
    "consume": consume,
    "retry": retry,
    "produce": produce,
    "dispatch": dispatch,
    "result": result,
    "lateness": lateness,
}


async def _run() -> object:
    scenario, request = sys.argv[1:]
    return await SCENARIOS[scenario](json.loads(request))


if __name__ == "__main__":
    print(json.dumps(uvloop.run(_run())), flush=True)
    os._exit(0)  # the engine's threads may outlive the loop and break the interpreter's shutdown
