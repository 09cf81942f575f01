"""Leases on real servers: who gets one, for how long, and what is remembered."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import redis
from msgspec.structs import replace

from tampu.errors import CommandRefused
from tampu.server.lane import Lane
from tampu.server.scripts import scheduler as guards
from tampu.server.scripts.scheduler import (
    LeaseAnswer,
    LeaseClaim,
    acquire_lease,
    release_lease,
    renew_lease,
)
from tampu.wire.keys import done_member, guard_keys, held_field
from tests.contract.lanes import Through
from tests.proxy import Proxy
from tests.waiting import wait_until

pytestmark = pytest.mark.every_server

KEYS = guard_keys("tampu:guard:", "house")
LEASE_MS = 30_000
REMEMBER_MS = 86_400_000
SHORT_MS = 50
WHOLE = None


def holding(
    at_ms: int | None, who: str = "a", *, task: str = "t", lease_ms: int = LEASE_MS
) -> LeaseClaim:
    member = done_member(task, at_ms or 0)
    return LeaseClaim(held_field(at_ms), member, who * 32, lease_ms)


async def gone(lane: Lane, wanted: LeaseClaim, *, remember_ms: int = REMEMBER_MS) -> bool:
    return await release_lease(lane, KEYS, wanted, remember_ms=remember_ms)


async def until_ours(lane: Lane, wanted: LeaseClaim) -> None:
    async def ours() -> bool:
        return await acquire_lease(lane, KEYS, wanted) is LeaseAnswer.OURS

    await wait_until(ours, within=10, sentence="the lease before has run out")


class TestHold:
    async def test_an_occurrence_is_held_by_one(self, lane: Lane) -> None:
        assert await acquire_lease(lane, KEYS, holding(1000, "a")) is LeaseAnswer.OURS
        assert await acquire_lease(lane, KEYS, holding(1000, "b")) is LeaseAnswer.HELD
        assert await acquire_lease(lane, KEYS, holding(2000, "b")) is LeaseAnswer.OURS

    async def test_of_many_that_race_one_gets_it(self, lane: Lane) -> None:
        wanted = [replace(holding(1000), token=f"{n:032}") for n in range(50)]
        answers = await asyncio.gather(*(acquire_lease(lane, KEYS, each) for each in wanted))
        assert sorted(answers, key=lambda answer: answer.value) == [LeaseAnswer.HELD] * 49 + [
            LeaseAnswer.OURS
        ]

    async def test_the_whole_resource_excludes_each_occurrence_and_itself(self, lane: Lane) -> None:
        assert await acquire_lease(lane, KEYS, holding(WHOLE, "a")) is LeaseAnswer.OURS
        assert await acquire_lease(lane, KEYS, holding(1000, "b")) is LeaseAnswer.HELD
        assert await acquire_lease(lane, KEYS, holding(WHOLE, "c")) is LeaseAnswer.HELD

    async def test_an_occurrence_excludes_the_whole_resource(self, lane: Lane) -> None:
        await acquire_lease(lane, KEYS, holding(1000, "a"))
        assert await acquire_lease(lane, KEYS, holding(WHOLE, "b")) is LeaseAnswer.HELD
        await gone(lane, holding(1000, "a"))
        assert await acquire_lease(lane, KEYS, holding(WHOLE, "b")) is LeaseAnswer.OURS

    async def test_a_lease_that_has_run_out_can_be_taken(self, lane: Lane) -> None:
        await acquire_lease(lane, KEYS, holding(WHOLE, "a", lease_ms=SHORT_MS))
        assert await acquire_lease(lane, KEYS, holding(WHOLE, "b")) is LeaseAnswer.HELD
        await until_ours(lane, holding(WHOLE, "b"))

    async def test_what_has_run_out_is_removed_from_the_hash(
        self, lane: Lane, admin: redis.Redis
    ) -> None:
        for at_ms in range(20):
            await acquire_lease(lane, KEYS, holding(at_ms, lease_ms=SHORT_MS))
        assert admin.hlen(KEYS.held) == 20
        await until_ours(lane, holding(WHOLE, "b"))
        assert admin.hkeys(KEYS.held) == [b"*"]

    async def test_sent_again_it_is_still_ours(self, lane: Lane) -> None:
        for at_ms, who in ((1000, "a"), (WHOLE, "b")):
            wanted = holding(at_ms, who)
            first = await acquire_lease(lane, KEYS, wanted)
            assert [first, await acquire_lease(lane, KEYS, wanted)] == [LeaseAnswer.OURS] * 2
            await gone(lane, wanted)

    async def test_an_occurrence_that_was_done_is_not_to_be_had_again(self, lane: Lane) -> None:
        await acquire_lease(lane, KEYS, holding(1000, "a"))
        await gone(lane, holding(1000, "a"))
        assert await acquire_lease(lane, KEYS, holding(1000, "b")) is LeaseAnswer.DONE
        # Sent again behind its own let_go, it must not take what nobody will give back.
        assert await acquire_lease(lane, KEYS, holding(1000, "a")) is LeaseAnswer.DONE
        assert await acquire_lease(lane, KEYS, holding(1000, "b", task="other")) is LeaseAnswer.OURS

    async def test_the_hash_ends_with_its_leases(self, lane: Lane, admin: redis.Redis) -> None:
        await acquire_lease(lane, KEYS, holding(1, lease_ms=60_000))
        await acquire_lease(lane, KEYS, holding(2, lease_ms=SHORT_MS))
        assert 60_000 < admin.pttl(KEYS.held) <= 120_000

    async def test_a_field_that_says_nothing_holds_nothing(
        self, lane: Lane, admin: redis.Redis
    ) -> None:
        admin.hset(KEYS.held, "*", "odd")
        assert await acquire_lease(lane, KEYS, holding(1000)) is LeaseAnswer.OURS
        assert not admin.hexists(KEYS.held, "*")

    @pytest.mark.parametrize("wrong", ["held", "done"])
    async def test_a_key_of_another_kind_is_refused_with_nothing_written(
        self, lane: Lane, admin: redis.Redis, wrong: str
    ) -> None:
        admin.set(getattr(KEYS, wrong), "odd")
        with pytest.raises(CommandRefused):
            await acquire_lease(lane, KEYS, holding(1000))
        assert admin.dbsize() == 1


class TestKeep:
    async def test_a_renewed_lease_outlives_its_first_end(
        self, lane: Lane, admin: redis.Redis
    ) -> None:
        await acquire_lease(lane, KEYS, holding(1000, lease_ms=SHORT_MS))
        await acquire_lease(lane, KEYS, holding(2000, lease_ms=SHORT_MS))
        assert await renew_lease(lane, KEYS, holding(1000, lease_ms=LEASE_MS))
        await until_ours(lane, holding(2000, "b"))  # the one that nobody renewed has ended
        assert await acquire_lease(lane, KEYS, holding(1000, "b")) is LeaseAnswer.HELD
        assert LEASE_MS < admin.pttl(KEYS.held) <= 2 * LEASE_MS

    async def test_only_the_owner_renews(self, lane: Lane, admin: redis.Redis) -> None:
        await acquire_lease(lane, KEYS, holding(1000, "a"))
        before = admin.hgetall(KEYS.held)
        assert not await renew_lease(lane, KEYS, holding(1000, "b", lease_ms=99_000))
        assert not await renew_lease(lane, KEYS, holding(2000, "a"))
        assert admin.hgetall(KEYS.held) == before

    async def test_one_that_ran_out_is_kept_if_nobody_asked_since(
        self, lane: Lane, admin: redis.Redis
    ) -> None:
        admin.hset(KEYS.held, "1000", f"{'a' * 32}:1")
        assert await renew_lease(lane, KEYS, holding(1000))
        assert await acquire_lease(lane, KEYS, holding(1000, "b")) is LeaseAnswer.HELD

    async def test_one_that_was_taken_is_lost(self, lane: Lane) -> None:
        await acquire_lease(lane, KEYS, holding(1000, "a", lease_ms=SHORT_MS))
        await until_ours(lane, holding(1000, "b"))
        assert not await renew_lease(lane, KEYS, holding(1000, "a"))
        assert not await gone(lane, holding(1000, "a"))
        assert await renew_lease(lane, KEYS, holding(1000, "b"))

    async def test_what_was_given_back_is_not_renewed_by_a_late_call(self, lane: Lane) -> None:
        await acquire_lease(lane, KEYS, holding(WHOLE, "a"))
        await gone(lane, holding(WHOLE, "a"))
        assert not await renew_lease(lane, KEYS, holding(WHOLE, "a"))
        assert (
            await acquire_lease(lane, KEYS, holding(WHOLE, "b", task="other")) is LeaseAnswer.OURS
        )


class TestLetGo:
    async def test_only_the_owner_gives_back(self, lane: Lane, admin: redis.Redis) -> None:
        await acquire_lease(lane, KEYS, holding(1000, "a"))
        assert not await gone(lane, holding(1000, "b"))
        assert not admin.exists(KEYS.done)
        assert await acquire_lease(lane, KEYS, holding(1000, "b")) is LeaseAnswer.HELD

    async def test_sent_again_it_answers_yes_whatever_happened_since(self, lane: Lane) -> None:
        await acquire_lease(lane, KEYS, holding(WHOLE, "a"))
        assert await gone(lane, holding(WHOLE, "a"))
        assert await gone(lane, holding(WHOLE, "a"))
        await acquire_lease(lane, KEYS, holding(WHOLE, "b", task="other"))
        assert await gone(lane, holding(WHOLE, "a"))
        assert (
            await acquire_lease(lane, KEYS, holding(WHOLE, "c", task="third")) is LeaseAnswer.HELD
        )

    async def test_who_let_go_is_kept_for_sixteen_calls(
        self, lane: Lane, admin: redis.Redis
    ) -> None:
        wanted = [replace(holding(at_ms), token=f"{at_ms:032}") for at_ms in range(40)]
        for each in wanted:
            await acquire_lease(lane, KEYS, each)
            await gone(lane, each)
        assert [await gone(lane, each) for each in wanted] == [False] * 24 + [True] * 16
        assert admin.hkeys(KEYS.held) == [b"="]

    async def test_what_was_done_is_forgotten_after_a_while(
        self, lane: Lane, admin: redis.Redis
    ) -> None:
        old, young = done_member("t", 1), done_member("t", 2)
        seconds, _ = admin.time()
        now_ms = seconds * 1000
        admin.zadd(KEYS.done, {old: now_ms - 10_000, young: now_ms - 1000})
        await acquire_lease(lane, KEYS, holding(1000))
        await gone(lane, holding(1000), remember_ms=5000)
        assert admin.zrange(KEYS.done, 0, -1) == [young, done_member("t", 1000)]
        assert 0 < admin.pttl(KEYS.done) <= 5000
        assert await acquire_lease(lane, KEYS, holding(1)) is LeaseAnswer.OURS

    async def test_the_longest_memory_of_all_who_share_it_counts(
        self, lane: Lane, admin: redis.Redis
    ) -> None:
        for who, remember_ms in (("a", REMEMBER_MS), ("b", 5000)):
            await acquire_lease(lane, KEYS, holding(1000, who, task=who))
            await gone(lane, holding(1000, who, task=who), remember_ms=remember_ms)
        assert admin.pttl(KEYS.done) > REMEMBER_MS - 60_000

    async def test_at_most_ten_thousand_are_remembered(
        self, lane: Lane, admin: redis.Redis
    ) -> None:
        seconds, _ = admin.time()
        many = {f"old@{n}": seconds * 1000 - 20_000 + n for n in range(guards.MOST_DONE)}
        admin.zadd(KEYS.done, many)
        await acquire_lease(lane, KEYS, holding(1000))
        await gone(lane, holding(1000))
        assert admin.zcard(KEYS.done) == guards.MOST_DONE
        assert admin.zscore(KEYS.done, "old@0") is None
        assert admin.zscore(KEYS.done, done_member("t", 1000)) is not None


class TestTrouble:
    async def test_at_the_memory_limit_leases_go_on(self, lane: Lane, admin: redis.Redis) -> None:
        await acquire_lease(lane, KEYS, holding(1000, "a"))
        admin.config_set("maxmemory", 1)
        try:
            assert await renew_lease(lane, KEYS, holding(1000, "a"))
            assert await gone(lane, holding(1000, "a"))
            assert await acquire_lease(lane, KEYS, holding(2000, "b")) is LeaseAnswer.OURS
        finally:
            admin.config_set("maxmemory", 0)

    async def test_each_call_survives_a_lost_reply(
        self, through: Through, admin: redis.Redis
    ) -> None:
        lane, proxy = await through()
        for warm in (acquire_lease, renew_lease):  # the scripts are known from here on
            await warm(lane, KEYS, holding(1))
        await gone(lane, holding(1))

        wanted = holding(1000, "b")
        expiries: list[object] = [None]

        def held_anew() -> bool:
            expiries.append(admin.hget(KEYS.held, "1000"))
            return expiries[-1] is not None and expiries[-1] != expiries[0]

        assert (
            await _lost(proxy, lambda: acquire_lease(lane, KEYS, wanted), held_anew)
            is LeaseAnswer.OURS
        )
        expiries[0] = admin.hget(KEYS.held, "1000")
        assert await _lost(proxy, lambda: renew_lease(lane, KEYS, wanted), held_anew) is True
        assert (
            await _lost(
                proxy,
                lambda: gone(lane, wanted),
                lambda: admin.zscore(KEYS.done, wanted.member) is not None,
            )
            is True
        )


async def _lost(
    proxy: Proxy, call: Callable[[], Awaitable[object]], carried_out: Callable[[], bool]
) -> object:
    """What a call is answered whose first reply is lost."""
    proxy.hold_replies = True
    asked = asyncio.ensure_future(call())
    await wait_until(carried_out, within=10, sentence="the server carried it out")
    proxy.hold_replies = False
    proxy.cut()
    return await asked
