"""One browser for all tests of a process, and dashboards that each test opens for itself."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright

from tests import browsers
from tests.browser.scenes import Scene, busy_shop
from tests.browser.visiting import OTHER_NAMES, OpenSite, Visitors, serve
from tests.servers import RunningServer

_HERE = Path(__file__).parent
_FLAGS = (
    "--no-sandbox",  # root has none
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--font-render-hinting=none",
    f"--host-resolver-rules={','.join(f'MAP {name} 127.0.0.1' for name in OTHER_NAMES)}",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker(browsers.MARK)
            # The browser belongs to one event loop, so its tests share that one.
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def browser() -> AsyncIterator[Browser]:
    """A running browser."""
    program = browsers.find_browser()
    assert program is not None, "tests are left out where there is no browser"
    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(executable_path=program, args=_FLAGS)
        yield launched
        await launched.close()


@pytest_asyncio.fixture(loop_scope="session")
async def visitors(browser: Browser) -> AsyncIterator[Visitors]:
    """Opens pages; after the test, no page that it opened may have complained."""
    made = Visitors(browser)
    yield made
    await made.leave()
    assert made.complaints == []


@pytest_asyncio.fixture(loop_scope="session")
async def open_site(running: RunningServer) -> AsyncIterator[OpenSite]:
    """Starts dashboards with options of the test's own; all are ended after it."""
    async with AsyncExitStack() as stack:

        async def opened(target: object = None, **options: Any) -> str:  # noqa: ANN401 - any option
            return await stack.enter_async_context(serve(target or running.url, **options))

        yield opened


@pytest_asyncio.fixture(loop_scope="session")
async def shop(running: RunningServer) -> AsyncIterator[Scene]:
    """A busy shop on the test's server."""
    async with busy_shop(running.url) as scene:
        yield scene


@pytest_asyncio.fixture(loop_scope="session")
async def site(open_site: OpenSite) -> str:
    """The address of a dashboard of the test's server that allows everything."""
    return await open_site()
