"""The dashboard in apps of every framework, on real servers, asked over HTTP."""

import json
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest

from tampu.dashboard import Access, Dashboard
from tampu.queue import Queue
from tests.dashboards import SAME_ORIGIN, Elements, assert_harmless
from tests.mounts import ASGI_STACKS, HELLO, PREFIX, WSGI_STACKS, Stack, in_flask, serve_wsgi
from tests.servers import RunningServer
from tests.waiting import wait_until

STACKS = ASGI_STACKS + WSGI_STACKS
LIVE = f"{PREFIX}/live?of=queue&name=emails"


@pytest.fixture
async def emails(running: RunningServer) -> AsyncIterator[Queue]:
    async with Queue("emails", running.url) as queue:
        await queue.add("send", {"to": "ada"})
        yield queue


@pytest.fixture
def dashboard(running: RunningServer) -> Dashboard:
    return Dashboard(running.url, access=Access.full())


@pytest.fixture(params=STACKS, ids=lambda stack: stack.name)
def url(request: pytest.FixtureRequest, dashboard: Dashboard) -> Iterator[str]:
    """An app with the dashboard in it, served."""
    with request.param.serve(dashboard) as served:
        yield served


@pytest.fixture
async def client(url: str) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=url, timeout=30) as opened:
        yield opened


def links_of(page: httpx.Response) -> set[str]:
    """Every link and file of a page, and where its forms go."""
    return {
        value
        for _, attributes in Elements(page.text).found
        for name, value in attributes.items()
        if name in {"href", "src", "action"} and value and not value.startswith("#")
    }


@pytest.mark.usefixtures("emails")
async def test_pages_files_and_links_work_under_a_prefix(client: httpx.AsyncClient) -> None:
    async def shows_the_queue() -> bool:
        return "queue?name=emails" in links_of(await client.get(f"{PREFIX}/"))

    await wait_until(shows_the_queue, within=60, sentence="the first search for queues has ended")
    page = await client.get(PREFIX, follow_redirects=True)
    assert (page.status_code, page.url.path) == (200, f"{PREFIX}/")
    assert_harmless(page.text)
    links = links_of(page)
    assert {"queue?name=emails", "queues", "search"} <= links
    for link in links:
        target = page.url.join(link)
        assert target.path.startswith(f"{PREFIX}/")
        answer = await client.get(target)
        assert answer.status_code == 200, link
        assert "default-src 'none'" in answer.headers["content-security-policy"]
    style = await client.get(f"{PREFIX}/static/app.css")
    assert style.headers["content-type"].startswith("text/css")
    assert "immutable" in style.headers["cache-control"]
    for path in ("/nowhere", "/queue/", "/static/nothing.js"):
        assert (await client.get(PREFIX + path)).status_code == 404
    assert HELLO in (await client.get("/hello")).text, "the app itself still answers"


async def test_an_action_is_done_for_the_same_origin_only(
    client: httpx.AsyncClient, url: str, emails: Queue
) -> None:
    path, form = f"{PREFIX}/pause-queue", {"name": "emails"}
    for headers, status in (
        ({"sec-fetch-site": "cross-site", "origin": url}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({}, 403),
        (SAME_ORIGIN | {"host": "evil.example"}, 421),
    ):
        refused = await client.post(path, data=form, headers=headers)
        # A framework may refuse a host before the dashboard does.
        assert refused.status_code in {status, 400 if status == 421 else status}
        assert not await emails.is_paused()
    done = await client.post(path, data=form, headers={"origin": url})
    assert (done.status_code, done.headers["location"]) == (303, "queue?name=emails")
    assert await emails.is_paused()
    next_page = await client.get(done.url.join(done.headers["location"]))
    assert next_page.url.path == f"{PREFIX}/queue"
    assert "Paused" in next_page.text
    done = await client.post(f"{PREFIX}/resume-queue", data=form, headers=SAME_ORIGIN)
    assert done.status_code == 303
    assert not await emails.is_paused()


async def until_tiles(answer: httpx.Response, text: str) -> None:
    """Read server-sent events until the tiles of the page have a text."""
    kind = ""
    async for line in answer.aiter_lines():
        if line.startswith("event: "):
            kind = line.removeprefix("event: ")
        elif kind == "region" and line.startswith("data: "):
            data = json.loads(line.removeprefix("data: "))
            if data["name"] == "tiles" and text in data["html"]:
                return
    raise AssertionError(f"the events ended without {text}")


@pytest.mark.parametrize("url", ASGI_STACKS, indirect=True, ids=lambda stack: stack.name)
async def test_a_page_that_is_open_hears_of_changes(
    client: httpx.AsyncClient, emails: Queue, dashboard: Dashboard
) -> None:
    async with client.stream("GET", LIVE) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["x-accel-buffering"] == "no"
        await until_tiles(answer, ">1</a></dd>")
        assert dashboard.live.is_polling
    await emails.add_each("send", range(41))
    async with client.stream("GET", LIVE) as answer:
        await until_tiles(answer, ">42</a></dd>")
    await wait_until(
        lambda: not dashboard.live.is_polling, within=60, sentence="nobody looks any more"
    )


@pytest.mark.parametrize("stack", ASGI_STACKS, ids=lambda stack: stack.name)
async def test_it_disconnects_when_the_app_stops(
    stack: Stack, running: RunningServer, dashboard: Dashboard
) -> None:
    with running.admin() as admin:
        before = len(admin.client_list())
        with stack.serve(dashboard) as url:
            async with httpx.AsyncClient(base_url=url, timeout=30) as client:
                assert (await client.get(f"{PREFIX}/")).status_code == 200
            assert len(admin.client_list()) > before
        await wait_until(
            lambda: len(admin.client_list()) == before, within=60, sentence="it has disconnected"
        )


# --- through a2wsgi -----------------------------------------------------------------------------


@pytest.mark.parametrize("url", WSGI_STACKS, indirect=True, ids=lambda stack: stack.name)
async def test_events_under_wsgi_end_at_once_and_the_browser_asks_again(
    client: httpx.AsyncClient, emails: Queue, dashboard: Dashboard
) -> None:
    answer = await client.get(LIVE)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text.startswith("retry: 2000\n\n")
    await until_tiles(answer, ">1</a></dd>")
    await emails.add_each("send", range(41))

    async def has_changed() -> bool:  # what was read is good for a moment
        return ">42</a></dd>" in (await client.get(LIVE)).text

    await wait_until(has_changed, within=60, sentence="the page shows the new jobs")
    assert not dashboard.live.is_polling


@pytest.mark.usefixtures("emails")
async def test_open_pages_leave_the_only_thread_of_a_server_free(
    dashboard: Dashboard,
) -> None:
    with serve_wsgi(in_flask, dashboard, threaded=False) as url:
        async with httpx.AsyncClient(base_url=url, timeout=10) as browser:
            async with browser.stream("GET", LIVE) as answer:  # nobody reads it to its end
                assert answer.status_code == 200
                assert HELLO in (await browser.get("/hello")).text
