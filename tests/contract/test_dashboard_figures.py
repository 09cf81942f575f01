"""The dashboard's figures: for Prometheus, in order, and of single attempts."""

import re
import time
from html import unescape
from typing import Any

import pytest

from tampu.admin.history import add_mark
from tampu.dashboard import Access
from tampu.job import Job
from tampu.queue import Queue
from tampu.server.connect import connect
from tampu.server.lane import Lane
from tampu.wire.keys import MARKS, QueueKeys
from tampu.worker import Worker
from tests.dashboards import Visit, seed_history
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

        await wait_until(is_shown, within=60, sentence="its attempt is in the table")


PAGES = ("./", "queue?name=emails", "task?queue=emails&name=send")


def chart_times(page: str) -> list[str]:
    """The instants of the first chart, from the table behind it."""
    table = page.partition('<details class="data">')[2].partition("</details>")[0]
    return re.findall(r'<tr><th scope="row"><time datetime="([^"]+)"', table)


def zoom_link(page: str, text: str) -> str:
    (found,) = re.findall(rf'<a href="([^"]+)">{text}</a>', page)
    return unescape(found)


async def seed(running: RunningServer) -> int:
    """A queue with a past; the present as a whole minute."""
    async with Queue("emails", running.url) as queue, await connect(running.url) as server:
        await queue.add("send")
        async with await Lane.open(server, b"x") as lane:
            await seed_history(lane, QueueKeys("emails"), {"send": 60.0})
    return int(time.time()) // 60 * 60


async def test_deploy_marks_are_lines_in_every_chart_over_time(
    visit: Visit, running: RunningServer
) -> None:
    now_s = await seed(running)
    async with await connect(running.url) as server, await Lane.open(server, MARKS) as lane:
        for text in ("v1.4", "<b>v1.5</b>"):
            await add_mark(lane, text)
    client = visit()
    for path in PAGES:
        page = (await client.get(f"/{path.removeprefix('./')}")).text
        charts = re.findall(r"<figure.*?</figure>", page, re.DOTALL)
        assert len(charts) == 4
        for chart in charts:
            assert chart.count('class="mark"') >= 1
            assert "v1.4" in chart
            assert "&lt;b&gt;v1.5&lt;/b&gt;" in chart
        joint = "&" if "?" in path else "?"
        past = f"{path.removeprefix('./')}{joint}from={now_s - 7200}&to={now_s - 3600}"
        assert "v1.4" not in (await client.get(f"/{past}")).text, "it was not made then"


@pytest.mark.parametrize("path", PAGES)
async def test_a_chosen_time_is_shown_in_its_finest_steps(
    visit: Visit, running: RunningServer, path: str
) -> None:
    now_s = await seed(running)
    client = visit()
    joint = "&" if "?" in path else "?"
    for ago_s, long_s, steps in (
        (1200, 600, 10),
        (5 * 3600, 3 * 3600, 18),
        (30 * 3600, 86_400, 24),
    ):
        query = f"from={now_s - ago_s}&to={now_s - ago_s + long_s}"
        page = await client.get(f"/{path.removeprefix('./')}{joint}{query}")
        assert page.status_code == 200
        # A time that does not begin with a step has a part of one more.
        assert len(chart_times(page.text)) in {steps, steps + 1}
        assert query.replace("&", "&amp;") in page.text, "open pages follow the chosen time"
    whole = await client.get(f"/{path.removeprefix('./')}")
    times = chart_times(whole.text)
    closer = await client.get("/" + zoom_link(whole.text, "Zoom in").removeprefix("./"))
    assert 28 <= len(chart_times(closer.text)) <= 32
    assert set(chart_times(closer.text)) < set(times)
    for text in ("Earlier", "Later", "Zoom out"):
        other = await client.get("/" + zoom_link(closer.text, text).removeprefix("./"))
        assert other.status_code == 200
        assert chart_times(other.text) != chart_times(closer.text)
    back = await client.get("/" + zoom_link(closer.text, "1h").removeprefix("./"))
    assert len(chart_times(back.text)) == 60


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("from=x", 400),
        ("to=%3Cscript%3E", 400),
        ("from=20&to=10", 400),
        ("from=1&to=2", 200),
        ("from=-5", 200),
        ("from=99999999999999999999&to=99999999999999999999", 400),
    ],
)
async def test_numbers_of_a_chosen_time_are_bounded(
    visit: Visit, running: RunningServer, query: str, status: int
) -> None:
    await seed(running)
    page = await visit().get(f"/queue?name=emails&{query}")
    assert page.status_code == status
    assert "<script>" not in page.text
    assert len(chart_times(page.text)) <= 151
