"""The dashboard of a cluster, and of servers under Sentinel: every page, and what it can do."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from tampu.admin.queues import remove_queue
from tampu.dashboard import Access, Dashboard
from tampu.job import Job
from tampu.outcome import Unrecoverable
from tampu.queue import Queue
from tampu.server.connect import connect
from tampu.timing import Every
from tampu.wire.audit import DONE
from tampu.wire.keys import QueueKeys
from tampu.worker import Worker
from tests.contract.bulk import confirm, plan, plan_selected
from tests.dashboards import act, assert_harmless
from tests.topology import cluster, watched
from tests.waiting import wait_until

NAMES = ("emails", "images", "invoices", "orders")
"""Queues on all nodes of the cluster."""


@pytest.fixture(scope="module", params=["cluster", "sentinel"])
def url(
    request: pytest.FixtureRequest, binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    if request.param == "cluster":
        with cluster(binary) as nodes:
            assert len({nodes.owner(b"{chasqui:%s}" % name.encode()).port for name in NAMES}) > 1
            yield nodes.url
    else:
        with watched(binary, tmp_path_factory.mktemp("sentinels")) as group:
            yield group.url


@pytest.fixture
async def client(url: str) -> AsyncIterator[httpx.AsyncClient]:
    """A dashboard of queues with jobs in every state, and a worker."""
    async with Dashboard(url, access=Access.full(user="ada")) as dashboard:
        for name in NAMES:
            async with Queue(name, url) as queue:
                await _fill(queue, url)
        transport = httpx.ASGITransport(dashboard)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as asking:
            yield asking
    async with await connect(url) as server:
        for name in NAMES:
            await remove_queue(server, QueueKeys(name))


async def _fill(queue: Queue, url: str) -> None:
    async def fail(job: Job) -> None:
        raise Unrecoverable(f"cannot {job.name}")

    async def is_dead() -> bool:
        return (await queue.counts()).dead == 2

    await queue.add_each("send", range(2))
    async with Worker(queue.name, fail, url):
        await wait_until(is_dead, within=60, sentence="two jobs are dead letters")
    await queue.add_each("send", range(5))
    await queue.add("send", delay=3600, job_id=f"later-{queue.name}")
    await queue.schedules.add("send", Every("1h"), key=f"hourly-{queue.name}")


async def test_every_page_shows_all_queues(client: httpx.AsyncClient) -> None:
    for path in ("/", "/queues", "/workers", "/alerts", "/audit", "/metrics"):
        assert (await client.get(path)).status_code == 200, path
    for path in ("/", "/queues", "/jobs", "/dead", "/schedules", "/metrics"):
        page = (await client.get(path)).text
        assert all(name in page for name in NAMES), path
    for name in NAMES:
        for path, shown in (
            (f"/queue?name={name}", ">5</a></dd>"),
            (f"/task?queue={name}&name=send", "send"),
            (f"/jobs?queue={name}&state=waiting", "Waiting 5"),
            (f"/jobs?queue={name}&state=delayed", f"later-{name}"),
            (f"/jobs?queue={name}&state=dead&q=cannot", "Searched 2 of 2 dead jobs."),
            (f"/job?queue={name}&id=later-{name}", "Delayed"),
            (f"/dead?queue={name}", "cannot send"),
            (f"/schedule?queue={name}&key=hourly-{name}", "Every hour"),
            (f"/search?q=later-{name}", "Job"),
        ):
            page = (await client.get(path)).text
            assert shown in page, path
            assert_harmless(page)


async def test_actions_reach_the_node_of_each_queue(client: httpx.AsyncClient, url: str) -> None:
    async with await connect(url) as server:
        for name in NAMES:
            async with Queue(name, url) as queue:
                assert (await act(client, "/pause-queue", name=name)).is_success
                assert await queue.is_paused()
                bulk_id = await plan(client, queue=name, state="dead", action="replay")
                progress = await confirm(client, server, bulk_id)
                assert (progress.state, progress.changed) == (DONE, 2)
                rows = [f"later-{name}"]
                bulk_id = await plan_selected(
                    client, *rows, queue=name, state="delayed", action="cancel"
                )
                assert (await confirm(client, server, bulk_id)).changed == 1
                counts = await queue.counts()
                assert (counts.waiting, counts.delayed, counts.dead) == (7, 0, 0)
                assert (await act(client, "/resume-queue", name=name)).is_success
    audit = (await client.get("/audit")).text
    assert all(f"later-{name}" in audit for name in NAMES)
