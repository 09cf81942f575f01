"""Live pages over a real server: what changes arrives, and costs little."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import urlencode

import redis

from tampu.dashboard import Access, Dashboard
from tampu.dashboard.security import Message
from tampu.queue import Queue
from tampu.timing import Every
from tests.dashboards import HOSTILE, assert_harmless
from tests.servers import RunningServer
from tests.waiting import wait_until


class OpenPage:
    """A live page, asked for as a browser does it."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.events: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self.left = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.headers = {key.decode(): value.decode() for key, value in message["headers"]}
        for event in message.get("body", b"").decode().split("\n\n"):
            if event.startswith("event: "):
                kind, data = event.split("\n")
                self.events.put_nowait((kind[7:], json.loads(data[6:])))

    async def until_region(self, name: str, text: str) -> str:
        """Wait for a fragment with a text."""
        async with asyncio.timeout(60):
            while True:
                kind, data = await self.events.get()
                if kind == "region" and data["name"] == name and text in data["html"]:
                    return str(data["html"])

    async def until(self, kind: str) -> None:
        """Wait for an event."""
        async with asyncio.timeout(60):
            while (await self.events.get())[0] != kind:
                pass


@asynccontextmanager
async def look_at(dashboard: Dashboard, **params: str) -> AsyncIterator[OpenPage]:
    page = OpenPage()
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/live",
        "root_path": "",
        "query_string": urlencode(params).encode(),
        "headers": [(b"host", b"localhost")],
    }
    asking = asyncio.create_task(dashboard(scope, page.receive, page.send))
    try:
        yield page
    finally:
        page.left.set()
        await asking


async def test_a_changed_fragment_is_sent(running: RunningServer) -> None:
    async with (
        Queue("emails", running.url) as queue,
        Dashboard(running.url, access=Access.full()) as dashboard,
    ):
        await queue.add("send")
        async with look_at(dashboard, of="queue", name="emails") as page:
            await page.until_region("tiles", ">1</a></dd>")
            assert page.headers["content-type"].startswith("text/event-stream")
            assert page.headers["cache-control"] == "no-store"
            await queue.add_each("send", range(41))
            await page.until_region("tiles", ">42</a></dd>")
            await queue.pause()
            await page.until_region("state", "Paused")


async def test_a_new_queue_appears_on_the_overview(running: RunningServer) -> None:
    async with Dashboard(running.url, access=Access.full()) as dashboard:
        async with look_at(dashboard, of="overview") as page:
            await page.until_region("queues", "There are no queues yet")
            async with Queue('<script>"x', running.url) as queue:
                await queue.add(HOSTILE[0])
            html = await page.until_region("queues", "&lt;script&gt;")
            assert "<script" not in html


async def test_every_live_page_sends_its_fragments(running: RunningServer) -> None:
    async with Dashboard(running.url, access=Access.full()) as dashboard:
        for name, region in (("jobs", "rows"), ("dead", "groups"), ("workers", "tiles")):
            async with look_at(dashboard, of=name) as page:  # while there is no queue
                await page.until_region(region, "")
        async with Queue("emails", running.url) as queue:
            await queue.add("send", job_id="one")
            await queue.schedules.add("send", Every("1h"), key="hourly")
        for params, region, text in (
            ({"of": "jobs", "queue": "emails"}, "rows", "one"),
            ({"of": "job", "queue": "emails", "id": "one"}, "moments", "Added"),
            ({"of": "dead", "queue": "emails"}, "groups", "No dead letters"),
            ({"of": "schedules"}, "rows", "hourly"),
            ({"of": "schedule", "queue": "emails", "key": "hourly"}, "fires", "<time"),
            ({"of": "workers"}, "rows", "No worker"),
            ({"of": "alerts"}, "active", "No alert"),
        ):
            async with look_at(dashboard, **params) as page:
                html = await page.until_region(region, text)
                assert_harmless(html)


async def test_fragments_hide_what_the_visitor_may_not_see(running: RunningServer) -> None:
    async with (
        Queue("emails", running.url) as emails,
        Queue("secret", running.url) as secret,
        Dashboard(running.url, access=Access.read("emails")) as dashboard,
    ):
        await emails.add("send")
        await secret.add("send")
        async with look_at(dashboard, of="overview") as page:
            assert "secret" not in await page.until_region("queues", "emails")
        async with look_at(dashboard, of="queue", name="secret") as page:
            await page.until("gone")


async def test_an_open_page_says_that_the_server_is_away_and_recovers(
    running: RunningServer,
) -> None:
    async with (
        Queue("emails", running.url) as queue,
        Dashboard(running.url, access=Access.full()) as dashboard,
    ):
        await queue.add("send")
        async with look_at(dashboard, of="queue", name="emails") as page:
            await page.until_region("tiles", ">1</a></dd>")
            running.pause()
            try:
                await page.until("away")
            finally:
                running.resume()
            await page.until("back")
            await queue.add("send")
            await page.until_region("tiles", ">2</a></dd>")


async def test_twenty_pages_cost_the_server_as_much_as_one(running: RunningServer) -> None:
    async with (
        Queue("emails", running.url) as queue,
        Dashboard(running.url, access=Access.full()) as dashboard,
    ):
        await queue.add_each("send", range(1000))
        with running.admin() as admin:
            async with AsyncExitStack() as stack:
                for number in range(20):
                    # Not the same page: each is rendered for itself, and reading is shared.
                    watching = look_at(dashboard, of="queue", name="emails", tab=str(number))
                    page = await stack.enter_async_context(watching)
                    await page.until_region("tiles", "1\u202f000")
                admin.config_resetstat()
                began = asyncio.get_running_loop().time()
                await wait_until(
                    lambda: calls(admin, "xlen") >= 8, within=60, sentence="it goes on looking"
                )
                # A look asks for two lengths, and what it found is good for almost a second.
                took_s = asyncio.get_running_loop().time() - began
                assert calls(admin, "xlen") <= 2 * (took_s / 0.9 + 2)
                assert not {"cmdstat_keys", "cmdstat_lrange"} & set(admin.info("commandstats"))
            await wait_until(
                lambda: not dashboard.live.is_polling, within=60, sentence="nobody looks"
            )


def calls(admin: redis.Redis, command: str) -> int:
    """How often the server was sent a command."""
    return int(admin.info("commandstats").get(f"cmdstat_{command}", {}).get("calls", 0))
