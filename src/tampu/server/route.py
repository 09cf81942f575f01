"""The way to the node that holds a key: plain, by Sentinel, by cluster slot.

redis-py knows URLs, TLS, credentials and topologies. A route asks it where a key lives and makes a
connection of our own to that place, outside redis-py's pool and without its silent retries.
"""

from contextlib import suppress
from time import monotonic
from typing import Any, Protocol

from redis.asyncio import ConnectionPool
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import MasterNotFoundError, SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.exceptions import (
    AuthenticationError,
    MovedError,
    RedisClusterException,
    RedisError,
)

from tampu.server.client import Client

# One read takes what the socket has: replies of 512 entries come in a few pieces, not in dozens.
_READ_SIZE = 1 << 20
_ASK_SENTINELS_EVERY_S = 1.0
# Pool-bound parts of redis-py's settings that mean nothing to a connection outside its pool.
_POOL_ONLY = ("maint_", "orig_", "oss_cluster_", "connection_pool", "event_dispatcher")


class Route(Protocol):
    """How to get to the node that holds a key."""

    async def make(self, key: bytes, *, refresh: bool) -> AbstractConnection:
        """An unconnected connection to the key's node; `refresh` asks the topology anew."""
        ...

    async def make_all(self) -> list[AbstractConnection]:
        """An unconnected connection to each node that holds keys."""
        ...

    def make_to(self, host: str, port: int) -> AbstractConnection:
        """An unconnected connection to one named node of the same server."""
        ...

    async def note_move(self, error: MovedError) -> bool:
        """Take note that a slot lives elsewhere now; False if this route knows no slots."""
        ...

    async def left(self, host: str, port: int) -> bool:
        """Whether others say that this node is not the one to ask any more."""
        ...

    def slot(self, key: bytes) -> int:
        """Which part of the keys a key belongs to; keys of one slot live at one place."""
        ...


def route_for(client: Client) -> Route:
    """The route that fits a redis-py client."""
    if isinstance(client, RedisCluster):
        return ClusterRoute(client)
    if isinstance(client.connection_pool, SentinelConnectionPool):
        return SentinelRoute(client.connection_pool)
    return PlainRoute(client.connection_pool)


class PlainRoute:
    """One server at one place: TCP, TLS or a unix socket."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    async def make(self, key: bytes, *, refresh: bool) -> AbstractConnection:
        """A connection to the one server there is."""
        del key, refresh
        return _made(self._pool.connection_class, self._pool.connection_kwargs)

    async def make_all(self) -> list[AbstractConnection]:
        """A connection to the one server there is."""
        return [await self.make(b"", refresh=False)]

    def make_to(self, host: str, port: int) -> AbstractConnection:
        """A connection to a named place with this server's settings."""
        kwargs = {**self._pool.connection_kwargs, "host": host, "port": port}
        return _made(self._pool.connection_class, kwargs)

    async def note_move(self, error: MovedError) -> bool:
        """A single server has no slots."""
        del error
        return False

    async def left(self, host: str, port: int) -> bool:
        """A single server stays where it is."""
        del host, port
        return False

    def slot(self, key: bytes) -> int:
        """All keys live at one place."""
        del key
        return 0


class SentinelRoute:
    """The master that the sentinels agree on, asked for at every connect."""

    def __init__(self, pool: SentinelConnectionPool) -> None:
        self._pool = pool
        secure = issubclass(pool.connection_class, SSLConnection)
        # A plain connection to the address that Sentinel names: the managed one of redis-py
        # hides READONLY behind a lost connection, and a refusal would look like an unknown.
        self._connection_class = SSLConnection if secure else Connection
        self._master: tuple[str, int] | None = None
        self._asked_at = 0.0

    async def make(self, key: bytes, *, refresh: bool) -> AbstractConnection:
        """A connection to the present master."""
        del key, refresh
        try:
            self._master = host, port = await self._pool.get_master_address()
        except MasterNotFoundError as error:
            # Its text names the kinds of errors, and nothing else does.
            if "AuthenticationError" in str(error):
                problem = "the sentinels ask for sentinel_username and sentinel_password"
                raise AuthenticationError(problem) from None
            problem = f"no sentinel names a master for {self._pool.service_name!r}"
            raise ConnectionError(problem) from None
        return self.make_to(host, port)

    async def make_all(self) -> list[AbstractConnection]:
        """A connection to the present master; its replicas hold the same."""
        return [await self.make(b"", refresh=False)]

    def make_to(self, host: str, port: int) -> AbstractConnection:
        """A connection to one named node of the service."""
        kwargs = {**self._pool.connection_kwargs, "host": host, "port": port}
        return _made(self._connection_class, kwargs)

    async def note_move(self, error: MovedError) -> bool:
        """A replicated server has no slots."""
        del error
        return False

    async def left(self, host: str, port: int) -> bool:
        """Whether the sentinels name another master by now.

        A master that was replaced in good order keeps taking writes for about ten seconds before it
        is told, and all of them are lost. Asking the sentinels shortens that to about one.
        """
        now = monotonic()
        if now - self._asked_at > _ASK_SENTINELS_EVERY_S:
            self._asked_at = now
            with suppress(RedisError, OSError):
                self._master = await self._pool.get_master_address()
        return self._master not in {None, (host, port)}

    async def close(self) -> None:
        """Let go of the connections to the sentinels."""
        await self._pool.sentinel_manager.aclose()

    def slot(self, key: bytes) -> int:
        """All keys live at the master."""
        del key
        return 0


class ClusterRoute:
    """The node that holds the key's slot."""

    def __init__(self, client: RedisCluster) -> None:
        self._client = client
        # Clusters may leave their hosts' names out: then it is the one that we came in by.
        self._door = next(iter(client.nodes_manager.startup_nodes.values())).host
        self._stale = False  # redis-py's map could not be corrected

    async def make(self, key: bytes, *, refresh: bool) -> AbstractConnection:
        """A connection to the node that redis-py's map, or a fresh one, names for the key."""
        await self._learn(anew=refresh)
        try:
            node = self._client.get_node_from_key(key.decode())
        except RedisClusterException as error:
            raise _unknown(error) from error
        if node is None:
            raise ConnectionError("no node of the cluster holds the queue's slot")
        return self._to(node)

    async def make_all(self) -> list[AbstractConnection]:
        """A connection to each primary of a map that was just fetched."""
        await self._learn(anew=True)
        return [self._to(node) for node in self._client.get_primaries()]

    async def _learn(self, *, anew: bool) -> None:
        """Have a map of the slots, or a fresh one."""
        try:
            await self._client.initialize()
            if anew or self._stale:
                await self._client.nodes_manager.initialize()
                self._stale = False
        except RedisClusterException as error:
            raise _unknown(error) from error

    def _to(self, node: ClusterNode) -> AbstractConnection:
        settings = {**node.connection_kwargs, "host": node.host or self._door}
        return _made(node.connection_class, settings)

    def make_to(self, host: str, port: int) -> AbstractConnection:
        """A connection to one named node of the cluster, known or new."""
        known = self._client.get_default_node()
        kwargs = {**known.connection_kwargs, "host": host, "port": port}
        return _made(known.connection_class, kwargs)

    async def note_move(self, error: MovedError) -> bool:
        """Correct redis-py's map of the slots, or have it fetched anew if it is past correcting."""
        try:
            await self._client.nodes_manager.move_slot(error)
        except (RedisError, KeyError):
            self._stale = True
        return True

    async def left(self, host: str, port: int) -> bool:
        """A node says by itself which slots it does not hold."""
        del host, port
        return False

    def slot(self, key: bytes) -> int:
        """By the key's hash tag, if it has one."""
        return int(key_slot(key))


def _unknown(error: RedisClusterException) -> ConnectionError:
    return ConnectionError(str(error).partition("\n")[0])


def _made(kind: type[AbstractConnection], settings: dict[str, Any]) -> AbstractConnection:
    kept = {name: value for name, value in settings.items() if not name.startswith(_POOL_ONLY)}
    kept |= {
        "socket_timeout": None,  # a lane has its own limits, and blocking reads outlast this one
        "socket_read_size": _READ_SIZE,
        "protocol": 2,  # no pushes, and the same reply shapes on every server
        "health_check_interval": 0,
        "retry": Retry(NoBackoff(), 0),
        "retry_on_error": [],
        "retry_on_timeout": False,
    }
    return kind(**kept)
