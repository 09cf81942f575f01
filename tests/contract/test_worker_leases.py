"""Leases on real servers: a job belongs to its worker while that lives, however long it runs."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tampu.job import Job
from tampu.worker import Worker
from tests.contract.workers import QUEUE, SOON, Crew
from tests.waiting import block_until

LEASE_S = 1.0
LONG_S = 3 * LEASE_S


class Runs:
    """Handlers that take three leases, and what was run when."""

    def __init__(self) -> None:
        self.begun: list[Job[Any]] = []
        self.ended: list[Job[Any]] = []
        self.elsewhere: list[Job[Any]] = []
        self.watched_from = 0.0  # when another program was at work

    async def sleep(self, job: Job[Any]) -> None:
        self.begun.append(job)
        await asyncio.sleep(LONG_S)
        self.ended.append(job)

    def sleep_plainly(self, job: Job[Any]) -> None:
        self.begun.append(job)
        time.sleep(LONG_S)
        self.ended.append(job)

    async def block(self, job: Job[Any]) -> None:
        self.begun.append(job)
        time.sleep(LONG_S)  # noqa: ASYNC251 - that is the point
        self.ended.append(job)

    async def run_elsewhere(self, job: Job[Any]) -> None:
        self.elsewhere.append(job)


@contextmanager
def another_program(crew: Crew, runs: Runs) -> Iterator[None]:
    """A worker with a loop of its own that starts behind the first job, and has nothing to do."""
    stopping = threading.Event()

    async def work() -> None:
        async with Worker(QUEUE, runs.run_elsewhere, crew.running.url, lease=LEASE_S):
            runs.watched_from = time.monotonic()
            await asyncio.to_thread(stopping.wait)

    def live() -> None:
        block_until(lambda: bool(runs.begun), within=SOON, sentence="the job has begun")
        asyncio.run(work())

    thread = threading.Thread(target=live)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


class TestLongHandlers:
    @pytest.mark.every_server
    async def test_a_job_of_three_leases_is_run_once(self, crew: Crew) -> None:
        await self.run_once(crew, "sleep")

    @pytest.mark.parametrize("kind", ["sleep_plainly", "block"])
    async def test_so_is_one_that_blocks(self, crew: Crew, kind: str) -> None:
        await self.run_once(crew, kind)

    async def run_once(self, crew: Crew, kind: str) -> None:
        runs = Runs()
        with another_program(crew, runs):
            await crew.hire(getattr(runs, kind), lease=LEASE_S)
            await crew.queue.add("long")
            await crew.settled()
            watched_s = time.monotonic() - runs.watched_from
        assert runs.watched_from > 0
        assert watched_s > 1.5 * LEASE_S
        assert runs.elsewhere == []
        assert [job.attempt for job in runs.begun] == [1]
        assert [job.attempt for job in runs.ended] == [1]
