"""What `tampu server` does."""

import asyncio
import signal

from tampu.cli.running import told_to_stop
from tampu.cli.screen import Screen
from tampu.cli.shared import Shared
from tampu.errors import OptionError
from tampu.server.address import ServerKind
from tampu.server.connect import URL_VARIABLE, address_of
from tampu.server.embedded.server import EmbeddedServer, join


async def server(shared: Shared, directory: str | None) -> None:
    """Hold the embedded server of a directory until a signal comes."""
    where = _directory(shared, directory)
    joining = asyncio.get_running_loop().run_in_executor(None, join, where)
    with await joining as held, told_to_stop(signal.SIGINT, signal.SIGTERM) as stop:
        Screen(shared).line(held, _shape, _sentence)
        await stop.wait()


def _shape(held: EmbeddedServer) -> dict[str, str]:
    return {"url": f"embedded:{held.directory}", "socket": f"unix://{held.socket}"}


def _sentence(held: EmbeddedServer) -> str:
    told = _shape(held)
    return f"The server is up at {told['url']}\nand at {told['socket']}; Ctrl-C leaves."


def _directory(shared: Shared, given: str | None) -> str:
    if given is not None:
        if shared.url is not None:
            raise OptionError("url", "...", "cannot be given along with a directory")
        return given
    address = address_of(shared.url)
    if address.kind is not ServerKind.EMBEDDED:
        option = URL_VARIABLE if shared.url is None else "url"
        raise OptionError(option, str(address), "expected embedded:DIRECTORY here")
    return address.path
