"""Cancelling jobs that a worker runs."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from tampu.job import CancelState, Job
from tampu.metrics import JobEnded, MemorySink, OutcomeKind
from tests.contract.workers import KEYS, SOON, Calls, Harness
from tests.unit.consumer.runners import child_handlers
from tests.unit.consumer.runners.child_runs import is_gone, pid_in
from tests.waiting import wait_until


def outcomes(sink: MemorySink) -> list[OutcomeKind]:
    return [ended.outcome for ended in sink.of(JobEnded)]


async def until_cancelled(harness: Harness, sink: MemorySink) -> None:
    """Wait until the one job is settled: nothing of it is left, not even a dead letter."""
    await harness.until_settled()
    assert outcomes(sink) == [OutcomeKind.CANCELLED]
    assert harness.admin.exists(KEYS.dead) == 0
    assert harness.pending() == 0


@pytest.fixture
def sink() -> MemorySink:
    return MemorySink()


class TestCancelling:
    async def test_an_async_handler_is_cancelled_and_its_job_is_settled(
        self, harness: Harness, sink: MemorySink
    ) -> None:
        begun, ended = asyncio.Event(), asyncio.Event()

        async def handler(job: Job[Any]) -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        async with harness.make_worker(handler, concurrency=1, store_results=True, metrics=sink):
            job = await harness.queue.add("slow")
            await asyncio.wait_for(begun.wait(), SOON)
            assert await job.cancel() is CancelState.CANCELLING
            await until_cancelled(harness, sink)
            assert ended.is_set()

    async def test_a_plain_function_sees_that_its_job_is_cancelled(
        self, harness: Harness, sink: MemorySink
    ) -> None:
        begun, never = threading.Event(), threading.Event()

        def handler(job: Job[Any]) -> None:
            begun.set()
            while not never.wait(0.005):
                if job.cancelled:
                    raise RuntimeError("told to stop")

        async with harness.make_worker(handler, concurrency=1, store_results=True, metrics=sink):
            job = await harness.queue.add("slow")
            await wait_until(begun.is_set, within=SOON, sentence="it runs")
            assert await job.cancel() is CancelState.CANCELLING
            await until_cancelled(harness, sink)

    async def test_a_child_process_is_killed(
        self, harness: Harness, sink: MemorySink, tmp_path: Path
    ) -> None:
        async with harness.make_worker(child_handlers.sleeps, isolation="process", metrics=sink):
            job = await harness.queue.add("slow", [str(tmp_path / "pid"), 60])
            pid = await pid_in(tmp_path / "pid")
            assert await job.cancel() is CancelState.CANCELLING
            await until_cancelled(harness, sink)
            await wait_until(lambda: is_gone(pid), within=SOON, sentence="the child is gone")

    async def test_the_job_of_a_handler_that_ignores_it_is_settled_after_the_grace(
        self, harness: Harness, sink: MemorySink
    ) -> None:
        begun, opened, calls = asyncio.Event(), asyncio.Event(), Calls()

        async def handler(job: Job[Any]) -> None:
            begun.set()
            while not opened.is_set():
                try:
                    await opened.wait()
                except asyncio.CancelledError:
                    continue

        handlers: dict[str, Any] = {"slow": handler, "next": calls}
        async with harness.make_worker(handlers, concurrency=1, metrics=sink, cancel_grace=0.01):
            job = await harness.queue.add("slow")
            await asyncio.wait_for(begun.wait(), SOON)
            assert await job.cancel() is CancelState.CANCELLING
            await until_cancelled(harness, sink)
            await harness.queue.add("next", 2)
            await calls.until(1)
            opened.set()
