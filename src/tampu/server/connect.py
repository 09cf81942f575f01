"""From a URL, or from a redis-py client, to a server that connections can be opened to."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol, Self, TypeAlias

from redis.exceptions import MovedError

from tampu.errors import OptionError, ServerError, ServerUnreachable
from tampu.server.address import Address, ServerKind, parse
from tampu.server.client import CredentialCallback, client_for, describe
from tampu.server.dialect import OLDEST, detect
from tampu.server.embedded.server import EmbeddedServer, join
from tampu.server.errors import HUNG_UP, TOO_SLOW, server_errors
from tampu.server.outage import Outage
from tampu.server.redis_py import Client, Connection, Place
from tampu.server.route import route_for

URL_VARIABLE = "TAMPU_URL"
DEFAULT_URL = "embedded:.tampu"
CONNECT_TIMEOUT_S = 5.0

# How the two ways to get TLS wrong look: (secure, problem).
_TLS_HINTS = {
    (True, TOO_SLOW): "if its port does not use TLS, write redis:// instead of rediss://",
    (False, HUNG_UP): "if its port uses TLS, write rediss:// instead of redis://",
}


class UrlObject(Protocol):
    """An object whose text is a URL, such as a `RedisDsn` of pydantic."""

    @property
    def scheme(self) -> str:
        """What stands before `://`."""


Target: TypeAlias = str | UrlObject | Client | None


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
        self.dialect = OLDEST
        self.outage = Outage.of(name)
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

    async def open(self, key: bytes, *, refresh: bool = False) -> Connection:
        """A new connection to the node that holds `key`; the caller closes it.

        `refresh` looks up that node again, after a lost connection or a failover.
        """
        async with self._time_limit():
            return await _open(await self._find(key, refresh=refresh))

    async def find(self, key: bytes, *, refresh: bool = False) -> Connection:
        """As `open`, but not connected yet: `connect` does that."""
        async with self._time_limit():
            return await self._find(key, refresh=refresh)

    async def connect(self, found: Connection) -> Connection:
        """Connect what `find` has found; the caller closes it."""
        async with self._time_limit():
            return await _open(found)

    async def open_all(self) -> list[Connection]:
        """A new connection to each node that holds keys; the caller closes them."""
        opened: list[Connection] = []
        try:
            async with self._time_limit():
                for connection in await self._route.make_all():
                    opened.append(await _open(connection))  # noqa: PERF401 - closed if one fails
        except BaseException:
            for connection in opened:
                await connection.disconnect(nowait=True)
            raise
        return opened

    async def open_to(self, place: Place) -> Connection:
        """A new connection to one named node of this server; the caller closes it."""
        async with self._time_limit():
            return await _open(self._route.make_to(place))

    async def follow(self, moved: MovedError) -> bool:
        """Learn that a slot has moved to another node; False if this server has no slots."""
        return await self._route.follow(moved)

    async def has_moved(self, place: Place) -> bool:
        """Whether another node has taken the place of this one."""
        return await self._route.has_moved(place)

    @property
    def may_move(self) -> bool:
        """Whether another node may take the place of one without its telling us."""
        return self._route.may_move

    @property
    def has_slots(self) -> bool:
        """Whether the keys of a queue may move to another node, one by one: a cluster."""
        return self._route.has_slots

    def slot(self, key: bytes) -> int:
        """The slot of a key; all keys of a slot are on one node."""
        return self._route.slot(key)

    async def learn_dialect(self) -> None:
        """Connect once and find out what the server can do; fails with a `ServerError`."""
        try:
            async with self._time_limit():
                connection = await self.open(b"tampu")
                try:
                    self.dialect = await detect(connection, self.name)
                finally:
                    await connection.disconnect(nowait=True)
        except ServerUnreachable as error:
            hint = _TLS_HINTS.get((self.name.startswith("rediss"), error.problem))
            if hint is None:
                raise
            raise ServerUnreachable(self.name, f"{error.problem}; {hint}") from error

    async def close(self) -> None:
        """Close the client, if it is ours, and release the embedded server. May be called twice."""
        if self._owned:
            await self._client.aclose()
            await self._route.close()
        embedded, self._embedded = self._embedded, None
        if embedded is not None:
            embedded.release()

    async def _find(self, key: bytes, *, refresh: bool) -> Connection:
        if refresh:
            await self._revive()
        return await self._route.make(key, refresh=refresh)

    async def _revive(self) -> None:
        """Start the embedded server again if it was killed."""
        async with self._reviving:
            if self._embedded is None:
                return
            revived = await _join(self._embedded.directory)
            if self._embedded is None:  # closed in the meantime
                revived.release()
            else:
                before, self._embedded = self._embedded, revived
                before.release()

    @asynccontextmanager
    async def _time_limit(self) -> AsyncIterator[None]:
        with server_errors(self.name, sent=False):
            async with asyncio.timeout(self._connect_timeout_s):
                yield


async def connect(
    target: Target = None,
    *,
    credentials: CredentialCallback | None = None,
    connect_timeout_s: float = CONNECT_TIMEOUT_S,
) -> Server:
    """Connect to a URL or with a redis-py asyncio client; None means TAMPU_URL, else `.tampu`.

    Raises `OptionError` for an invalid URL, and a `ServerError` that says what to do if the server
    cannot be used, within the time limit (starting an embedded server has a limit of its own).
    """
    server = await _make_server(target, credentials, connect_timeout_s)
    try:
        await server.learn_dialect()
    except ServerError as error:
        await server.close()
        raise error.with_traceback(None) from error.__cause__  # how we tried is of no interest
    except BaseException:
        await server.close()
        raise
    return server


def check_target(target: object, credentials: object) -> None:
    """Raise `OptionError` if a target or its credentials are invalid; nothing is connected."""
    # Only their types are shown: the text of a callback may hold a secret that it was bound to.
    if credentials is not None and not callable(credentials):
        problem = "expected a function that returns a user and a password"
        raise OptionError("credentials", type(credentials), problem)
    if isinstance(target, Client):
        if credentials is not None:
            problem = "cannot be combined with a client"
            raise OptionError("credentials", type(credentials), problem)
    elif target is not None:
        parse(_url_of(target))


def _url_of(target: object) -> str:
    """The text of a URL, or of an object that stands for one."""
    if isinstance(target, str):
        return target
    if type(target).__str__ is not object.__str__ and not isinstance(target, bytes):
        text = str(target)
        if "://" in text:
            return text
    raise OptionError("url", type(target), "expected a URL or a redis.asyncio client")


async def _make_server(
    target: Target, credentials: CredentialCallback | None, connect_timeout_s: float
) -> Server:
    check_target(target, credentials)
    if isinstance(target, Client):
        return Server(
            target, name=describe(target), owned=False, connect_timeout_s=connect_timeout_s
        )
    address = address_of(None if target is None else _url_of(target))
    embedded = None
    if address.kind is ServerKind.EMBEDDED:
        embedded = await _join(address.path)
    return Server(
        client_for(
            address,
            credentials,
            connect_timeout_s=connect_timeout_s,
            embedded_socket=None if embedded is None else embedded.socket,
        ),
        name=str(address) if embedded is None else f"embedded:{embedded.directory}",
        owned=True,
        connect_timeout_s=connect_timeout_s,
        embedded=embedded,
    )


def address_of(url: str | None) -> Address:
    """The address of a URL; without one that of TAMPU_URL, else of the embedded server."""
    found = os.environ.get(URL_VARIABLE)
    if url is not None or not found:
        return parse(DEFAULT_URL if url is None else url)
    try:
        return parse(found)
    except OptionError as error:
        raise OptionError(URL_VARIABLE, error.given, error.problem) from None


async def _join(directory: str | Path) -> EmbeddedServer:
    """Join an embedded server in a thread; if this is cancelled, the hold is released."""
    joining = asyncio.get_running_loop().run_in_executor(None, join, directory)
    try:
        return await asyncio.shield(joining)
    except asyncio.CancelledError:
        joining.add_done_callback(_release)
        raise


def _release(joining: asyncio.Future[EmbeddedServer]) -> None:
    if not joining.cancelled() and joining.exception() is None:
        joining.result().release()


async def _open(connection: Connection) -> Connection:
    try:
        await connection.connect()
    except BaseException:
        await connection.disconnect(nowait=True)
        raise
    return connection
