"""From a URL, or a client the user hands us, to a server we can open connections to."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import MovedError

from tampu.errors import OptionError, ServerUnreachable
from tampu.server.address import Address, ServerKind, parse
from tampu.server.client import Client, CredentialCallback, client_for, described
from tampu.server.dialect import FLOOR, ask
from tampu.server.embedded.server import EmbeddedServer, join
from tampu.server.errors import HUNG_UP, TOO_SLOW, server_errors
from tampu.server.outage import Outage
from tampu.server.route import SentinelRoute, route_for

URL_VARIABLE = "TAMPU_URL"
DEFAULT_URL = "embedded:.tampu"
CONNECT_TIMEOUT_S = 5.0

# What the two ways to get TLS wrong look like: (secure, problem).
_TLS_HINTS = {
    (True, TOO_SLOW): "it may be a port without TLS, for redis://",
    (False, HUNG_UP): "it may want TLS, as in rediss://",
}

Target = str | Client | None


class Server:
    """A server, however it is reached: opens connections and knows what it can do.

    Made by `connect`. Its text is its address without secrets.
    """

    def __init__(
        self,
        client: Client,
        *,
        name: str,
        owned: bool,
        connect_timeout_s: float,
        embedded: EmbeddedServer | None = None,
    ) -> None:
        self.name = name
        self.dialect = FLOOR
        self.outage = Outage(name)
        self._client = client
        self._route = route_for(client)
        self._owned = owned
        self._connect_timeout_s = connect_timeout_s
        self._embedded = embedded
        self._reviving = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<Server {self.name}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def open(self, key: bytes, *, refresh: bool = False) -> AbstractConnection:
        """A fresh connection to the node that holds `key`; the caller closes it.

        `refresh` looks again where that is: after a lost connection or a failover.
        """
        async with _limited(self.name, self._connect_timeout_s):
            if refresh:
                await self._revive()
            return await _connected(await self._route.make(key, refresh=refresh))

    async def open_all(self) -> list[AbstractConnection]:
        """A fresh connection to each node that holds keys; the caller closes them."""
        opened: list[AbstractConnection] = []
        try:
            async with _limited(self.name, self._connect_timeout_s):
                for connection in await self._route.make_all():
                    opened.append(await _connected(connection))  # noqa: PERF401 - known when it fails
        except BaseException:
            for connection in opened:
                await connection.disconnect(nowait=True)
            raise
        return opened

    async def open_to(self, host: str, port: int) -> AbstractConnection:
        """A fresh connection to one named node of the same server."""
        async with _limited(self.name, self._connect_timeout_s):
            return await _connected(self._route.make_to(host, port))

    async def note_move(self, error: MovedError) -> bool:
        """Take note of where a slot lives now; False if there are no slots here."""
        return await self._route.note_move(error)

    async def left(self, host: str, port: int) -> bool:
        """Whether a node is known not to be the one to ask any more."""
        return await self._route.left(host, port)

    def slot(self, key: bytes) -> int:
        """Which part of the keys a key belongs to; keys of one slot live at one place."""
        return self._route.slot(key)

    async def meet(self) -> None:
        """Connect once and learn the server's dialect; every way this can fail is a typed error."""
        try:
            async with _limited(self.name, self._connect_timeout_s):
                connection = await self.open(b"tampu")
                try:
                    self.dialect = await ask(connection, self.name)
                finally:
                    await connection.disconnect(nowait=True)
        except ServerUnreachable as error:
            hint = _TLS_HINTS.get((self.name.startswith("rediss"), error.problem))
            if hint is None:
                raise
            raise ServerUnreachable(self.name, f"{error.problem}; {hint}") from error

    async def _revive(self) -> None:
        """Bring an embedded server back that was killed under us."""
        async with self._reviving:
            if self._embedded is None:
                return
            revived = await _joined(self._embedded.directory)
            if self._embedded is None:  # closed meanwhile
                revived.release()
            else:
                before, self._embedded = self._embedded, revived
                before.release()

    async def close(self) -> None:
        """Let go of the client, if it is ours, and of the embedded server. May be called twice."""
        if self._owned:
            await self._client.aclose()
            if isinstance(self._route, SentinelRoute):
                await self._route.close()
        embedded, self._embedded = self._embedded, None
        if embedded is not None:
            embedded.release()


async def connect(
    target: Target = None,
    *,
    credentials: CredentialCallback | None = None,
    connect_timeout_s: float = CONNECT_TIMEOUT_S,
) -> Server:
    """Reach a server: a URL, a redis-py asyncio client, or None for TAMPU_URL and else `.tampu`.

    Raises `OptionError` for a URL that cannot be, and a `ServerError` that says what to do when
    the server cannot be used; all of them within the time limit (an embedded server has its own).
    """
    server = await _server(target, credentials, connect_timeout_s)
    try:
        await server.meet()
    except BaseException:
        await server.close()
        raise
    return server


def check_target(target: object, credentials: object) -> None:
    """Refuse what can lead to no server, without looking for one."""
    # Their types only: the text of a callback may show a secret that it was bound to.
    if credentials is not None and not callable(credentials):
        accepted = "expected a function that gives a user and a password"
        raise OptionError("credentials", type(credentials), accepted)
    if isinstance(target, Redis | RedisCluster):
        if credentials is not None:
            accepted = "cannot be given along with a client"
            raise OptionError("credentials", type(credentials), accepted)
    elif isinstance(target, str):
        parse(target)
    elif target is not None:
        raise OptionError("url", type(target), "expected a URL or a redis.asyncio client")


async def _server(
    target: Target, credentials: CredentialCallback | None, connect_timeout_s: float
) -> Server:
    check_target(target, credentials)
    if isinstance(target, Redis | RedisCluster):
        return Server(
            target, name=described(target), owned=False, connect_timeout_s=connect_timeout_s
        )
    address = address_of(target)
    embedded = None
    if address.kind is ServerKind.EMBEDDED:
        embedded = await _joined(address.path)
    return Server(
        client_for(
            address,
            credentials,
            connect_timeout_s=connect_timeout_s,
            embedded_socket=None if embedded is None else embedded.socket,
        ),
        name=str(address),
        owned=True,
        connect_timeout_s=connect_timeout_s,
        embedded=embedded,
    )


def address_of(url: str | None) -> Address:
    """Where a URL leads; without one what TAMPU_URL says, else the embedded server."""
    found = os.environ.get(URL_VARIABLE)
    if url is not None or not found:
        return parse(DEFAULT_URL if url is None else url)
    try:
        return parse(found)
    except OptionError as error:
        raise OptionError(URL_VARIABLE, error.given, error.problem) from None


async def _joined(directory: str | Path) -> EmbeddedServer:
    """Join in a thread; a hold that nobody waits for any more is given back."""
    joining = asyncio.get_running_loop().run_in_executor(None, join, directory)
    try:
        return await asyncio.shield(joining)
    except asyncio.CancelledError:
        joining.add_done_callback(_given_back)
        raise


def _given_back(joined: asyncio.Future[EmbeddedServer]) -> None:
    if not joined.cancelled() and joined.exception() is None:
        joined.result().release()


@asynccontextmanager
async def _limited(server: str, timeout_s: float) -> AsyncIterator[None]:
    with server_errors(server, sent=False):
        async with asyncio.timeout(timeout_s):
            yield


async def _connected(connection: AbstractConnection) -> AbstractConnection:
    try:
        await connection.connect()
    except BaseException:
        await connection.disconnect(nowait=True)
        raise
    return connection
