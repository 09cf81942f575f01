"""Jobs that wait in lines, where jobs are counted, listed and picked."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tampu.admin.browsing import JobBrowser, JobPlace
from tampu.admin.history import measure_gauges
from tampu.admin.limits import read_queue_holds
from tampu.admin.queues import summarise_queue
from tampu.limits import Concurrency, Rate
from tampu.queue import Queue
from tampu.server.connect import Server
from tampu.server.lane import Lane
from tampu.wire.keys import QueueKeys
from tests.servers import RunningServer

KEYS = QueueKeys("emails")
GROUP = b"default"


@pytest_asyncio.fixture
async def queue(running: RunningServer) -> AsyncIterator[Queue]:
    async with Queue(KEYS.name, running.url) as opened:
        yield opened


@pytest_asyncio.fixture
async def lane(server: Server) -> AsyncIterator[Lane]:
    async with await Lane.open(server, KEYS.stream) as opened:
        yield opened


async def list_all(lane: Lane, *, want: int, key: str = "") -> list[str]:
    """The ids of all waiting jobs, page by page."""
    seen, after = list[str](), ""
    while True:
        browser = JobBrowser(lane, KEYS, key=key)
        page = await browser.page(JobPlace.WAITING, after=after, want=want)
        seen += [job.info.id for job in page.jobs if job.info is not None]
        if page.next is None:
            return seen
        assert len(page.next) <= 60
        after = page.next


@pytest.mark.parametrize("want", [1, 7, 50, 1000])
async def test_jobs_in_lines_are_listed_after_those_of_the_stream(
    queue: Queue, lane: Lane, want: int
) -> None:
    plain = await queue.add_each("send", range(5))
    keyed = [await queue.add("send", n, key=f"k{n % 4}") for n in range(40)]
    urgent = await queue.add("send", key="k1", priority=9)
    listed = await list_all(lane, want=want)
    assert listed[:5] == [job.id for job in reversed(plain)]
    assert listed[5] == urgent.id
    by_key = [[job.id for job in keyed[n::4]] for n in range(4)]
    assert sorted(listed[6 + at : 16 + at] for at in range(0, 40, 10)) == sorted(by_key)
    assert await list_all(lane, want=want, key="k2") == [*listed[:5], *by_key[2]]


async def test_a_cursor_of_lines_goes_on_after_its_line_has_gone(queue: Queue, lane: Lane) -> None:
    for n in range(30):
        await queue.add("send", n, key=f"k{n % 3}")
    browser = JobBrowser(lane, KEYS)
    page = await browser.page(JobPlace.WAITING, want=5)
    gone = page.jobs[0].info
    assert gone is not None
    for job in (await JobBrowser(lane, KEYS).page(JobPlace.WAITING, want=100)).jobs:
        if job.info is not None and job.info.key == gone.key:
            await queue.job(job.info.id).cancel()
    rest = await JobBrowser(lane, KEYS).page(JobPlace.WAITING, after=page.next or "", want=100)
    assert len(rest.jobs) == 20
    assert rest.next is None


async def test_jobs_in_lines_are_picked_by_their_rows(queue: Queue, lane: Lane) -> None:
    for n in range(20):
        await queue.add("send", n, key=f"k{n % 3}", job_id=f"id: {n}")
    page = await JobBrowser(lane, KEYS).page(JobPlace.WAITING, want=100)
    rows = [job.row for job in page.jobs]
    assert len(set(rows)) == 20
    await queue.job("id: 3").cancel()
    found = await JobBrowser(lane, KEYS).pick(JobPlace.WAITING, [*rows, "0" * 16 + ":nothing"])
    assert [job.row for job in found] == [row for row in rows if not row.endswith(":id: 3")]
    states = await queue.actions.cancel_found([job.found for job in found if job.found])
    assert len(states) == 19
    assert (await queue.counts()).waiting == 0


async def test_gauges_and_summaries_count_lines_and_their_oldest_job(
    queue: Queue, lane: Lane
) -> None:
    before = await measure_gauges(lane, KEYS, GROUP)
    assert (before.waiting, before.oldest_ms) == (0, 0)
    await queue.add("send", key="k1")
    added = await queue.job(  # the only one that was added at a known time
        (await queue.add("send", key="k2")).id
    ).info()
    summary = await summarise_queue(lane, KEYS)
    assert summary.counts.waiting == 2
    assert summary.gate is not None
    assert (summary.gate.waiting, summary.gate.dropped) == (2, 0)
    assert summary.oldest_waiting_at is not None
    assert added.created_at is not None
    assert summary.oldest_waiting_at <= added.created_at
    gauges = await measure_gauges(lane, KEYS, GROUP, since=before)
    assert gauges.waiting == 2
    assert gauges.oldest_ms >= 0


async def test_dropped_jobs_are_counted(queue: Queue, lane: Lane) -> None:
    for n in range(4):
        await queue.add("sync", n, key="k", keep="latest")
    summary = await summarise_queue(lane, KEYS)
    assert summary.counts.waiting == 1
    assert summary.gate is not None
    assert summary.gate.dropped == 3


async def test_what_holds_jobs_is_read_at_once(queue: Queue, lane: Lane) -> None:
    limits: list[Concurrency | Rate] = [Concurrency(1, by="tenant"), Rate("5/s")]
    for n in range(9):
        await queue.add("a/b|c:d", {"tenant": f"t{n % 2}"}, key=f"k{n % 4}", limits=limits)
    await queue.limits.weigh("k0", 3)
    await queue.pause(key="k1", until="1h")
    flow = await read_queue_holds(lane, KEYS, most_keys=2)
    assert [limit.name for limit in flow.limits] == ["a/b|c:d()", "a/b|c:d(tenant)"]
    assert (flow.keys[0].key, flow.keys[0].waiting, flow.more_keys) == ("k0", 3, 2)
    assert (flow.keys[0].weight, flow.keys[0].by_hand) == (3.0, True)
    assert [pause.key for pause in flow.pauses] == ["k1"]
    assert flow.searched_all
    assert not (await read_queue_holds(lane, KEYS, most_keys=2, most_lines=2)).searched_all


async def test_a_limit_is_changed_by_the_name_that_is_listed(queue: Queue) -> None:
    task = "a/b|c:d"
    await queue.add(task, {"tenant": "t"}, limits=[Concurrency(1, by="tenant")])
    (listed,) = await queue.limits.list()
    await queue.limits.set(listed.name, Concurrency(4))
    await queue.limits.set(listed.name, Concurrency(9), value="t:1|2")
    (changed,) = await queue.limits.list()
    assert (changed.name, changed.concurrency, changed.changed) == (listed.name, 4, True)
    assert [(use.value, use.concurrency) for use in changed.uses] == [("t:1|2", 9)]
    assert await queue.limits.reset(listed.name)
    assert [limit.concurrency for limit in await queue.limits.list()] == [1]
