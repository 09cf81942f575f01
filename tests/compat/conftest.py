"""Queues and workers of the drop-in. A test that leaves a task or a connection open fails."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tampu.compat.chasquimq import Producer, Queue
from tests.compat.harness import QUEUE, Harness
from tests.contract.workers import connections, own_tasks
from tests.servers import RunningServer
from tests.waiting import wait_until


@pytest.fixture
def admin(running: RunningServer) -> Iterator[Any]:
    with running.admin() as client:
        yield client


@pytest.fixture
async def queue(running: RunningServer) -> AsyncIterator[Queue]:
    async with Queue(QUEUE, redis_url=running.url) as queue:
        yield queue


@pytest.fixture
async def producer(running: RunningServer) -> AsyncIterator[Producer]:
    producer = Producer(running.url, QUEUE)
    yield producer
    await producer.shutdown()


@pytest.fixture
async def harness(running: RunningServer) -> AsyncIterator[Harness]:
    with running.admin() as admin:
        before = connections(admin)
        async with Queue(QUEUE, redis_url=running.url) as queue:
            harness = Harness(running, queue)
            yield harness
            await harness.close()
        await asyncio.sleep(0)
        assert own_tasks() == [], "a task is still running"
        await wait_until(
            lambda: connections(admin) <= before, within=60, sentence="connections are closed"
        )
