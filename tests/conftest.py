"""Servers for the tests: each started once, its data deleted before every test."""

import gc
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tampu.server.connect import Server, connect
from tests.postgres import Database, PostgresServer
from tests.servers import Backend, RunningServer

pytest_plugins = ["tests.selection"]

# How long an example takes says nothing on a machine that is busy with others.
settings.register_profile(
    "busy", settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
)
settings.load_profile("busy")


def pytest_configure() -> None:
    # A shell that runs us in the background has Ctrl-C ignored, and nohup has SIGHUP. Programs that
    # we start would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_collection_finish() -> None:
    # Thousands of collected tests stay to the end. The garbage collector need not look at them in
    # each test again, and some tests look at all that is left.
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def binary(backend: Backend) -> Path:
    """The server's program."""
    found = backend.find()
    assert found is not None, "tests on servers that are missing are left out"
    return found


Start = Callable[..., RunningServer]


@pytest.fixture(scope="session")
def _shared_server(binary: Path) -> Iterator[RunningServer]:
    with RunningServer(binary) as running:
        yield running


@pytest.fixture
def running(_shared_server: RunningServer) -> RunningServer:
    """The backend's server, without the data of the test before.

    It keeps its scripts: loading them in each test would take a tenth of the suite's time. A test
    that is about scripts that are not there calls `script_flush`.
    """
    with _shared_server.admin() as admin:
        admin.flushall()
    return _shared_server


@pytest.fixture
def start(binary: Path) -> Iterator[Start]:
    """Start servers with options of the test's own; all are ended after it."""
    with ExitStack() as stack:

        def started(*options: str, port: int | None = None) -> RunningServer:
            return stack.enter_context(RunningServer(binary, *options, port=port))

        yield started


@pytest.fixture
async def server(running: RunningServer) -> AsyncIterator[Server]:
    """A connected server."""
    async with await connect(running.url) as connected:
        yield connected


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """PostgreSQL, for tests with the mark `postgres`. A test that ends it starts it again."""
    with PostgresServer() as running:
        yield running


@pytest.fixture
def postgres(postgres_server: PostgresServer) -> Iterator[Database]:
    """An empty database of PostgreSQL."""
    with postgres_server.database() as made:
        yield made
