"""Pictures of the dashboard; `make screenshots` takes them.

Those of the guide show the demo's shop after a day of work. All others are for looking at after a
change: every page of several scenes, light and dark, on a screen and on a phone. They go to
`build/screenshots`, or to the folder that TAMPU_SCREENSHOTS_FOLDER names.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlencode

import pytest
from playwright.async_api import expect

from tampu.demo import shop
from tampu.demo.play import Opening, ShopCounts, play
from tampu.demo.shop import EMAILS, INVOICES, ORDERS
from tampu.job import JobState
from tampu.metrics.history import Span
from tampu.queue import Queue
from tampu.server.connect import connect
from tampu.server.lane import Lane
from tampu.timing import Every
from tampu.wire.keys import QueueKeys
from tests.browser.scenes import EMPTY, REFUSED, Scene
from tests.browser.visiting import Visitors
from tests.dashboards import seed_history
from tests.servers import ROOT, RunningServer
from tests.waiting import wait_until

FOLDER: Final = ROOT / "docs" / "guide" / "images"
MOST_BYTES: Final = 300_000
ALL_TO: Final = Path(os.environ.get("TAMPU_SCREENSHOTS_FOLDER", ROOT / "build" / "screenshots"))
SIZES: Final = {"screen": {"width": 1280, "height": 960}, "phone": {"width": 390, "height": 844}}
THEMES: Final[tuple[Literal["light", "dark"], ...]] = ("light", "dark")
MANY: Final = 200
OF_MANY: Final = ("", "queues", "search?q=queue-1", "schedules", "workers", "alerts", "dead")
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
@pytest.mark.timeout(900)
async def test_pictures_of_the_demo(running: RunningServer, site: str, visitors: Visitors) -> None:
    await _seed(running.url)
    FOLDER.mkdir(exist_ok=True)
    async with _open_shop(running.url) as counts:
        await wait_until(lambda: counts.placed >= 60, within=120, sentence="orders are placed")
        pages = PAGES | {"flow": await _find_flow()}
        for theme in THEMES:
            for name, link in pages.items():
                await _take(visitors, site + link, theme=theme, to=FOLDER / f"{name}-{theme}.png")
        await _take_all(visitors, site, "demo", await _demo_links(running.url, site))


@pytest.mark.skipif(not ASKED, reason="make screenshots takes them")
@pytest.mark.timeout(900)
async def test_pictures_of_an_empty_server(site: str, visitors: Visitors) -> None:
    await _take_all(visitors, site, "empty", [*EMPTY, *REFUSED])


@pytest.mark.skipif(not ASKED, reason="make screenshots takes them")
@pytest.mark.timeout(900)
async def test_pictures_of_a_busy_shop(site: str, visitors: Visitors, shop: Scene) -> None:
    await _take_all(visitors, site, "busy", await shop.links(site))


@pytest.mark.skipif(not ASKED, reason="make screenshots takes them")
@pytest.mark.timeout(900)
async def test_pictures_of_many_queues(
    running: RunningServer, site: str, visitors: Visitors
) -> None:
    async with await connect(running.url) as server:
        for number in range(MANY):
            name = f"queue-{number:03}"
            async with Queue(name, running.url) as queue:
                await queue.add_each("send", range(1 + number * 7 % MANY))
                await queue.schedules.add("send", Every("1h"), key=f"nightly-{number}")
            keys = QueueKeys(name)
            async with await Lane.open(server, keys.stream) as lane:
                await seed_history(lane, keys, {"send": 3.0 + number}, spans=(Span.HOUR,))
    await _take_all(visitors, site, "many", OF_MANY)


async def _demo_links(url: str, site: str) -> list[str]:
    """A link to each page of the demo's shop."""
    async with Queue(EMAILS, url) as queue:
        (job, *_) = [each async for each in queue.jobs(state=JobState.DELAYED)]
        dead = (await queue.dead.peek(1))[0].dead_id
    async with Queue(ORDERS, url) as queue:
        key = (await queue.schedules.list())[0].key
    links = await Scene(EMAILS, "confirm", job.id, dead, "", "").links(site)
    schedule = urlencode({"queue": ORDERS, "key": key})
    absent = ("schedule", "flow?")
    kept = [link for link in links if not link.startswith(absent)]
    return [*kept, f"schedule?{schedule}", await _find_flow()]


async def _take_all(visitors: Visitors, site: str, scene: str, links: Sequence[str]) -> None:
    """Take every page of a scene in both themes and sizes."""
    folder = ALL_TO / scene
    folder.mkdir(parents=True, exist_ok=True)
    names = [re.sub(r"\W+", "-", link)[:40].strip("-") or "overview" for link in links]
    for theme in THEMES:
        for size, viewport in SIZES.items():
            page = await visitors.open(color_scheme=theme, viewport=viewport, strict=False)
            for number, (link, name) in enumerate(zip(links, names, strict=True)):
                await page.goto(site + link)
                await expect(page.locator("main h1")).to_be_visible()
                picture = folder / f"{number:02}-{name}-{size}-{theme}.png"
                await page.screenshot(path=picture, animations="disabled", full_page=True)
            await page.context.close()


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
