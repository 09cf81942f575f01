"""What every request must pass before a page sees it, and the headers of every response."""

from collections.abc import Awaitable, Callable, Collection, Iterable, MutableMapping
from ipaddress import ip_address
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from tampu.errors import OptionError

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
AsgiApp: TypeAlias = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]
Headers: TypeAlias = Iterable[tuple[bytes, bytes]]

CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    b"content-security-policy": CSP.encode(),
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    # With "no-referrer" browsers would send "Origin: null" with our own forms.
    b"referrer-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
}
_METHODS: Final = frozenset({"GET", "HEAD", "POST"})
_DEFAULT_PORTS: Final = {"http": "80", "https": "443"}
MAX_BODY_BYTES: Final = 1_000_000


class Objection(Struct, frozen=True):
    """Why a request goes no further."""

    status: int
    sentence: str


def judge(method: str, headers: Headers, allowed_hosts: Collection[str]) -> Objection | None:
    """None if a request may pass. Nothing is decided by where it seems to come from."""
    found: dict[bytes, list[str]] = {}
    for name, value in headers:
        found.setdefault(name.lower(), []).append(value.decode("latin-1"))
    hosts = found.get(b"host", [])
    if len(hosts) != 1 or not is_allowed_host(hosts[0], allowed_hosts):
        return Objection(
            421,
            "This dashboard does not answer to that host name. To allow it, start with "
            "--allowed-host NAME or pass allowed_hosts=[NAME].",
        )
    if method not in _METHODS:
        return Objection(405, "Only GET, HEAD and POST are allowed.")
    if method == "POST":
        return _judge_origin(hosts[0], found)
    return None


def is_allowed_host(host: str, allowed: Collection[str]) -> bool:
    """Whether a Host header is localhost, an IP address, or one of the allowed names.

    Any other name may be one that an attacker points at this machine.
    """
    name = _host_name(host)
    if name is None:
        return False
    if name == "localhost" or name in allowed:
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _host_name(host: str) -> str | None:
    """The name in a Host header, without its port; None if it is malformed."""
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port  # raises for a port that is none
    except ValueError:
        return None
    if parts.netloc != host or "@" in host or not parts.hostname:
        return None
    return parts.hostname.rstrip(".").lower()


def _judge_origin(host: str, found: dict[bytes, list[str]]) -> Objection | None:
    """The rules for requests that change something."""
    site, origin = found.get(b"sec-fetch-site"), found.get(b"origin")
    if site is not None:
        if site == ["same-origin"]:
            return None
        return Objection(403, "The request came from another site.")
    if origin is not None:
        if len(origin) == 1 and _is_same_host(origin[0], host):
            return None
        return Objection(403, "The request came from another site.")
    authorization = found.get(b"authorization", [""])[0]
    if authorization.lower().startswith("bearer ") and authorization[7:].strip():
        return None
    return Objection(
        403, "A request without Sec-Fetch-Site and Origin needs a bearer token: no browser sent it."
    )


def _is_same_host(origin: str, host: str) -> bool:
    scheme, separator, place = origin.lower().partition("://")
    if not separator or scheme not in _DEFAULT_PORTS:
        return False
    port = f":{_DEFAULT_PORTS[scheme]}"
    return place.removesuffix(port) == host.lower().removesuffix(port) != ""


def check_allowed_hosts(given: Iterable[str]) -> frozenset[str]:
    """Names as they are compared; `OptionError` for anything that is no name of a host."""
    if isinstance(given, str):
        raise OptionError("allowed_hosts", given, "expected a list of names")
    names = set()
    for each in given:
        name = _host_name(each)
        if name is None or ":" in each or "*" in each or "/" in each:
            raise OptionError("allowed_hosts", each, "expected the name of a host, without a port")
        names.add(name)
    return frozenset(names)


class RequestGuard:
    """Lets requests pass that `judge` allows, and adds the headers to every response."""

    def __init__(self, app: AsgiApp, *, allowed_hosts: frozenset[str] = frozenset()) -> None:
        self._app = app
        self._allowed = allowed_hosts

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Judge a request; only HTTP and the lifespan are known."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return
        secured = _secure(send)
        refusal = judge(scope["method"], scope["headers"], self._allowed)
        if refusal is None:
            await self._app(scope, receive, secured)
        else:
            await send_text(secured, refusal.status, refusal.sentence)


def _secure(send: Send) -> Send:
    async def send_secured(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = {name.lower(): value for name, value in message.get("headers", [])}
            # A page may be cached by nobody; static files say for themselves.
            merged = {b"cache-control": b"no-store"} | given | _HEADERS
            message = {**message, "headers": list(merged.items())}
        await send(message)

    return send_secured


async def send_text(
    send: Send, status: int, sentence: str, *, headers: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    """Answer with one sentence as plain text."""
    body = f"{sentence}\n".encode()
    start = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", b"%d" % len(body)),
        *headers,
    ]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": body})


def clamp(number: int, least: int, most: int) -> int:
    """The number, or the nearest one that is allowed."""
    return max(least, min(most, number))
