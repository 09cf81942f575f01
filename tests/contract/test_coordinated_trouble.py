"""The coordinated store: lost replies, the memory limit, options, clusters."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterator
from pathlib import Path

import pytest
import redis
from redis.crc import key_slot

from tampu.errors import OptionError
from tampu.scheduler.stores.coordinated import CoordinatedStore
from tampu.server.lane import Lane
from tampu.server.scripts.scheduler import Completion
from tampu.wire.keys import TaskKeys, shared_task_keys
from tests.contract.shared_tasks import (
    KEYS,
    RUN,
    claim_run,
    claim_short_run,
    open_store,
    state,
    wait_for_expiry,
)
from tests.proxy import Proxy
from tests.servers import RunningServer
from tests.topology import Cluster, cluster
from tests.waiting import wait_until

pytestmark = pytest.mark.every_server


@pytest.fixture
async def store(running: RunningServer) -> AsyncIterator[CoordinatedStore]:
    async with open_store(running.url) as made:
        yield made


class TestTrouble:
    async def test_runs_start_and_end_at_the_memory_limit(
        self, store: CoordinatedStore, lane: Lane, admin: redis.Redis
    ) -> None:
        old = await claim_short_run(lane)
        await wait_for_expiry(store)
        admin.config_set("maxmemory", 1)
        try:
            token = await store.reclaim("t", old) or ""
            assert await store.renew("t", token)
            assert await store.advance(1, state(2))
            assert await store.complete(2, token, state(3)) is Completion.DONE
            token = await claim_run(store, 3)
            assert await store.complete(4, token, state(5)) is Completion.DONE
            assert await store.forget("t", 5)
        finally:
            admin.config_set("maxmemory", 0)

    async def test_each_call_survives_a_lost_reply(
        self, store: CoordinatedStore, running: RunningServer, admin: redis.Redis
    ) -> None:
        await _load_all_scripts(store)
        async with Proxy(running.port) as proxy, open_store(proxy.url) as far:
            await far.read("t")

            async def lose_reply(call: Awaitable[object]) -> object:
                return await _lose_reply(proxy, admin, call)

            assert await lose_reply(far.advance(0, state(1))) is True
            first = await lose_reply(far.claim(1, state(2), RUN))
            admin.hset(KEYS.task, "until", 1)
            second = await lose_reply(far.reclaim("t", str(first)))
            assert (await lose_reply(far.renew("t", str(second)))) is True
            assert await lose_reply(far.complete(2, str(second), state(3))) is Completion.DONE
            assert (await far.read("t")).version == 3
            assert await lose_reply(far.forget("t", 3)) is True


async def _load_all_scripts(store: CoordinatedStore) -> None:
    token = await store.claim(0, state(task_id="warm"), RUN) or ""
    await store.advance(1, state(task_id="warm"))
    await store.renew("warm", token)
    await store.reclaim("warm", token)
    await store.complete(2, token, state(task_id="warm"))
    await store.forget("warm", 3)


async def _lose_reply(proxy: Proxy, admin: redis.Redis, call: Awaitable[object]) -> object:
    """The answer of a call that the server carries out, but whose first reply is lost."""
    before = admin.hgetall(KEYS.task)
    proxy.hold_replies = True
    pending = asyncio.ensure_future(call)
    await wait_until(
        lambda: admin.hgetall(KEYS.task) != before,
        within=60,
        sentence="the server carried it out",
    )
    proxy.hold_replies = False
    proxy.cut()
    return await pending


class TestOptions:
    @pytest.mark.parametrize(
        ("option", "options"),
        [
            ("lease", {"lease": 0}),
            ("renew_every", {"renew_every": "30s"}),
            ("timeout", {"timeout": "1m"}),
            ("prefix", {"prefix": ""}),
            ("remember", {"remember": "1h"}),
        ],
    )
    def test_an_invalid_option_is_refused_by_name(
        self, option: str, options: dict[str, object]
    ) -> None:
        with pytest.raises(OptionError) as caught:
            CoordinatedStore("redis://127.0.0.1:1/0", **options)  # type: ignore[arg-type]
        assert caught.value.option == option

    async def test_keys_start_with_the_given_prefix(
        self, running: RunningServer, admin: redis.Redis
    ) -> None:
        async with open_store(running.url, prefix="mine:", lease="1m", renew_every="2s") as store:
            assert (store.lease_s, store.renew_every_s) == (60.0, 2.0)
            await store.advance(0, state(1))
        assert admin.keys("*") == [b"mine:{t}:course"]


@pytest.fixture(scope="module")
def three_nodes(binary: Path) -> Iterator[Cluster]:
    with cluster(binary) as made:
        yield made


async def test_in_a_cluster_each_task_has_one_slot(three_nodes: Cluster) -> None:
    async with open_store(three_nodes.url) as store:
        owners = {await _check_task(three_nodes, store, f"t{number}") for number in range(12)}
    assert len(owners) == 3, "the tasks should spread over all nodes"


async def _check_task(three_nodes: Cluster, store: CoordinatedStore, task_id: str) -> int:
    """Make all calls for a task; return its node."""
    keys = shared_task_keys(TaskKeys(), task_id)
    assert key_slot(keys.task) == key_slot(keys.plain)
    token = await store.claim(0, state(1, task_id=task_id), RUN)
    assert token is not None
    assert await store.renew(task_id, token)
    assert await store.complete(1, token, state(2, task_id=task_id)) is Completion.DONE
    assert (await store.read(task_id)).version == 2
    assert await store.forget(task_id, 2)
    return three_nodes.owner(keys.task).port
