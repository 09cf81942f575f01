"""Pages of schedules and workers, and what the search box finds, over a real server."""

import asyncio
import re
from urllib.parse import urlencode

from msgspec.msgpack import encode

from tampu.admin.browsing import JobPlace
from tampu.admin.queues import QueueSummary, summarise_queue
from tampu.app import App
from tampu.app_worker import AppWorker
from tampu.dashboard import Access
from tampu.job import Job
from tampu.queue import Queue
from tampu.server.connect import Server
from tampu.server.lane import Lane
from tampu.server.streams import server_time_ms
from tampu.timing import Cron, Every, Missed
from tampu.wire.alerts import AlertKind, StoredAlert
from tampu.wire.history import PackedProcess, PackedRun
from tampu.wire.keys import QueueKeys
from tampu.worker import Worker
from tests.dashboards import HOSTILE, Visit, act, assert_harmless
from tests.servers import RunningServer
from tests.waiting import wait_until

DIGEST = {"queue": "emails", "key": "digest"}


async def store(url: str) -> None:
    async with Queue("emails", url) as queue:
        rule = Cron("0 9 * * *", tz="Europe/Berlin")
        await queue.schedules.add("send", rule, {"to": "ada", "token": "t-1"}, key="digest")
        await queue.schedules.add("clean", Every("1h"), key="cleanup")


async def test_schedules_are_listed_paused_resumed_and_triggered(
    visit: Visit, running: RunningServer
) -> None:
    await store(running.url)
    client = visit(access=Access.full(user="ada"))
    page = (await client.get("/schedules")).text
    assert "digest" in page
    assert "cleanup" in page
    assert_harmless(page)
    async with Queue("emails", running.url) as queue:
        for path, sentence, paused in (
            ("/pause-schedule", "digest is paused.", True),
            ("/pause-schedule", "digest is paused already.", True),
            ("/resume-schedule", "digest is resumed.", False),
            ("/resume-schedule", "digest was not paused.", False),
        ):
            assert (await act(client, path, **DIGEST)).json()["sentence"] == sentence
            found = {each.key: each for each in await queue.schedules.list()}
            assert found["digest"].paused is paused
        answer = await act(client, "/trigger-schedule", **DIGEST)
        assert "was added" in answer.json()["sentence"]
        (job,) = [each async for each in queue.jobs(state="waiting")]
        assert (job.name, job.schedule_key) == ("send", "digest")
    page = (await client.get(f"/schedule?{urlencode(DIGEST)}")).text
    assert f'href="job?queue=emails&amp;id={job.id}"' in page
    shown = (await client.get(f"/job?queue=emails&id={job.id}")).text
    assert 'href="schedule?queue=emails&amp;key=digest"' in shown
    assert "trigger schedule" in (await client.get("/audit")).text


async def test_a_schedule_shows_its_next_fires_in_the_zone_of_the_visitor(
    visit: Visit, running: RunningServer
) -> None:
    await store(running.url)
    client, path = visit(), f"/schedule?{urlencode(DIGEST)}"
    page = (await client.get(path)).text
    assert len(re.findall(r'<tr data-row="[^"]*T[^"]*"><td><time datetime', page)) == 10
    assert 'data-time="full"' in page
    assert "t-1" not in page
    assert_harmless(page)
    berlin = (await client.get(f"{path}&tz=Europe/Berlin")).text
    assert len(re.findall(r">[A-Z][a-z]{2} [0-9-]{10} 09:00:00 CES?T<", berlin)) == 10
    assert (await client.get(f"{path}&tz=Mars/Olympus")).status_code == 400
    many = (await client.get(f"{path}&count=99999999999999999999")).text
    assert len(re.findall(r'<tr data-row="[^"]*T[^"]*"><td><time', many)) == 100
    assert (await client.get(f"{path}&count=x")).status_code == 400
    assert (await client.get("/schedule?queue=emails&key=nothing")).status_code == 404


async def test_a_schedule_shows_when_it_fired_and_missed(
    visit: Visit, running: RunningServer, server: Server
) -> None:
    async def clean(job: Job[object]) -> None:
        del job

    await store(running.url)
    keys = QueueKeys("emails")
    page = (await visit().get("/schedule?queue=emails&key=cleanup")).text
    assert "It neither fired nor missed a fire in the last 24 hours." in page
    async with Queue("emails", running.url) as queue, await Lane.open(server, b"x") as lane:
        late = Missed.SKIP.within(grace="1s")
        await queue.schedules.add("clean", Every(60), key="often", missed=late)
        due_ms = await server_time_ms(lane)
        # As if no worker had been there for a while.
        await lane.call("ZADD", keys.repeat, due_ms - 150_000, "often")
        await lane.call("ZADD", keys.repeat, due_ms, "cleanup")
        async with Worker("emails", {"clean": clean, "send": clean}, running.url):

            async def have_both() -> bool:
                found = {each.key: each.counts for each in await queue.schedules.list()}
                return found["often"].missed >= 3 and found["cleanup"].fired >= 1

            await wait_until(have_both, within=60, sentence="one has missed, the other has fired")
        # A worker that stops records what it has counted.
    client = visit()
    for key, sentence, cells in (
        ("often", r"\d fired and 3 missed in the last 24 hours", r'<td class="num amber">3</td>'),
        ("cleanup", "1 fired and 0 missed in the last 24 hours", r'<td class="num">1</td>'),
    ):
        page = (await client.get(f"/schedule?queue=emails&key={key}")).text
        assert re.search(sentence, page)
        assert re.search(cells, page.partition("Last fires")[2])
        assert "Fires per 30 minutes" in page
        assert_harmless(page)


async def test_schedules_of_hidden_queues_and_of_readers_are_left_alone(
    visit: Visit, running: RunningServer
) -> None:
    await store(running.url)
    reader, stranger = visit(access=Access.read()), visit(access=Access.full("others"))
    async with Queue("emails", running.url) as queue:
        for path in ("/pause-schedule", "/trigger-schedule", "/resume-schedule"):
            assert (await act(reader, path, **DIGEST)).status_code == 403
            assert (await act(stranger, path, **DIGEST)).status_code == 404
        assert (await queue.counts()).waiting == 0
        assert not any(each.paused for each in await queue.schedules.list())
    assert 'method="post"' not in (await reader.get("/schedules")).text
    assert "cleanup" not in (await stranger.get("/schedules")).text
    assert (await stranger.get(f"/schedule?{urlencode(DIGEST)}")).status_code == 404


async def test_hostile_schedules_are_escaped(visit: Visit, running: RunningServer) -> None:
    async with Queue("emails", running.url) as queue:
        for text in HOSTILE:
            await queue.schedules.add(text, Every("1h"), {text: text}, key=text)
    client = visit()
    pages = [await client.get("/schedules")]
    pages += [
        await client.get(f"/schedule?{urlencode({'queue': 'emails', 'key': text})}")
        for text in HOSTILE
    ]
    for page in pages:
        assert page.status_code == 200
        assert "<script>alert" not in page.text
        assert_harmless(page.text)


async def test_a_schedule_that_cannot_be_read_is_shown_with_its_problem(
    visit: Visit, running: RunningServer
) -> None:
    await store(running.url)
    keys = QueueKeys("emails")
    with running.admin() as admin:
        admin.hset(keys.spec("digest").decode(), "spec", b"\xc1")
    client = visit()
    assert "Unreadable" in (await client.get("/schedules")).text
    page = await client.get(f"/schedule?{urlencode(DIGEST)}")
    assert (page.status_code, "Problem" in page.text) == (200, True)
    assert (await act(client, "/trigger-schedule", **DIGEST)).status_code == 400


# --- workers ------------------------------------------------------------------------------------


async def test_a_worker_is_shown_with_what_it_runs_and_drained(
    visit: Visit, server: Server, running: RunningServer
) -> None:
    client, stop = visit(), asyncio.Event()

    async def handler(_: object) -> None:
        await stop.wait()

    worker = Worker("emails", handler, running.url, concurrency=7)
    async with Queue("emails", running.url) as queue:
        await queue.add("send", job_id="one")
        await worker.start()
        try:
            worker_id = await held_by(queue)
            await report(server, worker_id)
            page = (await client.get("/workers")).text
            assert_harmless(page)
            for text in (worker_id, "1.4.2", "90 MB", "400ms", "1 job, the oldest for", "/7<"):
                assert text in page, text
            assert 'href="job?queue=emails&amp;id=one"' in page
            fields = {"queue": "emails", "worker": worker_id}
            reader, stranger = visit(access=Access.read()), visit(access=Access.full("others"))
            assert (await act(reader, "/drain-worker", **fields)).status_code == 403
            assert (await act(stranger, "/drain-worker", **fields)).status_code == 404
            assert worker_id not in (await stranger.get("/workers")).text
            assert "Drain" not in (await reader.get("/workers")).text
            gone = await act(client, "/drain-worker", queue="emails", worker="nobody")
            assert gone.status_code == 404
            stop.set()
            assert (await act(client, "/drain-worker", **fields)).status_code == 200

            async def is_gone() -> bool:
                return not (await summary(server)).workers

            await wait_until(is_gone, within=60, sentence="the worker has stopped")
            assert f"worker {worker_id}" in (await client.get("/audit")).text
        finally:
            stop.set()
            await worker.stop()


async def test_a_worker_of_a_hidden_queue_is_not_drained(
    visit: Visit, running: RunningServer
) -> None:
    app = App(running.url)

    @app.task(queue="emails")
    async def send() -> None: ...

    @app.task(queue="secret")
    async def bill() -> None: ...

    async with AppWorker(app):
        found = re.findall(r'worker" value="([^"]+)"', (await visit().get("/workers")).text)
        (worker_id,) = found
        for access, status in (
            (Access.full("emails"), 403),
            (Access.of({"emails": ["drain"], "secret": []}), 403),
            (Access.full("emails", "secret"), 200),
        ):
            client = visit(access=access)
            page = (await client.get("/workers")).text
            assert worker_id in page
            assert ("Drain" in page) is (status == 200)
            answer = await act(client, "/drain-worker", queue="emails", worker=worker_id)
            assert answer.status_code == status
            assert "secret" not in answer.text


async def summary(server: Server) -> QueueSummary:
    """The queue now."""
    keys = QueueKeys("emails")
    async with await Lane.open(server, keys.stream) as lane:
        return await summarise_queue(lane, keys)


async def held_by(queue: Queue) -> str:
    """The worker that holds the only job."""

    async def is_active() -> bool:
        return (await queue.counts()).active == 1

    await wait_until(is_active, within=60, sentence="the job is active")
    async for info in queue.jobs(state=str(JobPlace.ACTIVE)):
        return info.worker or ""
    raise AssertionError("no job is active")


async def report(server: Server, worker_id: str) -> None:
    """What a process reports every ten seconds."""
    keys = QueueKeys("emails")
    async with await Lane.open(server, keys.stream) as lane:
        now = await server_time_ms(lane)
        packed = PackedProcess(
            at_ms=now,
            host="vm",
            pid=7,
            rss_bytes=90_000_000,
            cpu=0.5,
            lag_ms=400.0,
            slots=7,
            busy=1,
            running=[PackedRun("one", "send", 1, now - 5000)],
            version="0.1.0",
            python="3.11.7",
            app_version="1.4.2",
        )
        await lane.call("SET", keys.process(worker_id.encode()), encode(packed))


async def test_an_empty_server_says_what_to_do_next(visit: Visit) -> None:
    client = visit()
    for path, sentence in (
        ("/jobs", "There are no queues yet"),
        ("/dead", "There are no queues yet"),
        ("/schedules", "There are no schedules"),
        ("/workers", "No worker has started yet"),
        ("/alerts", "No alert has fired"),
        ("/audit", "Nothing was done by hand"),
    ):
        page = await client.get(path)
        assert (page.status_code, sentence in page.text) == (200, True), path
        assert_harmless(page.text)


# --- alerts -------------------------------------------------------------------------------------


async def test_alerts_that_have_fired_and_resolved_are_shown(
    visit: Visit, server: Server, running: RunningServer
) -> None:
    async with Queue("emails", running.url) as queue:
        await queue.add("send")
    keys = QueueKeys("emails")
    async with await Lane.open(server, keys.stream) as lane:
        now = await server_time_ms(lane)
        for key, resolved_ms, sentence in (
            ("oldest", 0, HOSTILE[0]),
            ("lag", now - 1000, "Resolved. Queue 'emails': the loop is fine."),
        ):
            state = StoredAlert(
                AlertKind.OLDEST,
                fired_ms=now - 60_000,
                resolved_ms=resolved_ms,
                sentence=sentence,
            )
            await lane.call("HSET", keys.alerts, key, encode(state))
    client = visit()
    for path, fine in (("/alerts", True), ("/", False)):
        page = (await client.get(path)).text
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
        assert (">The loop is fine.<" in page) is fine
        assert_harmless(page)
    hidden = (await visit(access=Access.read("others")).get("/alerts")).text
    assert "No alert has fired" in hidden
    assert "The loop is fine." not in hidden
