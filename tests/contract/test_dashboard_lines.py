"""Jobs that wait in lines, in the dashboard's lists and on their own pages."""

import re

from tampu.job import JobState
from tampu.limits import Concurrency
from tampu.queue import Queue
from tampu.server.connect import Server
from tampu.wire.audit import DONE
from tests.contract.bulk import confirm, plan, plan_selected
from tests.contract.workers import Gate, Harness
from tests.dashboards import Visit, act, assert_harmless
from tests.gates import ManualGate
from tests.servers import RunningServer

QUEUE = "emails"


async def test_jobs_in_lines_are_listed_filtered_by_key_and_cancelled(
    visit: Visit, server: Server, running: RunningServer
) -> None:
    client = visit()
    async with Queue(QUEUE, running.url) as queue:
        for n in range(120):
            limits = [Concurrency(1, by="tenant")]
            await queue.add(
                "charge", {"tenant": "t"}, key=f"k{n % 3}", limits=limits, job_id=f"j{n}"
            )
        seen, path = list[str](), f"/jobs?queue={QUEUE}"
        while path:
            page = (await client.get(path)).text
            assert_harmless(page)
            seen += re.findall(r'title="(j\d+)"', page)
            found = re.search(r'href="(jobs\?[^"]*after=[^"]*)" rel="next"', page)
            path = "/" + found[1].replace("&amp;", "&") if found else ""
        assert sorted(seen) == sorted(f"j{n}" for n in range(120))
        page = (await client.get(f"/jobs?queue={QUEUE}&key=k1")).text
        assert set(re.findall(r'title="(j\d+)"', page)) == {f"j{n}" for n in range(1, 120, 3)}
        rows = re.findall(r'name="row" value="([^"]+)"', page)
        bulk_id = await plan_selected(client, *rows[:2], state="waiting", action="cancel")
        await confirm(client, server, bulk_id)
        assert (await queue.counts()).waiting == 118
        bulk_id = await plan(client, state="waiting", key="k2", action="cancel")
        page = (await client.get(f"/bulk?id={bulk_id}")).text
        assert "40 jobs match." in page
        assert "of the key k2" in page
        progress = await confirm(client, server, bulk_id)
        assert (progress.state, progress.changed) == (DONE, 40)
        assert [each.key for each in await queue.limits.keys()] == ["k0", "k1"]


async def test_all_jobs_in_lines_are_cancelled_at_once(
    visit: Visit, server: Server, running: RunningServer
) -> None:
    client = visit()
    async with Queue(QUEUE, running.url) as queue:
        await queue.add_each("send", range(300), key="one")
        await queue.add_each("send", range(300))
        bulk_id = await plan(client, state="waiting", action="cancel")
        progress = await confirm(client, server, bulk_id)
        assert (progress.state, progress.changed) == (DONE, 600)
        assert (await queue.counts()).waiting == 0


async def test_a_job_says_why_it_is_not_running(
    visit: Visit, running: RunningServer, gate: ManualGate
) -> None:
    client, queue = visit(), gate.queue
    for n in range(2):
        data = {"tenant": "t1"}
        limits = [Concurrency(1, by="tenant")]
        await queue.add("charge", data, key="k", priority=7, limits=limits, job_id=f"j{n}")
    await queue.add("charge", delay=3600, job_id="later")
    path = f"/job?queue={gate.keys.name}&id="
    page = (await client.get(f"{path}j1")).text
    assert_harmless(page)
    assert "Why is it not running?" in page
    assert "No worker serves its queue." in page
    assert "<dt>Key</dt>" in page
    assert re.search(r"<dt>Priority</dt><dd>7 ", page)
    later = (await client.get(f"{path}later")).text
    assert "It is delayed until" in later
    assert (await queue.job("later").info()).state is JobState.DELAYED
    await queue.pause()
    await act(client, "/resume-jobs", name=gate.keys.name, task="x")  # it reads everything again
    assert "Its queue is paused." in (await client.get(f"{path}j1")).text


async def test_jobs_that_hold_what_a_job_waits_for_are_linked(
    harness: Harness, visit: Visit
) -> None:
    started = Gate()
    await harness.start_worker(started, concurrency=5)
    for n in range(2):
        data, limits = {"tenant": "a b"}, [Concurrency(1, by="tenant")]
        await harness.queue.add("charge", data, limits=limits, job_id=f"id {n}")
    await started.until(1)
    path = f"/job?queue={harness.queue.name}&id=id+1"
    page = (await visit().get(path)).text
    assert_harmless(page)
    assert "charge(tenant) lets 1 job of a b run at a time, and 1 run now: id 0." in page
    assert f'Held by <a href="job?queue={harness.queue.name}&amp;id=id+0">' in page
    hidden = (await visit(show=["to"]).get(path)).text
    assert "a b" not in hidden
    assert "lets 1 job of ••• run at a time" in hidden
