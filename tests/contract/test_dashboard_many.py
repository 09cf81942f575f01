"""Pages of a server with many queues."""

import re

import httpx
import pytest

from tampu.dashboard.pages.overview import QueueOrder
from tampu.queue import Queue
from tests.dashboards import Visit
from tests.servers import RunningServer

MANY = 60


@pytest.fixture
async def many(running: RunningServer) -> None:
    for number in range(MANY):
        async with Queue(f"queue-{number:02d}", running.url) as queue:
            await queue.add_each("send", range(1 + number * 7 % MANY))


async def queues(client: httpx.AsyncClient, path: str) -> list[str]:
    """The queues in the table of a page."""
    return re.findall(r'<tr data-row="(queue-[^"]*)">', (await client.get(path)).text)


@pytest.mark.usefixtures("many")
async def test_the_overview_of_many_queues_shows_the_longest_backlogs(visit: Visit) -> None:
    client = visit()
    page = (await client.get("/")).text
    assert f"25 of {MANY} queues" in page
    by_backlog = sorted(range(MANY), key=lambda number: -(number * 7 % MANY))
    assert await queues(client, "/") == [f"queue-{number:02d}" for number in by_backlog[:25]]
    by_name = [f"queue-{number:02d}" for number in range(MANY)]
    assert await queues(client, f"/?sort={QueueOrder.NAME}") == by_name[:25]
    assert await queues(client, "/queues") == by_name
