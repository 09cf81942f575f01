"""Leases on real servers: who gets one, how long it lasts, what is remembered."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import redis
from msgspec.structs import replace

from tampu.errors import CommandRefused
from tampu.server.lane import Lane
from tampu.server.scripts.scheduler import (
    MOST_DONE,
    LeaseAnswer,
    LeaseClaim,
    acquire_lease,
    release_lease,
    renew_lease,
)
from tampu.wire.keys import done_member, guard_keys, held_field
from tests.contract.lanes import OpenThroughProxy
from tests.proxy import Proxy
from tests.waiting import wait_until

pytestmark = pytest.mark.every_server

KEYS = guard_keys("tampu:guard:", "house")
LEASE_MS = 30_000
REMEMBER_MS = 86_400_000
SHORT_MS = 50
WHOLE = None


def claim(
    at_ms: int | None, who: str = "a", *, task: str = "t", lease_ms: int = LEASE_MS
) -> LeaseClaim:
    member = done_member(task, at_ms or 0)
    return LeaseClaim(held_field(at_ms), member, who * 32, lease_ms)


async def release(lane: Lane, held: LeaseClaim, *, remember_ms: int = REMEMBER_MS) -> bool:
    return await release_lease(lane, KEYS, held, remember_ms=remember_ms)


async def wait_until_ours(lane: Lane, wanted: LeaseClaim) -> None:
    async def is_ours() -> bool:
        return await acquire_lease(lane, KEYS, wanted) is LeaseAnswer.OURS

    await wait_until(is_ours, within=60, sentence="the earlier lease has expired")


class TestAcquire:
    async def test_an_occurrence_is_held_by_one(self, lane: Lane) -> None:
        assert await acquire_lease(lane, KEYS, claim(1000, "a")) is LeaseAnswer.OURS
        assert await acquire_lease(lane, KEYS, claim(1000, "b")) is LeaseAnswer.HELD
        assert await acquire_lease(lane, KEYS, claim(2000, "b")) is LeaseAnswer.OURS

    async def test_one_of_many_concurrent_claims_gets_it(self, lane: Lane) -> None:
        wanted = [replace(claim(1000), token=f"{n:032}") for n in range(50)]
        answers = await asyncio.gather(*(acquire_lease(lane, KEYS, each) for each in wanted))
        assert sorted(answers, key=lambda answer: answer.value) == [LeaseAnswer.HELD] * 49 + [
            LeaseAnswer.OURS
        ]

    async def test_the_whole_resource_excludes_each_occurrence_and_itself(self, lane: Lane) -> None:
        assert await acquire_lease(lane, KEYS, claim(WHOLE, "a")) is LeaseAnswer.OURS
        assert await acquire_lease(lane, KEYS, claim(1000, "b")) is LeaseAnswer.HELD
        assert await acquire_lease(lane, KEYS, claim(WHOLE, "c")) is LeaseAnswer.HELD

    async def test_an_occurrence_excludes_the_whole_resource(self, lane: Lane) -> None:
        await acquire_lease(lane, KEYS, claim(1000, "a"))
        assert await acquire_lease(lane, KEYS, claim(WHOLE, "b")) is LeaseAnswer.HELD
        await release(lane, claim(1000, "a"))
        assert await acquire_lease(lane, KEYS, claim(WHOLE, "b")) is LeaseAnswer.OURS

    async def test_an_expired_lease_can_be_taken(self, lane: Lane) -> None:
        await acquire_lease(lane, KEYS, claim(WHOLE, "a", lease_ms=SHORT_MS))
        assert await acquire_lease(lane, KEYS, claim(WHOLE, "b")) is LeaseAnswer.HELD
        await wait_until_ours(lane, claim(WHOLE, "b"))

    async def test_expired_leases_are_removed_from_the_hash(
        self, lane: Lane, admin: redis.Redis
    ) -> None:
        claims = [claim(at_ms, lease_ms=SHORT_MS) for at_ms in range(20)]
        assert {await acquire_lease(lane, KEYS, each) for each in claims} == {LeaseAnswer.OURS}
        await wait_until_ours(lane, claim(WHOLE, "b"))
        assert admin.hkeys(KEYS.held) == [b"*"]

    async def test_a_repeated_claim_is_still_ours(self, lane: Lane) -> None:
        for at_ms, who in ((1000, "a"), (WHOLE, "b")):
            wanted = claim(at_ms, who)
            first = await acquire_lease(lane, KEYS, wanted)
            assert [first, await acquire_lease(lane, KEYS, wanted)] == [LeaseAnswer.OURS] * 2
            await release(lane, wanted)

    async def test_a_done_occurrence_cannot_be_taken_again(self, lane: Lane) -> None:
        await acquire_lease(lane, KEYS, claim(1000, "a"))
        await release(lane, claim(1000, "a"))
        assert await acquire_lease(lane, KEYS, claim(1000, "b")) is LeaseAnswer.DONE
        # Repeated after its own release, it must not take a lease that nobody would release.
        assert await acquire_lease(lane, KEYS, claim(1000, "a")) is LeaseAnswer.DONE
        assert await acquire_lease(lane, KEYS, claim(1000, "b", task="other")) is LeaseAnswer.OURS

    async def test_the_hash_expires_after_its_leases(self, lane: Lane, admin: redis.Redis) -> None:
        await acquire_lease(lane, KEYS, claim(1, lease_ms=60_000))
        await acquire_lease(lane, KEYS, claim(2, lease_ms=SHORT_MS))
        assert 60_000 < admin.pttl(KEYS.held) <= 120_000

    async def test_a_malformed_field_holds_nothing(self, lane: Lane, admin: redis.Redis) -> None:
        admin.hset(KEYS.held, "*", "odd")
        assert await acquire_lease(lane, KEYS, claim(1000)) is LeaseAnswer.OURS
        assert not admin.hexists(KEYS.held, "*")

    @pytest.mark.parametrize("wrong", ["held", "done"])
    async def test_a_key_of_a_wrong_type_is_refused_and_nothing_is_written(
        self, lane: Lane, admin: redis.Redis, wrong: str
    ) -> None:
        admin.set(getattr(KEYS, wrong), "odd")
        with pytest.raises(CommandRefused):
            await acquire_lease(lane, KEYS, claim(1000))
        assert admin.dbsize() == 1


class TestRenew:
    async def test_a_renewed_lease_lasts_longer(self, lane: Lane, admin: redis.Redis) -> None:
        await acquire_lease(lane, KEYS, claim(1000, lease_ms=SHORT_MS))
        await acquire_lease(lane, KEYS, claim(2000, lease_ms=SHORT_MS))
        assert await renew_lease(lane, KEYS, claim(1000, lease_ms=LEASE_MS))
        await wait_until_ours(lane, claim(2000, "b"))  # the one that was not renewed has expired
        assert await acquire_lease(lane, KEYS, claim(1000, "b")) is LeaseAnswer.HELD
        assert LEASE_MS < admin.pttl(KEYS.held) <= 2 * LEASE_MS

    async def test_only_the_owner_renews(self, lane: Lane, admin: redis.Redis) -> None:
        await acquire_lease(lane, KEYS, claim(1000, "a"))
        before = admin.hgetall(KEYS.held)
        assert not await renew_lease(lane, KEYS, claim(1000, "b", lease_ms=99_000))
        assert not await renew_lease(lane, KEYS, claim(2000, "a"))
        assert admin.hgetall(KEYS.held) == before

    async def test_an_expired_lease_is_renewed_if_nobody_has_taken_it(
        self, lane: Lane, admin: redis.Redis
    ) -> None:
        admin.hset(KEYS.held, "1000", f"{'a' * 32}:1")
        assert await renew_lease(lane, KEYS, claim(1000))
        assert await acquire_lease(lane, KEYS, claim(1000, "b")) is LeaseAnswer.HELD

    async def test_a_lease_that_was_taken_over_is_lost(self, lane: Lane) -> None:
        await acquire_lease(lane, KEYS, claim(1000, "a", lease_ms=SHORT_MS))
        await wait_until_ours(lane, claim(1000, "b"))
        assert not await renew_lease(lane, KEYS, claim(1000, "a"))
        assert not await release(lane, claim(1000, "a"))
        assert await renew_lease(lane, KEYS, claim(1000, "b"))

    async def test_a_released_lease_is_not_renewed_by_a_late_call(self, lane: Lane) -> None:
        await acquire_lease(lane, KEYS, claim(WHOLE, "a"))
        await release(lane, claim(WHOLE, "a"))
        assert not await renew_lease(lane, KEYS, claim(WHOLE, "a"))
        assert await acquire_lease(lane, KEYS, claim(WHOLE, "b", task="other")) is LeaseAnswer.OURS


class TestRelease:
    async def test_only_the_owner_releases(self, lane: Lane, admin: redis.Redis) -> None:
        await acquire_lease(lane, KEYS, claim(1000, "a"))
        assert not await release(lane, claim(1000, "b"))
        assert not admin.exists(KEYS.done)
        assert await acquire_lease(lane, KEYS, claim(1000, "b")) is LeaseAnswer.HELD

    async def test_a_repeated_release_succeeds_whatever_happened_since(self, lane: Lane) -> None:
        await acquire_lease(lane, KEYS, claim(WHOLE, "a"))
        assert await release(lane, claim(WHOLE, "a"))
        assert await release(lane, claim(WHOLE, "a"))
        await acquire_lease(lane, KEYS, claim(WHOLE, "b", task="other"))
        assert await release(lane, claim(WHOLE, "a"))
        assert await acquire_lease(lane, KEYS, claim(WHOLE, "c", task="third")) is LeaseAnswer.HELD

    async def test_the_last_sixteen_releases_can_be_repeated(
        self, lane: Lane, admin: redis.Redis
    ) -> None:
        wanted = [replace(claim(at_ms), token=f"{at_ms:032}") for at_ms in range(40)]
        for each in wanted:
            await acquire_lease(lane, KEYS, each)
            await release(lane, each)
        assert [await release(lane, each) for each in wanted] == [False] * 24 + [True] * 16
        assert admin.hkeys(KEYS.held) == [b"="]

    async def test_done_occurrences_are_forgotten_after_a_while(
        self, lane: Lane, admin: redis.Redis
    ) -> None:
        old, young = done_member("t", 1), done_member("t", 2)
        seconds, _ = admin.time()
        now_ms = seconds * 1000
        admin.zadd(KEYS.done, {old: now_ms - 10_000, young: now_ms - 1000})
        await acquire_lease(lane, KEYS, claim(1000))
        await release(lane, claim(1000), remember_ms=5000)
        assert admin.zrange(KEYS.done, 0, -1) == [young, done_member("t", 1000)]
        assert 0 < admin.pttl(KEYS.done) <= 5000
        assert await acquire_lease(lane, KEYS, claim(1)) is LeaseAnswer.OURS

    async def test_the_longest_memory_counts(self, lane: Lane, admin: redis.Redis) -> None:
        for who, remember_ms in (("a", REMEMBER_MS), ("b", 5000)):
            await acquire_lease(lane, KEYS, claim(1000, who, task=who))
            await release(lane, claim(1000, who, task=who), remember_ms=remember_ms)
        assert admin.pttl(KEYS.done) > REMEMBER_MS - 60_000

    async def test_at_most_ten_thousand_done_occurrences_are_remembered(
        self, lane: Lane, admin: redis.Redis
    ) -> None:
        seconds, _ = admin.time()
        many = {f"old@{n}": seconds * 1000 - 20_000 + n for n in range(MOST_DONE)}
        admin.zadd(KEYS.done, many)
        await acquire_lease(lane, KEYS, claim(1000))
        await release(lane, claim(1000))
        assert admin.zcard(KEYS.done) == MOST_DONE
        assert admin.zscore(KEYS.done, "old@0") is None
        assert admin.zscore(KEYS.done, done_member("t", 1000)) is not None


class TestTrouble:
    async def test_leases_work_at_the_memory_limit(self, lane: Lane, admin: redis.Redis) -> None:
        await acquire_lease(lane, KEYS, claim(1000, "a"))
        admin.config_set("maxmemory", 1)
        try:
            assert await renew_lease(lane, KEYS, claim(1000, "a"))
            assert await release(lane, claim(1000, "a"))
            assert await acquire_lease(lane, KEYS, claim(2000, "b")) is LeaseAnswer.OURS
        finally:
            admin.config_set("maxmemory", 0)

    async def test_each_call_survives_a_lost_reply(
        self, open_through_proxy: OpenThroughProxy, admin: redis.Redis
    ) -> None:
        lane, proxy = await open_through_proxy()
        for warm in (acquire_lease, renew_lease):  # the scripts are loaded from here on
            await warm(lane, KEYS, claim(1))
        await release(lane, claim(1))

        wanted = claim(1000, "b")
        expiries: list[object] = [None]

        def is_newly_held() -> bool:
            expiries.append(admin.hget(KEYS.held, "1000"))
            return expiries[-1] is not None and expiries[-1] != expiries[0]

        assert (
            await _lose_reply(proxy, lambda: acquire_lease(lane, KEYS, wanted), is_newly_held)
            is LeaseAnswer.OURS
        )
        expiries[0] = admin.hget(KEYS.held, "1000")
        assert (
            await _lose_reply(proxy, lambda: renew_lease(lane, KEYS, wanted), is_newly_held) is True
        )
        assert (
            await _lose_reply(
                proxy,
                lambda: release(lane, wanted),
                lambda: admin.zscore(KEYS.done, wanted.member) is not None,
            )
            is True
        )


async def _lose_reply(
    proxy: Proxy, call: Callable[[], Awaitable[object]], carried_out: Callable[[], bool]
) -> object:
    """The result of a call whose first reply is lost."""
    proxy.hold_replies = True
    asked = asyncio.ensure_future(call())
    await wait_until(carried_out, within=60, sentence="the server carried it out")
    proxy.hold_replies = False
    proxy.cut()
    return await asked
