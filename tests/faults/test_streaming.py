"""Streams of jobs whose workers are killed: a reader sees the whole next attempt, or an end."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

import pytest

from tampu import Chunk, JobFailed, Queue, Restarted
from tests.faults.streaming_app import CHUNKS
from tests.servers import ROOT, RunningServer

KILLS = int(os.environ.get("TAMPU_FAULTS_KILLS", "2"))  # `make faults` kills more often
LIMIT_S = 60.0
Spawn = Callable[[], "subprocess.Popen[bytes]"]
Items = AsyncGenerator[Chunk[Any] | Restarted]

pytestmark = pytest.mark.timeout(60 + 30 * KILLS)


@pytest.fixture
def spawn(running: RunningServer) -> Iterator[Spawn]:
    """Start a worker process; all are killed after the test."""
    started: list[subprocess.Popen[bytes]] = []
    program = (
        "import asyncio; from tampu import AppWorker; from tests.faults.streaming_app import app; "
        "asyncio.run(AppWorker(app, lease=2).run())"
    )

    def start() -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env=os.environ | {"TAMPU_URL": running.url, "PYTHONPATH": str(ROOT)},
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


async def take(items: Items, count: int) -> list[Chunk[Any] | Restarted]:
    async with asyncio.timeout(LIMIT_S):
        return [await anext(items) for _ in range(count)]


async def rest(items: Items) -> list[Chunk[Any] | Restarted]:
    async with asyncio.timeout(LIMIT_S):
        return [item async for item in items]


def numbers(items: list[Chunk[Any] | Restarted], attempt: int) -> list[int]:
    """The chunks of an attempt, which must come one after the other."""
    found = [item.value for item in items if isinstance(item, Chunk) and item.attempt == attempt]
    assert all(told == attempt for told, _ in found), "chunks of two attempts are mixed"
    return [number for _, number in found]


@pytest.mark.parametrize("kill", range(KILLS))
async def test_readers_see_the_whole_next_attempt(queue: Queue, spawn: Spawn, kill: int) -> None:
    job = await queue.add("count", {})
    watching, resuming = job.stream(), job.stream()
    first = spawn()
    begun = await take(watching, 3 + 7 * kill)
    seen = await take(resuming, 2)
    await resuming.aclose()  # it comes back after the kill, with the id of its last chunk
    first.kill()
    spawn()
    items = begun + await rest(watching)
    assert [item for item in items if isinstance(item, Restarted)] == [Restarted(2)]
    before = items.index(Restarted(2))
    assert numbers(items[:before], 1) == list(range(before))
    assert numbers(items[before + 1 :], 2) == list(range(CHUNKS))
    assert isinstance(seen[-1], Chunk)
    back = seen + await rest(job.stream(seen[-1].id))
    assert back == items, "a reader that comes back must miss nothing and see nothing twice"


@pytest.mark.every_server
async def test_a_job_without_attempts_left_has_an_end(queue: Queue, spawn: Spawn) -> None:
    job = await queue.add("once", {})
    items = job.stream()
    first = spawn()
    await take(items, 3)
    first.kill()
    spawn()
    with pytest.raises(JobFailed, match="crashed"):
        await rest(items)


@pytest.mark.every_server
async def test_a_worker_that_was_frozen_is_not_heard(queue: Queue, spawn: Spawn) -> None:
    job = await queue.add("count", {})
    items = job.stream()
    first = spawn()
    begun = await take(items, 3)
    first.send_signal(19)  # SIGSTOP
    spawn()
    begun += await take(items, 10)
    first.send_signal(18)  # SIGCONT: it goes on, and does not know that its job was taken over
    told = begun + await rest(items)
    restart = told.index(Restarted(2))
    assert numbers(told[restart + 1 :], 2) == list(range(CHUNKS))
    assert not [each for each in told[restart:] if isinstance(each, Chunk) and each.attempt == 1]
