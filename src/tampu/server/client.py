"""redis-py clients for addresses. It takes care of TLS, credentials, Sentinel and clusters."""

import inspect
from collections.abc import Awaitable, Callable
from pathlib import Path
from ssl import TLSVersion
from typing import Any, TypeAlias

from redis.asyncio import Redis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.connection import SSLConnection
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.credentials import CredentialProvider
from redis.exceptions import AuthenticationError

from tampu.errors import OptionError
from tampu.server.address import DEFAULT_PORT, Address, ServerKind, Tls
from tampu.server.redis_py import Client, driver_info, no_retries, startup_nodes

Credentials: TypeAlias = tuple[str | None, str | None]
"""A user and a password. Without a password nothing is sent, for servers that require none."""
CredentialCallback: TypeAlias = Callable[[], Credentials | Awaitable[Credentials]]


def client_for(
    address: Address,
    credentials: CredentialCallback | None,
    *,
    connect_timeout_s: float,
    embedded_socket: Path | None = None,
) -> Client:
    """A redis-py client for an address, not connected yet and without silent retries."""
    settings = _client_settings(address, credentials, connect_timeout_s)
    match address.kind:
        case ServerKind.TCP:
            ((host, port),) = address.hosts
            return Redis(host=host, port=port, db=address.db, **settings)
        case ServerKind.UNIX:
            return Redis(unix_socket_path=address.path, db=address.db, **settings)
        case ServerKind.EMBEDDED:
            return Redis(unix_socket_path=str(embedded_socket), **settings)
        case ServerKind.SENTINEL:
            return _sentinel_client(address, settings)
        case ServerKind.CLUSTER:
            nodes = [ClusterNode(host, port) for host, port in address.hosts]
            return RedisCluster(startup_nodes=nodes, **settings)


def _client_settings(
    address: Address, credentials: CredentialCallback | None, connect_timeout_s: float
) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "client_name": address.client_name,
        "socket_connect_timeout": connect_timeout_s,
        "protocol": 2,
        "retry": no_retries(),
        "driver_info": driver_info(),
    }
    if credentials is None:
        settings |= {"username": address.username, "password": address.password}
    elif address.password is not None:
        # Its type only: the text of a callback may show a secret that it was bound to.
        problem = "cannot be combined with a password in the URL"
        raise OptionError("credentials", type(credentials), problem)
    else:
        settings["credential_provider"] = _CallbackCredentials(credentials)
    if address.tls is not None:
        settings |= _tls_settings(address.tls)
    return settings


def _tls_settings(tls: Tls) -> dict[str, Any]:
    files = {
        "ssl_ca_certs": tls.ca_certs,
        "ssl_certfile": tls.certfile,
        "ssl_keyfile": tls.keyfile,
    }
    for option, path in files.items():
        if path is not None and not Path(path).is_file():
            raise OptionError(option, path, "there is no such file")
    return files | {
        "ssl": True,
        "ssl_cert_reqs": tls.cert_reqs,
        "ssl_check_hostname": tls.check_hostname,
        "ssl_min_version": TLSVersion.TLSv1_2,
    }


def _sentinel_client(address: Address, settings: dict[str, Any]) -> Redis:
    own = {"username": address.sentinel_username, "password": address.sentinel_password}
    shared = {name: value for name, value in settings.items() if name not in own}
    shared.pop("credential_provider", None)
    # A sentinel that does not answer leaves time to ask the others.
    share_s = settings["socket_connect_timeout"] / (len(address.hosts) + 1)
    shared |= {"socket_timeout": share_s, "socket_connect_timeout": share_s}
    sentinel = Sentinel(address.hosts, sentinel_kwargs=shared | own)
    client: Redis = sentinel.master_for(address.service, db=address.db, **settings)
    return client


class _CallbackCredentials(CredentialProvider):
    """Calls the user's callback for user and password at every connect."""

    def __init__(self, callback: CredentialCallback) -> None:
        self._callback = callback

    async def get_credentials_async(self) -> tuple[str, ...]:  # type: ignore[override]
        try:
            given = self._callback()
            user, password = await given if inspect.isawaitable(given) else given
        except Exception as error:  # border: user code may raise anything
            problem = f"the credential callback raised {type(error).__name__}"
            raise AuthenticationError(problem) from error
        if password is None:
            return ()
        return (user, password) if user else (password,)


def describe(client: Client) -> str:
    """A user's client as an address without secrets."""
    if isinstance(client, RedisCluster):
        return f"redis+cluster://{','.join(startup_nodes(client))}"
    pool = client.connection_pool
    if isinstance(pool, SentinelConnectionPool):
        return f"redis+sentinel:///{pool.service_name}"
    settings = client.get_connection_kwargs()
    if "path" in settings:
        return f"unix://{settings['path']}"
    host, port = settings.get("host", "localhost"), settings.get("port", DEFAULT_PORT)
    scheme = "rediss" if issubclass(pool.connection_class, SSLConnection) else "redis"
    return f"{scheme}://{host}:{port}/{settings.get('db', 0)}"
