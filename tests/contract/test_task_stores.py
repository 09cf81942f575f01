"""States of tasks on real servers."""

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
from tests.stores import FULL, ODD_IDS, Opened, StoreSuite, opening, state_of
from tests.topology import Cluster, cluster
from tests.waiting import wait_until

pytestmark = pytest.mark.every_server

KEY = b"tampu:task:{t}:state"
NEW_PEER_KEY = b"scheduler:valkey:job-state:t"
OLD_PEER_KEY = b"scheduler:job-state:t"
QUICK = "200ms"
PATIENT = "20s"

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
def built(binary: Path) -> Iterator[Cluster]:
    with cluster(binary) as made:
        yield made


@pytest.fixture
async def opened() -> AsyncIterator[Opened]:
    async with opening() as made:
        yield made


@pytest.fixture
async def store(running: RunningServer, opened: Opened) -> RedisStore:
    made = RedisStore(running.url, timeout=PATIENT)
    await opened(made)
    return made


@pytest.fixture
async def proxy(running: RunningServer) -> AsyncIterator[Proxy]:
    async with Proxy(running.port) as made:
        yield made


class TestRedisStore(StoreSuite):
    """The suite, on every server."""


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

    async def test_a_prefix_of_one_s_own_keeps_tasks_apart(
        self, running: RunningServer, store: RedisStore, opened: Opened
    ) -> None:
        other = RedisStore(running.url, prefix="app1:", timeout=PATIENT)
        await opened(other)
        await store.save([state_of("t", 1)])
        await other.save([state_of("t", 2)])
        assert await store.load(["t"]) == [state_of("t", 1)]
        assert await other.load(["t"]) == [state_of("t", 2)]

    @pytest.mark.parametrize("body", [b"no json", b"", b'{"task_id":"other"}', b"\xff"])
    async def test_what_is_no_state_is_told_beside_its_neighbours(
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
    async def test_a_key_of_another_type_is_told_beside_its_neighbours(
        self, store: RedisStore, admin: redis.Redis, key: bytes
    ) -> None:
        admin.hset(key, "version", "1")
        await store.save([FULL])
        bad, full = await store.load(["t", FULL.task_id])
        assert isinstance(bad, DecodeError)
        assert "another type" in str(bad)
        assert full == FULL


class TestThePeersStates:
    @pytest.mark.parametrize("key", [NEW_PEER_KEY, OLD_PEER_KEY])
    async def test_they_are_found_where_we_have_none(
        self, store: RedisStore, admin: redis.Redis, key: bytes
    ) -> None:
        admin.set(key, PEER_JSON)
        assert await store.load(["nobody", "t"]) == [None, PEER_STATE]

    async def test_its_newer_key_counts_before_its_older_one(
        self, store: RedisStore, admin: redis.Redis
    ) -> None:
        admin.set(OLD_PEER_KEY, OLDER_JSON)
        admin.set(NEW_PEER_KEY, PEER_JSON)
        assert await store.load(["t"]) == [PEER_STATE]

    async def test_ours_counts_before_both(self, store: RedisStore, admin: redis.Redis) -> None:
        admin.set(OLD_PEER_KEY, OLDER_JSON)
        admin.set(NEW_PEER_KEY, PEER_JSON)
        await store.save([state_of("t", 1)])
        assert await store.load(["t"]) == [state_of("t", 1)]
        assert admin.get(NEW_PEER_KEY) == PEER_JSON, "a save writes our own key only"
        assert admin.get(OLD_PEER_KEY) == OLDER_JSON

    async def test_one_that_cannot_be_read_is_told(
        self, store: RedisStore, admin: redis.Redis
    ) -> None:
        admin.set(NEW_PEER_KEY, b'{"job_id":"t"}')
        admin.set(OLD_PEER_KEY, OLDER_JSON)
        (found,) = await store.load(["t"])
        assert isinstance(found, DecodeError), "an older state would run occurrences again"

    async def test_a_task_that_is_deleted_is_deleted_there_too(
        self, store: RedisStore, admin: redis.Redis
    ) -> None:
        admin.set(OLD_PEER_KEY, OLDER_JSON)
        admin.set(NEW_PEER_KEY, PEER_JSON)
        await store.save([state_of("t")])
        await store.delete(["t"])
        assert admin.keys() == []
        assert await store.load(["t"]) == [None]

    async def test_a_prefix_of_one_s_own_has_none(
        self, running: RunningServer, opened: Opened, admin: redis.Redis
    ) -> None:
        store = RedisStore(running.url, prefix="app1:", timeout=PATIENT)
        await opened(store)
        admin.set(NEW_PEER_KEY, PEER_JSON)
        admin.set(OLD_PEER_KEY, PEER_JSON)
        assert await store.load(["t"]) == [None]
        await store.delete(["t"])
        assert admin.exists(NEW_PEER_KEY, OLD_PEER_KEY) == 2


class TestTrouble:
    async def test_nobody_there_is_told_at_once(self, opened: Opened) -> None:
        store = RedisStore(f"redis://:s3cret@127.0.0.1:{free_port()}/0")
        await opened(store)
        with pytest.raises(ServerUnreachable) as caught:
            await store.load(["t"])
        assert "s3cret" not in f"{caught.value}{store!r}"

    async def test_a_server_that_does_not_answer_is_told_at_the_time_limit(
        self, proxy: Proxy, opened: Opened
    ) -> None:
        store = RedisStore(proxy.url, timeout=QUICK)
        await opened(store)
        await wait_until(partial(saves, store), within=10, sentence="it is reached in time")
        proxy.hold_replies = True
        with pytest.raises(ServerError) as caught:
            await asyncio.wait_for(store.load(["t"]), 10)
        assert caught.value.verdict is not Verdict.GIVE_UP
        proxy.hold_replies = False
        await wait_until(partial(answers, store), within=10, sentence="it finds back by itself")

    async def test_a_server_that_accepts_and_says_nothing_is_told_at_the_time_limit(
        self, proxy: Proxy, opened: Opened
    ) -> None:
        proxy.hold_replies = True
        store = RedisStore(proxy.url, timeout=QUICK)
        await opened(store)
        with pytest.raises(ServerUnreachable):
            await asyncio.wait_for(store.load(["t"]), 10)

    async def test_a_connection_that_breaks_is_made_again_without_a_word(
        self, proxy: Proxy, opened: Opened
    ) -> None:
        store = RedisStore(proxy.url, timeout=PATIENT)
        await opened(store)
        for fired in range(5):
            await store.save([state_of("t", fired)])
            proxy.cut()
            assert await store.load(["t"]) == [state_of("t", fired)]

    async def test_a_server_without_memory_refuses_with_a_typed_error(
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

    async def test_a_right_that_is_missing_is_access_denied(
        self, running: RunningServer, opened: Opened, admin: redis.Redis
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
            await opened(store)
            assert await store.load(["t"]) == [None]
            with pytest.raises(AccessDenied) as caught:
                await store.save([FULL])
            assert "s3cret" not in str(caught.value)
        finally:
            admin.acl_deluser("reader")

    async def test_credentials_come_from_a_callback(
        self, running: RunningServer, opened: Opened, admin: redis.Redis
    ) -> None:
        admin.acl_setuser(
            "keeper", enabled=True, passwords=["+s3cret"], keys=["*"], categories=["+@all"]
        )
        try:
            store = RedisStore(running.url, credentials=lambda: ("keeper", "s3cret"))
            await opened(store)
            await store.save([FULL])
            assert "keeper" in {each["user"] for each in admin.client_list()}
        finally:
            admin.acl_deluser("keeper")


class TestOpeningAndClosing:
    async def test_the_last_of_its_users_disconnects(
        self, running: RunningServer, admin: redis.Redis
    ) -> None:
        before = len(admin.client_list())
        store = RedisStore(running.url, timeout=PATIENT)
        await store.open()
        await store.open()
        await store.save([FULL])
        await store.close()
        assert await store.load([FULL.task_id]) == [FULL]
        assert len(admin.client_list()) == before + 1, "one connection does for all"
        await store.close()
        await wait_until(
            lambda: len(admin.client_list()) == before, within=10, sentence="it has disconnected"
        )

    async def test_it_can_be_opened_again(self, running: RunningServer) -> None:
        store = RedisStore(running.url, timeout=PATIENT)
        for _ in range(2):
            await store.open()
            await store.save([FULL])
            await store.close()

    async def test_a_client_of_the_user_s_own_stays_his(
        self, running: RunningServer, opened: Opened
    ) -> None:
        async with Redis(port=running.port) as client:
            store = RedisStore(client, timeout=PATIENT)
            await store.open()
            await store.save([FULL])
            await store.close()
            assert await client.exists("tampu:task:{full}:state") == 1

    @pytest.mark.parametrize("options", [{"prefix": "{a}"}, {"timeout": 0}, {"timeout": "soon"}])
    def test_an_option_that_cannot_be_is_named(self, options: dict[str, Any]) -> None:
        with pytest.raises(OptionError, match=f"{next(iter(options))}="):
            RedisStore(**options)


class TestInACluster:
    @pytest.fixture
    async def spread(self, built: Cluster, opened: Opened) -> RedisStore:
        for node in built.masters:
            with node.admin() as admin:
                admin.flushall()
        store = RedisStore(built.url, timeout=PATIENT)
        await opened(store)
        return store

    async def test_tasks_lie_on_all_nodes_and_are_found_together(
        self, spread: RedisStore, built: Cluster
    ) -> None:
        states = [state_of(f"task-{n}", n) for n in range(100)]
        ids = [state.task_id for state in states] + ODD_IDS
        await spread.save(states)
        assert await spread.load(ids) == states + [None] * len(ODD_IDS)
        assert all(keys_of(node) for node in built.masters)
        assert sum(map(keys_of, built.masters)) == 100
        await spread.delete(ids)
        assert sum(map(keys_of, built.masters)) == 0

    async def test_the_peer_s_states_are_found_and_deleted_in_slots_of_their_own(
        self, spread: RedisStore, built: Cluster
    ) -> None:
        for key in (NEW_PEER_KEY, OLD_PEER_KEY):
            with built.owner(key).admin() as admin:
                admin.set(key, PEER_JSON)
        assert len({built.owner(key).port for key in (KEY, NEW_PEER_KEY, OLD_PEER_KEY)}) > 1
        assert await spread.load(["t"]) == [PEER_STATE]
        await spread.save([PEER_STATE])
        await spread.delete(["t"])
        assert sum(map(keys_of, built.masters)) == 0

    async def test_a_slot_that_moves_is_followed(self, spread: RedisStore, built: Cluster) -> None:
        await spread.save([state_of("t", 1)])
        await asyncio.to_thread(built.move, KEY, built.other(KEY))
        assert await spread.load(["t"]) == [state_of("t", 1)]
        await spread.save([state_of("t", 2)])
        assert await spread.load(["t"]) == [state_of("t", 2)]


async def saves(store: RedisStore) -> bool:
    try:
        await store.save([state_of("t", 1)])
    except ServerError:
        return False
    return True


async def answers(store: RedisStore) -> bool:
    try:
        return await store.load(["t"]) == [state_of("t", 1)]
    except ServerError:
        return False


def keys_of(node: RunningServer) -> int:
    with node.admin() as admin:
        return int(admin.dbsize())
