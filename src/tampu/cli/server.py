"""`tampu server`, `tampu doctor` and `tampu version`: what your queues run on."""

import asyncio
import platform
from collections.abc import Sequence
from importlib.metadata import version as version_of
from typing import Annotated, Final

import typer
from rich.table import Table
from rich.text import Text

from tampu._version import __version__
from tampu.admin.health import Finding, Grade, examine, judge_server
from tampu.app import App
from tampu.cli.command import Running, command
from tampu.cli.options import SharedOptions, new_app
from tampu.cli.output import CommandFailed, usage_error
from tampu.cli.screen import JsonObject, Screen, details, full_text
from tampu.cli.signals import StopRequest
from tampu.cli.target import find_app
from tampu.errors import OptionError
from tampu.outbox import Outbox
from tampu.outbox.health import examine_outboxes
from tampu.server.address import ServerKind
from tampu.server.connect import URL_VARIABLE, address_of, connect
from tampu.server.embedded.server import EmbeddedServer, join

_COLORS: Final = {Grade.OK: "green", Grade.WARN: "yellow", Grade.FAIL: "bold red"}
_DEPENDENCIES: Final = ("redis", "hiredis", "msgspec")

app = new_app()

Directory = Annotated[
    str | None,
    typer.Argument(
        metavar="DIRECTORY",
        help="Directory with the data. Default: the one of the URL.",
        show_default=False,
    ),
]


OptionalApp = Annotated[
    str | None,
    typer.Argument(
        metavar="[MODULE:APP]",
        help="Check the server of this app, and its outboxes.",
        show_default=False,
    ),
]


@command(app, "server")
async def run_server(shared: SharedOptions, directory: Directory = None) -> None:
    """Run the embedded server until Ctrl-C.

    Programs start it by themselves when they need it. This keeps it running between them.
    """
    where = _data_directory(shared, directory)
    joining = asyncio.get_running_loop().run_in_executor(None, join, where)
    with await joining as server, StopRequest().listen() as stop:
        Screen(shared).show_line(server, _server_json, _server_lines)
        await stop.requested.wait()


def _data_directory(shared: SharedOptions, directory: str | None) -> str:
    if directory is not None:
        if shared.url is not None:
            raise usage_error("--url cannot be combined with a directory.")
        return directory
    address = address_of(shared.url)
    if address.kind is not ServerKind.EMBEDDED:
        option = URL_VARIABLE if shared.url is None else "url"
        raise OptionError(option, str(address), "expected embedded:DIRECTORY here")
    return address.path


def _server_json(server: EmbeddedServer) -> dict[str, str]:
    return {"url": f"embedded:{server.directory}", "socket": f"unix://{server.socket}"}


def _server_lines(server: EmbeddedServer) -> str:
    urls = _server_json(server)
    return f"The server runs at {urls['url']}\nand at {urls['socket']}. Press Ctrl-C to stop."


@command(app, "doctor")
def examine_server(shared: SharedOptions, target: OptionalApp = None) -> Running:
    """Check the setup of the server, and of the outboxes of an app.

    Each problem comes with what to do about it. Exit code 1 if a check fails.
    """
    # The app is imported before there is an event loop: its module may run its own.
    return _examine(shared, None if target is None else find_app(target, shared))


async def _examine(shared: SharedOptions, examined: App | None) -> None:
    url = shared.url if examined is None else examined.url
    credentials = None if examined is None else examined.credentials
    async with await connect(url, credentials=credentials) as server:
        facts = await examine(server)
    findings = judge_server(facts)
    if examined is not None:
        outboxes = [each for each in examined.outboxes if isinstance(each, Outbox)]
        findings += await examine_outboxes(outboxes)
    failed = sum(each.grade is Grade.FAIL for each in findings)
    data = {
        "server": facts.server,
        "ok": not failed,
        "findings": [
            {"check": each.check, "grade": each.grade, "sentence": each.sentence}
            for each in findings
        ],
    }
    Screen(shared).show(data, lambda: findings_table(findings))
    if failed:
        raise CommandFailed(f"{failed} of {len(findings)} checks failed.")


def findings_table(findings: Sequence[Finding]) -> Table:
    """Each check with its grade and what to do."""
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for each in findings:
        grade = Text(each.grade.value, style=_COLORS[each.grade])
        table.add_row(grade, each.check, full_text(each.sentence))
    return table


@command(app, "version")
async def show_versions(shared: SharedOptions) -> None:
    """Show the versions of tampu and its dependencies."""
    data: JsonObject = {"tampu": __version__, "python": platform.python_version()}
    data |= {name: version_of(name) for name in _DEPENDENCIES}
    Screen(shared).show(data, lambda: details(list(data.items())))
