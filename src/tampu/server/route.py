"""The way to the node that holds a key: plain, by Sentinel, by cluster slot.

A route asks redis-py where a key lives and makes a connection of our own to that node.
"""

from contextlib import suppress
from time import monotonic
from typing import Protocol

from redis.asyncio import Redis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.sentinel import SentinelConnectionPool
from redis.crc import key_slot
from redis.exceptions import MovedError, RedisError

from tampu.server.redis_py import (
    Client,
    Connection,
    Place,
    close_sentinels,
    correct_slot,
    entry_host,
    find_master,
    load_slots,
    make_connection,
    node_of_key,
)

_ASK_SENTINELS_EVERY_S = 1.0


class Route(Protocol):
    """How to reach the node that holds a key."""

    may_move: bool
    """Whether another node may take the place of one without its telling us: see `has_moved`."""
    has_slots: bool
    """Whether keys may move to another node, one by one: a cluster."""

    async def make(self, key: bytes, *, refresh: bool) -> Connection:
        """A connection to the key's node, not connected yet; `refresh` updates the topology."""
        ...

    async def make_all(self) -> list[Connection]:
        """A connection to each node that holds keys, not connected yet."""
        ...

    def make_to(self, place: Place) -> Connection:
        """A connection to one named node of the same server, not connected yet."""
        ...

    async def follow(self, moved: MovedError) -> bool:
        """Learn that a slot has moved to another node; False if this route has no slots."""
        ...

    async def has_moved(self, place: Place) -> bool:
        """Whether another node has taken the place of this one."""
        ...

    def slot(self, key: bytes) -> int:
        """The slot of a key; all keys of a slot are on one node."""
        ...

    async def close(self) -> None:
        """Close what the client leaves open."""
        ...


def route_for(client: Client) -> Route:
    """The route that fits a redis-py client."""
    if isinstance(client, RedisCluster):
        return ClusterRoute(client)
    if isinstance(client.connection_pool, SentinelConnectionPool):
        return SentinelRoute(client)
    return PlainRoute(client)


class PlainRoute:
    """One server: TCP, TLS or a unix socket."""

    may_move = False
    has_slots = False

    def __init__(self, client: Redis) -> None:
        self._client = client

    async def make(self, key: bytes, *, refresh: bool) -> Connection:
        """A connection to the server."""
        del key, refresh
        return make_connection(self._client)

    async def make_all(self) -> list[Connection]:
        """A connection to the server."""
        return [await self.make(b"", refresh=False)]

    def make_to(self, place: Place) -> Connection:
        """A connection to a named node with this server's settings."""
        return make_connection(self._client, place)

    async def follow(self, moved: MovedError) -> bool:
        """A single server has no slots."""
        del moved
        return False

    async def has_moved(self, place: Place) -> bool:
        """A single server stays where it is."""
        del place
        return False

    def slot(self, key: bytes) -> int:
        """All keys are on one node."""
        del key
        return 0

    async def close(self) -> None:
        """Nothing stays open."""


class SentinelRoute(PlainRoute):
    """The master that the sentinels agree on, looked up at every connect."""

    may_move = True

    def __init__(self, client: Redis) -> None:
        super().__init__(client)
        self._master: Place | None = None
        self._asked_at = 0.0

    async def make(self, key: bytes, *, refresh: bool) -> Connection:
        """A connection to the present master."""
        del key, refresh
        self._master = await find_master(self._client)
        return self.make_to(self._master)

    async def has_moved(self, place: Place) -> bool:
        """Whether the sentinels name another master by now.

        A master that is replaced in a planned failover goes on accepting writes for about ten
        seconds before it learns of it, and all of them are lost. Asking the sentinels shortens that
        to about one second.
        """
        now = monotonic()
        if now - self._asked_at > _ASK_SENTINELS_EVERY_S:
            self._asked_at = now
            with suppress(RedisError, OSError):
                self._master = await find_master(self._client)
        return self._master not in {None, place}

    async def close(self) -> None:
        """Close the connections to the sentinels."""
        await close_sentinels(self._client)


class ClusterRoute:
    """The node that holds the key's slot."""

    may_move = False
    has_slots = True

    def __init__(self, client: RedisCluster) -> None:
        self._client = client
        # Some clusters hide the names of their hosts: then it is the one that we entered by.
        self._entry_host = entry_host(client)
        self._stale = False  # redis-py's map could not be corrected

    async def make(self, key: bytes, *, refresh: bool) -> Connection:
        """A connection to the node that holds the key, by redis-py's map or by a fresh one."""
        await self._load(refresh=refresh)
        return self._make_to_node(node_of_key(self._client, key))

    async def make_all(self) -> list[Connection]:
        """A connection to each primary, by a fresh map."""
        await self._load(refresh=True)
        return [self._make_to_node(node) for node in self._client.get_primaries()]

    async def _load(self, *, refresh: bool) -> None:
        await load_slots(self._client, refresh=refresh or self._stale)
        self._stale = False

    def _make_to_node(self, node: ClusterNode) -> Connection:
        host = node.host or self._entry_host
        if host is None:
            raise ConnectionError("the cluster hides the names of its hosts")
        return self.make_to((host, int(node.port)))

    def make_to(self, place: Place) -> Connection:
        """A connection to one named node of the cluster, known or new."""
        return make_connection(self._client, place)

    async def follow(self, moved: MovedError) -> bool:
        """Correct redis-py's map, or have it fetched again before the next connection."""
        if not await correct_slot(self._client, moved):
            self._stale = True
        return True

    async def has_moved(self, place: Place) -> bool:
        """A node says itself which slots it no longer holds."""
        del place
        return False

    def slot(self, key: bytes) -> int:
        """The slot of the key's hash tag, or of the whole key if it has none."""
        return int(key_slot(key))

    async def close(self) -> None:
        """Nothing stays open."""
