"""Streams of jobs in a cluster: queues on several nodes, and a slot that moves."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tampu import App, JobCancelled, Router
from tampu.wire.keys import QueueKeys
from tests.contract.apps import working
from tests.contract.streaming import next_value, values
from tests.topology import Cluster, cluster

pytestmark = pytest.mark.every_server
QUEUES = [f"q{number}" for number in range(6)]


@pytest.fixture(scope="module")
def nodes(binary: Path) -> Iterator[Cluster]:
    with cluster(binary) as made:
        yield made


def declare(app: App, queue: str) -> Router:
    """A task that yields on a queue of its own."""
    router = Router(queue=queue)

    @router.task(name=f"count-{queue}", window=3, cancel_on_close=True)
    async def count(most: int) -> AsyncIterator[int]:
        for number in range(most):
            yield number

    app.include(router)
    return router


async def test_streams_of_queues_on_several_nodes(nodes: Cluster) -> None:
    app = App(nodes.url)
    for queue in QUEUES:
        declare(app, queue)
    assert len({nodes.owner(b"{chasqui:%b}" % each.encode()).port for each in QUEUES}) > 1
    async with working(app):
        jobs = [await app.tasks[f"count-{queue}"].enqueue(20) for queue in QUEUES]
        read = await asyncio.gather(*(values(job.stream()) for job in jobs))
        assert read == [list(range(20))] * len(QUEUES)
        late = await asyncio.gather(*(values(job.stream()) for job in jobs))
        assert late == read


async def test_a_stream_goes_on_while_its_slot_moves(nodes: Cluster) -> None:
    app, queue = App(nodes.url), QUEUES[1]
    declare(app, queue)
    key = QueueKeys(queue).stream
    async with working(app):
        job = await app.tasks[f"count-{queue}"].enqueue(200)
        items, read = job.stream(), list[object]()
        for _ in range(4):
            read += [await next_value(items) for _ in range(20)]
            await asyncio.to_thread(nodes.move, key, nodes.other(key))
        read += await values(items)
        assert read == list(range(200))


async def test_every_script_of_streams_runs_in_a_cluster(nodes: Cluster) -> None:
    app = App(nodes.url)
    declare(app, QUEUES[0])
    count = app.tasks[f"count-{QUEUES[0]}"]
    async with app:
        waiting = await count.enqueue(5)
        reader = asyncio.create_task(values(waiting.stream()))
        while not reader.done():
            await waiting.cancel()
            await asyncio.sleep(0.05)
        with pytest.raises(JobCancelled):
            await reader
    async with working(app):
        job = await count.enqueue(50)
        items = job.stream()
        assert await next_value(items) == 0
        await items.aclose()
        with pytest.raises(JobCancelled):
            await job.result(timeout=60)
