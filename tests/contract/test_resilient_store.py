"""The resilient store on real servers."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tampu.scheduler.events import StoreDegraded, StoreEvent, StoreOperation, StoreRecovered
from tampu.scheduler.stores.redis import RedisStore
from tampu.scheduler.stores.resilient import ResilientStore
from tests.conftest import Start
from tests.proxy import Proxy
from tests.schedulers import cut_off_server, reconnect
from tests.servers import RunningServer, free_port
from tests.stores import OpenStore, state_of, store_opener
from tests.waiting import wait_until

SHORT_TIMEOUT = "1s"


@pytest.fixture
async def open_store() -> AsyncIterator[OpenStore]:
    async with store_opener() as made:
        yield made


@pytest.fixture
async def proxy(running: RunningServer) -> AsyncIterator[Proxy]:
    async with Proxy(running.port) as made:
        yield made


@pytest.fixture
async def store(running: RunningServer, open_store: OpenStore) -> RedisStore:
    """Another store with the same states, whose connection is never cut."""
    made = RedisStore(running.url, timeout="20s")
    await open_store(made)
    return made


@pytest.fixture
def events() -> list[StoreEvent]:
    return []


@pytest.fixture
async def resilient(
    proxy: Proxy, open_store: OpenStore, events: list[StoreEvent]
) -> ResilientStore:
    store = ResilientStore(RedisStore(proxy.url, timeout=SHORT_TIMEOUT), retry_every="10ms")
    store.listen(events.append)
    await open_store(store)
    return store


async def test_it_continues_from_memory_and_writes_back(
    resilient: ResilientStore, store: RedisStore, proxy: Proxy, events: list[StoreEvent]
) -> None:
    await store.save([state_of("theirs", 1)])
    await resilient.save([state_of("a", 1), state_of("deleted", 1)])
    await resilient.load(["theirs"])
    cut_off_server(proxy)
    await resilient.save([state_of("a", 2)])
    await resilient.delete(["deleted"])
    known = await resilient.load(["a", "theirs", "deleted"])
    assert known == [state_of("a", 2), state_of("theirs", 1), None]
    assert await store.load(["deleted"]) == [state_of("deleted", 1)], "it is not deleted there yet"
    assert [type(each) for each in events] == [StoreDegraded]
    await wait_for_recovery(proxy, events)
    # The first save was under way when the replies stopped; it is written again.
    assert events[1:] == [StoreRecovered(written=2, kept=0)]
    assert await store.load(["a", "deleted"]) == [state_of("a", 2), None]
    await resilient.save([state_of("a", 3)])
    assert await store.load(["a"]) == [state_of("a", 3)], "the server is used again"


async def test_a_broken_connection_is_not_an_outage(
    resilient: ResilientStore, store: RedisStore, proxy: Proxy, events: list[StoreEvent]
) -> None:
    for fired in range(5):
        await resilient.save([state_of("a", fired)])
        proxy.cut()
    await resilient.load(["a"])
    assert events == []
    assert await store.load(["a"]) == [state_of("a", 4)]


async def test_a_task_that_another_scheduler_brought_further_is_kept(
    resilient: ResilientStore, store: RedisStore, proxy: Proxy, events: list[StoreEvent]
) -> None:
    await resilient.save([state_of("a", 1), state_of("b", 1)])
    cut_off_server(proxy)
    await resilient.load(["a"])
    await resilient.save([state_of("a", 2), state_of("b", 2)])
    await store.save([state_of("a", 9)])
    await wait_for_recovery(proxy, events)
    assert events[1:] == [StoreRecovered(written=1, kept=1)]
    assert await store.load(["a", "b"]) == [state_of("a", 9), state_of("b", 2)]


async def test_each_outage_is_reported_once(
    resilient: ResilientStore, proxy: Proxy, events: list[StoreEvent]
) -> None:
    for lap in (1, 2):
        cut_off_server(proxy)
        for fired in range(3):
            await resilient.save([state_of("a", 10 * lap + fired)])
        await wait_for_recovery(proxy, events)
    kinds = [type(each) for each in events]
    assert kinds == [StoreDegraded, StoreRecovered] * 2


async def test_a_server_that_starts_later_gets_the_saved_states(
    start: Start, open_store: OpenStore, events: list[StoreEvent]
) -> None:
    port = free_port()
    store = ResilientStore(RedisStore(f"redis://127.0.0.1:{port}/0"), retry_every="10ms")
    store.listen(events.append)
    await open_store(store)
    assert await store.load(["a", "b"]) == [None, None]
    await store.save([state_of("a", 1)])
    (event,) = events
    assert isinstance(event, StoreDegraded)
    assert event.operation is StoreOperation.LOAD
    assert str(port) in event.error
    running = await asyncio.to_thread(start, port=port)
    await wait_until(lambda: len(events) == 2, within=60, sentence="the store has recovered")
    assert events[1] == StoreRecovered(written=1, kept=0)
    with running.admin() as admin:
        assert admin.keys() == [b"tampu:task:{a}:state"]


async def test_closing_during_an_outage_logs_unsaved_changes(
    proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    store = ResilientStore(RedisStore(proxy.url, timeout=SHORT_TIMEOUT), retry_every="10ms")
    await store.open()
    await store.save([state_of("a", 1)])
    cut_off_server(proxy)
    await store.save([state_of("a", 2), state_of("b", 1)])
    caplog.clear()
    await asyncio.wait_for(store.close(), 20)
    (record,) = [each for each in caplog.records if each.name.startswith("tampu.scheduler")]
    assert record.message.startswith("closed the task store; states not written back: 2 (")
    assert vars(record)["tasks"] == 2
    assert not {t.get_name() for t in asyncio.all_tasks()} & {
        "tampu-store-recovery",
        "tampu-lane",
    }


async def test_closing_after_an_outage_writes_back(proxy: Proxy, store: RedisStore) -> None:
    resilient = ResilientStore(RedisStore(proxy.url, timeout="2s"), retry_every="1h")
    await resilient.open()
    await resilient.save([state_of("a", 1)])
    cut_off_server(proxy)
    await resilient.save([state_of("a", 2)])
    reconnect(proxy)
    await asyncio.wait_for(resilient.close(), 20)
    assert await store.load(["a"]) == [state_of("a", 2)]


async def wait_for_recovery(proxy: Proxy, events: list[StoreEvent]) -> None:
    """Make the server reachable, and wait until the store has recovered."""
    reconnect(proxy)
    await wait_until(
        lambda: isinstance(events[-1], StoreRecovered),
        within=60,
        sentence="the store has recovered",
    )
