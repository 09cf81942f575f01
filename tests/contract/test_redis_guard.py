"""The guard on real servers and in a cluster."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import redis
from redis.crc import key_slot

from tampu.errors import OptionError, ServerUnreachable
from tampu.scheduler.guard import GuardedResult, Lease, Refusal, Scope, Slot, run_guarded
from tampu.scheduler.redis_guard import RedisGuard
from tampu.wire.keys import guard_keys
from tests.servers import RunningServer, free_port
from tests.topology import Cluster, cluster


def slot(at_ms: int, *, resource: str = "printer", scope: Scope = Scope.OCCURRENCE) -> Slot:
    return Slot("t", resource, scope, at_ms)


@pytest.fixture
async def guard(running: RunningServer) -> AsyncIterator[RedisGuard]:
    made = RedisGuard(running.url)
    await made.open()
    yield made
    await made.close()


async def acquire(guard: RedisGuard, wanted: Slot) -> Lease:
    lease = await guard.acquire(wanted)
    assert isinstance(lease, Lease)
    return lease


@pytest.mark.every_server
class TestRedisGuard:
    async def test_two_guards_agree_on_one_occurrence(
        self, guard: RedisGuard, running: RunningServer
    ) -> None:
        other = RedisGuard(running.url)
        await other.open()
        lease = await acquire(guard, slot(1000))
        assert await other.acquire(slot(1000)) is Refusal.HELD
        assert await other.acquire(slot(5, scope=Scope.RESOURCE)) is Refusal.HELD
        assert await guard.renew(lease)
        assert await guard.release(lease)
        assert await other.acquire(slot(1000)) is Refusal.DONE
        assert isinstance(await other.acquire(slot(5, scope=Scope.RESOURCE)), Lease)
        await other.close()

    async def test_tokens_are_random(self, guard: RedisGuard) -> None:
        tokens = {(await acquire(guard, slot(at_ms))).token for at_ms in range(10)}
        assert len(tokens) == 10
        assert {len(token) for token in tokens} == {32}

    async def test_keys_start_with_the_given_prefix(
        self, running: RunningServer, admin: redis.Redis
    ) -> None:
        made = RedisGuard(running.url, prefix="mine:", remember="1h")
        await made.open()
        await made.release(await acquire(made, slot(1000)))
        await made.close()
        assert sorted(admin.keys("*")) == [b"mine:{printer}:done", b"mine:{printer}:held"]
        assert 3_500_000 < admin.pttl("mine:{printer}:done") <= 3_600_000

    async def test_two_runs_with_resource_scope_exclude_each_other(self, guard: RedisGuard) -> None:
        async def inner() -> GuardedResult[None] | Refusal:
            return await run_guarded(guard, slot(2000, scope=Scope.RESOURCE), never)

        async def never() -> None:
            raise AssertionError("it ran at the same time")

        outer = await run_guarded(guard, slot(1000, scope=Scope.RESOURCE), inner)
        assert outer == GuardedResult(Refusal.HELD, lost=False)

    async def test_a_run_that_is_longer_than_its_lease_keeps_it(
        self, running: RunningServer
    ) -> None:
        short = {"lease": 0.4, "renew_every": 0.05, "timeout": 0.35}
        mine, other = (RedisGuard(running.url, **short) for _ in range(2))  # type: ignore[arg-type]
        for made in (mine, other):
            await made.open()

        async def long() -> int:
            ends = asyncio.get_running_loop().time() + 0.6
            tries = 0
            while asyncio.get_running_loop().time() < ends:
                assert await other.acquire(slot(1000)) is Refusal.HELD
                tries += 1
                await asyncio.sleep(0.01)
            return tries

        outcome = await run_guarded(mine, slot(1000), long)
        assert isinstance(outcome, GuardedResult)
        assert not outcome.lost
        assert outcome.value
        assert await other.acquire(slot(1000)) is Refusal.DONE
        for made in (mine, other):
            await made.close()

    async def test_a_guard_stays_open_until_its_last_user_closes_it(
        self, guard: RedisGuard, admin: redis.Redis
    ) -> None:
        await guard.open()
        await guard.acquire(slot(1000))
        clients = len(admin.client_list())
        await guard.close()
        assert await guard.acquire(slot(1000)) is Refusal.HELD
        assert len(admin.client_list()) == clients

    async def test_an_unreachable_server_is_a_server_error(self) -> None:
        unreachable = RedisGuard(f"redis://127.0.0.1:{free_port()}/0")
        await unreachable.open()
        with pytest.raises(ServerUnreachable):
            await unreachable.acquire(slot(1000))
        await unreachable.close()

    @pytest.mark.parametrize(
        ("option", "options"),
        [
            ("lease", {"lease": 0}),
            ("lease", {"lease": "soon"}),
            ("renew_every", {"renew_every": 0}),
            ("renew_every", {"lease": "20s", "renew_every": "20s"}),
            ("timeout", {"timeout": 0}),
            ("timeout", {"timeout": "30s"}),
            ("remember", {"remember": 0}),
            ("prefix", {"prefix": "a{b}"}),
            ("ttl", {"ttl": 5}),
        ],
    )
    def test_an_invalid_option_is_refused_by_name(
        self, option: str, options: dict[str, object]
    ) -> None:
        with pytest.raises(OptionError) as caught:
            RedisGuard("redis://127.0.0.1:1/0", **options)  # type: ignore[arg-type]
        assert caught.value.option == option

    @pytest.mark.parametrize("resource", ["", "a}b", "{x", "\n"])
    async def test_an_invalid_resource_is_refused_by_name(self, resource: str) -> None:
        with pytest.raises(OptionError) as caught:
            await RedisGuard("redis://127.0.0.1:1/0").acquire(slot(1, resource=resource))
        assert caught.value.option == "resource"


@pytest.fixture(scope="module")
def three_nodes(binary: Path) -> Iterator[Cluster]:
    with cluster(binary) as made:
        yield made


async def test_in_a_cluster_each_resource_has_one_slot(three_nodes: Cluster) -> None:
    made = RedisGuard(three_nodes.url)
    await made.open()
    owners = set()
    for number in range(12):
        wanted = slot(1000, resource=f"r{number}")
        keys = guard_keys("tampu:guard:", wanted.resource)
        assert key_slot(keys.held) == key_slot(keys.done)
        lease = await acquire(made, wanted)
        assert await made.renew(lease)
        assert await made.release(lease)
        assert await made.acquire(wanted) is Refusal.DONE
        owners.add(three_nodes.owner(keys.held).port)
    assert len(owners) == 3, "the resources should spread over all nodes"
    await made.close()
