"""The fence round redis-py: the only module that depends on how redis-py is built inside.

If a version of redis-py lacks one of these parts, its public API takes over:

    part                     used to                            without it
    connection._writer       write and read at full speed       send_packed_command, read_response
    cluster.nodes_manager    correct the map of a cluster       close and initialise the client
    (its startup_nodes)      name a user's cluster client       a name without hosts
    texts of errors          say what went wrong                a more general sentence
"""

import asyncio
from functools import cache
from typing import Final, TypeAlias, cast

from redis.asyncio import Redis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.connection import AbstractConnection, SSLConnection
from redis.asyncio.connection import Connection as TcpConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import MasterNotFoundError, SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.driver_info import DriverInfo
from redis.exceptions import AuthenticationError, MovedError, RedisClusterException, RedisError

Client: TypeAlias = Redis | RedisCluster
Connection: TypeAlias = AbstractConnection
Place: TypeAlias = tuple[str, int]
"""The host and port of a node."""

# Private parts of redis-py, by name: tests replace the names with others that do not exist.
_WRITER = "_writer"
_NODES_MANAGER = "nodes_manager"

_DEFAULT_PORT: Final = 6379
# Replies of 512 entries then come in a few pieces, not in dozens.
_READ_SIZE: Final = 1 << 20
# Settings that redis-py's pools add for themselves; a connection outside of them cannot use them.
_POOL_SETTINGS: Final = (
    "maint_",
    "orig_",
    "oss_cluster_",
    "connection_pool",
    "event_dispatcher",
)


# --- connections --------------------------------------------------------------------------------


def make_connection(client: Client, place: Place | None = None) -> Connection:
    """A connection with a client's settings, outside of its pool and not connected yet.

    It leads to the client's server, or to the node at `place`.
    """
    kind: type[Connection]
    if isinstance(client, RedisCluster):
        node = client.get_default_node()
        kind, settings = node.connection_class, node.connection_kwargs
    else:
        kind, settings = client.connection_pool.connection_class, client.get_connection_kwargs()
        if isinstance(client.connection_pool, SentinelConnectionPool):
            # Not redis-py's managed class: it turns READONLY into a lost connection, so that a
            # certain refusal would look like an unknown outcome.
            kind = SSLConnection if issubclass(kind, SSLConnection) else TcpConnection
    kept = {name: value for name, value in settings.items() if not name.startswith(_POOL_SETTINGS)}
    if place is not None:
        kept |= {"host": place[0], "port": place[1]}
    kept |= {
        "socket_timeout": None,  # a lane has its own limits, and blocking reads outlast this one
        "socket_read_size": _READ_SIZE,
        "protocol": 2,  # no pushes, and the same shape of replies on every server
        "health_check_interval": 0,
        "retry": no_retries(),
        "retry_on_error": [],
        "retry_on_timeout": False,
    }
    return kind(**kept)


def no_retries() -> Retry:
    """For redis-py, which would resend calls without knowing which are safe to repeat."""
    return Retry(NoBackoff(), 0)


@cache
def driver_info() -> DriverInfo:
    """The version of redis-py, read once. Otherwise each client reads it from files."""
    return DriverInfo()


def place_of(connection: Connection) -> Place | None:
    """The node that a connection leads to; None for a unix socket."""
    host = getattr(connection, "host", None)
    return None if host is None else (host, getattr(connection, "port", _DEFAULT_PORT))


def transport_of(connection: Connection) -> asyncio.Transport | None:
    """The transport of a connected connection, to take it over; None if redis-py hides it."""
    writer = getattr(connection, _WRITER, None)
    return cast("asyncio.Transport | None", getattr(writer, "transport", None))


# --- where the keys are -------------------------------------------------------------------------


async def find_master(client: Redis) -> Place:
    """The master that the sentinels of a client agree on."""
    pool = cast("SentinelConnectionPool", client.connection_pool)
    try:
        host, port = await pool.get_master_address()
    except MasterNotFoundError as error:
        # Only its text tells which errors the sentinels answered with.
        if "AuthenticationError" in str(error):
            problem = "the sentinels require sentinel_username and sentinel_password"
            raise AuthenticationError(problem) from None
        problem = f"no sentinel knows a master named {pool.service_name!r}"
        raise ConnectionError(problem) from None
    return host, port


async def close_sentinels(client: Redis) -> None:
    """Close the connections to the sentinels, which `client.aclose` leaves open."""
    pool = client.connection_pool
    if isinstance(pool, SentinelConnectionPool):
        await pool.sentinel_manager.aclose()


async def load_slots(client: RedisCluster, *, refresh: bool) -> None:
    """Make sure that the client has a map of the cluster's slots; `refresh` fetches it again."""
    try:
        await client.initialize()
        if not refresh:
            return
        fetch = getattr(getattr(client, _NODES_MANAGER, None), "initialize", None)
        if fetch is not None:
            await fetch()
        else:
            await client.aclose()
            await client.initialize()
    except RedisClusterException as error:
        raise _as_connection_error(error) from error


async def correct_slot(client: RedisCluster, moved: MovedError) -> bool:
    """Correct one slot of the client's map; False if the whole map has to be fetched again."""
    try:
        await getattr(client, _NODES_MANAGER).move_slot(moved)
    except (AttributeError, KeyError, RedisError):
        return False
    return True


def entry_host(client: RedisCluster) -> str | None:
    """The host that a client enters its cluster by; None if redis-py hides it."""
    nodes = startup_nodes(client)
    return next(iter(nodes.values())).host if nodes else None


def node_of_key(client: RedisCluster, key: bytes) -> ClusterNode:
    """The node that holds the slot of a key, by the client's map."""
    try:
        node = client.get_node_from_key(key.decode())
    except RedisClusterException as error:
        raise _as_connection_error(error) from error
    if node is None:
        raise ConnectionError("no node of the cluster holds the slot of the queue")
    return node


def startup_nodes(client: RedisCluster) -> dict[str, ClusterNode]:
    """The nodes that a client starts from, by HOST:PORT; empty if redis-py hides them."""
    return getattr(getattr(client, _NODES_MANAGER, None), "startup_nodes", {})


def _as_connection_error(error: RedisClusterException) -> ConnectionError:
    return ConnectionError(str(error).partition("\n")[0])


# --- texts of errors ----------------------------------------------------------------------------


def is_client_limit(error: BaseException) -> bool:
    """Whether the server turned a connection away because it has too many."""
    return str(error).startswith("max number of clients")


def is_hang_up(error: BaseException) -> bool:
    """Whether the server closed the connection."""
    return "lost" in str(error) or "closed" in str(error)
