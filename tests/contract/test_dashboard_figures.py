"""The dashboard's figures: for Prometheus, in order, and of single attempts."""

import re
from typing import Any

from tampu.dashboard import Access
from tampu.job import Job
from tampu.queue import Queue
from tampu.worker import Worker
from tests.dashboards import Visit
from tests.servers import RunningServer
from tests.waiting import wait_until


async def test_metrics_are_there_for_prometheus_without_hidden_queues(
    visit: Visit, running: RunningServer
) -> None:
    for name in ("emails", "secret"):
        async with Queue(name, running.url) as queue:
            await queue.add_each("send", range(3))
    shown = (await visit().get("/metrics")).text
    assert 'tampu_queue_jobs{queue="emails",state="waiting"} 3' in shown
    assert 'queue="secret"' in shown
    access = Access.read("emails")
    answer = await visit(access=access).get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert 'queue="secret"' not in answer.text


async def test_queues_are_sorted_as_asked(visit: Visit, running: RunningServer) -> None:
    for name, count in (("a", 1), ("b", 3), ("c", 2)):
        async with Queue(name, running.url) as queue:
            await queue.add_each("send", range(count))
    client = visit()
    for sort, expected in (("", ["a", "b", "c"]), ("waiting", ["b", "c", "a"])):
        page = await client.get(f"/queues?sort={sort}")
        assert re.findall(r'<tr data-row="(\w)"', page.text) == expected
    assert (await client.get("/queues?sort=colour")).status_code == 400


async def test_a_task_shows_its_slowest_recent_attempts(
    visit: Visit, running: RunningServer
) -> None:
    async def send(job: Job[Any]) -> None:
        del job

    async with Queue("emails", running.url) as queue, Worker("emails", send, running.url):
        job = await queue.add("send", 1)
        await queue.drain(timeout=20)
        client = visit()

        async def is_shown() -> bool:
            page = await client.get("/task?queue=emails&name=send")
            return "Slowest recent attempts" in page.text and job.id in page.text

        await wait_until(is_shown, within=20, sentence="its attempt is in the table")
