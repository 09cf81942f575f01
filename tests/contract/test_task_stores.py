"""The Redis store on real servers and in a cluster."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.asyncio import Redis

from tampu.errors import (
    AccessDenied,
    DecodeError,
    OptionError,
    QueueFull,
    ServerError,
    ServerUnreachable,
    Verdict,
)
from tampu.scheduler.stores.redis import RedisStore
from tampu.wire.task_state import TaskState
from tests.proxy import Proxy
from tests.servers import RunningServer, free_port
from tests.stores import FULL, ODD_IDS, OpenStore, StoreSuite, state_of, store_opener
from tests.topology import Cluster, cluster
from tests.waiting import wait_until

pytestmark = pytest.mark.every_server

KEY = b"tampu:task:{t}:state"
NEW_PEER_KEY = b"scheduler:valkey:job-state:t"
OLD_PEER_KEY = b"scheduler:job-state:t"
SHORT_TIMEOUT = "200ms"
LONG_TIMEOUT = "20s"

# As the Rust crate's serde_json writes it.
PEER_JSON = (
    b'{"job_id":"t","trigger_count":42,"last_run_at":"2026-03-08T02:29:59.500000001Z",'
    b'"last_success_at":"2026-03-08T02:30:00.123456789Z",'
    b'"next_run_at":"2026-03-08T02:35:00.000000000Z","last_error":null}'
)
PEER_STATE = TaskState(
    task_id="t",
    fired=42,
    last_run_ms=round(datetime(2026, 3, 8, 2, 29, 59, 500_000, tzinfo=UTC).timestamp() * 1000),
    last_success_ms=round(datetime(2026, 3, 8, 2, 30, 0, 123_000, tzinfo=UTC).timestamp() * 1000),
    next_ms=round(datetime(2026, 3, 8, 2, 35, tzinfo=UTC).timestamp() * 1000),
)
OLDER_JSON = b'{"job_id":"t","trigger_count":1}'


@pytest.fixture(scope="module")
def three_nodes(binary: Path) -> Iterator[Cluster]:
    with cluster(binary) as made:
        yield made


@pytest.fixture
async def open_store() -> AsyncIterator[OpenStore]:
    async with store_opener() as made:
        yield made


@pytest.fixture
async def store(running: RunningServer, open_store: OpenStore) -> RedisStore:
    made = RedisStore(running.url, timeout=LONG_TIMEOUT)
    await open_store(made)
    return made


@pytest.fixture
async def proxy(running: RunningServer) -> AsyncIterator[Proxy]:
    async with Proxy(running.port) as made:
        yield made


class TestRedisStore(StoreSuite):
    """The suite of all stores."""


class TestKeys:
    async def test_a_state_is_a_string_under_the_prefix(
        self, store: RedisStore, admin: redis.Redis
    ) -> None:
        await store.save([state_of("t", 3)])
        assert admin.keys() == [KEY]
        assert admin.get(KEY) == b'{"task_id":"t","next_ms":3000,"fired":3}'
        assert admin.ttl(KEY) == -1
        await store.delete(["t"])
        assert admin.keys() == []

    async def test_different_prefixes_keep_tasks_apart(
        self, running: RunningServer, store: RedisStore, open_store: OpenStore
    ) -> None:
        other = RedisStore(running.url, prefix="app1:", timeout=LONG_TIMEOUT)
        await open_store(other)
        await store.save([state_of("t", 1)])
        await other.save([state_of("t", 2)])
        assert await store.load(["t"]) == [state_of("t", 1)]
        assert await other.load(["t"]) == [state_of("t", 2)]

    @pytest.mark.parametrize("body", [b"no json", b"", b'{"task_id":"other"}', b"\xff"])
    async def test_a_malformed_state_is_reported_and_the_others_are_loaded(
        self, store: RedisStore, admin: redis.Redis, body: bytes
    ) -> None:
        admin.set(KEY, body)
        await store.save([FULL])
        bad, full = await store.load(["t", FULL.task_id])
        assert isinstance(bad, DecodeError)
        assert full == FULL
        await store.save([state_of("t")])
        assert await store.load(["t"]) == [state_of("t")]

    @pytest.mark.parametrize("key", [KEY, NEW_PEER_KEY, OLD_PEER_KEY])
    async def test_a_key_of_another_type_is_reported_and_the_others_are_loaded(
        self, store: RedisStore, admin: redis.Redis, key: bytes
    ) -> None:
        admin.hset(key, "version", "1")
        await store.save([FULL])
        bad, full = await store.load(["t", FULL.task_id])
        assert isinstance(bad, DecodeError)
        assert "another type" in str(bad)
        assert full == FULL


class TestPeerStates:
    @pytest.mark.parametrize("key", [NEW_PEER_KEY, OLD_PEER_KEY])
    async def test_a_peer_state_is_loaded_if_there_is_none_of_ours(
        self, store: RedisStore, admin: redis.Redis, key: bytes
    ) -> None:
        admin.set(key, PEER_JSON)
        assert await store.load(["nobody", "t"]) == [None, PEER_STATE]

    async def test_the_newer_peer_key_is_preferred(
        self, store: RedisStore, admin: redis.Redis
    ) -> None:
        admin.set(OLD_PEER_KEY, OLDER_JSON)
        admin.set(NEW_PEER_KEY, PEER_JSON)
        assert await store.load(["t"]) == [PEER_STATE]

    async def test_our_own_state_is_preferred(self, store: RedisStore, admin: redis.Redis) -> None:
        admin.set(OLD_PEER_KEY, OLDER_JSON)
        admin.set(NEW_PEER_KEY, PEER_JSON)
        await store.save([state_of("t", 1)])
        assert await store.load(["t"]) == [state_of("t", 1)]
        assert admin.get(NEW_PEER_KEY) == PEER_JSON, "a save writes our own key only"
        assert admin.get(OLD_PEER_KEY) == OLDER_JSON

    async def test_an_unreadable_peer_state_is_reported(
        self, store: RedisStore, admin: redis.Redis
    ) -> None:
        admin.set(NEW_PEER_KEY, b'{"job_id":"t"}')
        admin.set(OLD_PEER_KEY, OLDER_JSON)
        (found,) = await store.load(["t"])
        assert isinstance(found, DecodeError), "an older state would run occurrences again"

    async def test_a_delete_removes_the_peer_states_too(
        self, store: RedisStore, admin: redis.Redis
    ) -> None:
        admin.set(OLD_PEER_KEY, OLDER_JSON)
        admin.set(NEW_PEER_KEY, PEER_JSON)
        await store.save([state_of("t")])
        await store.delete(["t"])
        assert admin.keys() == []
        assert await store.load(["t"]) == [None]

    async def test_another_prefix_has_no_peer_states(
        self, running: RunningServer, open_store: OpenStore, admin: redis.Redis
    ) -> None:
        store = RedisStore(running.url, prefix="app1:", timeout=LONG_TIMEOUT)
        await open_store(store)
        admin.set(NEW_PEER_KEY, PEER_JSON)
        admin.set(OLD_PEER_KEY, PEER_JSON)
        assert await store.load(["t"]) == [None]
        await store.delete(["t"])
        assert admin.exists(NEW_PEER_KEY, OLD_PEER_KEY) == 2


class TestFaults:
    async def test_an_unreachable_server_is_an_error_without_the_password(
        self, open_store: OpenStore
    ) -> None:
        store = RedisStore(f"redis://:s3cret@127.0.0.1:{free_port()}/0")
        await open_store(store)
        with pytest.raises(ServerUnreachable) as caught:
            await store.load(["t"])
        assert "s3cret" not in f"{caught.value}{store!r}"

    async def test_a_call_without_a_reply_fails_at_the_timeout_and_the_store_recovers(
        self, proxy: Proxy, open_store: OpenStore
    ) -> None:
        store = RedisStore(proxy.url, timeout=SHORT_TIMEOUT)
        await open_store(store)
        await wait_until(partial(can_save, store), within=60, sentence="a save succeeds in time")
        proxy.hold_replies = True
        with pytest.raises(ServerError) as caught:
            await asyncio.wait_for(store.load(["t"]), 10)
        assert caught.value.verdict is not Verdict.GIVE_UP
        proxy.hold_replies = False
        await wait_until(partial(can_load, store), within=60, sentence="it recovers by itself")

    async def test_a_server_that_never_replies_is_unreachable(
        self, proxy: Proxy, open_store: OpenStore
    ) -> None:
        proxy.hold_replies = True
        store = RedisStore(proxy.url, timeout=SHORT_TIMEOUT)
        await open_store(store)
        with pytest.raises(ServerUnreachable):
            await asyncio.wait_for(store.load(["t"]), 10)

    async def test_a_broken_connection_is_replaced(
        self, proxy: Proxy, open_store: OpenStore
    ) -> None:
        store = RedisStore(proxy.url, timeout=LONG_TIMEOUT)
        await open_store(store)
        for fired in range(5):
            await store.save([state_of("t", fired)])
            proxy.cut()
            assert await store.load(["t"]) == [state_of("t", fired)]

    async def test_a_save_at_the_memory_limit_is_refused(
        self, store: RedisStore, admin: redis.Redis
    ) -> None:
        await store.save([state_of("t", 1)])
        admin.config_set("maxmemory", "1")
        try:
            with pytest.raises(QueueFull):
                await store.save([state_of("t", 2)])
            assert await store.load(["t"]) == [state_of("t", 1)]
            await store.delete(["t"])
        finally:
            admin.config_set("maxmemory", "0")

    async def test_a_missing_permission_is_access_denied(
        self, running: RunningServer, open_store: OpenStore, admin: redis.Redis
    ) -> None:
        admin.acl_setuser(
            "reader",
            enabled=True,
            passwords=["+s3cret"],
            keys=["*"],
            categories=["+@all"],
            commands=["-set"],
        )
        try:
            store = RedisStore(f"redis://reader:s3cret@127.0.0.1:{running.port}/0")
            await open_store(store)
            assert await store.load(["t"]) == [None]
            with pytest.raises(AccessDenied) as caught:
                await store.save([FULL])
            assert "s3cret" not in str(caught.value)
        finally:
            admin.acl_deluser("reader")

    async def test_credentials_come_from_a_callback(
        self, running: RunningServer, open_store: OpenStore, admin: redis.Redis
    ) -> None:
        admin.acl_setuser(
            "keeper", enabled=True, passwords=["+s3cret"], keys=["*"], categories=["+@all"]
        )
        try:
            store = RedisStore(running.url, credentials=lambda: ("keeper", "s3cret"))
            await open_store(store)
            await store.save([FULL])
            assert "keeper" in {each["user"] for each in admin.client_list()}
        finally:
            admin.acl_deluser("keeper")


class TestClosing:
    async def test_the_last_user_disconnects(
        self, running: RunningServer, admin: redis.Redis
    ) -> None:
        before = len(admin.client_list())
        store = RedisStore(running.url, timeout=LONG_TIMEOUT)
        await store.open()
        await store.open()
        await store.save([FULL])
        await store.close()
        assert await store.load([FULL.task_id]) == [FULL]
        assert len(admin.client_list()) == before + 1, "all users share one connection"
        await store.close()
        await wait_until(
            lambda: len(admin.client_list()) == before, within=60, sentence="it has disconnected"
        )

    async def test_a_store_can_be_opened_again(self, running: RunningServer) -> None:
        store = RedisStore(running.url, timeout=LONG_TIMEOUT)
        for _ in range(2):
            await store.open()
            await store.save([FULL])
            await store.close()

    async def test_a_client_of_the_user_is_not_closed(
        self, running: RunningServer, open_store: OpenStore
    ) -> None:
        async with Redis(port=running.port) as client:
            store = RedisStore(client, timeout=LONG_TIMEOUT)
            await store.open()
            await store.save([FULL])
            await store.close()
            assert await client.exists("tampu:task:{full}:state") == 1

    @pytest.mark.parametrize("options", [{"prefix": "{a}"}, {"timeout": 0}, {"timeout": "soon"}])
    def test_an_invalid_option_is_refused_by_name(self, options: dict[str, Any]) -> None:
        with pytest.raises(OptionError, match=f"^Invalid {next(iter(options))} "):
            RedisStore(**options)


class TestCluster:
    @pytest.fixture
    async def cluster_store(self, three_nodes: Cluster, open_store: OpenStore) -> RedisStore:
        for node in three_nodes.masters:
            with node.admin() as admin:
                admin.flushall()
        store = RedisStore(three_nodes.url, timeout=LONG_TIMEOUT)
        await open_store(store)
        return store

    async def test_tasks_on_all_nodes_are_loaded_together(
        self, cluster_store: RedisStore, three_nodes: Cluster
    ) -> None:
        states = [state_of(f"task-{n}", n) for n in range(100)]
        ids = [state.task_id for state in states] + ODD_IDS
        await cluster_store.save(states)
        assert await cluster_store.load(ids) == states + [None] * len(ODD_IDS)
        assert all(count_keys(node) for node in three_nodes.masters)
        assert sum(map(count_keys, three_nodes.masters)) == 100
        await cluster_store.delete(ids)
        assert sum(map(count_keys, three_nodes.masters)) == 0

    async def test_peer_states_in_other_slots_are_loaded_and_deleted(
        self, cluster_store: RedisStore, three_nodes: Cluster
    ) -> None:
        for key in (NEW_PEER_KEY, OLD_PEER_KEY):
            with three_nodes.owner(key).admin() as admin:
                admin.set(key, PEER_JSON)
        assert len({three_nodes.owner(key).port for key in (KEY, NEW_PEER_KEY, OLD_PEER_KEY)}) > 1
        assert await cluster_store.load(["t"]) == [PEER_STATE]
        await cluster_store.save([PEER_STATE])
        await cluster_store.delete(["t"])
        assert sum(map(count_keys, three_nodes.masters)) == 0

    async def test_a_slot_that_moves_is_followed(
        self, cluster_store: RedisStore, three_nodes: Cluster
    ) -> None:
        await cluster_store.save([state_of("t", 1)])
        await asyncio.to_thread(three_nodes.move, KEY, three_nodes.other(KEY))
        assert await cluster_store.load(["t"]) == [state_of("t", 1)]
        await cluster_store.save([state_of("t", 2)])
        assert await cluster_store.load(["t"]) == [state_of("t", 2)]


async def can_save(store: RedisStore) -> bool:
    try:
        await store.save([state_of("t", 1)])
    except ServerError:
        return False
    return True


async def can_load(store: RedisStore) -> bool:
    try:
        return await store.load(["t"]) == [state_of("t", 1)]
    except ServerError:
        return False


def count_keys(node: RunningServer) -> int:
    with node.admin() as admin:
        return int(admin.dbsize())
