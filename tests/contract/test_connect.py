"""Every way to connect to a server, and every way it can fail."""

import asyncio
import gc
import logging
import ssl
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import pytest
import redis.asyncio as redis_client
import trustme

from tampu.errors import (
    AccessDenied,
    OptionError,
    ServerError,
    ServerTooOld,
    ServerUnreachable,
    TlsFailed,
    Verdict,
)
from tampu.server.connect import Server, connect
from tampu.server.lane import Lane
from tests.conftest import Start
from tests.proxy import Proxy
from tests.servers import RunningServer, free_port

pytestmark = pytest.mark.every_version

KEY = b"{chasqui:connect}:stream"
SECRET = "open-sesame"  # noqa: S105 - must not show up anywhere


async def says_pong(server: Server) -> bool:
    async with server, await Lane.open(server, KEY) as lane:
        return await lane.call("PING") == b"PONG"


@pytest.fixture
def protected(start: Start) -> RunningServer:
    """A server with a password."""
    return start("--requirepass", SECRET)


class TestUrls:
    async def test_a_tcp_url_with_a_database(self, running: RunningServer) -> None:
        async with await connect(f"redis://127.0.0.1:{running.port}/3") as server:
            async with await Lane.open(server, KEY) as lane:
                await lane.call("SET", b"where", b"three")
        with running.admin(db=3) as admin:
            assert admin.get("where") == b"three"

    async def test_the_valkey_scheme(self, running: RunningServer) -> None:
        assert await says_pong(await connect(f"valkey://127.0.0.1:{running.port}"))

    async def test_a_unix_socket(self, running: RunningServer) -> None:
        assert await says_pong(await connect(f"unix://{running.unix_socket}"))

    async def test_localhost_by_name(self, running: RunningServer) -> None:
        assert await says_pong(await connect(f"redis://localhost:{running.port}/0"))

    async def test_a_client_name_reaches_the_server(self, running: RunningServer) -> None:
        url = f"redis://127.0.0.1:{running.port}/0?client_name=tampu-here"
        async with await connect(url) as server, await Lane.open(server, KEY) as lane:
            assert await lane.call("CLIENT", "GETNAME") == b"tampu-here"

    async def test_a_password_alone(self, protected: RunningServer) -> None:
        assert await says_pong(await connect(f"redis://:{SECRET}@127.0.0.1:{protected.port}"))

    async def test_user_and_password(self, protected: RunningServer) -> None:
        assert await says_pong(
            await connect(f"redis://default:{SECRET}@127.0.0.1:{protected.port}")
        )

    async def test_none_means_the_environment_variable(
        self, running: RunningServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TAMPU_URL", running.url)
        server = await connect()
        assert server.name == running.url
        assert await says_pong(server)


class TestClients:
    @pytest.mark.parametrize(
        "settings", [{}, {"decode_responses": True}, {"protocol": 2}, {"protocol": 3}], ids=str
    )
    async def test_a_client_of_the_user_works_with_any_settings(
        self, running: RunningServer, settings: dict[str, object]
    ) -> None:
        async with redis_client.Redis(port=running.port, **settings) as client:  # type: ignore[arg-type]
            async with await connect(client) as server, await Lane.open(server, KEY) as lane:
                assert await lane.call("ECHO", b"\xff\x00") == b"\xff\x00"
            assert await client.ping(), "the client must stay open"

    async def test_a_small_blocking_pool_is_not_exhausted(self, running: RunningServer) -> None:
        pool = redis_client.BlockingConnectionPool(port=running.port, max_connections=1, timeout=1)
        async with redis_client.Redis(connection_pool=pool) as client:
            async with await connect(client) as server, await Lane.open(server, KEY) as lane:
                assert await lane.call("PING") == b"PONG"
                assert await client.ping()
        await pool.aclose()

    async def test_retries_of_a_user_s_client_are_not_used(self) -> None:
        began = time.monotonic()
        with pytest.raises(ServerUnreachable):
            await connect(
                redis_client.Redis(port=free_port())
            )  # redis-py retries ten times by default
        assert time.monotonic() - began < 15  # ten tries would take more than half a minute

    async def test_a_target_that_is_neither_url_nor_client_is_refused(self) -> None:
        with pytest.raises(OptionError, match=r"redis\.asyncio client"):
            await connect(42)  # type: ignore[arg-type]
        with pytest.raises(OptionError) as caught:
            await connect(f"redis://:{SECRET}@h".encode())  # type: ignore[arg-type]
        assert SECRET not in str(caught.value)


class TestCredentials:
    @pytest.mark.parametrize("user", [None, "default"])
    async def test_a_callback_is_called_at_every_connect(
        self, protected: RunningServer, user: str | None
    ) -> None:
        calls = []

        def callback() -> tuple[str | None, str]:
            calls.append(1)
            return user, SECRET

        server = await connect(protected.url, credentials=callback)
        assert await says_pong(server)
        assert len(calls) == 2

    async def test_a_rotated_password_is_used_after_a_lost_connection(
        self, protected: RunningServer
    ) -> None:
        password = SECRET

        async def callback() -> tuple[str | None, str]:
            return None, password

        async with await connect(protected.url, credentials=callback) as server:
            async with await Lane.open(server, KEY) as lane:
                with protected.admin(password=SECRET) as admin:
                    admin.config_set("requirepass", "another")
                    password = "another"  # noqa: S105
                    admin.client_kill_filter(_type="normal", skipme=True)
                assert await lane.send(b"PING\r\n", repeatable=True) == b"PONG"

    async def test_a_callback_that_raises_is_access_denied_without_its_message(
        self, protected: RunningServer
    ) -> None:
        def callback() -> tuple[str | None, str]:
            raise ValueError(SECRET)

        with pytest.raises(AccessDenied, match="ValueError") as caught:
            await connect(protected.url, credentials=callback)
        assert SECRET not in str(caught.value)

    async def test_a_callback_without_a_password_sends_no_credentials(
        self, running: RunningServer
    ) -> None:
        async with await connect(running.url, credentials=lambda: (None, None)) as server:
            assert await says_pong(server)

    async def test_a_callback_cannot_be_combined_with_a_password(
        self, protected: RunningServer
    ) -> None:
        bound = partial(tuple[None, str], (None, SECRET))  # its text shows the secret
        url = f"redis://:x@127.0.0.1:{protected.port}"
        for target in (url, redis_client.Redis(port=protected.port)):
            with pytest.raises(OptionError, match="credentials") as caught:
                await connect(target, credentials=bound)
            assert SECRET not in str(caught.value)


class TestFailures:
    async def fails(self, url: str, kind: type[ServerError], **options: float) -> ServerError:
        began = time.monotonic()
        with pytest.raises(kind) as caught:
            await connect(url, **options)  # type: ignore[arg-type]
        assert time.monotonic() - began < options.get("connect_timeout_s", 5.0) + 15
        sentence = str(caught.value)
        assert "\n" not in sentence
        assert SECRET not in sentence
        assert SECRET not in repr(caught.value)
        return caught.value

    async def test_no_server_on_the_port(self) -> None:
        error = await self.fails(f"redis://127.0.0.1:{free_port()}", ServerUnreachable)
        assert "Connection refused" in str(error)
        assert "TAMPU_URL" in str(error)
        assert error.verdict is Verdict.RETRY

    async def test_a_host_that_does_not_exist(self) -> None:
        await self.fails("redis://no-such-host.invalid", ServerUnreachable)

    async def test_a_socket_that_does_not_exist(self, tmp_path: Path) -> None:
        error = await self.fails(f"unix://{tmp_path}/none.sock", ServerUnreachable)
        assert "No such file" in str(error)

    async def test_a_server_that_accepts_and_does_not_answer(self, start: Start) -> None:
        running = start()
        running.pause()
        error = await self.fails(running.url, ServerError, connect_timeout_s=0.3)
        assert "in time" in str(error)

    @pytest.mark.parametrize("user", ["", "default", "nobody"])
    async def test_a_wrong_password(self, protected: RunningServer, user: str) -> None:
        url = f"redis://{user}:{SECRET}x@127.0.0.1:{protected.port}"
        error = await self.fails(url, AccessDenied)
        assert "Check the user and password" in str(error)

    async def test_no_password(self, protected: RunningServer) -> None:
        await self.fails(protected.url, AccessDenied)

    async def test_a_password_for_a_server_without_one(self, running: RunningServer) -> None:
        await self.fails(f"redis://:{SECRET}@127.0.0.1:{running.port}", AccessDenied)

    async def test_a_server_without_a_required_command(self, start: Start) -> None:
        old = start("--rename-command", "XAUTOCLAIM", "")
        error = await self.fails(old.url, ServerTooOld)
        assert "Redis 6.2" in str(error)

    async def test_a_server_without_room_for_another_connection(self, start: Start) -> None:
        full = start("--maxclients", "1")
        async with redis_client.Redis(port=full.port) as other:
            await other.ping()
            # The server's message may be lost with the connection that it closes.
            error = await self.fails(full.url, ServerError)
            assert error.verdict is Verdict.RETRY
            assert "max number of clients" in str(error) or "closed" in str(error)

    async def test_a_plain_url_to_a_tls_port(self, secure: "Secure") -> None:
        error = await self.fails(f"redis://127.0.0.1:{secure.port}", ServerUnreachable)
        assert "write rediss:// instead of redis://" in str(error)

    async def test_a_tls_url_to_a_plain_port(self, running: RunningServer) -> None:
        url = f"rediss://127.0.0.1:{running.port}"
        error = await self.fails(url, ServerUnreachable, connect_timeout_s=0.5)
        assert "write redis:// instead of rediss://" in str(error)

    async def test_an_untrusted_certificate(self, secure: "Secure") -> None:
        error = await self.fails(f"rediss://127.0.0.1:{secure.port}", TlsFailed)
        assert "not trusted" in str(error)
        assert "ssl_ca_certs" in str(error)

    async def test_a_certificate_for_another_host(self, secure: "Secure") -> None:
        url = f"rediss://localhost:{secure.port}?ssl_ca_certs={secure.ca}"
        error = await self.fails(url, TlsFailed)
        assert "not trusted" in str(error)

    @pytest.mark.parametrize("option", ["ssl_ca_certs", "ssl_certfile", "ssl_keyfile"])
    async def test_a_certificate_file_that_does_not_exist(
        self, secure: "Secure", option: str
    ) -> None:
        with pytest.raises(OptionError, match=f"Invalid {option} .* there is no such file"):
            await connect(f"rediss://127.0.0.1:{secure.port}?{option}=/nowhere/it.pem")

    async def test_one_time_limit_covers_all_steps(self, running: RunningServer) -> None:
        async with Proxy(running.port) as proxy:
            proxy.latency_s = 0.4
            await self.fails(proxy.url, ServerUnreachable, connect_timeout_s=0.3)


class Secure:
    """A server with TLS: a proxy with TLS in front of a plain server."""

    def __init__(self, port: int, ca: Path) -> None:
        self.port, self.ca = port, ca


@pytest.fixture
async def secure(running: RunningServer, tmp_path: Path) -> AsyncIterator[Secure]:
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    ca = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca))
    async with Proxy(running.port, tls=context) as proxy:
        yield Secure(proxy.port, ca)


class TestTls:
    async def test_a_trusted_certificate(self, secure: Secure) -> None:
        url = f"rediss://127.0.0.1:{secure.port}/0?ssl_ca_certs={secure.ca}"
        assert await says_pong(await connect(url))

    async def test_certificate_checks_can_be_switched_off(self, secure: Secure) -> None:
        url = f"rediss://127.0.0.1:{secure.port}/0?ssl_cert_reqs=none"
        assert await says_pong(await connect(url))

    async def test_a_client_certificate_is_sent(
        self, running: RunningServer, tmp_path: Path
    ) -> None:
        authority = trustme.CA()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
        own = authority.issue_cert("worker")
        files = {name: tmp_path / f"{name}.pem" for name in ("ca", "key", "cert")}
        authority.cert_pem.write_to_path(str(files["ca"]))
        own.private_key_pem.write_to_path(str(files["key"]))
        own.cert_chain_pems[0].write_to_path(str(files["cert"]))
        async with Proxy(running.port, tls=context) as proxy:
            url = f"rediss://127.0.0.1:{proxy.port}?ssl_ca_certs={files['ca']}"
            with_own = f"{url}&ssl_certfile={files['cert']}&ssl_keyfile={files['key']}"
            assert await says_pong(await connect(with_own))
            with pytest.raises(ServerError):
                await says_pong(await connect(url))


async def test_a_user_without_permission_for_info_gets_the_oldest_dialect(
    running: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    with running.admin() as admin:
        admin.execute_command("ACL", "SETUSER", "narrow", "on", ">pw", "~*", "+ping")
        try:
            async with await connect(f"redis://narrow:pw@127.0.0.1:{running.port}") as server:
                assert server.dialect.version == (6, 2)
                async with await Lane.open(server, KEY) as lane:
                    assert await lane.call("PING") == b"PONG"
            gc.collect()
            assert "never retrieved" not in caplog.text
        finally:
            admin.acl_deluser("narrow")


async def test_no_secret_reaches_a_log_or_a_repr(
    protected: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    url = f"redis://default:{SECRET}@127.0.0.1:{protected.port}/0"
    async with await connect(url) as server, await Lane.open(server, KEY) as lane:
        with protected.admin(password=SECRET) as admin:
            admin.client_kill_filter(_type="normal", skipme=True)
        await lane.send(b"PING\r\n", repeatable=True)
        for thing in (server, lane, server.name, server.dialect):
            assert SECRET not in repr(thing)
    for record in caplog.records:
        assert SECRET not in record.getMessage() + str(record.__dict__)


async def test_nothing_is_left_open_after_close(running: RunningServer) -> None:
    tasks: Callable[[], int] = lambda: len(asyncio.all_tasks())  # noqa: E731
    before = tasks()
    server = await connect(running.url)
    await server.close()
    await server.close()
    assert tasks() == before
