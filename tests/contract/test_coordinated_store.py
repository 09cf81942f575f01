"""Tasks that several schedulers share, on real servers."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import redis

from tampu.errors import CommandRefused, DecodeError
from tampu.scheduler.stores.coordinated import CoordinatedStore, Inflight
from tampu.server.lane import Lane
from tampu.server.scripts import scheduler as coordination
from tampu.server.scripts.scheduler import Completion, Decided, Term
from tampu.wire.task_state import Waiting, encode_task_state
from tests.contract.courses import (
    KEYS,
    RUN,
    claimed,
    claimed_shortly,
    opened,
    state,
    until_run_out,
)
from tests.servers import RunningServer

pytestmark = pytest.mark.every_server


@pytest.fixture
async def store(running: RunningServer) -> AsyncIterator[CoordinatedStore]:
    async with opened(running.url) as made:
        yield made


class TestLook:
    async def test_of_nothing_there_is_nothing(
        self, store: CoordinatedStore, admin: redis.Redis
    ) -> None:
        seen = await store.look("t")
        assert (seen.version, seen.state, seen.inflight) == (0, None, None)
        seconds, _ = admin.time()
        assert abs(seen.now_ms - seconds * 1000) < 2000
        assert admin.dbsize() == 0

    async def test_a_run_in_flight_is_shown_with_what_its_lease_has_left(
        self, store: CoordinatedStore
    ) -> None:
        token = await store.claim(0, state(1), Waiting(-5, manual=True))
        inflight = (await store.look("t")).inflight
        assert inflight is not None
        assert token is not None
        assert inflight == Inflight(-5, False, True, token, inflight.left_ms)  # noqa: FBT003
        assert 25_000 < inflight.left_ms <= 30_000
        assert (await store.look("other")).inflight is None

    async def test_what_a_plain_store_left_is_found_and_stays(
        self, store: CoordinatedStore, admin: redis.Redis
    ) -> None:
        admin.set(KEYS.plain, encode_task_state(state(7)))
        seen = await store.look("t")
        assert (seen.version, seen.state) == (0, state(7))
        assert await store.advance(0, state(8))
        assert (await store.look("t")).state == state(8)
        assert admin.get(KEYS.plain) == encode_task_state(state(7))

    @pytest.mark.parametrize("key", [KEYS.plain, KEYS.course])
    async def test_a_state_that_cannot_be_read_says_why(
        self, store: CoordinatedStore, admin: redis.Redis, key: bytes
    ) -> None:
        if key == KEYS.plain:
            admin.set(key, "odd")
        else:
            admin.hset(key, mapping={"version": 3, "state": "odd"})
        seen = await store.look("t")
        assert isinstance(seen.state, DecodeError)
        assert await store.advance(seen.version, state(1))
        assert (await store.look("t")).state == state(1)

    async def test_a_plain_key_of_another_kind_cannot_be_read(
        self, store: CoordinatedStore, admin: redis.Redis
    ) -> None:
        admin.rpush(KEYS.plain, "odd")
        assert isinstance((await store.look("t")).state, DecodeError)

    @pytest.mark.parametrize("field", ["version", "until", "at"])
    async def test_a_field_that_is_no_number_counts_as_none(
        self, store: CoordinatedStore, admin: redis.Redis, field: str
    ) -> None:
        await claimed(store)
        admin.hset(KEYS.course, field, "odd")
        seen = await store.look("t")
        assert (seen.version == 0) == (field == "version")
        assert (seen.inflight is None) == (field != "version")
        if field != "version":
            await claimed(store, seen.version)

    async def test_a_course_of_another_kind_is_refused(
        self, store: CoordinatedStore, admin: redis.Redis
    ) -> None:
        admin.set(KEYS.course, "odd")
        with pytest.raises(CommandRefused):
            await store.look("t")


class TestAdvance:
    async def test_each_version_is_followed_by_one(self, store: CoordinatedStore) -> None:
        for version in range(3):
            assert await store.advance(version, state(version))
        seen = await store.look("t")
        assert (seen.version, seen.state) == (3, state(2))
        for wrong in (0, 2, 4):
            assert not await store.advance(wrong, state(99))
        assert (await store.look("t")).state == state(2)

    async def test_of_many_that_decided_from_one_version_one_is_right(
        self, store: CoordinatedStore
    ) -> None:
        tries = [store.advance(0, state(n)) for n in range(20)]
        assert sum(await asyncio.gather(*tries)) == 1
        assert (await store.look("t")).version == 1

    async def test_a_run_in_flight_stays_as_it_is(self, store: CoordinatedStore) -> None:
        token = await claimed(store)
        assert await store.advance(1, state(2))
        seen = await store.look("t")
        assert (seen.version, seen.state) == (2, state(2))
        assert seen.inflight is not None
        assert seen.inflight.token == token

    async def test_sent_again_it_is_right_once(self, lane: Lane) -> None:
        for number in range(3):
            decided = Decided(number, b"{}")
            for _ in range(2):
                assert await coordination.advance(lane, KEYS, decided, call_token=f"{number:032}")
        # Also behind the calls of others.
        assert await coordination.advance(lane, KEYS, Decided(0, b"{}"), call_token=f"{0:032}")
        assert (await coordination.read_task(lane, KEYS)).version == 3

    async def test_the_calls_that_are_noted_stay_few(self, lane: Lane, admin: redis.Redis) -> None:
        for number in range(40):
            await coordination.advance(
                lane, KEYS, Decided(number, b"{}"), call_token=f"{number:032}"
            )
        noted = admin.hget(KEYS.course, "last")
        assert noted is not None
        assert [int(token) for token in noted.split()] == list(range(39, 23, -1))


class TestClaim:
    async def test_of_many_that_race_one_gets_the_run(
        self, store: CoordinatedStore, running: RunningServer
    ) -> None:
        async with opened(running.url) as other:
            tries = [each.claim(0, state(1), RUN) for each in (store, other) * 10]
            tokens = [token for token in await asyncio.gather(*tries) if token]
        assert len(tokens) == 1
        seen = await store.look("t")
        assert seen.inflight is not None
        assert (seen.version, seen.state, seen.inflight.token) == (1, state(1), tokens[0])

    async def test_another_version_or_a_run_in_flight_refuses_it(
        self, store: CoordinatedStore
    ) -> None:
        assert await store.claim(5, state(1), RUN) is None
        await claimed(store)
        assert await store.claim(1, state(2), RUN) is None
        assert (await store.look("t")).state == state(1)

    async def test_a_run_whose_lease_ran_out_is_still_in_flight(
        self, store: CoordinatedStore, lane: Lane
    ) -> None:
        await claimed_shortly(lane)
        await until_run_out(store)
        assert await store.claim(1, state(2), RUN) is None

    async def test_sent_again_it_is_still_ours(self, lane: Lane) -> None:
        for _ in range(2):
            assert await coordination.claim(
                lane, KEYS, Decided(0, b"{}"), run=RUN, term=Term("a" * 32, 1000)
            )
        assert (await coordination.read_task(lane, KEYS)).version == 1


class TestReclaim:
    async def test_a_run_whose_lease_lasts_stays_where_it_is(self, store: CoordinatedStore) -> None:
        token = await claimed(store)
        assert await store.reclaim("t", token) is None
        assert await store.reclaim("other", token) is None
        assert await store.renew("t", token)

    async def test_a_run_whose_lease_ran_out_is_taken_over_by_one(
        self, store: CoordinatedStore, lane: Lane
    ) -> None:
        token = await claimed_shortly(lane)
        assert (await until_run_out(store)).token == token
        tries = [store.reclaim("t", token) for _ in range(10)]
        tokens = [new for new in await asyncio.gather(*tries) if new]
        assert len(tokens) == 1
        seen = await store.look("t")
        assert seen.inflight is not None
        assert seen.inflight.left_ms > 25_000
        assert (seen.version, seen.state) == (1, state(1))
        assert (seen.inflight.at_ms, seen.inflight.catch_up) == (RUN.at_ms, RUN.catch_up)
        assert seen.inflight.token == tokens[0]
        # Who had it is told, and changes nothing any more.
        assert not await store.renew("t", token)
        assert await store.complete(1, token, state(9)) is Completion.LOST
        assert await store.complete(1, tokens[0], state(2)) is Completion.DONE

    async def test_one_that_was_renewed_late_is_not_to_be_had(
        self, store: CoordinatedStore, lane: Lane
    ) -> None:
        token = await claimed_shortly(lane)
        await until_run_out(store)
        assert await store.renew("t", token), "nobody had taken it over"
        assert await store.reclaim("t", token) is None

    async def test_sent_again_it_is_still_ours(self, lane: Lane, admin: redis.Redis) -> None:
        first, second = Term("a" * 32, 1000), Term("b" * 32, 30_000)
        await coordination.claim(lane, KEYS, Decided(0, b"{}"), run=RUN, term=first)
        admin.hset(KEYS.course, "until", 1)
        for _ in range(2):
            assert await coordination.reclaim(lane, KEYS, second, before=first.token)

    async def test_a_run_that_somebody_took_over_is_not_the_one_that_was_seen(
        self, store: CoordinatedStore, admin: redis.Redis
    ) -> None:
        first = await claimed(store)
        admin.hset(KEYS.course, "until", 1)
        second = await store.reclaim("t", first)
        admin.hset(KEYS.course, "until", 1)
        assert await store.reclaim("t", first) is None
        assert await store.renew("t", second or "")


class TestRenew:
    async def test_only_the_owner_renews(self, store: CoordinatedStore) -> None:
        token = await claimed(store)
        assert await store.renew("t", token)
        assert not await store.renew("t", "0" * 32)
        assert not await store.renew("other", token)

    async def test_a_renewed_lease_begins_anew(self, store: CoordinatedStore, lane: Lane) -> None:
        token = await claimed_shortly(lane)
        assert await store.renew("t", token)
        seen = await store.look("t")
        assert seen.inflight is not None
        assert seen.inflight.left_ms > 25_000

    async def test_behind_the_end_it_revives_nothing(
        self, store: CoordinatedStore, admin: redis.Redis
    ) -> None:
        token = await claimed(store)
        await store.complete(1, token, state(2))
        assert not await store.renew("t", token)
        assert sorted(admin.hkeys(KEYS.course)) == [b"last", b"state", b"version"]


class TestComplete:
    async def test_it_ends_the_run_and_the_next_can_begin(self, store: CoordinatedStore) -> None:
        token = await claimed(store)
        assert await store.complete(1, token, state(2)) is Completion.DONE
        seen = await store.look("t")
        assert (seen.version, seen.state, seen.inflight) == (2, state(2), None)
        assert await claimed(store, 2) != token

    async def test_another_version_is_told_and_can_be_tried_again(
        self, store: CoordinatedStore
    ) -> None:
        token = await claimed(store)
        await store.advance(1, state(5))
        assert await store.complete(1, token, state(2)) is Completion.STALE
        seen = await store.look("t")
        assert seen.inflight is not None
        assert await store.complete(seen.version, token, state(6)) is Completion.DONE

    async def test_without_a_run_of_this_token_it_is_lost(self, store: CoordinatedStore) -> None:
        assert await store.complete(0, "0" * 32, state(1)) is Completion.LOST
        await claimed(store)
        assert await store.complete(1, "0" * 32, state(2)) is Completion.LOST
        assert (await store.look("t")).version == 1

    async def test_sent_again_it_is_done_whatever_happened_since(
        self, store: CoordinatedStore
    ) -> None:
        token = await claimed(store)
        await store.complete(1, token, state(2))
        assert await store.complete(1, token, state(2)) is Completion.DONE
        await claimed(store, 2)
        assert await store.complete(1, token, state(2)) is Completion.DONE
        seen = await store.look("t")
        assert seen.version == 3
        assert seen.inflight is not None


class TestForget:
    async def test_it_deletes_what_both_kinds_of_stores_keep(
        self, store: CoordinatedStore, admin: redis.Redis
    ) -> None:
        admin.set(KEYS.plain, encode_task_state(state()))
        await store.advance(0, state(1))
        assert await store.forget("t", 1)
        assert admin.keys() == [KEYS.course]
        assert await store.forget("t", 1), "sent again"

    async def test_its_end_can_be_noticed_for_ten_leases(
        self, store: CoordinatedStore, admin: redis.Redis
    ) -> None:
        await store.advance(0, state(1))
        await store.forget("t", 1)
        assert 290_000 < admin.pttl(KEYS.course) <= 300_000
        seen = await store.look("t")
        assert (seen.ended, seen.state) == (True, state(1))
        assert not await store.advance(1, state(2)), "who decided before it ended"

    async def test_it_can_be_begun_anew(self, store: CoordinatedStore, admin: redis.Redis) -> None:
        await store.advance(0, state(1))
        await store.forget("t", 1)
        assert await store.advance((await store.look("t")).version, state())
        seen = await store.look("t")
        assert (seen.ended, seen.state) == (False, state())
        assert admin.pttl(KEYS.course) == -1

    async def test_a_task_that_nobody_coordinated_can_be_forgotten(
        self, store: CoordinatedStore, admin: redis.Redis
    ) -> None:
        admin.set(KEYS.plain, encode_task_state(state()))
        assert await store.forget("t", 0)
        assert admin.dbsize() == 0

    async def test_another_version_or_a_run_in_flight_stays(self, store: CoordinatedStore) -> None:
        await store.advance(0, state(1))
        assert not await store.forget("t", 2)
        assert await store.claim(1, state(2), RUN)
        assert not await store.forget("t", 2)
        assert (await store.look("t")).state == state(2)
