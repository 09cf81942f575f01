"""Queues and workers of the drop-in; who leaves something behind fails the test."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tampu.compat.chasquimq import Producer, Queue
from tests.compat.shop import QUEUE, Shop
from tests.contract.workers import connections, own_tasks
from tests.servers import RunningServer
from tests.waiting import wait_until


@pytest.fixture
def admin(running: RunningServer) -> Iterator[Any]:
    with running.admin() as client:
        yield client


@pytest.fixture
async def queue(running: RunningServer) -> AsyncIterator[Queue]:
    async with Queue(QUEUE, redis_url=running.url) as opened:
        yield opened


@pytest.fixture
async def producer(running: RunningServer) -> AsyncIterator[Producer]:
    made = Producer(running.url, QUEUE)
    yield made
    await made.shutdown()


@pytest.fixture
async def shop(running: RunningServer) -> AsyncIterator[Shop]:
    with running.admin() as admin:
        before = connections(admin)
        async with Queue(QUEUE, redis_url=running.url) as queue:
            opened = Shop(running, queue)
            yield opened
            await opened.close()
        await asyncio.sleep(0)
        assert own_tasks() == [], "a task was left behind"
        await wait_until(
            lambda: connections(admin) <= before, within=10, sentence="connections are closed"
        )
