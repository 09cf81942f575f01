"""The documentation site in a browser: it works, and asks no other host for anything."""

import asyncio
from pathlib import Path

from playwright.async_api import Request, expect
from starlette.applications import Starlette
from starlette.staticfiles import StaticFiles

from tampu.cli.dashboard import open_socket
from tests.browser.visiting import Visitors, listen
from tests.servers import ROOT
from tests.sites import build_site

TABLE = "# Guide\n\n| | |\n|---|---|\n| **Queue** | adds jobs |\n\n::: tampu.Backoff\n"


async def test_pages_and_search_ask_no_other_host(visitors: Visitors, tmp_path: Path) -> None:
    home = (ROOT / "README.md").read_text("utf-8").partition("\n[![")[0]
    built = await asyncio.to_thread(build_site, tmp_path, {"index": home, "guide": TABLE})
    assert built.returncode == 0, built.stdout + built.stderr
    web = Starlette()
    web.mount("/", StaticFiles(directory=tmp_path / "site", html=True))
    asked: list[str] = []

    def note(request: Request) -> None:
        asked.append(request.url)

    listening = open_socket("127.0.0.1", 0)
    address = f"http://127.0.0.1:{listening.getsockname()[1]}/"
    async with listen(web, listening):
        page = await visitors.open(color_scheme="dark")
        page.on("request", note)
        await page.goto(address)
        await page.get_by_role("link", name="guide").first.click()
        await expect(page.locator("h1")).to_contain_text("Guide")
        await expect(page.get_by_role("cell", name="Queue")).to_be_visible()
        await expect(page.locator("thead").first).to_be_hidden()
        await page.keyboard.press("Control+k")
        await page.keyboard.type("exponential")
        await expect(page.get_by_text("Backoff").last).to_be_visible()
        await page.close()
    assert len(asked) > 5
    assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []
