"""Every page, as a browser sees it: nothing complains, no foreign text acts, no barrier."""

import re
from typing import Literal
from urllib.parse import urlencode

import pytest
from playwright.async_api import Page, expect

from tests import browsers
from tests.browser.scenes import EMAILS, EMPTY, HOSTILE_QUEUE, REFUSED, Scene, hostile_queue
from tests.browser.visiting import Visitors
from tests.dashboards import HOSTILE
from tests.servers import RunningServer

_POINT_AT_ALL = """() => {
  for (const element of document.querySelectorAll("main *")) {
    for (const kind of ["mouseover", "mouseenter", "mousemove", "focus"]) {
      element.dispatchEvent(new MouseEvent(kind, { bubbles: true }));
    }
  }
}"""
"""As if a mouse came over every element: a handler in an attribute would run."""
Theme = Literal["light", "dark"]
PHONE = {"width": 390, "height": 844}


async def test_no_page_complains(site: str, visitors: Visitors, shop: Scene) -> None:
    page = await visitors.open()
    for link in await shop.links(site):
        answer = await page.goto(site + link)
        assert answer is not None
        assert (link, answer.status) == (link, 200)
        await expect(page.locator("main h1")).to_be_visible()
        await _until_live(page)


async def test_no_page_of_an_empty_server_complains(site: str, visitors: Visitors) -> None:
    page = await visitors.open(site)
    await expect(page.get_by_text("There are no queues yet")).to_be_visible()
    for link in EMPTY:
        await page.goto(site + link)
        await expect(page.locator(".empty h3")).to_be_visible()


async def test_hostile_texts_run_no_script(
    running: RunningServer, site: str, visitors: Visitors
) -> None:
    scene = await hostile_queue(running.url)
    page = await visitors.open()
    searches = [f"search?{urlencode({'q': text})}" for text in (*HOSTILE, HOSTILE_QUEUE)]
    task = {"queue": HOSTILE_QUEUE, "name": HOSTILE[0]}
    tasks = [f"task?{urlencode({'queue': HOSTILE_QUEUE, 'name': text})}" for text in HOSTILE]
    for link in [*await scene.links(site), *tasks, *searches]:
        await page.goto(site + link)
        await expect(page.locator("main h1")).to_be_visible()
        await _until_live(page)
        await page.evaluate(_POINT_AT_ALL)
        assert await page.locator("main script, [onmouseover]").count() == 0
    for link in ("", "alerts", "audit", "workers", f"task?{urlencode(task)}"):
        await page.goto(site + link)
        await expect(page.locator("main")).to_contain_text(HOSTILE[0])


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_no_page_has_a_serious_barrier(
    running: RunningServer, site: str, visitors: Visitors, shop: Scene, theme: Theme
) -> None:
    page = await visitors.open(color_scheme=theme, bypass_csp=True, strict=False)
    found: dict[str, list[str]] = {}
    for link in (*await shop.links(site), *REFUSED):
        await page.goto(site + link, wait_until="load")
        # Colours are all that differs in the dark.
        found[link] = await _barriers(page, rules=["color-contrast"] if theme == "dark" else [])
    assert found == {link: [] for link in found}


async def test_a_phone_scrolls_no_page_sideways(
    running: RunningServer, site: str, visitors: Visitors, shop: Scene
) -> None:
    hostile = await hostile_queue(running.url)
    page = await visitors.open(viewport=PHONE, has_touch=True, strict=False)
    for link in (*await shop.links(site), *REFUSED, *await hostile.links(site)):
        await page.goto(site + link)
        width = await page.evaluate("document.documentElement.scrollWidth")
        assert (link, width) == (link, PHONE["width"])


async def test_pages_can_be_read_without_scripts(
    running: RunningServer, site: str, visitors: Visitors, shop: Scene
) -> None:
    page = await visitors.open(site, java_script_enabled=False)
    row = page.locator(f'tr[data-row="{EMAILS}"]')
    await expect(row).to_contain_text(re.compile(r"1\s208"))
    for link in await shop.links(site):
        await page.goto(site + link)
        await expect(page.locator("main h1")).to_be_visible()
    await page.goto(site)
    await row.locator("a.name").click()
    await expect(page.locator("h1")).to_have_text(EMAILS)
    state = page.locator("[data-live=state]")
    await state.get_by_role("button", name="Pause").click()
    await expect(state.get_by_text("Paused")).to_be_visible()
    await page.locator("summary").first.click()
    await expect(page.locator("details.data table").first).to_be_visible()


async def _until_live(page: Page) -> None:
    """Wait until a page follows what happens, if it does that."""
    if await page.locator("[data-live-link]").count():
        await expect(page.locator("[data-pulse]")).to_be_visible()


async def _barriers(page: Page, *, rules: list[str]) -> list[str]:
    """The serious barriers on a page; with rules, only what these find."""
    await page.evaluate(browsers.axe_script().read_text("utf-8"))
    chosen = {"runOnly": rules} if rules else {}
    found = await page.evaluate("axe.run", {"resultTypes": ["violations"], **chosen})
    return [
        f"{each['id']}: {node['html'][:200]} {node.get('failureSummary', '')[:300]}"
        for each in found["violations"]
        if each["impact"] in {"serious", "critical"}
        for node in each["nodes"][:3]
    ]
