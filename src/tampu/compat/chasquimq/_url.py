"""The server's URL and credentials, as callers of chasquimq pass them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from tampu.compat.chasquimq._arguments import check_type
from tampu.server.address import ServerKind, parse
from tampu.server.client import Credentials

DEFAULT_URL = "redis://127.0.0.1:6379"

CredentialProvider: TypeAlias = Callable[[str | None], Awaitable[tuple[str | None, str | None]]]
"""Called with `host:port` or None before each connection; returns user and password."""

_PLAIN = "redis://"
_SECURE = "rediss://"


def apply_tls(redis_url: str, tls: bool) -> str:  # noqa: FBT001 - as in chasquimq
    """The URL; with `tls`, its scheme is `rediss://`, also if it had none."""
    if not tls or redis_url.lower().startswith(_SECURE):
        return redis_url
    plain = redis_url.lower().startswith(_PLAIN)
    return _SECURE + (redis_url[len(_PLAIN) :] if plain else redis_url)


def server_url(redis_url: str, *, tls: bool = False) -> str:
    """The URL for tampu. None is refused, because tampu would start its embedded server."""
    return apply_tls(check_type("redis_url", redis_url, str), tls)


class ProviderCredentials:
    """Calls a credential provider on the event loop on which this object was created."""

    def __init__(self, provider: CredentialProvider, url: str) -> None:
        self._provider = provider
        self._host = _host_and_port(url)
        self._loop = asyncio.get_running_loop()

    async def __call__(self) -> Credentials:
        """User and password."""
        if asyncio.get_running_loop() is self._loop:
            return await self._call_provider()
        # A worker renews its leases on another loop, but a client that the provider uses belongs
        # to the loop of its user.
        call = asyncio.run_coroutine_threadsafe(self._call_provider(), self._loop)
        return await asyncio.wrap_future(call)

    async def _call_provider(self) -> Credentials:
        given: object = await self._provider(self._host)
        match given:
            case (str() | None as user, str() | None as password):
                return user, password
            case _:
                raise TypeError("credential_provider must return tuple[str | None, str | None]")


def credentials_from(provider: CredentialProvider | None, url: str) -> ProviderCredentials | None:
    """A credential callback for tampu. With a provider, it needs a running event loop."""
    return None if provider is None else ProviderCredentials(provider, url)


def require_loop(provider: CredentialProvider | None) -> None:
    """Raise `RuntimeError` if there is a provider and no running loop, as chasquimq does."""
    if provider is not None:
        asyncio.get_running_loop()


def _host_and_port(url: str) -> str | None:
    address = parse(url)
    if address.kind is not ServerKind.TCP:
        return None
    ((host, port),) = address.hosts
    return f"{host}:{port}"
