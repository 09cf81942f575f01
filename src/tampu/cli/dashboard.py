"""`tampu dashboard`: the dashboard on its own, until Ctrl-C."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from ipaddress import ip_address
from typing import Annotated, Final

import typer

from tampu.app import App
from tampu.cli.command import command
from tampu.cli.options import SharedOptions, new_app
from tampu.cli.output import CommandFailed, usage_error
from tampu.cli.screen import Screen
from tampu.cli.signals import StopRequest
from tampu.cli.target import find_app
from tampu.dashboard.access import Access, Credentials
from tampu.dashboard.app import Dashboard
from tampu.errors import MissingExtra
from tampu.server.connect import Target

try:
    import uvicorn
except ModuleNotFoundError as missing:
    raise MissingExtra("dashboard", "uvicorn") from missing

USER_VARIABLE: Final = "TAMPU_DASHBOARD_USER"
PASSWORD_VARIABLE: Final = "TAMPU_DASHBOARD_PASSWORD"  # noqa: S105 - a name, not a secret
TOKEN_VARIABLE: Final = "TAMPU_DASHBOARD_TOKEN"  # noqa: S105 - a name, not a secret
_HOST: Final = "127.0.0.1"
_PORT: Final = 8321
_STOP_S: Final = 3
_BACKLOG: Final = 128

app = new_app()

AppOrUrl = Annotated[
    str | None,
    typer.Argument(
        metavar="APP_OR_URL",
        help="An app as MODULE:APP, or the URL of a server. Default: as with --url.",
        show_default=False,
    ),
]
Host = Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Where to listen.")]
Port = Annotated[
    int, typer.Option("--port", metavar="PORT", min=0, max=65535, help="0 takes any free port.")
]
User = Annotated[
    str | None,
    typer.Option(
        "--user", metavar="NAME", help=f"Ask for it. Or: {USER_VARIABLE}", show_default=False
    ),
]
Password = Annotated[
    str | None,
    typer.Option(
        "--password", metavar="TEXT", help=f"Better: {PASSWORD_VARIABLE}", show_default=False
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token", metavar="TEXT", help=f"Ask for it. Better: {TOKEN_VARIABLE}", show_default=False
    ),
]
ReadOnly = Annotated[
    bool, typer.Option("--read-only", help="Let nobody change anything.", show_default=False)
]
AllowedHosts = Annotated[
    list[str] | None,
    typer.Option(
        "--allowed-host",
        metavar="NAME",
        help="A name to answer to, beside localhost. Can be repeated.",
        show_default=False,
    ),
]


@command(app, "dashboard")
async def run_dashboard(
    shared: SharedOptions,
    app_or_url: AppOrUrl = None,
    *,
    host: Host = _HOST,
    port: Port = _PORT,
    user: User = None,
    password: Password = None,
    token: Token = None,
    read_only: ReadOnly = False,
    allowed_host: AllowedHosts = None,
) -> None:
    """Show queues, jobs and workers as web pages, until Ctrl-C.

    It listens on this machine only. To listen on another address it needs --user and --password, or
    --token.
    """
    credentials = read_credentials(user, password, token=token)
    check_address(host, has_credentials=credentials is not None)
    dashboard = Dashboard(
        find_target(app_or_url, shared),
        access=credentials or Access.full(),
        read_only=read_only,
        allowed_hosts=allowed_host or (),
    )
    listening = open_socket(host, port)
    address = f"http://{_in_url(host)}:{listening.getsockname()[1]}/"
    Screen(shared).show_line(
        address,
        lambda url: {"url": url},
        lambda url: f"The dashboard is at {url} Press Ctrl-C to stop.",
    )
    with StopRequest().listen() as stop:
        await serve(dashboard, listening, stop.requested)


@asynccontextmanager
async def open_beside(target: Target) -> AsyncIterator[str]:
    """A dashboard inside another command, for everybody on this machine; yields its address."""
    try:
        listening = open_socket(_HOST, _PORT)
    except CommandFailed:  # another one is there
        listening = open_socket(_HOST, 0)
    stop = asyncio.Event()
    serving = asyncio.create_task(
        serve(Dashboard(target, access=Access.full()), listening, stop),
        name="tampu-dashboard-beside",
    )
    try:
        yield f"http://{_HOST}:{listening.getsockname()[1]}/"
    finally:
        stop.set()
        await serving


def find_target(app_or_url: str | None, shared: SharedOptions) -> App | str | None:
    """The app or the URL that was named."""
    if app_or_url is None:
        return shared.url
    if "://" in app_or_url or app_or_url.startswith("embedded:"):
        if shared.url is not None:
            raise usage_error("Give the URL once: as an argument or with --url.")
        return app_or_url
    return find_app(app_or_url, shared)


def read_credentials(
    user: str | None, password: str | None, *, token: str | None
) -> Credentials | None:
    """The credentials to ask for; what was not typed comes from the environment."""
    user = user or os.environ.get(USER_VARIABLE) or None
    password = password or os.environ.get(PASSWORD_VARIABLE) or None
    token = token or os.environ.get(TOKEN_VARIABLE) or None
    if user is None and password is None and token is None:
        return None
    return Credentials(token=token, user=user, password=password)


def check_address(host: str, *, has_credentials: bool) -> None:
    """Refuse to be reachable from elsewhere without credentials."""
    if has_credentials or is_loopback(host):
        return
    raise usage_error(
        f"{host} can be reached from other machines, so the dashboard needs --user and --password, "
        f"or --token (or {TOKEN_VARIABLE}). Without them it listens on 127.0.0.1 only."
    )


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def open_socket(host: str, port: int) -> socket.socket:
    """A listening socket; `CommandFailed` if the address cannot be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        why = error.strerror or str(error)
        raise CommandFailed(f"Cannot listen on {host} port {port}: {why}.") from None
    return listening


async def serve(dashboard: Dashboard, listening: socket.socket, stop: asyncio.Event) -> None:
    """Answer requests until `stop` is set."""
    config = uvicorn.Config(
        dashboard,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # nothing is decided by where a request comes from
        timeout_graceful_shutdown=_STOP_S,
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve([listening]), name="tampu-dashboard")
    stopping = asyncio.create_task(stop.wait(), name="tampu-dashboard-stop")
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    await dashboard.live.close()  # a page that stays open would hold it up
    server.should_exit = True
    await serving


class _Server(uvicorn.Server):
    """A server that leaves the signals to us."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
