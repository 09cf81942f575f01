"""Going on without a server and coming back to it, on real servers."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tampu.scheduler.events import StoreDegraded, StoreEvent, StoreOperation, StoreRecovered
from tampu.scheduler.stores.redis import RedisStore
from tampu.scheduler.stores.resilient import ResilientStore
from tests.conftest import Start
from tests.proxy import Proxy
from tests.servers import RunningServer, free_port
from tests.stores import Opened, opening, state_of
from tests.waiting import wait_until

pytestmark = pytest.mark.every_server

QUICK = "200ms"


@pytest.fixture
async def opened() -> AsyncIterator[Opened]:
    async with opening() as made:
        yield made


@pytest.fixture
async def proxy(running: RunningServer) -> AsyncIterator[Proxy]:
    async with Proxy(running.port) as made:
        yield made


@pytest.fixture
async def store(running: RunningServer, opened: Opened) -> RedisStore:
    """Another's way to the same states, which is never cut."""
    made = RedisStore(running.url, timeout="20s")
    await opened(made)
    return made


@pytest.fixture
def events() -> list[StoreEvent]:
    return []


@pytest.fixture
async def resilient(proxy: Proxy, opened: Opened, events: list[StoreEvent]) -> ResilientStore:
    store = ResilientStore(RedisStore(proxy.url, timeout=QUICK), retry_every="10ms")
    store.listen(events.append)
    await opened(store)
    return store


async def test_it_goes_on_from_its_mirror_and_writes_back(
    resilient: ResilientStore, store: RedisStore, proxy: Proxy, events: list[StoreEvent]
) -> None:
    await store.save([state_of("theirs", 1)])
    await resilient.save([state_of("a", 1), state_of("gone", 1)])
    await resilient.load(["theirs"])
    lose(proxy)
    await resilient.save([state_of("a", 2)])
    await resilient.delete(["gone"])
    known = await resilient.load(["a", "theirs", "gone"])
    assert known == [state_of("a", 2), state_of("theirs", 1), None]
    assert await store.load(["gone"]) == [state_of("gone", 1)], "it is not told yet"
    assert [type(each) for each in events] == [StoreDegraded]
    await find(proxy, events)
    # The first save was on its way when the replies stopped; it is written again all the same.
    assert events[1:] == [StoreRecovered(written=2, kept=0)]
    assert await store.load(["a", "gone"]) == [state_of("a", 2), None]
    await resilient.save([state_of("a", 3)])
    assert await store.load(["a"]) == [state_of("a", 3)], "it is used directly again"


async def test_a_connection_that_only_breaks_is_no_outage(
    resilient: ResilientStore, store: RedisStore, proxy: Proxy, events: list[StoreEvent]
) -> None:
    for fired in range(5):
        await resilient.save([state_of("a", fired)])
        proxy.cut()
    await resilient.load(["a"])
    assert events == []
    assert await store.load(["a"]) == [state_of("a", 4)]


async def test_what_another_scheduler_brought_further_is_kept(
    resilient: ResilientStore, store: RedisStore, proxy: Proxy, events: list[StoreEvent]
) -> None:
    await resilient.save([state_of("a", 1), state_of("b", 1)])
    lose(proxy)
    await resilient.load(["a"])
    await resilient.save([state_of("a", 2), state_of("b", 2)])
    await store.save([state_of("a", 9)])
    await find(proxy, events)
    assert events[1:] == [StoreRecovered(written=1, kept=1)]
    assert await store.load(["a", "b"]) == [state_of("a", 9), state_of("b", 2)]


async def test_each_outage_is_told_once(
    resilient: ResilientStore, proxy: Proxy, events: list[StoreEvent]
) -> None:
    for lap in (1, 2):
        lose(proxy)
        for fired in range(3):
            await resilient.save([state_of("a", 10 * lap + fired)])
        await find(proxy, events)
    kinds = [type(each) for each in events]
    assert kinds == [StoreDegraded, StoreRecovered] * 2


async def test_a_server_that_is_not_there_at_first_gets_what_was_saved_meanwhile(
    start: Start, opened: Opened, events: list[StoreEvent]
) -> None:
    port = free_port()
    store = ResilientStore(RedisStore(f"redis://127.0.0.1:{port}/0"), retry_every="10ms")
    store.listen(events.append)
    await opened(store)
    assert await store.load(["a", "b"]) == [None, None]
    await store.save([state_of("a", 1)])
    (event,) = events
    assert isinstance(event, StoreDegraded)
    assert event.operation is StoreOperation.LOAD
    assert str(port) in event.error
    running = await asyncio.to_thread(start, port=port)
    await wait_until(lambda: len(events) == 2, within=10, sentence="the server is found")
    assert events[1] == StoreRecovered(written=1, kept=0)
    with running.admin() as admin:
        assert admin.keys() == [b"tampu:task:{a}:state"]


async def test_closing_during_an_outage_ends_and_says_what_is_left(
    proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    store = ResilientStore(RedisStore(proxy.url, timeout=QUICK), retry_every="10ms")
    await store.open()
    await store.save([state_of("a", 1)])
    lose(proxy)
    await store.save([state_of("a", 2), state_of("b", 1)])
    caplog.clear()
    await asyncio.wait_for(store.close(), 5)
    (record,) = [each for each in caplog.records if each.name.startswith("tampu.scheduler")]
    assert record.message == "a store was closed with states not written back"
    assert vars(record)["tasks"] == 2
    assert not {t.get_name() for t in asyncio.all_tasks()} & {
        "tampu-store-return",
        "tampu-lane",
    }


async def test_closing_behind_an_outage_writes_back(proxy: Proxy, store: RedisStore) -> None:
    resilient = ResilientStore(RedisStore(proxy.url, timeout="500ms"), retry_every="1h")
    await resilient.open()
    await resilient.save([state_of("a", 1)])
    lose(proxy)
    await resilient.save([state_of("a", 2)])
    proxy.hold_replies = proxy.hold_requests = False
    proxy.cut()
    await asyncio.wait_for(resilient.close(), 5)
    assert await store.load(["a"]) == [state_of("a", 2)]


def lose(proxy: Proxy) -> None:
    """Have the server be out of reach, and hear nothing of what is sent to it."""
    proxy.hold_replies = proxy.hold_requests = True


async def find(proxy: Proxy, events: list[StoreEvent]) -> None:
    """Have it be within reach, and return when the store has found it."""
    proxy.hold_replies = proxy.hold_requests = False
    proxy.cut()
    await wait_until(
        lambda: isinstance(events[-1], StoreRecovered), within=10, sentence="it is found"
    )
