"""Leases: a worker keeps its jobs while it is alive, however long they run."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tampu.job import Job
from tampu.worker import Worker
from tests.contract.workers import QUEUE, SOON, Harness
from tests.waiting import block_until

LEASE_S = 1.0
LONG_S = 3 * LEASE_S


class Runs:
    """Handlers that take three leases, and a record of their runs."""

    def __init__(self) -> None:
        self.begun: list[Job[Any]] = []
        self.ended: list[Job[Any]] = []
        self.elsewhere: list[Job[Any]] = []
        self.watched_from = 0.0  # when another program began to work

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
def another_program(harness: Harness, runs: Runs) -> Iterator[None]:
    """A worker in a thread that starts after the first job has, and has nothing to do."""
    stopping = threading.Event()

    async def work() -> None:
        async with Worker(QUEUE, runs.run_elsewhere, harness.running.url, lease=LEASE_S):
            runs.watched_from = time.monotonic()
            await asyncio.to_thread(stopping.wait)

    def live() -> None:
        block_until(lambda: bool(runs.begun), within=SOON, sentence="the job has started")
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
    async def test_a_job_of_three_leases_is_run_once(self, harness: Harness) -> None:
        await self.run_once(harness, "sleep")

    @pytest.mark.parametrize("kind", ["sleep_plainly", "block"])
    async def test_a_blocking_handler_keeps_its_lease(self, harness: Harness, kind: str) -> None:
        await self.run_once(harness, kind)

    async def run_once(self, harness: Harness, kind: str) -> None:
        runs = Runs()
        with another_program(harness, runs):
            await harness.start_worker(getattr(runs, kind), lease=LEASE_S)
            await harness.queue.add("long")
            await harness.until_settled()
            watched_s = time.monotonic() - runs.watched_from
        assert runs.watched_from > 0
        assert watched_s > 1.5 * LEASE_S
        assert runs.elsewhere == []
        assert [job.attempt for job in runs.begun] == [1]
        assert [job.attempt for job in runs.ended] == [1]
