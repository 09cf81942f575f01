"""tampu: asyncio in one process, with uvloop and without events."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final

import uvloop

from benchmarks.peers import protocol
from benchmarks.peers.shared import RESULTS, SCENARIO, SLOW, URL, run_job, run_join
from benchmarks.workload import CONCURRENCY, DATA, NAME, QUEUE
from tampu import App, AppWorker, Concurrency, NewJob, Priority, Queue, Rate, Worker
from tampu.job import Job
from tampu.util.clock import instant


def jobs_in_turn() -> list[NewJob]:
    """The jobs that a filled queue of the scenario repeats."""
    match SCENARIO:
        case protocol.PRIORITIES:
            return [NewJob(NAME, DATA, priority=each) for each in (Priority.LOW, Priority.HIGH)]
        case protocol.OVERTAKE:
            return [NewJob(NAME, DATA, priority=Priority.LOW)]
        case protocol.RATE:
            return [NewJob(NAME, DATA, limits=[Rate(f"{protocol.RATE_PER_S}/s")])]
        case protocol.OPEN_RATE:
            most = protocol.OPEN_RATE_PER_S
            return [NewJob(NAME, DATA, limits=[Rate(f"{most}/s", burst=most)])]
        case protocol.CONCURRENCY:
            limits = [Concurrency(protocol.RUN_PER_VALUE, by="n")]
            data = [{**DATA, "n": n} for n in range(protocol.VALUES)]
            return [NewJob(NAME, each, limits=limits) for each in data]
        case _:
            return [NewJob(NAME, DATA)]


JOBS: Final = jobs_in_turn()


async def handle(job: Job[Any]) -> object:
    return run_job(job.data)


async def handle_slowly(job: Job[Any]) -> None:
    run_job(job.data)
    await asyncio.sleep(protocol.SLOW_JOB_S)


app = App(URL or None, default_queue=QUEUE, worker={"events": False})


@app.task
async def member(data: dict[str, str]) -> object:
    return run_job(data)


@app.task
async def join(values: list[object]) -> int:
    return run_join(values)


def work() -> None:
    if SCENARIO == protocol.JOINS:
        uvloop.run(AppWorker(app, concurrency=CONCURRENCY).run())
        return
    handler = handle_slowly if SLOW else handle
    worker = Worker(
        QUEUE, handler, URL, concurrency=CONCURRENCY, events=False, store_results=RESULTS
    )
    uvloop.run(worker.run())


class Producer:
    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    async def add(self) -> object:
        return await self._queue.add(NAME, DATA)

    async def add_many(self, jobs: int) -> object:
        return await self._queue.add_many(JOBS * (jobs // len(JOBS)))

    async def add_urgent(self) -> object:
        return await self._queue.add(NAME, protocol.URGENT, priority=Priority.HIGHEST)

    async def add_group(self, size: int) -> object:
        flow = app.flow()
        flow.add(join, flow.map(member, [DATA] * size))
        return await flow.start()

    async def add_at(self, due: float) -> object:
        return await self._queue.add(NAME, due, at=instant(round(1000 * due)))

    async def result(self) -> object:
        job = await self._queue.add(NAME, DATA)
        return await job.result(timeout=10)


@asynccontextmanager
async def producer() -> AsyncGenerator[Producer]:
    async with app, Queue(QUEUE, URL) as queue:
        yield Producer(queue)
