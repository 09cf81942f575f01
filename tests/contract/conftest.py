"""Fixtures of the contract suite."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest
import redis
import uvloop

from tampu.consumer import alerts
from tampu.dashboard import Access, Dashboard
from tampu.queue import Queue
from tampu.results import ResultReader
from tampu.server.connect import Server, connect
from tampu.server.lane import Lane, LaneOptions
from tampu.server.listening import SharedParts
from tests.contract.alerts import SLOW, Switch
from tests.contract.lanes import KEY, QUICK, OpenThroughProxy, hide_private_parts
from tests.contract.queues import KEYS as QUEUE_KEYS
from tests.contract.queues import QUEUE
from tests.contract.results import KEYS, ManualWorker, readers
from tests.contract.workers import Harness, harness_on
from tests.dashboards import Visit
from tests.gates import ManualGate
from tests.proxy import Proxy
from tests.schedulers import Team
from tests.selection import backend_of, default_server
from tests.servers import BACKENDS, RunningServer

PUBLIC_API = "public-api"


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Tests of lanes run on both loops that users have; the others on asyncio's own."""
    del config
    loops = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    return loops if item.path.name.startswith("test_lane") else {"asyncio": loops["asyncio"]}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """uvloop and redis-py's public API run on the default server: the server makes no difference.

    Neither does the loop to the public API, so it runs on one of them.
    """
    if not config.getoption("--all-servers") and not config.getoption("--backend"):
        others = {each.name for each in BACKENDS} - {default_server().name}
        items[:] = [each for each in items if not (_is_special(each) and _runs_on(each, others))]
    items[:] = [each for each in items if not (_uses_uvloop(each) and _uses_public_api(each))]


def _is_special(item: pytest.Item) -> bool:
    return _uses_uvloop(item) or _uses_public_api(item)


def _uses_uvloop(item: pytest.Item) -> bool:
    return "[uvloop-" in item.name


def _uses_public_api(item: pytest.Item) -> bool:
    callspec = getattr(item, "callspec", None)
    return callspec is not None and callspec.params.get("redis_py") == PUBLIC_API


def _runs_on(item: pytest.Item, servers: set[str]) -> bool:
    backend = backend_of(item)
    return backend is not None and backend.name in servers


@pytest.fixture(params=["fast", PUBLIC_API])
def redis_py(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """redis-py as it is, and as if it hid the private parts that make lanes fast."""
    if request.param == PUBLIC_API:
        hide_private_parts(monkeypatch)
    return str(request.param)


@pytest.fixture
def admin(running: RunningServer) -> Iterator[redis.Redis]:
    with running.admin() as client:
        yield client


@pytest.fixture
async def queue(running: RunningServer) -> AsyncIterator[Queue]:
    async with Queue(QUEUE, running.url) as opened:
        yield opened


@pytest.fixture
async def lane(server: Server) -> AsyncIterator[Lane]:
    async with await Lane.open(server, KEY, options=QUICK) as opened:
        yield opened


@pytest.fixture
async def open_through_proxy(running: RunningServer) -> AsyncIterator[OpenThroughProxy]:
    async with AsyncExitStack() as stack:

        async def open_lane(options: LaneOptions = QUICK) -> tuple[Lane, Proxy]:
            proxy = await stack.enter_async_context(Proxy(running.port))
            server = await stack.enter_async_context(await connect(proxy.url))
            lane = await Lane.open(server, KEY, options=options)
            return await stack.enter_async_context(lane), proxy

        yield open_lane


@pytest.fixture
def manual(lane: Lane) -> ManualWorker:
    return ManualWorker(lane)


@pytest.fixture
async def gate(queue: Queue, lane: Lane, admin: redis.Redis) -> ManualGate:
    """The gate of the queue, without workers."""
    made = ManualGate(queue, lane, admin, QUEUE_KEYS)
    await made.open()
    return made


@pytest.fixture
async def reader(server: Server) -> AsyncIterator[ResultReader]:
    opened = ResultReader(SharedParts(server), KEYS)
    yield opened
    await opened.close()
    assert readers() == 0


@pytest.fixture
async def harness(running: RunningServer) -> AsyncIterator[Harness]:
    async with harness_on(running) as hired:
        yield hired


@pytest.fixture
async def proxy(running: RunningServer) -> AsyncIterator[Proxy]:
    async with Proxy(running.port) as made:
        yield made


@pytest.fixture
async def team(running: RunningServer) -> AsyncIterator[Team]:
    """Schedulers that are closed behind the test."""
    async with AsyncExitStack() as stack:
        yield Team(running.url, stack)


@pytest.fixture
def quick_alerts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers in this process look for alerts twenty times a second."""
    monkeypatch.setattr(alerts, "EVERY_S", 0.05)
    monkeypatch.setattr(alerts, "FIRST_RETRY_S", 0.01)


@pytest.fixture
async def slow(server: Server) -> AsyncIterator[Lane]:
    """A lane to a queue without workers, which others watch."""
    async with await Lane.open(server, SLOW.stream) as lane:
        yield lane


@pytest.fixture
def switch(running: RunningServer, slow: Lane) -> Switch:
    """Lets an alert fire and resolve."""
    return Switch(running, slow)


@pytest.fixture
async def visit(running: RunningServer) -> AsyncIterator[Visit]:
    """Open dashboards with options of the test's own; all are closed after it."""
    opened: list[tuple[Dashboard, httpx.AsyncClient]] = []

    def open_one(target: object = None, **options: object) -> httpx.AsyncClient:
        given: dict[str, Any] = {"access": Access.full(), **options}
        dashboard = Dashboard(target or running.url, **given)  # type: ignore[arg-type]
        transport = httpx.ASGITransport(dashboard)
        client = httpx.AsyncClient(transport=transport, base_url="http://localhost")
        opened.append((dashboard, client))
        return client

    yield open_one
    for dashboard, client in opened:
        await client.aclose()
        await dashboard.close()
