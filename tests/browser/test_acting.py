"""What a visitor does in a browser, and what others may not do through it."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from tampu.cli.dashboard import open_socket
from tampu.dashboard.access import Scope
from tampu.dashboard.security import Receive, Send
from tampu.limits import Concurrency
from tampu.queue import Queue
from tests.browser.scenes import EMAILS
from tests.browser.visiting import FOREIGN, REBOUND, OpenSite, Visitors, listen
from tests.servers import RunningServer

FORM = """
<!doctype html><title>A foreign site</title>
<form method="post" action="{site}pause-queue"><input name="name" value="emails"></form>
"""


@pytest_asyncio.fixture(loop_scope="session")
async def queue(running: RunningServer) -> AsyncIterator[Queue]:
    async with Queue(EMAILS, running.url) as opened:
        await opened.add("send")
        yield opened


@pytest_asyncio.fixture(loop_scope="session")
async def foreign(site: str) -> AsyncIterator[str]:
    """The address of a page with a form that is sent to the dashboard."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        del receive
        if scope["type"] == "http":
            html = (b"content-type", b"text/html; charset=utf-8")
            body = FORM.format(site=site).encode()
            await send({"type": "http.response.start", "status": 200, "headers": [html]})
            await send({"type": "http.response.body", "body": body})

    listening = open_socket("127.0.0.1", 0)
    async with listen(app, listening):
        yield f"http://{FOREIGN}:{listening.getsockname()[1]}/"


async def test_a_button_asks_acts_and_shows_the_new_state(
    queue: Queue, site: str, visitors: Visitors
) -> None:
    page = await visitors.open(f"{site}queue?name={EMAILS}")
    await page.get_by_role("button", name="Pause").click()
    await page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    await expect(page.locator("dialog")).to_have_count(0)
    assert not await queue.is_paused()

    await page.get_by_role("button", name="Pause").click()
    await page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    await expect(page.locator(".toast")).to_have_text(f"{EMAILS} is paused.")
    await expect(page.locator("[data-live=state] .badge")).to_have_text("Paused")
    assert await queue.is_paused()

    await page.get_by_role("button", name="Resume").click()
    await expect(page.get_by_role("button", name="Pause")).to_be_visible()
    assert not await queue.is_paused()


async def test_a_limit_is_changed_and_a_key_is_paused(
    queue: Queue, site: str, visitors: Visitors
) -> None:
    for number in range(3):
        limits = [Concurrency(1, by="tenant")]
        await queue.add("charge", {"tenant": "acme"}, key=f"k{number}", limits=limits)
    page = await visitors.open(f"{site}queue?name={EMAILS}")
    limits_table, keys_table = (
        page.locator("[data-live=limits]"),
        page.locator("[data-live=waiting]"),
    )
    await limits_table.get_by_role("link", name="Change").first.click()
    await page.get_by_label("Jobs at a time").fill("4")
    await page.locator("#change").get_by_role("button", name="Change").click()
    await expect(limits_table.get_by_text("Changed by hand")).to_be_visible()
    (limit,) = await queue.limits.list()
    assert (limit.name, limit.concurrency) == ("charge(tenant)", 4)

    await keys_table.locator('tr[data-row="k1"]').get_by_role("button", name="Pause").click()
    await page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    await expect(page.locator(".toast").last).to_have_text("key k1 is paused.")
    held = page.locator("[data-live=held]")
    await expect(held.locator('tr[data-row="/k1"]')).to_contain_text("until you resume it")
    await held.get_by_role("button", name="Resume").click()
    await expect(held).to_be_empty()
    assert not await queue.limits.pauses()


async def test_a_foreign_site_cannot_act(
    queue: Queue, site: str, foreign: str, visitors: Visitors
) -> None:
    page = await visitors.open(foreign, strict=False)
    async with page.expect_navigation() as sent:
        await page.evaluate("document.forms[0].submit()")
    answer = await sent.value
    assert answer is not None
    assert (answer.url, answer.status) == (f"{site}pause-queue", 403)
    await page.goto(foreign)
    await page.evaluate(
        """site => fetch(site + "pause-queue", { method: "POST", mode: "no-cors",
           body: new URLSearchParams({ name: "emails" }) }).catch(() => null)""",
        site,
    )
    assert not await queue.is_paused()


async def test_a_foreign_site_can_neither_read_nor_frame_a_page(
    queue: Queue, site: str, foreign: str, visitors: Visitors
) -> None:
    del queue
    page = await visitors.open(foreign, strict=False)
    read = await page.evaluate(
        "site => fetch(site).then((answer) => answer.text()).catch(() => 'refused')", site
    )
    assert read == "refused"
    await page.evaluate(
        """site => new Promise((resolve) => { const frame = document.createElement("iframe");
           frame.onload = resolve; frame.src = site; document.body.append(frame); })""",
        site,
    )
    framed = page.frames[-1]
    assert "emails" not in await framed.content()


async def test_a_name_that_was_pointed_here_gets_nothing(
    queue: Queue, site: str, visitors: Visitors
) -> None:
    page = await visitors.open(strict=False)
    elsewhere = site.replace("127.0.0.1", REBOUND)
    answer = await page.goto(elsewhere)
    assert answer is not None
    assert 400 <= answer.status < 500
    assert EMAILS not in await page.content()
    status = await page.evaluate(
        """() => fetch("pause-queue", { method: "POST",
           body: new URLSearchParams({ name: "emails" }) }).then((answer) => answer.status)"""
    )
    assert 400 <= status < 500
    assert not await queue.is_paused()


async def test_a_visitor_who_may_only_read_sees_no_buttons_and_cannot_act(
    queue: Queue, open_site: OpenSite, visitors: Visitors
) -> None:
    site = await open_site(read_only=True)
    page = await visitors.open(f"{site}queue?name={EMAILS}", strict=False)
    await expect(page.locator("h1")).to_have_text(EMAILS)
    assert await page.locator("main form, main button").count() == 0
    status = await page.evaluate(
        """() => fetch("pause-queue", { method: "POST",
           body: new URLSearchParams({ name: "emails" }) }).then((answer) => answer.status)"""
    )
    assert status == 403
    assert not await queue.is_paused()


@pytest.mark.usefixtures("shop")
async def test_keys_move_open_search_and_leave(site: str, visitors: Visitors) -> None:
    page = await visitors.open(site)
    chosen = page.locator("tr[data-chosen]")
    for key, row in (("j", "emails"), ("j", "images"), ("j", "images"), ("k", "emails")):
        await page.keyboard.press(key)
        await expect(chosen).to_have_attribute("data-row", row)
    await page.keyboard.press("Enter")
    await _arrive(page, "emails")
    await page.keyboard.press("q")
    await _arrive(page, "Queues")
    await _type(page, "g", "o")
    await _arrive(page, "Overview")
    await _type(page, "g", "q")
    await _arrive(page, "Queues")
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog")).to_contain_text("Next and previous row")
    await page.keyboard.press("Escape")
    await expect(page.locator("dialog")).to_have_count(0)
    await page.keyboard.press("/")
    await page.keyboard.type("resize j")
    await expect(page.get_by_role("searchbox")).to_have_value("resize j")
    await page.keyboard.press("Backspace")
    await page.keyboard.press("Enter")
    await page.get_by_role("link", name="resize", exact=True).click()
    await _arrive(page, "resize")


async def _arrive(page: Page, heading: str) -> None:
    """Wait until the page is there and listens to keys: its scripts run after its text is read."""
    await expect(page.locator("h1")).to_have_text(heading)
    await page.wait_for_load_state()


async def _type(page: Page, *keys: str) -> None:
    for key in keys:
        await page.keyboard.press(key)
