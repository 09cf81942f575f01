"""Where the server is, and who we are there, as chasquimq is told."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from tampu.compat.adapter.kinds import instance
from tampu.server.address import ServerKind, parse
from tampu.server.client import Credentials

DEFAULT_URL = "redis://127.0.0.1:6379"

CredentialProvider: TypeAlias = Callable[[str | None], Awaitable[tuple[str | None, str | None]]]
"""Asked for user and password before each connection, with `host:port` or None."""

_PLAIN = "redis://"
_SECURE = "rediss://"


def apply_tls(redis_url: str, tls: bool) -> str:  # noqa: FBT001 - theirs
    """The URL, with TLS if it is asked for; what has no scheme gets one."""
    if not tls or redis_url.lower().startswith(_SECURE):
        return redis_url
    plain = redis_url.lower().startswith(_PLAIN)
    return _SECURE + (redis_url[len(_PLAIN) :] if plain else redis_url)


def url_of(redis_url: str, *, tls: bool = False) -> str:
    """The URL, checked: None would mean tampu's own server, which nobody has asked for here."""
    return apply_tls(instance("redis_url", redis_url, str), tls)


class ProvidedCredentials:
    """A provider, asked on the loop that it was given on, whichever loop connects."""

    def __init__(self, provider: CredentialProvider, url: str) -> None:
        self._provider = provider
        self._host = _host_of(url)
        self._loop = asyncio.get_running_loop()

    async def __call__(self) -> Credentials:
        """User and password."""
        if asyncio.get_running_loop() is self._loop:
            return await self._asked()
        # A worker's leases have a loop of their own; the user's client belongs to the first.
        asked = asyncio.run_coroutine_threadsafe(self._asked(), self._loop)
        return await asyncio.wrap_future(asked)

    async def _asked(self) -> Credentials:
        given: object = await self._provider(self._host)
        match given:
            case (str() | None as user, str() | None as password):
                return user, password
            case _:
                raise TypeError("credential_provider must return tuple[str | None, str | None]")


def credentials_of(provider: CredentialProvider | None, url: str) -> ProvidedCredentials | None:
    """As tampu takes them; needs a running loop if there is a provider."""
    return None if provider is None else ProvidedCredentials(provider, url)


def _host_of(url: str) -> str | None:
    address = parse(url)
    if address.kind is not ServerKind.TCP:
        return None
    ((host, port),) = address.hosts
    return f"{host}:{port}"
