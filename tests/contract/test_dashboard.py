"""The dashboard's pages over a real server, asked as a browser asks."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from tampu.app import App
from tampu.dashboard import Access, Action, Credentials, Dashboard
from tampu.dashboard.security import Message
from tampu.errors import OptionError
from tampu.metrics.history import Span
from tampu.queue import Queue
from tampu.server.connect import Server
from tampu.server.lane import Lane
from tampu.wire.keys import QueueKeys
from tests.conftest import Start
from tests.dashboards import HOSTILE, Visit, assert_harmless, seed_history
from tests.servers import RunningServer
from tests.waiting import wait_until

HOSTILE_QUEUE = "<script>alert(1)</script>\"onmouseover='x'\u202e"
TOKEN = "x"  # noqa: S105 - of a test
SAME_ORIGIN = {"sec-fetch-site": "same-origin"}
EVERY_PAGE = ("/", "/queues", "/queue?name=emails", "/task?queue=emails&name=send", "/search?q=e")


async def fill(server: Server, url: str, queue: str, *tasks: str) -> None:
    """Jobs and a past."""
    keys = QueueKeys(queue)
    async with await Lane.open(server, keys.stream) as lane:
        await seed_history(lane, keys, dict.fromkeys(tasks, 60.0), spans=[Span.HOUR, Span.DAY])
    async with Queue(queue, url) as jobs:
        for task in tasks:
            await jobs.add(task, {"n": 1})
        await jobs.add(tasks[0], {"n": 1}, delay=3600)


async def test_an_empty_server_says_what_to_do_next(visit: Visit) -> None:
    client = visit()
    for path in ("/", "/queues"):
        page = await client.get(path)
        assert page.status_code == 200
        assert "There are no queues yet" in page.text
        assert "tampu demo" in page.text
        assert_harmless(page.text)


async def test_an_empty_queue_of_the_app_is_shown(visit: Visit, running: RunningServer) -> None:
    app = App(running.url, default_queue="emails")

    @app.task
    async def send() -> None: ...

    client = visit(target=app)
    assert "emails" in (await client.get("/")).text
    page = await client.get("/queue?name=emails")
    assert page.status_code == 200
    assert "No task has run in the last hour" in page.text
    assert "Nothing was recorded in this time." in page.text


async def test_every_page_shows_jobs_and_history(
    visit: Visit, server: Server, running: RunningServer
) -> None:
    await fill(server, running.url, "emails", "send", "digest")
    client = visit()
    for path in EVERY_PAGE:
        for span in Span:
            page = await client.get(f"{path}{'&' if '?' in path else '?'}span={span}")
            assert page.status_code == 200, page.text
            assert_harmless(page.text)
    overview = (await client.get("/")).text
    assert "emails" in overview
    assert "No workers" in overview
    queue = (await client.get("/queue?name=emails")).text
    assert '<a class="name" href="task?queue=emails&amp;name=digest&amp;span=1h"' in queue
    assert queue.count("<svg") > 4
    task = (await client.get("/task?queue=emails&name=send")).text
    assert 'class="cell"' in task
    found = (await client.get("/search?q=diges")).text
    assert 'href="task?queue=emails&amp;name=digest"' in found


async def test_hostile_names_are_escaped_on_every_page(
    visit: Visit, server: Server, running: RunningServer
) -> None:
    await fill(server, running.url, HOSTILE_QUEUE, *HOSTILE)
    client = visit()
    paths = ["/", "/queues", f"/queue?{urlencode({'name': HOSTILE_QUEUE})}"]
    paths += [f"/task?{urlencode({'queue': HOSTILE_QUEUE, 'name': name})}" for name in HOSTILE]
    paths += [f"/search?{urlencode({'q': text})}" for text in (*HOSTILE, "script")]
    paths += [f"/{'?' if i else 'nowhere?'}{urlencode({'span': x})}" for i, x in enumerate(HOSTILE)]
    paths += [f"/queue?{urlencode({'name': name})}" for name in HOSTILE]
    for path in paths:
        page = await client.get(path)
        assert page.status_code in {200, 400, 404}
        assert "<script>alert" not in page.text
        assert "49" not in re.findall(r"<bdi>(.*?)</bdi>", page.text)
        assert_harmless(page.text)
    queue = (await client.get(paths[2])).text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in queue
    assert queue.count('<tr data-row="') == len(HOSTILE)


@pytest.mark.parametrize(
    ("path", "status", "sentence"),
    [
        ("/nowhere", 404, "There is no such page."),
        ("/queue", 404, "There is no such queue."),
        ("/queue?name=nothing", 404, "There is no such queue."),
        ("/queue?name=a%20b", 404, "There is no such queue."),
        ("/task?queue=nothing&name=x", 404, "There is no such queue."),
        ("/schedules?queue=nothing", 404, "There is no such queue."),
        ("/workers?queue=nothing", 404, "There is no such queue."),
        ("/?span=99y", 400, "span must be one of 1h, 24h, 30d."),
        ("/queue/", 404, "There is no such page."),
        ("/pause-queue", 405, "This cannot be done with this method."),
        ("/static/../app.py", 404, ""),
        ("/static/%2e%2e/app.py", 404, ""),
        ("/live?of=nowhere", 404, "There is no such page."),
        ("/?" + "a=1&" * 2000, 400, "The query cannot be read."),
    ],
)
async def test_what_is_unknown_gets_a_clear_page(
    visit: Visit, path: str, status: int, sentence: str
) -> None:
    page = await visit().get(path)
    assert page.status_code == status
    assert sentence in page.text
    assert_harmless(page.text)
    assert "default-src 'none'" in page.headers["content-security-policy"]


async def test_steps_of_the_past_are_read_once(
    visit: Visit, server: Server, running: RunningServer
) -> None:
    await fill(server, running.url, "emails", "send")
    client = visit()
    with running.admin() as admin:
        read = []
        for _ in range(2):
            admin.config_resetstat()
            assert 'class="cell"' in (await client.get("/task?queue=emails&name=send")).text
            read.append(int(admin.info("commandstats")["cmdstat_hgetall"]["calls"]))
            # An operation makes the dashboard forget what it has read a moment ago.
            await client.post("/resume-queue", data={"name": "emails"}, headers=SAME_ORIGIN)
    assert read[0] == Span.HOUR.steps
    assert 2 <= read[1] <= 4


# --- changing -----------------------------------------------------------------------------------


async def test_a_queue_is_paused_and_resumed_by_post(visit: Visit, running: RunningServer) -> None:
    client = visit()
    async with Queue("emails", running.url) as queue:
        await queue.add("send")
        page = await client.post("/pause-queue", data={"name": "emails"}, headers=SAME_ORIGIN)
        assert (page.status_code, page.headers["location"]) == (303, "queue?name=emails")
        assert await queue.is_paused()
        assert "Paused" in (await client.get("/queue?name=emails")).text
        wanted = SAME_ORIGIN | {"accept": "application/json"}
        page = await client.post("/resume-queue", data={"name": "emails"}, headers=wanted)
        assert page.json() == {"sentence": "emails is resumed.", "go": None}
        assert not await queue.is_paused()


@pytest.mark.parametrize(
    ("options", "headers", "status"),
    [
        ({}, {}, 403),
        ({}, {"sec-fetch-site": "cross-site"}, 403),
        ({}, {"origin": "http://evil.example"}, 403),
        ({}, SAME_ORIGIN | {"host": "evil.example"}, 421),
        ({"read_only": True}, SAME_ORIGIN, 403),
        ({"access": Access.read()}, SAME_ORIGIN, 403),
        ({"access": Access.of({"emails": ["replay"]})}, SAME_ORIGIN, 403),
        ({"access": Access.full("billing")}, SAME_ORIGIN, 404),
        ({"access": Access.nothing()}, SAME_ORIGIN, 404),
        ({"access": lambda _: Access.nothing()}, SAME_ORIGIN, 404),
        ({"access": Credentials(token=TOKEN)}, SAME_ORIGIN, 401),
        ({"access": Credentials(token=TOKEN)}, {"authorization": "Bearer y"}, 401),
        ({"access": Credentials(token=TOKEN)}, {"authorization": "Bearer x"}, 303),
    ],
)
async def test_nobody_pauses_who_may_not(
    visit: Visit,
    running: RunningServer,
    options: Mapping[str, Any],
    headers: Mapping[str, str],
    status: int,
) -> None:
    async with Queue("emails", running.url) as queue:
        await queue.add("send")
        client = visit(**options)
        answer = await client.post("/pause-queue", data={"name": "emails"}, headers=headers)
        assert answer.status_code == status
        assert await queue.is_paused() is (status == 303)


async def test_a_get_changes_nothing(visit: Visit, running: RunningServer) -> None:
    async with Queue("emails", running.url) as queue:
        await queue.add("send")
        assert (await visit().get("/pause-queue?name=emails")).status_code == 405
        assert not await queue.is_paused()


async def test_a_form_that_is_too_large_is_refused(visit: Visit) -> None:
    body = {"name": "x" * 1_100_000}
    assert (await visit().post("/pause-queue", data=body, headers=SAME_ORIGIN)).status_code == 413


# --- who sees what ------------------------------------------------------------------------------


async def test_a_hidden_queue_is_nowhere(
    visit: Visit, server: Server, running: RunningServer
) -> None:
    await fill(server, running.url, "secret-queue", "secret-task")
    await fill(server, running.url, "emails", "send")
    client = visit(access=Access.read("emails"))
    for path in ("/", "/queues", "/search?q=e", "/search?q=secret-q"):
        text = (await client.get(path)).text.replace("secret-q&#34;", "").replace('"secret-q"', "")
        assert "secret-queue" not in text
        assert "secret-task" not in text
        assert "127.0.0.1" not in text, "the server concerns those who see all"
    missing = await client.get("/queue?name=nothing")
    for path in ("/queue?name=secret-queue", "/task?queue=secret-queue&name=secret-task"):
        hidden = await client.get(path)
        assert (hidden.status_code, hidden.text) == (404, missing.text)


async def test_buttons_are_there_for_those_who_may_press_them(
    visit: Visit, running: RunningServer
) -> None:
    async with Queue("emails", running.url) as queue:
        await queue.add("send")
    for access, is_there in (
        (Access.full(), True),
        (Access.of({"emails": [Action.PAUSE]}), True),
        (Access.read(), False),
    ):
        page = await visit(access=access).get("/queue?name=emails")
        assert ('action="pause-queue"' in page.text) is is_there
    page = await visit(read_only=True).get("/queue?name=emails")
    assert "<button>" not in page.text


async def test_access_is_asked_for_every_request_and_path(visit: Visit) -> None:
    asked: list[str] = []

    async def access(scope: Mapping[str, Any]) -> Access:
        asked.append(scope["path"])
        return Access.nothing()

    client = visit(access=access)
    for path in ("/", "/queues", "/live", "/static/app.css", "/nowhere"):
        page = await client.get(path)
        assert (page.status_code, page.text) == (404, "Not found.\n")
    assert asked == ["/", "/queues", "/live", "/static/app.css", "/nowhere"]


async def test_credentials_are_asked_for(visit: Visit) -> None:
    client = visit(access=Credentials(user="ada", password="x"))  # noqa: S106
    page = await client.get("/")
    assert page.status_code == 401
    assert page.headers["www-authenticate"].startswith("Basic ")
    assert (await client.get("/", auth=("ada", "x"))).status_code == 200
    assert (await client.get("/static/app.css", auth=("ada", "y"))).status_code == 401


async def test_an_access_function_that_returns_something_else_lets_nobody_in(visit: Visit) -> None:
    with pytest.raises(OptionError, match="must return an Access"):
        await visit(access=lambda _: True).get("/")


def test_without_access_there_is_no_dashboard() -> None:
    with pytest.raises(OptionError, match=r"Access\.full\(\) to let in everybody"):
        Dashboard("redis://localhost")
    with pytest.raises(OptionError, match="access"):
        Dashboard("redis://localhost", access="yes")  # type: ignore[arg-type]


# --- where it is mounted ------------------------------------------------------------------------


async def test_without_its_slash_it_redirects_relatively() -> None:
    dashboard = Dashboard("redis://localhost", access=Access.full())
    for path, prefix, location in (("", "", "./"), ("/a/jobs", "/a/jobs", "jobs/")):
        sent: list[Any] = []

        async def send(message: Message, sent: list[Any] = sent) -> None:
            sent.append(message)

        async def receive() -> Message:
            return {"type": "http.request"}

        scope = {"type": "http", "method": "GET", "path": path, "root_path": prefix}
        headers = [(b"host", b"localhost")]
        await dashboard({**scope, "headers": headers, "query_string": b""}, receive, send)
        assert sent[0]["status"] == 307
        assert dict(sent[0]["headers"])[b"location"].decode() == location


# --- when the server is away --------------------------------------------------------------------


async def test_a_server_that_is_away_gets_a_page_that_tries_again(start: Start) -> None:
    running = start()
    async with Queue("emails", running.url) as queue:
        await queue.add("send")
    async with Dashboard(running.url, access=Access.full()) as dashboard:
        transport = httpx.ASGITransport(dashboard)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            assert (await client.get("/queue?name=emails")).status_code == 200
            running.kill()
            away = await until_status(client, "/queue?name=emails", 503)
            assert '<meta http-equiv="refresh" content="3">' in away.text
            assert "The server does not answer" in away.text
            assert_harmless(away.text)
            running.restart()
            await until_status(client, "/", 200)


async def until_status(client: httpx.AsyncClient, path: str, status: int) -> httpx.Response:
    """Ask until the answer has a status."""
    answers: list[httpx.Response] = []

    async def ask() -> bool:
        answers.append(await client.get(path))
        return answers[-1].status_code == status

    await wait_until(ask, within=60, sentence=f"{path} answers with {status}")
    return answers[-1]
