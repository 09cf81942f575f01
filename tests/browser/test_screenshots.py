"""The pictures of the guide: the demo's shop after a day of work. `make screenshots` takes them."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Literal

import pytest
from playwright.async_api import expect

from tampu.demo import shop
from tampu.demo.play import Opening, ShopCounts, play
from tampu.demo.shop import EMAILS, INVOICES, ORDERS
from tampu.server.connect import connect
from tampu.server.lane import Lane
from tampu.wire.keys import QueueKeys
from tests.browser.visiting import Visitors
from tests.dashboards import seed_history
from tests.servers import ROOT, RunningServer
from tests.waiting import wait_until

FOLDER: Final = ROOT / "docs" / "guide" / "images"
MOST_BYTES: Final = 300_000
ASKED: Final = os.environ.get("TAMPU_SCREENSHOTS") == "1"
PAST: Final = {
    ORDERS: {"take_order": 210.0, "report_backlog": 30.0},
    EMAILS: {"confirm": 260.0, "remind": 70.0},
    INVOICES: {"write_invoice": 220.0},
}
PAGES: Final = {
    "overview": "?span=24h",
    "queue": f"queue?name={EMAILS}&span=24h",
    "task": f"task?queue={INVOICES}&name=write_invoice&span=24h",
    "dead": f"dead?queue={EMAILS}",
    "workers": "workers",
}


@pytest.mark.skipif(not ASKED, reason="make screenshots takes them")
@pytest.mark.timeout(300)
async def test_pictures_of_the_demo(running: RunningServer, site: str, visitors: Visitors) -> None:
    await _seed(running.url)
    FOLDER.mkdir(exist_ok=True)
    async with _open_shop(running.url) as counts:
        await wait_until(lambda: counts.placed >= 60, within=120, sentence="orders are placed")
        pages = PAGES | {"flow": await _find_flow()}
        for theme in ("light", "dark"):
            for name, link in pages.items():
                await _take(visitors, site + link, theme=theme, to=FOLDER / f"{name}-{theme}.png")


async def _find_flow() -> str:
    """The link to a flow with many parcels that is done."""
    flows = await shop.app.queue(ORDERS).flows.newest(40, state="done")
    found = max(flows, key=lambda each: each.jobs)
    return f"flow?queue={ORDERS}&id={found.id}"


async def _take(
    visitors: Visitors, address: str, *, theme: Literal["light", "dark"], to: Path
) -> None:
    size = {"width": 1280, "height": 960}
    page = await visitors.open(address, color_scheme=theme, viewport=size)
    await expect(page.locator("[data-pulse]")).to_be_visible()
    picture = await page.screenshot(path=to, animations="disabled")
    await page.context.close()
    assert len(picture) < MOST_BYTES


async def _seed(url: str) -> None:
    async with await connect(url) as server:
        for name, tasks in PAST.items():
            keys = QueueKeys(name)
            async with await Lane.open(server, keys.stream) as lane:
                await seed_history(lane, keys, tasks)


@asynccontextmanager
async def _open_shop(url: str) -> AsyncIterator[ShopCounts]:
    counts, stop = ShopCounts(list(shop.app.tasks)), asyncio.Event()
    before, shop.app.url = shop.app.url, url
    playing = asyncio.create_task(play(Opening(), counts, stop))
    try:
        yield counts
    finally:
        stop.set()
        await playing
        shop.app.url = before
