"""The coordinated store on real servers: each of its calls."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import redis

from tampu.errors import CommandRefused, DecodeError
from tampu.scheduler.stores.coordinated import CoordinatedStore, RunInFlight
from tampu.server.lane import Lane
from tampu.server.scripts import scheduler as scripts
from tampu.server.scripts.scheduler import Completion, Decided, Term
from tampu.wire.task_state import Waiting, encode_task_state
from tests.contract.shared_tasks import (
    KEYS,
    RUN,
    claim_run,
    claim_short_run,
    open_store,
    state,
    wait_for_expiry,
)
from tests.servers import RunningServer

pytestmark = pytest.mark.every_server


@pytest.fixture
async def store(running: RunningServer) -> AsyncIterator[CoordinatedStore]:
    async with open_store(running.url) as made:
        yield made


class TestRead:
    async def test_an_unknown_task_is_empty(
        self, store: CoordinatedStore, admin: redis.Redis
    ) -> None:
        view = await store.read("t")
        assert (view.version, view.state, view.in_flight) == (0, None, None)
        seconds, _ = admin.time()
        assert abs(view.now_ms - seconds * 1000) < 2000
        assert admin.dbsize() == 0

    async def test_a_run_in_flight_has_the_time_that_its_lease_has_left(
        self, store: CoordinatedStore
    ) -> None:
        token = await store.claim(0, state(1), Waiting(-5, manual=True))
        in_flight = (await store.read("t")).in_flight
        assert in_flight is not None
        assert token is not None
        assert in_flight == RunInFlight(-5, False, True, token, in_flight.left_ms)  # noqa: FBT003
        assert 25_000 < in_flight.left_ms <= 30_000
        assert (await store.read("other")).in_flight is None

    async def test_the_state_of_a_plain_store_is_read_and_kept(
        self, store: CoordinatedStore, admin: redis.Redis
    ) -> None:
        admin.set(KEYS.plain, encode_task_state(state(7)))
        view = await store.read("t")
        assert (view.version, view.state) == (0, state(7))
        assert await store.advance(0, state(8))
        assert (await store.read("t")).state == state(8)
        assert admin.get(KEYS.plain) == encode_task_state(state(7))

    @pytest.mark.parametrize("key", [KEYS.plain, KEYS.task])
    async def test_an_unreadable_state_is_reported(
        self, store: CoordinatedStore, admin: redis.Redis, key: bytes
    ) -> None:
        if key == KEYS.plain:
            admin.set(key, "odd")
        else:
            admin.hset(key, mapping={"version": 3, "state": "odd"})
        view = await store.read("t")
        assert isinstance(view.state, DecodeError)
        assert await store.advance(view.version, state(1))
        assert (await store.read("t")).state == state(1)

    async def test_a_plain_key_of_another_type_is_reported(
        self, store: CoordinatedStore, admin: redis.Redis
    ) -> None:
        admin.rpush(KEYS.plain, "odd")
        assert isinstance((await store.read("t")).state, DecodeError)

    @pytest.mark.parametrize("field", ["version", "until", "at"])
    async def test_a_field_that_is_not_a_number_counts_as_missing(
        self, store: CoordinatedStore, admin: redis.Redis, field: str
    ) -> None:
        await claim_run(store)
        admin.hset(KEYS.task, field, "odd")
        view = await store.read("t")
        assert (view.version == 0) == (field == "version")
        assert (view.in_flight is None) == (field != "version")
        if field != "version":
            await claim_run(store, view.version)

    async def test_a_key_of_another_type_is_an_error(
        self, store: CoordinatedStore, admin: redis.Redis
    ) -> None:
        admin.set(KEYS.task, "odd")
        with pytest.raises(CommandRefused):
            await store.read("t")


class TestAdvance:
    async def test_only_the_current_version_can_be_replaced(self, store: CoordinatedStore) -> None:
        for version in range(3):
            assert await store.advance(version, state(version))
        view = await store.read("t")
        assert (view.version, view.state) == (3, state(2))
        for wrong in (0, 2, 4):
            assert not await store.advance(wrong, state(99))
        assert (await store.read("t")).state == state(2)

    async def test_one_of_many_concurrent_calls_wins(self, store: CoordinatedStore) -> None:
        tries = [store.advance(0, state(n)) for n in range(20)]
        assert sum(await asyncio.gather(*tries)) == 1
        assert (await store.read("t")).version == 1

    async def test_a_run_in_flight_is_not_affected(self, store: CoordinatedStore) -> None:
        token = await claim_run(store)
        assert await store.advance(1, state(2))
        view = await store.read("t")
        assert (view.version, view.state) == (2, state(2))
        assert view.in_flight is not None
        assert view.in_flight.token == token

    async def test_a_repeated_call_counts_once(self, lane: Lane) -> None:
        for number in range(3):
            decided = Decided(number, b"{}")
            for _ in range(2):
                assert await scripts.advance(lane, KEYS, decided, call_token=f"{number:032}")
        # The same after other calls.
        assert await scripts.advance(lane, KEYS, Decided(0, b"{}"), call_token=f"{0:032}")
        assert (await scripts.read_task(lane, KEYS)).version == 3

    async def test_only_the_last_calls_are_remembered(self, lane: Lane, admin: redis.Redis) -> None:
        for number in range(40):
            await scripts.advance(lane, KEYS, Decided(number, b"{}"), call_token=f"{number:032}")
        tokens = admin.hget(KEYS.task, "last")
        assert tokens is not None
        assert [int(token) for token in tokens.split()] == list(range(39, 23, -1))


class TestClaim:
    async def test_one_of_many_concurrent_claims_gets_the_run(
        self, store: CoordinatedStore, running: RunningServer
    ) -> None:
        async with open_store(running.url) as other:
            tries = [each.claim(0, state(1), RUN) for each in (store, other) * 10]
            tokens = [token for token in await asyncio.gather(*tries) if token]
        assert len(tokens) == 1
        view = await store.read("t")
        assert view.in_flight is not None
        assert (view.version, view.state, view.in_flight.token) == (1, state(1), tokens[0])

    async def test_another_version_or_a_run_in_flight_refuses_a_claim(
        self, store: CoordinatedStore
    ) -> None:
        assert await store.claim(5, state(1), RUN) is None
        await claim_run(store)
        assert await store.claim(1, state(2), RUN) is None
        assert (await store.read("t")).state == state(1)

    async def test_a_run_with_an_expired_lease_is_still_in_flight(
        self, store: CoordinatedStore, lane: Lane
    ) -> None:
        await claim_short_run(lane)
        await wait_for_expiry(store)
        assert await store.claim(1, state(2), RUN) is None

    async def test_a_repeated_call_has_the_same_answer(self, lane: Lane) -> None:
        for _ in range(2):
            assert await scripts.claim(
                lane, KEYS, Decided(0, b"{}"), run=RUN, term=Term("a" * 32, 1000)
            )
        assert (await scripts.read_task(lane, KEYS)).version == 1


class TestReclaim:
    async def test_a_run_with_a_valid_lease_cannot_be_taken_over(
        self, store: CoordinatedStore
    ) -> None:
        token = await claim_run(store)
        assert await store.reclaim("t", token) is None
        assert await store.reclaim("other", token) is None
        assert await store.renew("t", token)

    async def test_a_run_with_an_expired_lease_is_taken_over_once(
        self, store: CoordinatedStore, lane: Lane
    ) -> None:
        token = await claim_short_run(lane)
        assert (await wait_for_expiry(store)).token == token
        tries = [store.reclaim("t", token) for _ in range(10)]
        tokens = [new for new in await asyncio.gather(*tries) if new]
        assert len(tokens) == 1
        view = await store.read("t")
        assert view.in_flight is not None
        assert view.in_flight.left_ms > 25_000
        assert (view.version, view.state) == (1, state(1))
        assert (view.in_flight.at_ms, view.in_flight.catch_up) == (RUN.at_ms, RUN.catch_up)
        assert view.in_flight.token == tokens[0]
        # The previous owner is refused, and changes nothing.
        assert not await store.renew("t", token)
        assert await store.complete(1, token, state(9)) is Completion.LOST
        assert await store.complete(1, tokens[0], state(2)) is Completion.DONE

    async def test_a_run_that_was_renewed_late_cannot_be_taken_over(
        self, store: CoordinatedStore, lane: Lane
    ) -> None:
        token = await claim_short_run(lane)
        await wait_for_expiry(store)
        assert await store.renew("t", token), "nobody has taken it over"
        assert await store.reclaim("t", token) is None

    async def test_a_repeated_call_has_the_same_answer(
        self, lane: Lane, admin: redis.Redis
    ) -> None:
        first, second = Term("a" * 32, 1000), Term("b" * 32, 30_000)
        await scripts.claim(lane, KEYS, Decided(0, b"{}"), run=RUN, term=first)
        admin.hset(KEYS.task, "until", 1)
        for _ in range(2):
            assert await scripts.reclaim(lane, KEYS, second, before=first.token)

    async def test_a_run_that_was_taken_over_has_another_token(
        self, store: CoordinatedStore, admin: redis.Redis
    ) -> None:
        first = await claim_run(store)
        admin.hset(KEYS.task, "until", 1)
        second = await store.reclaim("t", first)
        admin.hset(KEYS.task, "until", 1)
        assert await store.reclaim("t", first) is None
        assert await store.renew("t", second or "")


class TestRenew:
    async def test_only_the_owner_can_renew(self, store: CoordinatedStore) -> None:
        token = await claim_run(store)
        assert await store.renew("t", token)
        assert not await store.renew("t", "0" * 32)
        assert not await store.renew("other", token)

    async def test_a_renewed_lease_starts_again(self, store: CoordinatedStore, lane: Lane) -> None:
        token = await claim_short_run(lane)
        assert await store.renew("t", token)
        view = await store.read("t")
        assert view.in_flight is not None
        assert view.in_flight.left_ms > 25_000

    async def test_a_completed_run_cannot_be_renewed(
        self, store: CoordinatedStore, admin: redis.Redis
    ) -> None:
        token = await claim_run(store)
        await store.complete(1, token, state(2))
        assert not await store.renew("t", token)
        assert sorted(admin.hkeys(KEYS.task)) == [b"last", b"state", b"version"]


class TestComplete:
    async def test_it_ends_the_run_and_the_next_one_can_start(
        self, store: CoordinatedStore
    ) -> None:
        token = await claim_run(store)
        assert await store.complete(1, token, state(2)) is Completion.DONE
        view = await store.read("t")
        assert (view.version, view.state, view.in_flight) == (2, state(2), None)
        assert await claim_run(store, 2) != token

    async def test_another_version_is_stale_and_can_be_retried(
        self, store: CoordinatedStore
    ) -> None:
        token = await claim_run(store)
        await store.advance(1, state(5))
        assert await store.complete(1, token, state(2)) is Completion.STALE
        view = await store.read("t")
        assert view.in_flight is not None
        assert await store.complete(view.version, token, state(6)) is Completion.DONE

    async def test_a_run_with_another_token_is_lost(self, store: CoordinatedStore) -> None:
        assert await store.complete(0, "0" * 32, state(1)) is Completion.LOST
        await claim_run(store)
        assert await store.complete(1, "0" * 32, state(2)) is Completion.LOST
        assert (await store.read("t")).version == 1

    async def test_a_repeated_call_is_done_whatever_happened_since(
        self, store: CoordinatedStore
    ) -> None:
        token = await claim_run(store)
        await store.complete(1, token, state(2))
        assert await store.complete(1, token, state(2)) is Completion.DONE
        await claim_run(store, 2)
        assert await store.complete(1, token, state(2)) is Completion.DONE
        view = await store.read("t")
        assert view.version == 3
        assert view.in_flight is not None


class TestForget:
    async def test_it_deletes_the_states_of_both_kinds_of_stores(
        self, store: CoordinatedStore, admin: redis.Redis
    ) -> None:
        admin.set(KEYS.plain, encode_task_state(state()))
        await store.advance(0, state(1))
        assert await store.forget("t", 1)
        assert admin.keys() == [KEYS.task]
        assert await store.forget("t", 1), "the same call again"

    async def test_the_end_of_a_task_is_visible_for_ten_leases(
        self, store: CoordinatedStore, admin: redis.Redis
    ) -> None:
        await store.advance(0, state(1))
        await store.forget("t", 1)
        assert 290_000 < admin.pttl(KEYS.task) <= 300_000
        view = await store.read("t")
        assert (view.ended, view.state) == (True, state(1))
        assert not await store.advance(1, state(2)), "a decision from before the end"

    async def test_a_forgotten_task_can_be_started_again(
        self, store: CoordinatedStore, admin: redis.Redis
    ) -> None:
        await store.advance(0, state(1))
        await store.forget("t", 1)
        assert await store.advance((await store.read("t")).version, state())
        view = await store.read("t")
        assert (view.ended, view.state) == (False, state())
        assert admin.pttl(KEYS.task) == -1

    async def test_a_task_of_a_plain_store_can_be_forgotten(
        self, store: CoordinatedStore, admin: redis.Redis
    ) -> None:
        admin.set(KEYS.plain, encode_task_state(state()))
        assert await store.forget("t", 0)
        assert admin.dbsize() == 0

    async def test_another_version_or_a_run_in_flight_is_kept(
        self, store: CoordinatedStore
    ) -> None:
        await store.advance(0, state(1))
        assert not await store.forget("t", 2)
        assert await store.claim(1, state(2), RUN)
        assert not await store.forget("t", 2)
        assert (await store.read("t")).state == state(2)
