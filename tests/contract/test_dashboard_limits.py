"""What holds jobs, on the pages of queues and jobs, and what is changed about it."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from tampu.dashboard import Access
from tampu.job import Job
from tampu.limits import Breaker, Concurrency, Rate
from tampu.outcome import Bury
from tampu.queue import Queue
from tampu.server.connect import Server
from tampu.server.lane import Lane
from tampu.wire.keys import QueueKeys
from tampu.worker import Worker
from tests.dashboards import HOSTILE, SAME_ORIGIN, Elements, Visit, act, assert_harmless
from tests.gates import ManualGate
from tests.servers import RunningServer
from tests.waiting import wait_until

QUEUE = "emails"
PAGE = f"/queue?name={QUEUE}"
LIMITS = (Concurrency(1, by="tenant"), Rate("5/s", burst=3))


async def fill(queue: Queue, count: int = 6) -> None:
    """Jobs of three tenants, with a key and two limits."""
    for n in range(count):
        data = {"tenant": f"t{n % 3}"}
        await queue.add("charge", data, key=f"k{n % 3}", limits=LIMITS, job_id=f"j{n}")


async def sentence(client: httpx.AsyncClient, path: str, **fields: str) -> str:
    """What an operation on the queue answers."""
    answer = await act(client, path, name=QUEUE, **fields)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["sentence"])


# --- what is shown ------------------------------------------------------------------------------


async def test_a_queue_without_flow_control_shows_only_how_to_pause_a_task(
    visit: Visit, running: RunningServer
) -> None:
    async with Queue(QUEUE, running.url) as queue:
        await queue.add("send")
    page = (await visit().get(PAGE)).text
    assert_harmless(page)
    assert not re.search(r"<h2>(Limits|Keys|Paused)</h2>", page)
    assert "<summary>Pause a task</summary>" in page
    assert 'action="weigh-key"' not in page
    assert 'name="key"' not in (await visit().get(f"/jobs?queue={QUEUE}")).text


async def test_limits_keys_and_pauses_are_shown(visit: Visit, running: RunningServer) -> None:
    async with Queue(QUEUE, running.url) as queue:
        await fill(queue)
        await queue.limits.set("charge(tenant)", Concurrency(7), value="t1")
        await queue.limits.weigh("k2", 2.5)
        await queue.pause(task="charge", key="k1", until="1h")
        await queue.pause(task="charge")
        client = visit()
        page = (await client.get(PAGE)).text
        assert_harmless(page)
        assert re.findall(r"<h2>(Limits|Keys|Paused)</h2>", page) == ["Limits", "Keys", "Paused"]
        for row in ("charge(tenant)", "charge(tenant):t1", "charge()", "k0", "charge/k1"):
            assert f'data-row="{row}"' in page
        assert "5/s, 3 at once" in page
        assert "Changed by hand" in page
        assert "2.5<" in page
        assert "in 1h" in page or "in 59m" in page
        assert await sentence(client, "/resume-jobs", task="charge") == "task charge is resumed."
        assert 'data-row="charge/k1"' in (await client.get(PAGE)).text


async def test_many_keys_and_values_are_cut_and_counted(
    visit: Visit, running: RunningServer
) -> None:
    async with Queue(QUEUE, running.url) as queue:
        for n in range(13):
            limits = [Concurrency(1, by="tenant")]
            for _ in range(2):
                await queue.add("charge", {"tenant": f"t{n}"}, key=f"k{n}", limits=limits)
            await queue.limits.set("charge(tenant)", Concurrency(3), value=f"t{n}")
    page = (await visit().get(PAGE)).text
    assert "and 3 more keys" in page
    assert "and 7 more values in use" in page


async def test_hostile_names_keys_and_values_are_escaped(
    visit: Visit, running: RunningServer
) -> None:
    async with Queue(QUEUE, running.url) as queue:
        for text in HOSTILE:
            data, limits = {"by": text}, (Concurrency(1, by="by"), Rate("1/h"))
            for n in range(2):
                await queue.add(text, data, key=text, limits=limits, job_id=f"{n} {text}")
            await queue.limits.set(f"{text}(by)", Concurrency(2), value=text)
            await queue.pause(task=text, key=text)
            await queue.pause(task=text)
        client = visit()
        paths = [PAGE, *(f"/queue?{urlencode({'name': QUEUE, 'limit': t})}" for t in HOSTILE)]
        for text in HOSTILE:
            change = {"name": QUEUE, "limit": f"{text}(by)", "value": text}
            paths += [f"/queue?{urlencode(change)}"]
            paths += [f"/jobs?{urlencode({'queue': QUEUE, 'key': text})}"]
            paths += [f"/job?{urlencode({'queue': QUEUE, 'id': f'1 {text}'})}"]
        for path in paths:
            page = await client.get(path)
            assert page.status_code == 200, page.text
            assert "<script>alert" not in page.text
            assert ">49<" not in page.text
            assert_harmless(page.text)
        assert "&lt;script&gt;alert(1)&lt;/script&gt;(by)" in (await client.get(PAGE)).text
        for text in HOSTILE:
            fields = {"limit": f"{text}(by)", "value": text}
            assert (
                await sentence(client, "/reset-limit", **fields)
                == f"{text}(by) of {text} is reset."
            )
            assert await sentence(client, "/resume-jobs", task=text) == f"task {text} is resumed."
            told = await sentence(client, "/weigh-key", key=text, weight="2")
            assert told == f"The weight of {text} is 2."
        assert_harmless((await client.get("/audit")).text)


async def test_a_key_that_stopped_at_a_dead_letter_is_shown_and_goes_on(
    visit: Visit, running: RunningServer
) -> None:
    client = visit()
    async with Queue(QUEUE, running.url) as queue:
        for _ in range(2):
            await queue.add("send", key="k", ordered=True, on_dead="halt")

        async def fail(_: Job) -> None:
            raise Bury("no")

        async def has_stopped() -> bool:
            counts = await queue.counts()
            return (counts.dead, counts.waiting, counts.active) == (1, 1, 0)

        async with Worker(QUEUE, fail, running.url):
            await wait_until(has_stopped, within=60, sentence="the key stops at its dead letter")
        page = (await client.get(PAGE)).text
        assert_harmless(page)
        assert re.search(r'stopped at a <a href="jobs\?[^"]*state=dead[^"]*key=k">', page)
        assert await sentence(client, "/resume-jobs", key="k") == "key k is resumed."
        assert "stopped at a" not in (await client.get(PAGE)).text


async def test_a_task_that_its_breaker_stopped_is_shown_and_goes_on(
    visit: Visit, running: RunningServer
) -> None:
    client = visit()
    breaker = Breaker(failures=1, of=1, cooldown="1h")
    async with Queue(QUEUE, running.url) as queue:

        async def fail(_: Job) -> None:
            raise Bury("no")

        async def has_stopped() -> bool:
            return bool(await queue.limits.stopped_tasks())

        async with Worker(QUEUE, fail, running.url):
            await queue.add(HOSTILE[0], breaker=breaker)
            await wait_until(has_stopped, within=60, sentence="the task is stopped")
        page = (await client.get(PAGE)).text
        assert_harmless(page)
        assert "stopped by its breaker" in page
        assert re.search(r"one job is tried in (1h|59m)", page)
        told = await sentence(client, "/resume-jobs", task=HOSTILE[0])
        assert told == f"task {HOSTILE[0]} is resumed."
        assert "stopped by its breaker" not in (await client.get(PAGE)).text


async def test_dropped_jobs_are_counted(visit: Visit, running: RunningServer) -> None:
    client = visit()
    async with Queue(QUEUE, running.url) as queue:
        await queue.add("sync", key="k", keep="latest", job_id="one")
        assert "<dt>Dropped</dt>" not in (await client.get(PAGE)).text
        await queue.add("sync", key="k", keep="latest")
        await queue.add("sync", key="k", keep="latest")
    await act(client, "/resume-queue", name=QUEUE)  # it reads everything again
    assert re.search(r"<dt>Dropped</dt>\s*<dd>2</dd>", (await client.get(PAGE)).text)


async def test_what_show_hides_is_hidden_in_limits_too(
    visit: Visit, running: RunningServer, gate: ManualGate
) -> None:
    limits = [Concurrency(1, by="token"), Concurrency(1, by="tenant")]
    for n in range(2):
        data = {"token": "hunter2", "tenant": "acme"}
        await gate.queue.add("charge", data, limits=limits, job_id=f"j{n}")
    await gate.want(1)
    path = f"/queue?name={gate.keys.name}"
    page = (await visit().get(path)).text
    assert "hunter2" not in page
    assert "•••" in page
    assert "acme" in page
    hidden = (await visit(show=["to"]).get(path)).text
    assert not re.search("hunter2|acme", hidden)
    change = {"limit": "charge(token)", "value": "hunter2", "concurrency": "2"}
    answer = await act(visit(), "/change-limit", name=gate.keys.name, **change)
    assert answer.json()["sentence"] == "charge(token) of ••• is changed."
    assert "hunter2" not in (await visit().get("/audit")).text


# --- what is changed ----------------------------------------------------------------------------


async def test_limits_are_changed_reset_and_opened(visit: Visit, running: RunningServer) -> None:
    client = visit(access=Access.full(user="ada"))
    async with Queue(QUEUE, running.url) as queue:
        await fill(queue)
        shown = (await client.get(f"{PAGE}&limit=charge()")).text
        assert 'name="rate" value="5/s"' in shown
        fields = {"limit": "charge()", "rate": "9/m", "burst": "4", "concurrency": "3"}
        assert await sentence(client, "/change-limit", **fields) == "charge() is changed."
        found = {each.name: each for each in await queue.limits.list()}
        limit = found["charge()"]
        assert (limit.rate, limit.burst, limit.concurrency, limit.changed) == ("9/m", 4, 3, True)
        fields = {"limit": "charge()", "rate": "9/m", "strict": "1"}
        await sentence(client, "/change-limit", **fields)
        assert (await queue.limits.list())[0].strict
        assert await sentence(client, "/reset-limit", limit="charge()") == "charge() is reset."
        assert not (await queue.limits.list())[0].changed
        one = {"limit": "charge(tenant)", "value": "t1"}
        told = await sentence(client, "/change-limit", **one, concurrency="8")
        assert told == "charge(tenant) of t1 is changed."
        assert await sentence(client, "/reset-limit", **one) == "charge(tenant) of t1 is reset."
        told = await sentence(client, "/open-limit", **one)
        assert told == "charge(tenant) of t1 was open already."
    audit = (await client.get("/audit")).text
    for what in ("charge(): 3 at a time, 9/m", "charge(tenant) of t1: 8 at a time", "ada"):
        assert what in audit


async def test_a_closed_limit_is_shown_and_opened(
    visit: Visit, server: Server, running: RunningServer
) -> None:
    keys, client = QueueKeys(QUEUE), visit()
    async with (
        Queue(QUEUE, running.url) as queue,
        await Lane.open(server, keys.stream) as lane,
    ):
        await queue.add("charge", limits=[Concurrency(5)])
        await lane.call("HSET", keys.gate + b":over", "charge()", "- 9000000000000000")
        await lane.call("HSET", keys.gate, "flags", "o")
        page = (await client.get(PAGE)).text
        assert "Closed" in page
        assert 'action="open-limit"' in page
        assert await sentence(client, "/open-limit", limit="charge()") == "charge() is open."
        assert 'action="open-limit"' not in (await client.get(PAGE)).text


async def test_tasks_and_keys_are_paused_for_a_time_or_until_they_are_resumed(
    visit: Visit, running: RunningServer
) -> None:
    client = visit()
    async with Queue(QUEUE, running.url) as queue:
        await queue.add("send")
        fields = {"task": "send", "key": "k 1", "for": "90m"}
        told = await sentence(client, "/pause-jobs", **fields)
        assert told == "task send with key k 1 is paused for 90m."
        assert await sentence(client, "/pause-jobs", task="bill", key="") == "task bill is paused."
        found = {(each.task, each.key): each.until for each in await queue.limits.pauses()}
        assert set(found) == {("send", "k 1"), ("bill", None)}
        assert found["send", "k 1"] is not None
        assert found["bill", None] is None
        page = (await client.get(PAGE)).text
        assert "<h2>Paused</h2>" in page
        await sentence(client, "/resume-jobs", task="send", key="k 1")
        await sentence(client, "/resume-jobs", task="bill")
        told = await sentence(client, "/resume-jobs", task="bill")
        assert told == "task bill was not paused."
        assert not await queue.limits.pauses()
        assert not await queue.is_paused()
    audit = (await client.get("/audit")).text
    assert "task send with key k 1 for 90m" in audit


@pytest.mark.parametrize(
    ("path", "fields", "status", "words"),
    [
        ("/change-limit", {"limit": "nothing", "concurrency": "1"}, 404, "no such limit"),
        ("/change-limit", {"limit": "charge()"}, 400, "Say how many"),
        ("/change-limit", {"limit": "charge()", "concurrency": "x"}, 400, "whole number"),
        ("/change-limit", {"limit": "charge()", "concurrency": "0"}, 400, "Concurrency"),
        ("/change-limit", {"limit": "charge()", "rate": "fast"}, 400, "25/s"),
        ("/change-limit", {"limit": "charge()", "rate": "5/s", "burst": "9"}, 400, "burst"),
        ("/change-limit", {"limit": "charge()", "value": "t", "rate": "5/s"}, 400, "one value"),
        ("/change-limit", {"limit": "charge(tenant)", "value": "x" * 300}, 400, "Say how many"),
        ("/reset-limit", {"limit": "charge(tenant)", "value": "x" * 300}, 400, "256 bytes"),
        ("/open-limit", {"limit": ">"}, 404, "no such limit"),
        ("/weigh-key", {"key": "k", "weight": "x"}, 400, "number above 0"),
        ("/weigh-key", {"key": "k", "weight": "-1"}, 400, "above 0"),
        ("/weigh-key", {"key": "k", "weight": "inf"}, 400, "above 0"),
        ("/weigh-key", {"key": "", "weight": "1"}, 400, "1 to 256 bytes"),
        ("/pause-jobs", {}, 400, "Name a task"),
        ("/pause-jobs", {"key": "k", "for": "soon"}, 400, "for must be a time"),
        ("/pause-jobs", {"key": "x" * 300}, 400, "256 bytes"),
        ("/resume-jobs", {}, 400, "Name a task"),
    ],
)
async def test_what_cannot_be_gets_a_clear_sentence(
    visit: Visit,
    running: RunningServer,
    path: str,
    fields: Mapping[str, str],
    status: int,
    words: str,
) -> None:
    async with Queue(QUEUE, running.url) as queue:
        await fill(queue)
        before = await queue.limits.list()
        answer = await act(visit(), path, name=QUEUE, **fields)
        assert (answer.status_code, words in answer.json()["sentence"]) == (status, True), (
            answer.text
        )
        assert await queue.limits.list() == before
        assert not await queue.limits.pauses()


@pytest.mark.parametrize(
    ("path", "fields", "action"),
    [
        ("/change-limit", {"limit": "charge()", "concurrency": "2"}, "limits"),
        ("/reset-limit", {"limit": "charge()"}, "limits"),
        ("/open-limit", {"limit": "charge()"}, "limits"),
        ("/weigh-key", {"key": "k0", "weight": "2"}, "limits"),
        ("/pause-jobs", {"task": "charge"}, "pause"),
        ("/resume-jobs", {"task": "charge"}, "pause"),
    ],
)
async def test_nobody_changes_who_may_not(
    visit: Visit, running: RunningServer, path: str, fields: Mapping[str, str], action: str
) -> None:
    others = {"pause", "limits"} - {action}
    refused: list[tuple[dict[str, Any], dict[str, str], int]] = [
        ({"access": Access.read()}, SAME_ORIGIN, 403),
        ({"read_only": True}, SAME_ORIGIN, 403),
        ({"access": Access.of({QUEUE: others})}, SAME_ORIGIN, 403),
        ({"access": Access.full("others")}, SAME_ORIGIN, 404),
        ({}, {"sec-fetch-site": "cross-site"}, 403),
        ({}, {}, 403),
    ]
    async with Queue(QUEUE, running.url) as queue:
        await fill(queue)
        before = await queue.limits.list()
        for options, headers, status in refused:
            answer = await visit(**options).post(
                path, data={"name": QUEUE, **fields}, headers=headers
            )
            assert answer.status_code == status
            assert_harmless(answer.text)
        assert (await visit().get(path)).status_code == 405
        assert await queue.limits.list() == before
        assert not await queue.limits.pauses()
        allowed = visit(access=Access.of({QUEUE: [action]}))
        answer = await allowed.post(path, data={"name": QUEUE, **fields}, headers=SAME_ORIGIN)
        assert answer.status_code == 303


async def test_forms_are_there_for_those_who_may_send_them(
    visit: Visit, running: RunningServer
) -> None:
    async with Queue(QUEUE, running.url) as queue:
        await fill(queue)
        await queue.pause(key="k1")
        await queue.limits.set("charge()", Rate("1/s"))
    path = f"{PAGE}&limit=charge()"
    expected = {
        Access.full(): {"change-limit", "reset-limit", "weigh-key", "pause-jobs", "resume-jobs"},
        Access.of({QUEUE: ["pause"]}): {"pause-jobs", "resume-jobs"},
        Access.of({QUEUE: ["limits"]}): {"change-limit", "reset-limit", "weigh-key"},
        Access.read(): set(),
    }
    for access, actions in expected.items():
        page = (await visit(access=access).get(path)).text
        forms = {attrs.get("action") for tag, attrs in Elements(page).found if tag == "form"}
        assert forms - {"search", "pause-queue"} == actions
