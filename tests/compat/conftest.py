"""Queues and workers of the drop-in. A test that leaves a task or a connection open fails."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tampu.compat.chasquimq import Producer, Queue
from tests.compat.harness import QUEUE, Harness
from tests.contract.workers import connections, own_tasks
from tests.peers import can_run_on
from tests.servers import RunningServer
from tests.waiting import wait_until


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Drop the tests of the real package on servers on which it does not work."""
    items[:] = [each for each in items if not _needs_another_server(each)]


def _needs_another_server(item: pytest.Item) -> bool:
    parameters = getattr(item, "callspec", None)
    if item.path.name != "test_real_package.py" or parameters is None:
        return False
    return not can_run_on(parameters.params["backend"])


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
            lambda: connections(admin) <= before, within=10, sentence="connections are closed"
        )
