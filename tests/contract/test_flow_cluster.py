"""Flows in a cluster, with their queues on different nodes."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tampu import App, JobFailed
from tampu.wire.keys import QueueKeys
from tests.contract.apps import working
from tests.contract.workers import SOON
from tests.topology import Cluster, cluster
from tests.waiting import wait_until

pytestmark = pytest.mark.every_version


@pytest.fixture(scope="module")
def nodes(binary: Path) -> Iterator[Cluster]:
    with cluster(binary) as made:
        yield made


def queues_of(nodes: Cluster) -> list[str]:
    """One queue on each node."""
    found: dict[int, str] = {}
    for number in range(1000):
        name = f"q{number}"
        found.setdefault(nodes.owner(QueueKeys(name).stream).port, name)
        if len(found) == len(nodes.masters):
            break
    return list(found.values())


async def test_a_flow_over_three_nodes(nodes: Cluster) -> None:
    home, second, third = queues_of(nodes)
    app, fails = App(nodes.url), [True]

    @app.task(queue=home)
    async def words(text: str) -> list[str]:
        return text.split()

    @app.task(queue=second)
    async def size(word: str) -> int:
        return len(word)

    @app.task(queue=third, attempts=1)
    async def add_up(numbers: list[int]) -> int:
        if fails[0]:
            raise ValueError("not yet")
        return sum(numbers)

    async with working(app):
        flow = app.flow("a flow", queue=home)
        total = flow.add(add_up, flow.map(size, flow.add(words, "a bcd ef")))
        run = await flow.start(result=total)
        with pytest.raises(JobFailed, match="not yet"):
            await run.result(SOON)
        fails[0] = False
        await asyncio.to_thread(move, nodes, home)  # while it is at rest, and known to all

        async def has_gone_on() -> bool:
            return await run.retry() == 1

        await wait_until(has_gone_on, within=SOON, sentence="its dead letter runs again")
        assert await run.result(SOON) == 6
        done: Any = await run.progress()
        assert (done.jobs, done.done) == (5, 5)


def move(nodes: Cluster, queue: str) -> None:
    key = QueueKeys(queue).stream
    nodes.move(key, nodes.other(key))
