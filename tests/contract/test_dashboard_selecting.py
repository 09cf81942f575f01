"""Actions on selected rows: planned, confirmed and noted as those on a filter."""

import re

import httpx
import pytest

from tampu.dashboard import Access
from tampu.job import JobState
from tampu.queue import Queue
from tampu.server.connect import Server
from tampu.timing import Every
from tampu.wire.audit import DONE
from tests.contract.bulk import confirm, plan_selected, read, send_form
from tests.contract.workers import SOON, Gate, Harness
from tests.dashboards import HOSTILE, SAME_ORIGIN, Elements, Visit, assert_harmless, bury
from tests.servers import RunningServer
from tests.waiting import wait_until


async def rows(client: httpx.AsyncClient, link: str) -> list[str]:
    """What the boxes of a list send, from the first row on."""
    page = (await client.get(link)).text
    assert_harmless(page)
    found = [attributes for tag, attributes in Elements(page).found if tag == "input"]
    return [
        each["value"] or ""
        for each in found
        if each.get("name") == "row" and each.get("form") == "selected"
    ]


@pytest.mark.parametrize(
    ("state", "action", "left"),
    [
        ("waiting", "cancel", {"waiting": 48, "delayed": 50}),
        ("delayed", "cancel", {"waiting": 50, "delayed": 48}),
        ("delayed", "run-now", {"waiting": 52, "delayed": 48}),
    ],
)
async def test_an_action_is_done_to_the_selected_jobs_and_to_no_other(
    visit: Visit,
    server: Server,
    running: RunningServer,
    *,
    state: str,
    action: str,
    left: dict[str, int],
) -> None:
    client = visit(access=Access.full(user="ada"))
    async with Queue("emails", running.url) as queue:
        await queue.add_each("send", range(50))
        await queue.add_each("send", range(50), delay=3600)
        ticked = (await rows(client, f"/jobs?queue=emails&state={state}"))[3:5]
        bulk_id = await plan_selected(client, *ticked, *ticked, state=state, action=action)
        page = (await client.get(f"/bulk?id={bulk_id}")).text
        assert "2 jobs match." in page
        assert f"2 selected {state} jobs of emails" in page
        assert (await queue.counts()).waiting == 50, "a plan does nothing"
        progress = await confirm(client, server, bulk_id)
        assert (progress.state, progress.changed) == (DONE, 2)
        counts = await queue.counts()
        assert {name: getattr(counts, name) for name in left} == left
        still = await rows(client, f"/jobs?queue=emails&state={state}")
        assert not set(ticked) & set(still)
    audit = (await client.get("/audit")).text
    assert audit.count(f"2 selected {state} jobs of emails: {', '.join(ticked)}<") == 2


async def test_selected_dead_letters_are_replayed_and_discarded(
    visit: Visit, server: Server, running: RunningServer
) -> None:
    client = visit()
    async with Queue("emails", running.url) as queue:
        dead = await bury(running.url, queue, *[{"n": n} for n in range(6)])
        assert await rows(client, "/jobs?queue=emails&state=dead") == dead[::-1]
        bulk_id = await plan_selected(client, *dead[:2], state="dead", action="replay")
        assert (await confirm(client, server, bulk_id)).changed == 2
        bulk_id = await plan_selected(client, *dead[2:5], state="dead", action="discard")
        assert (await confirm(client, server, bulk_id)).changed == 3
        counts = await queue.counts()
        assert (counts.waiting, counts.dead) == (2, 1)


async def test_selected_running_jobs_are_cancelled(
    harness: Harness, visit: Visit, server: Server
) -> None:
    gate = Gate()
    await harness.start_worker(gate, concurrency=3)
    jobs = await harness.queue.add_each("send", range(3))
    await wait_until(lambda: gate.inside == 3, within=SOON, sentence="all jobs run")
    client, queue = visit(), harness.queue.name
    (first, *_) = await rows(client, f"/jobs?queue={queue}&state=active")
    fields = (("queue", queue), ("state", "active"), ("action", "cancel"), ("row", first))
    place = await send_form(client, "/plan-selected", *fields)
    assert (await confirm(client, server, place.partition("id=")[2])).changed == 1
    await wait_until(lambda: gate.inside == 2, within=SOON, sentence="one of them has ended")
    assert (await jobs[0].info()).state is JobState.CANCELLED
    gate.open.set()


async def test_what_is_gone_or_elsewhere_by_then_is_left_alone(
    visit: Visit, server: Server, running: RunningServer
) -> None:
    client = visit()
    async with Queue("emails", running.url) as queue:
        jobs = await queue.add_each("send", range(4), delay=3600)
        ids = [job.id for job in jobs]
        await jobs[0].cancel()
        bulk_id = await plan_selected(client, *ids[:3], state="delayed", action="cancel")
        page = (await client.get(f"/bulk?id={bulk_id}")).text
        assert "2 jobs match." in page
        assert "1 of the selected is not delayed any more." in page
        await jobs[1].run_now()
        assert (await confirm(client, server, bulk_id)).changed == 1
        counts = await queue.counts()
        assert (counts.waiting, counts.delayed) == (1, 1)


async def test_a_selection_is_within_its_filter(
    visit: Visit, server: Server, running: RunningServer
) -> None:
    client = visit(show=lambda key: key != "secret")
    async with Queue("emails", running.url) as queue:
        jobs = await queue.add_each("send", [{"secret": "hunter2"}, {"to": "ada"}], delay=3600)
        ids = [job.id for job in jobs]
        for text, matched in (("hunter2", 0), ("ada", 1)):
            bulk_id = await plan_selected(client, *ids, state="delayed", action="cancel", q=text)
            assert (await read(server, bulk_id)).plan.matched == matched
        assert "hunter2" not in (await client.get(f"/bulk?id={bulk_id}")).text


@pytest.mark.parametrize(
    ("state", "ticked", "status"),
    [
        ("waiting", [], 400),  # never: all
        ("waiting", ["job-1"], 400),
        ("waiting", ["-"], 400),
        ("dead", ["1-1", "+"], 400),
        ("delayed", ["x" * 10_000], 400),
        ("delayed", ["\x00"], 400),
        ("dead", [f"{n}-1" for n in range(1, 1002)], 400),
        ("dead", ["1-1"], 303),
        ("delayed", list(HOSTILE), 303),
    ],
)
async def test_rows_that_make_no_sense_are_refused(
    visit: Visit, running: RunningServer, *, state: str, ticked: list[str], status: int
) -> None:
    client = visit()
    async with Queue("emails", running.url) as queue:
        await queue.add("send")
    action = "discard" if state == "dead" else "cancel"
    fields = {"queue": "emails", "state": state, "action": action, "row": ticked}
    answer = await client.post("/plan-selected", data=fields, headers=SAME_ORIGIN)
    assert answer.status_code == status
    if status == 303:
        page = await client.get(answer.headers["location"])
        assert "0 jobs match." in page.text
        assert_harmless(page.text)


async def test_who_may_not_act_has_no_boxes_and_plans_nothing(
    visit: Visit, running: RunningServer
) -> None:
    reader, stranger = visit(access=Access.read()), visit(access=Access.full("others"))
    async with Queue("emails", running.url) as queue:
        (job,) = await queue.add_each("send", [1], delay=3600)
        await queue.schedules.add("send", Every("1h"), key="nightly")
    assert await rows(reader, "/jobs?queue=emails&state=delayed") == []
    assert await rows(reader, "/schedules") == []
    (schedule,) = await rows(visit(), "/schedules")
    for path, row, action in (
        ("/plan-selected", job.id, "cancel"),
        ("/change-schedules", schedule, "pause"),
    ):
        fields = {"queue": "emails", "state": "delayed", "action": action, "row": row}
        assert (await reader.post(path, data=fields, headers=SAME_ORIGIN)).status_code == 403
        assert (await stranger.post(path, data=fields, headers=SAME_ORIGIN)).status_code == 404
        assert (await visit().post(path, data=fields)).status_code == 403, "another site"
        assert (await visit().get(f"{path}?row={row}")).status_code == 405


# --- schedules ----------------------------------------------------------------------------------


async def test_selected_schedules_of_several_queues_are_paused_and_resumed(
    visit: Visit, running: RunningServer
) -> None:
    client = visit(access=Access.full(user="ada"))
    async with Queue("emails", running.url) as emails, Queue("images", running.url) as images:
        for queue in (emails, images):
            for key in ("a", f"b {HOSTILE[0]}"):
                await queue.schedules.add("send", Every("1h"), key=key)
        ticked = [row for row in await rows(client, "/schedules") if "key=b" in row]
        assert len(ticked) == 2

        async def paused() -> list[tuple[str, bool]]:
            return [
                (each.key[0], each.paused)
                for queue in (emails, images)
                for each in sorted(await queue.schedules.list(), key=lambda found: found.key)
            ]

        boxes = [("row", row) for row in ticked]
        place = await send_form(client, "/change-schedules", ("action", "pause"), *boxes)
        assert place == "schedules"
        assert await paused() == [("a", False), ("b", True)] * 2
        await send_form(client, "/change-schedules", ("action", "resume"), *boxes)
        assert await paused() == [("a", False), ("b", False)] * 2
    audit = (await client.get("/audit")).text
    assert len(re.findall("<td>(?:pause|resume) schedules</td>", audit)) == 4
    assert_harmless(audit)


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"action": "pause"}, 400),
        ({"action": "trigger", "row": "queue=emails&key=a"}, 400),
        ({"action": "pause", "row": "nonsense"}, 404),
        ({"action": "pause", "row": "queue=nothing&key=a"}, 404),
        ({"action": "pause", "row": ["queue=emails&key=a"] * 501}, 400),
    ],
)
async def test_schedules_that_make_no_sense_are_refused(
    visit: Visit, running: RunningServer, fields: dict[str, str], status: int
) -> None:
    async with Queue("emails", running.url) as queue:
        await queue.schedules.add("send", Every("1h"), key="a")
        answer = await visit().post("/change-schedules", data=fields, headers=SAME_ORIGIN)
        assert answer.status_code == status
        assert not (await queue.schedules.list())[0].paused
