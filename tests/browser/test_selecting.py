"""Rows are selected with boxes and keys, and what is done then is done to them."""

from collections.abc import AsyncIterator

import pytest_asyncio
from playwright.async_api import expect

from tampu.queue import Queue
from tampu.timing import Every
from tests.browser.scenes import EMAILS
from tests.browser.visiting import Visitors
from tests.servers import RunningServer

LIST = f"jobs?queue={EMAILS}&state=waiting"


@pytest_asyncio.fixture(loop_scope="session")
async def queue(running: RunningServer) -> AsyncIterator[Queue]:
    async with Queue(EMAILS, running.url) as opened:
        await opened.add_each("send", range(5))
        yield opened


async def test_rows_are_selected_with_keys_and_cancelled(
    queue: Queue, site: str, visitors: Visitors
) -> None:
    page = await visitors.open(site + LIST)
    ticked = page.locator("tbody .tick input:checked")
    everything = page.get_by_role("button", name="Cancel all…")
    await expect(everything).to_be_visible()
    for key in ("j", "x", "j", "j", "x"):
        await page.keyboard.press(key)
    await expect(ticked).to_have_count(2)
    await expect(everything).to_be_hidden()
    await expect(page.locator("#selected .note")).to_contain_text("2 selected")
    await page.keyboard.press("x")
    await expect(page.locator("#selected .note")).to_contain_text("1 selected")
    await page.keyboard.press("k")
    await page.keyboard.press("x")
    ids = await page.locator("tr:has(.tick input:checked) th").all_inner_texts()
    assert len(ids) == 2

    await page.get_by_role("button", name="Cancel…").click()
    await expect(page.locator(".big")).to_have_text("2 jobs match.")
    await page.get_by_role("button", name="Cancel these jobs").click()
    await expect(page.locator(".big")).to_have_text("2 of 2 done")
    left = {job.id async for job in queue.jobs()}
    assert len(left) == 3
    assert not left & set(ids)


async def test_the_list_stands_still_while_rows_are_selected(
    queue: Queue, site: str, visitors: Visitors
) -> None:
    page = await visitors.open(site + LIST)
    await expect(page.locator("[data-pulse]")).to_be_visible()
    rows = page.locator("main tbody tr")
    head = page.get_by_role("checkbox", name="Select all rows")
    await head.check()
    await expect(page.locator("tbody .tick input:checked")).to_have_count(5)
    await queue.add_each("send", range(3))
    await expect(page.locator("[data-live=states]")).to_contain_text("Waiting 8")
    await expect(rows).to_have_count(5)
    await page.keyboard.press("Escape")
    await expect(rows).to_have_count(8)
    await expect(page.locator("tbody .tick input:checked")).to_have_count(0)
    await expect(head).not_to_be_checked()


async def test_rows_are_selected_without_scripts(
    queue: Queue, site: str, visitors: Visitors
) -> None:
    page = await visitors.open(site + LIST, java_script_enabled=False)
    await expect(page.get_by_role("checkbox", name="Select all rows")).to_be_hidden()
    await page.locator("tbody .tick input").nth(1).check()
    await page.locator("tbody .tick input").nth(3).check()
    await page.get_by_role("button", name="Cancel…").click()
    await page.get_by_role("button", name="Cancel these jobs").click()
    await page.goto(site + LIST)
    await expect(page.locator("main tbody tr")).to_have_count(3)
    assert (await queue.counts()).waiting == 3


async def test_schedules_are_selected_and_paused(
    queue: Queue, site: str, visitors: Visitors
) -> None:
    for key in "abc":
        await queue.schedules.add("send", Every("1h"), key=key)
    page = await visitors.open(f"{site}schedules")
    for key in "ac":
        await page.get_by_role("checkbox", name=f"Select {key}", exact=True).check()
    await page.locator("#selected").get_by_role("button", name="Pause").click()
    await expect(page.locator(".toast")).to_have_text("2 schedules are paused.")
    await expect(page.locator("tbody .badge", has_text="Paused")).to_have_count(2)
    await expect(page.locator("tbody .tick input:checked")).to_have_count(0)
    assert {each.key for each in await queue.schedules.list() if each.paused} == {"a", "c"}
