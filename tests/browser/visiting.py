"""Dashboards that a browser can reach, and visitors who note every complaint of their pages."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import uvicorn
from playwright.async_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Error,
    Page,
    expect,
)

from tampu.cli.dashboard import open_socket
from tampu.dashboard import Access, Dashboard

FOREIGN: Final = "evil.example"
"""A site of somebody else, on this machine."""
REBOUND: Final = "rebound.example"
"""A name that somebody else has pointed at this machine."""
OTHER_NAMES: Final = (FOREIGN, REBOUND)

GENEROUS_MS: Final = 30_000
expect.set_options(GENEROUS_MS)
OpenSite = Callable[..., Awaitable[str]]

_REPORT: Final = """
addEventListener("securitypolicyviolation", (event) => {
  complain(`${event.violatedDirective}: ${event.blockedURI} ${event.sample}`);
});
"""


@asynccontextmanager
async def serve(target: object, *, port: int = 0, **options: Any) -> AsyncIterator[str]:  # noqa: ANN401 - any option
    """A dashboard on a loopback port; yields its address."""
    given = {"access": Access.full(), **options}
    async with Dashboard(target, **given) as dashboard:  # type: ignore[arg-type]
        listening = open_socket("127.0.0.1", port)
        async with listen(dashboard, listening):
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
            await dashboard.live.close()


@asynccontextmanager
async def listen(app: Any, listening: socket.socket) -> AsyncIterator[None]:  # noqa: ANN401 - any ASGI app
    """Answer requests to an ASGI app."""
    config = uvicorn.Config(app, log_level="warning", ws="none", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server._serve([listening]))  # the signals are pytest's
    try:
        yield
    finally:
        server.should_exit = True
        await serving
        listening.close()


class Visitors:
    """Opens pages in a browser, and collects what goes wrong in them."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._contexts: list[BrowserContext] = []
        self.complaints: list[str] = []

    async def open(self, address: str = "", *, strict: bool = True, **options: Any) -> Page:  # noqa: ANN401 - as the browser takes them
        """A page of a new visitor. Unless `strict` is off, no page may complain."""
        options = {"locale": "en-GB", "timezone_id": "Europe/Berlin", **options}
        context = await self._browser.new_context(**options)
        self._contexts.append(context)
        context.set_default_timeout(GENEROUS_MS)
        if strict:
            await context.expose_binding("complain", self._on_violation)
            await context.add_init_script(_REPORT)
        page = await context.new_page()
        if strict:
            page.on("console", self._on_console)
            page.on("pageerror", self._on_error)
            page.on("dialog", self._on_dialog)
        if address:
            await page.goto(address)
        return page

    async def leave(self) -> None:
        """Close all pages."""
        for context in self._contexts:
            with suppress(Error):
                await context.close()

    def _on_violation(self, source: Any, text: str) -> None:  # noqa: ANN401 - a dictionary
        self.complaints.append(f"{source['page'].url}: policy: {text}")

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            self.complaints.append(f"{message.page and message.page.url}: {message.text}")

    def _on_error(self, error: Error) -> None:
        self.complaints.append(f"uncaught: {error}")

    async def _on_dialog(self, dialog: Dialog) -> None:
        self.complaints.append(f"a foreign script ran: {dialog.message}")
        await dialog.dismiss()
