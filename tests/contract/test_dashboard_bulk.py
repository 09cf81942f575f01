"""Actions on all jobs that a filter matches: counted, confirmed, run once, aborted, noted."""

import asyncio
import re
from collections.abc import Mapping

import httpx
import pytest

from tampu.dashboard import Access, Dashboard
from tampu.dashboard.render import format_count
from tampu.queue import Queue
from tampu.server.connect import Server
from tampu.wire.audit import DONE, FAILED
from tests.contract.bulk import confirm, plan, read, until_ended, until_under_way
from tests.dashboards import SAME_ORIGIN, Visit, act, assert_harmless, bury
from tests.servers import RunningServer

MANY = 10_000
"""Jobs of an action that takes so many steps that it can be met under way."""


async def test_a_plan_shows_a_count_and_five_samples_and_does_nothing(
    visit: Visit, running: RunningServer
) -> None:
    client = visit()
    async with Queue("emails", running.url) as queue:
        jobs = await queue.add_each("send", range(30))
        await queue.add("bill")
        bulk_id = await plan(client, state="waiting", task="send", action="cancel")
        for _ in range(3):  # a reload repeats nothing
            page = (await client.get(f"/bulk?id={bulk_id}")).text
            assert "30 jobs match." in page
            assert "waiting jobs of emails of the task send" in page
            assert page.count('<tr data-row="') == 5
            assert_harmless(page)
        assert jobs[-1].id in page
        assert (await queue.counts()).waiting == 31


@pytest.mark.parametrize(
    ("state", "action", "left"),
    [
        ("waiting", "cancel", {"waiting": 1, "delayed": 41}),
        ("delayed", "cancel", {"waiting": 41, "delayed": 1}),
        ("delayed", "run-now", {"waiting": 81, "delayed": 1}),
    ],
)
async def test_an_action_is_done_to_all_that_match_and_to_no_other(
    visit: Visit,
    server: Server,
    running: RunningServer,
    *,
    state: str,
    action: str,
    left: Mapping[str, int],
) -> None:
    client = visit(access=Access.full(user="ada"))
    async with Queue("emails", running.url) as queue:
        await queue.add_each("send", range(40))
        await queue.add_each("send", range(40), delay=3600)
        await queue.add("bill")
        await queue.add("bill", delay=3600)
        bulk_id = await plan(client, state=state, task="send", action=action)
        progress = await confirm(client, server, bulk_id)
        assert (progress.state, progress.changed) == (DONE, 40)
        counts = await queue.counts()
        assert {name: getattr(counts, name) for name in left} == dict(left)
    assert "40 of 40 done" in (await client.get(f"/bulk?id={bulk_id}")).text
    audit = (await client.get("/audit")).text
    assert audit.count(f"{state} jobs of emails of the task send") == 2
    for word in ("started", "done", "ada", f"<td>{action}</td>"):
        assert word in audit


async def test_many_delayed_jobs_that_are_due_together_are_all_cancelled(
    visit: Visit, server: Server, running: RunningServer
) -> None:
    client = visit()
    async with Queue("emails", running.url) as queue:
        await queue.add_each("send", range(900), delay=3600)
        await queue.add_each("bill", range(300), delay=3600)
        progress = await confirm(
            client, server, await plan(client, state="delayed", task="send", action="cancel")
        )
        assert progress.changed == 900
        assert (await queue.counts()).delayed == 300


async def test_dead_letters_of_one_failure_are_replayed_and_the_rest_discarded(
    visit: Visit, server: Server, running: RunningServer
) -> None:
    client = visit()
    async with Queue("emails", running.url) as queue:
        await bury(running.url, queue, *[{"n": n} for n in range(12)])
        await bury(running.url, queue, 1, 2, 3, name="bill")
        groups = (await client.get("/dead?queue=emails")).text
        assert groups.count('name="task" value="send"') == 2
        bulk_id = await plan(client, state="dead", task="send", action="replay")
        assert (await confirm(client, server, bulk_id)).changed == 12
        counts = await queue.counts()
        assert (counts.waiting, counts.dead) == (12, 3)
        bulk_id = await plan(client, state="dead", q="cannot send", action="discard")
        assert (await confirm(client, server, bulk_id)).changed == 3
        assert (await queue.counts()).dead == 0


async def test_a_repeated_confirmation_does_nothing(
    visit: Visit, server: Server, running: RunningServer
) -> None:
    clients = [visit(), visit()]
    async with Queue("emails", running.url) as queue:
        await bury(running.url, queue, *[{"n": n} for n in range(5)])
        bulk_id = await plan(clients[0], state="dead", action="replay")
        await asyncio.gather(*[act(each, "/start-bulk", id=bulk_id) for each in clients * 3])
        assert (await until_ended(server, bulk_id)).changed == 5
        await bury(running.url, queue, {"n": 9})
        before = (await queue.counts()).dead
        answer = await act(clients[1], "/start-bulk", id=bulk_id)
        assert answer.json()["sentence"] == "This was started before. It is done only once."
        assert (await queue.counts()).dead == before == 6
        audit = (await clients[0].get("/audit")).text
        assert audit.count(">started<") == audit.count(">done<") == 1


async def test_jobs_that_come_after_the_count_are_left_alone(
    visit: Visit, server: Server, running: RunningServer
) -> None:
    client = visit()
    async with Queue("emails", running.url) as queue:
        for delay in (None, 3600):
            await queue.add_each("send", range(3), delay=delay)
        plans = [
            await plan(client, state=state, task=task, action="cancel")
            for state in ("waiting", "delayed")
            for task in ("send", "")
        ]
        await asyncio.sleep(0.01)  # a job of the same millisecond would be a job of the count
        for delay in (None, 3600):
            await queue.add_each("send", range(10), delay=delay)
        done = [(await confirm(client, server, bulk_id)).changed for bulk_id in plans]
        assert done == [3, 0, 3, 0]
        counts = await queue.counts()
        assert (counts.waiting, counts.delayed) == (10, 10)


async def test_a_running_action_is_aborted(
    visit: Visit, server: Server, running: RunningServer
) -> None:
    client = visit()
    async with Queue("emails", running.url) as queue:
        await queue.add_each("send", range(MANY))
        bulk_id = await plan(client, state="waiting", action="cancel")
        await act(client, "/start-bulk", id=bulk_id)
        await until_under_way(server, bulk_id)
        assert "Abort" in (await client.get(f"/bulk?id={bulk_id}")).text
        asked = await act(client, "/abort-bulk", id=bulk_id)
        assert asked.json()["sentence"] == "It ends after the jobs it works on."
        progress = await until_ended(server, bulk_id)
        assert progress.state == "aborted"
        assert 0 < progress.changed < MANY
        assert (await queue.counts()).waiting == MANY - progress.changed
    page = (await client.get(f"/bulk?id={bulk_id}")).text
    assert f"{format_count(progress.changed)} of {format_count(MANY)} done" in page
    assert ">aborted<" in (await client.get("/audit")).text
    late = await act(client, "/abort-bulk", id=bulk_id)
    assert late.json()["sentence"] == "It does not run any more."


async def test_a_dashboard_that_closes_ends_its_actions_and_says_so(
    server: Server, running: RunningServer
) -> None:
    dashboard = Dashboard(running.url, access=Access.full())
    transport = httpx.ASGITransport(dashboard)
    async with (
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
        Queue("emails", running.url) as queue,
    ):
        await queue.add_each("send", range(MANY))
        bulk_id = await plan(client, state="waiting", action="cancel")
        await act(client, "/start-bulk", id=bulk_id)
        await until_under_way(server, bulk_id)
        await dashboard.close()
        progress = await read(server, bulk_id)
        assert progress.state == "aborted"
        assert progress.problem == "The dashboard that ran it was stopped."
        # The jobs that it worked on at that moment may be cancelled, but are not counted.
        assert 0 < (await queue.counts()).waiting <= MANY - progress.changed < MANY


async def test_an_action_that_fails_says_why(
    visit: Visit, server: Server, running: RunningServer
) -> None:
    client = visit()
    async with Queue("emails", running.url) as queue:
        await bury(running.url, queue, {"n": 1})
        bulk_id = await plan(client, state="dead", action="replay")
        with running.admin() as admin:
            admin.rename("{chasqui:emails}:stream", "away")
            admin.set("{chasqui:emails}:stream", "not a stream")
        progress = await confirm(client, server, bulk_id)
        assert (progress.state, progress.changed) == (FAILED, 0)
        assert "refused" in progress.problem
        assert (await queue.dead.peek(1)) != []


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"action": "cancel", "state": "dead"}, 400),
        ({"action": "replay", "state": "waiting"}, 400),
        ({"action": "explode", "state": "waiting"}, 400),
        ({"action": "cancel", "state": "nowhere"}, 400),
        ({"action": "cancel", "queue": "nothing"}, 404),
        ({"action": "cancel", "q": "x" * 501}, 400),
    ],
)
async def test_a_plan_that_makes_no_sense_is_refused(
    visit: Visit, running: RunningServer, fields: Mapping[str, str], status: int
) -> None:
    async with Queue("emails", running.url) as queue:
        await queue.add("send")
        given = {"queue": "emails", **fields}
        answer = await visit().post("/plan-bulk", data=given, headers=SAME_ORIGIN)
        assert answer.status_code == status
        assert (await queue.counts()).waiting == 1


async def test_only_who_may_act_sees_starts_and_aborts(
    visit: Visit, server: Server, running: RunningServer
) -> None:
    async with Queue("emails", running.url) as queue:
        await queue.add("send")
        bulk_id = await plan(visit(), state="waiting", action="cancel")
        reader, stranger = visit(access=Access.read()), visit(access=Access.full("others"))
        page = await reader.get(f"/bulk?id={bulk_id}")
        assert page.status_code == 200
        assert "<button" not in re.sub("<footer.*", "", page.text, flags=re.DOTALL)
        assert (await stranger.get(f"/bulk?id={bulk_id}")).status_code == 404
        for path in ("/start-bulk", "/abort-bulk"):
            assert (await act(reader, path, id=bulk_id)).status_code == 403
            assert (await act(stranger, path, id=bulk_id)).status_code == 404
            assert (await reader.get(f"{path}?id={bulk_id}")).status_code == 405
        await confirm(visit(), server, bulk_id)
        assert (await queue.counts()).waiting == 0
        assert "emails" not in (await stranger.get("/audit")).text
