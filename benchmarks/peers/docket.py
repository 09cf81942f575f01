"""docket: asyncio in one process, concurrency 100, with uvloop.

Its guide on production recommends to keep no state of jobs that have ended (`execution_ttl` of 0)
for throughput, and at least as many connections as jobs at a time. Its command does not have the
first option, so the worker is started in code, as in its first example. Limits are written as in
its guide on task behaviors. `add_many` is its call for batches. It has no priorities.

A worker whose 100 places are taken looks again only after `minimum_check_interval`. With the 250 ms
of its default it ran 410 jobs a second, so we use 10 ms, with which it was the fastest.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Annotated, Any, Final

import uvloop
from docket import ConcurrencyLimit, Docket, RateLimit, Worker

from benchmarks.peers import protocol
from benchmarks.peers.shared import SCENARIO, URL, run_job
from benchmarks.workload import CONCURRENCY, DATA, QUEUE

CHECK_INTERVAL: Final = timedelta(milliseconds=10)
OPEN: Final = SCENARIO == protocol.OPEN_RATE
RATE: Final = RateLimit(
    protocol.OPEN_RATE_PER_S if OPEN else protocol.RATE_PER_S, per=timedelta(seconds=1)
)


async def plain(data: object) -> None:
    run_job(data)


async def rated(data: object, rate: RateLimit = RATE) -> None:
    run_job(data)


async def limited(
    data: object, n: Annotated[int, ConcurrencyLimit(protocol.RUN_PER_VALUE)]
) -> None:
    run_job(data)


JOB: Final[Any] = {
    protocol.RATE: rated,
    protocol.OPEN_RATE: rated,
    protocol.CONCURRENCY: limited,
}.get(SCENARIO, plain)
# The arguments of the jobs that a filled queue repeats.
ARGUMENTS: Final[list[tuple[object, ...]]] = (
    [(DATA, n) for n in range(protocol.VALUES)] if JOB is limited else [(DATA,)]
)


def open_docket() -> Docket:
    url = f"{URL}?max_connections={2 * CONCURRENCY}"  # with 100 it fails: "Too many connections"
    return Docket(QUEUE, url, execution_ttl=timedelta(0))


def work() -> None:
    uvloop.run(_work())


async def _work() -> None:
    async with open_docket() as docket:
        docket.register(JOB)
        async with Worker(
            docket, concurrency=CONCURRENCY, minimum_check_interval=CHECK_INTERVAL
        ) as worker:
            await worker.run_forever()


class Producer:
    def __init__(self, docket: Docket) -> None:
        self._docket = docket

    async def add_many(self, jobs: int) -> object:
        arguments = ARGUMENTS * (jobs // len(ARGUMENTS))
        return await self._docket.add_many([self._docket.call(JOB)(*each) for each in arguments])


@asynccontextmanager
async def producer() -> AsyncGenerator[Producer]:
    async with open_docket() as docket:
        yield Producer(docket)
