"""Pages that are left open: they follow what happens, and survive what goes away."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest
from playwright.async_api import expect

from tampu.app import App
from tampu.app_worker import AppWorker
from tampu.queue import Queue
from tests.browser.scenes import EMAILS
from tests.browser.visiting import OpenSite, Visitors, serve
from tests.conftest import Start
from tests.servers import RunningServer

logger = logging.getLogger(__name__)


async def test_a_change_is_shown_without_a_reload(
    running: RunningServer, site: str, visitors: Visitors
) -> None:
    async with Queue(EMAILS, running.url) as queue:
        await queue.add("send")
        pages = [await visitors.open(site), await visitors.open(f"{site}queue?name={EMAILS}")]
        shown = [
            pages[0].locator(f'tr[data-row="{EMAILS}"] td.num').first,
            pages[1].locator(".tile", has_text="Waiting").locator("dd").first,
        ]
        for place in shown:
            await expect(place).to_have_text("1")
        for page in pages:
            await expect(page.locator("[data-pulse]")).to_be_visible()
        began = time.perf_counter()
        await queue.add_each("send", range(41))
        await asyncio.gather(*(expect(place).to_have_text("42") for place in shown))
        logger.info(
            "shown after %.2f s", time.perf_counter() - began
        )  # see it with --log-cli-level


async def test_what_a_visitor_does_survives_an_update(
    running: RunningServer, site: str, visitors: Visitors
) -> None:
    async with Queue(EMAILS, running.url) as queue:
        await queue.add("send")
        page = await visitors.open(site)
        figures = page.locator("details.data").first
        await figures.locator("summary").click()
        await page.keyboard.press("j")
        await page.evaluate("() => { document.querySelector('tr[data-chosen]').marked = true; }")
        await queue.add_each("send", range(41))
        await expect(page.locator("tr[data-chosen] td.num").first).to_have_text("42")
        await expect(figures).to_have_attribute("open", "")
        assert await page.evaluate("document.querySelector('tr[data-chosen]').marked")
        assert await page.evaluate("document.activeElement.textContent") == EMAILS


async def test_a_page_says_that_the_server_is_away_and_recovers(
    start: Start, open_site: OpenSite, visitors: Visitors
) -> None:
    own = start("--appendonly", "yes", "--appendfsync", "always")
    async with Queue(EMAILS, own.url) as queue:
        await queue.add("send")
        site = await open_site(own.url)
        page = await visitors.open(site)
        away = page.locator("[data-away]")
        await expect(page.locator("[data-pulse]")).to_be_visible()
        await expect(away).to_be_hidden()
        own.kill()
        await expect(away).to_contain_text("Trying again.")
        own.restart()
        await expect(away).to_be_hidden()
        await queue.add("send")
        await expect(page.locator(f'tr[data-row="{EMAILS}"] td.num').first).to_have_text("2")


async def test_a_page_that_is_opened_meanwhile_recovers_too(
    start: Start, open_site: OpenSite, visitors: Visitors
) -> None:
    own = start("--appendonly", "yes", "--appendfsync", "always")
    async with Queue(EMAILS, own.url) as queue:
        await queue.add("send")
        site = await open_site(own.url)
        own.kill()
        page = await visitors.open(site, strict=False)
        await expect(page.locator("h1")).to_have_text("The server does not answer")
        own.restart()
        await expect(page.locator("h1")).to_have_text("Overview")


async def test_a_page_says_that_the_dashboard_is_away_and_recovers(
    running: RunningServer, visitors: Visitors
) -> None:
    async with Queue(EMAILS, running.url) as queue:
        await queue.add("send")
        async with serve(running.url) as site:
            page = await visitors.open(site, strict=False)
            away = page.locator("[data-away]")
            await expect(page.locator("[data-pulse]")).to_be_visible()
        await expect(away).to_contain_text("The dashboard does not answer.")
        await queue.add("send")
        async with serve(running.url, port=int(site.rstrip("/").rpartition(":")[2])):
            await expect(away).to_be_hidden()
            await expect(page.locator(f'tr[data-row="{EMAILS}"] td.num').first).to_have_text("2")


@pytest.mark.usefixtures("shop")
async def test_a_time_is_chosen_by_dragging_across_a_chart(
    running: RunningServer, site: str, visitors: Visitors
) -> None:
    page = await visitors.open(f"{site}queue?name={EMAILS}")
    steps = page.locator(".chart").first.locator("tbody tr")
    await expect(steps).to_have_count(60)
    box = await page.locator(".chart .area").first.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    await page.mouse.move(box["x"] + box["width"] * 0.26, middle)
    await page.mouse.down()
    await page.mouse.move(box["x"] + box["width"] * 0.74, middle, steps=4)
    await expect(page.locator(".range")).to_be_visible()
    await page.mouse.up()
    await page.wait_for_url("**from=*")
    # The time is fixed, so no step is added while the page is open.
    await expect(steps).to_have_count(30)
    await expect(page.get_by_role("link", name="Zoom out")).to_be_visible()
    async with Queue(EMAILS, running.url) as queue:
        waiting = (await queue.counts()).waiting
        await queue.add("send")
    tile = page.locator(".tile", has_text="Waiting").locator("dd").first
    await expect(tile).to_have_text(f"{waiting + 1:,}".replace(",", "\u202f"))
    await expect(steps).to_have_count(30)
    await page.get_by_role("link", name="1h").click()
    await expect(steps).to_have_count(60)


async def test_what_a_job_yields_is_shown_as_it_comes(
    running: RunningServer, site: str, visitors: Visitors
) -> None:
    app, on = App(running.url, default_queue=EMAILS), asyncio.Event()

    @app.task
    async def answer() -> AsyncIterator[str]:
        yield "It "
        await on.wait()
        yield "depends."
        await asyncio.Event().wait()

    async with app, AppWorker(app, grace=0):
        job = await answer.enqueue()
        async with aclosing(job.stream()) as items:
            await anext(items)
        page = await visitors.open(f"{site}job?queue={EMAILS}&id={job.id}")
        shown = page.locator(".yielded")
        await expect(shown).to_have_text("It ")
        on.set()
        await expect(shown).to_have_text("It depends.")
