"""The page of a flow follows it, and its buttons ask first."""

from playwright.async_api import expect

from tests.browser.visiting import Visitors
from tests.contract.apps import working
from tests.contract.flow_runs import FlowShop
from tests.servers import RunningServer


async def test_a_flow_is_followed_and_cancelled(
    running: RunningServer, site: str, visitors: Visitors
) -> None:
    shop = FlowShop(running.url)
    run, other = await shop.start_sum(), await shop.start_failing()
    page = await visitors.open(f"{site}flow?queue=default&id={run.id}")
    await expect(page.locator(".node-box.waiting")).to_have_count(2)
    stopped = await visitors.open(f"{site}flow?queue=default&id={other.id}")
    await stopped.get_by_role("button", name="Cancel flow").click()
    await stopped.get_by_role("dialog").get_by_role("button", name="Cancel flow").click()
    await expect(stopped.locator(".toast")).to_have_text("The flow is cancelled.")
    await expect(stopped.locator("[data-live=state] .badge")).to_have_text("Cancelled")
    async with working(shop.app, {"default": 5, "other": 5}):
        await run.result(30)
        await expect(page.locator(".node-box.done")).to_have_count(3)
        await expect(page.locator("[data-live=state] .badge")).to_have_text("Done")
        await expect(page.locator(".gantt .row[data-row]")).to_have_count(3)
    await page.locator(".node-box a").first.click()
    await expect(page.locator("h1")).to_have_text("fetch")
