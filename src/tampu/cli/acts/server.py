"""What `tampu server` does."""

import asyncio
import os
import signal

from tampu.cli.running import told_to_stop
from tampu.cli.screen import Screen
from tampu.cli.shared import Shared
from tampu.errors import OptionError
from tampu.server.address import Kind, parse
from tampu.server.connect import DEFAULT_URL, URL_VARIABLE
from tampu.server.embedded import join


async def server(shared: Shared, directory: str | None) -> None:
    """Hold the embedded server of a directory until a signal comes."""
    where = _directory(shared, directory)
    joining = asyncio.get_running_loop().run_in_executor(None, join, where)
    with await joining as held, told_to_stop(signal.SIGINT, signal.SIGTERM) as stop:
        url, socket = f"embedded:{held.directory}", f"unix://{held.socket}"
        Screen(shared).line(
            {"url": url, "socket": socket},
            lambda: f"The server is up at {url}\nand at {socket}; Ctrl-C leaves.",
        )
        await stop.wait()


def _directory(shared: Shared, given: str | None) -> str:
    url = shared.url or os.environ.get(URL_VARIABLE) or DEFAULT_URL
    if given is not None:
        if shared.url is not None:
            raise OptionError("url", "...", "cannot be given along with a directory")
        return given
    address = parse(url)
    if address.kind is not Kind.EMBEDDED:
        raise OptionError("url", str(address), "takes embedded:DIRECTORY here")
    return address.path
