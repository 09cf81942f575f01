"""The scripts of schedules: what they check before they write, what they leave when they fail."""

from collections.abc import Iterator
from typing import Any, TypeAlias

import pytest
from msgspec.structs import replace

from tampu.errors import CommandRefused, ServerError
from tampu.server.lane import Lane
from tampu.server.scripts.schedules import (
    Armed,
    Firing,
    NewFire,
    NewSpec,
    due,
    fire,
    pause,
    resume,
    upsert,
)
from tampu.wire.keys import QueueKeys
from tests.servers import RunningServer

pytestmark = pytest.mark.every_server

Admin: TypeAlias = Any  # a client, whose replies are typed as anything that could be

KEYS = QueueKeys("repeats")
HOLDER = b"s-one"
AT_MS = 1_794_725_043_642


def firing(key: str = "k", *, score: int = AT_MS, fires: int = 1, **changes: Any) -> Firing:  # noqa: ANN401
    told: dict[str, Any] = {
        "armed": Armed(key.encode(), b"%d" % score),
        "next_ms": AT_MS + 1000,
        "fires": [
            NewFire(AT_MS + n, b"envelope", b"tick", b"extras", f"id-{n}") for n in range(fires)
        ],
    }
    return Firing(**(told | changes))


@pytest.fixture
def admin(running: RunningServer) -> Iterator[Admin]:
    """A schedule `k` that is armed for `AT_MS`, and a leader."""
    with running.admin() as client:
        client.set(KEYS.scheduler_lock, HOLDER)
        arm(client, "k")
        yield client


def arm(client: Admin, key: str, at_ms: int = AT_MS) -> None:
    client.zadd(KEYS.repeat, {key: at_ms})
    client.hset(KEYS.spec(key), "spec", b"spec")


async def fired(lane: Lane, *firings: Firing, holder: bytes = HOLDER) -> Any:  # noqa: ANN401
    return await fire(lane, KEYS, holder=holder, events_max_len=10, firings=firings)


class TestFire:
    async def test_jobs_are_added_counted_and_the_schedule_is_armed(
        self, lane: Lane, admin: Admin
    ) -> None:
        (result,) = await fired(lane, firing(fires=2, missed=3, outside=4, overlapped=5))
        assert (result.fired, result.changed, result.held) == (2, False, False)
        told = [entry for _, entry in admin.xrange(KEYS.stream)]
        assert told == [{b"d": b"envelope", b"n": b"tick", b"x": b"extras"}] * 2
        stored = admin.hgetall(KEYS.spec("k"))
        last = admin.xrevrange(KEYS.stream, count=1)[0][0]
        assert stored == {
            b"spec": b"spec",
            b"fired": b"2",
            b"last": last,
            b"missed": b"3",
            b"outside": b"4",
            b"overlapped": b"5",
        }
        assert admin.zscore(KEYS.repeat, "k") == AT_MS + 1000

    async def test_fires_and_missed_instants_are_counted_once_for_each_schedule_even_at_the_end(
        self, lane: Lane, admin: Admin
    ) -> None:
        for key in ("ends", "waits"):
            arm(admin, key)
        admin.hset(KEYS.spec("waits"), "last", admin.xadd(KEYS.stream, {"d": "x"}))
        all_three = [
            firing(missed=1),
            firing("ends", missed=20, next_ms=None),
            firing("waits", missed=300, overlap="queue_one"),
        ]
        for _ in range(2):
            await fired(lane, *all_three)
        counted = admin.hgetall(KEYS.counted)
        missed = {b"mk": b"1", b"mends": b"20", b"mwaits": b"300"}
        assert counted == missed | {b"ik": b"1", b"iends": b"1"}
        assert admin.ttl(KEYS.counted) > 0

    async def test_nothing_is_counted_for_the_queue_without_history(
        self, lane: Lane, admin: Admin
    ) -> None:
        told = {"holder": HOLDER, "events_max_len": 10, "firings": [firing(missed=1)]}
        await fire(lane, KEYS, **told, history=False)  # type: ignore[arg-type]
        assert not admin.exists(KEYS.counted)

    async def test_a_call_that_is_sent_again_does_nothing(self, lane: Lane, admin: Admin) -> None:
        await fired(lane, firing())
        (again,) = await fired(lane, firing())
        assert again.changed
        assert admin.xlen(KEYS.stream) == 1
        assert admin.hget(KEYS.spec("k"), "fired") == b"1"

    async def test_only_the_leader_fires(self, lane: Lane, admin: Admin) -> None:
        assert await fired(lane, firing(), holder=b"s-two") is None
        admin.delete(KEYS.scheduler_lock)
        assert await fired(lane, firing()) is None
        assert not admin.exists(KEYS.stream)
        assert admin.zscore(KEYS.repeat, "k") == AT_MS

    async def test_one_that_has_changed_does_not_hold_up_the_others(
        self, lane: Lane, admin: Admin
    ) -> None:
        for key in ("changed", "last"):
            arm(admin, key)
        admin.zadd(KEYS.repeat, {"changed": AT_MS + 7})
        arm(admin, "odd")
        admin.delete(KEYS.spec("odd"))
        admin.set(KEYS.spec("odd"), "text")
        wanted = [firing(key) for key in ("k", "changed", "odd", "removed", "last")]
        results = await fired(lane, *wanted)
        assert [result.fired for result in results] == [1, 0, 0, 0, 1]
        assert [result.changed for result in results] == [False, True, True, True, False]
        assert admin.zscore(KEYS.repeat, "changed") == AT_MS + 7

    async def test_a_schedule_without_a_next_instant_is_removed(
        self, lane: Lane, admin: Admin
    ) -> None:
        await fired(lane, firing(next_ms=None))
        assert admin.xlen(KEYS.stream) == 1
        assert not admin.exists(KEYS.repeat, KEYS.spec("k"))

    async def test_the_limit_holds_inside_one_call(self, lane: Lane, admin: Admin) -> None:
        admin.hset(KEYS.spec("k"), "fired", 3)
        (result,) = await fired(lane, firing(fires=5, limit=5))
        assert (result.fired, result.past) == (2, 3)
        assert not admin.exists(KEYS.repeat, KEYS.spec("k"))

    async def test_with_skip_the_second_of_a_call_meets_the_first(
        self, lane: Lane, admin: Admin
    ) -> None:
        (result,) = await fired(lane, firing(fires=3, overlap="skip"))
        assert (result.fired, result.met) == (1, 2)
        assert admin.hget(KEYS.spec("k"), "overlapped") == b"2"

    async def test_with_queue_one_an_instant_waits_and_is_counted_once(
        self, lane: Lane, admin: Admin
    ) -> None:
        entry = admin.xadd(KEYS.stream, {"d": "running"})
        admin.hset(KEYS.spec("k"), "last", entry)
        waits = firing(overlap="queue_one", missed=2, overlapped=9)
        for _ in range(2):
            (result,) = await fired(lane, waits)
            assert result.held
        stored = admin.hgetall(KEYS.spec("k"))
        assert (stored[b"held"], stored[b"missed"]) == (b"%d" % AT_MS, b"2")
        assert b"overlapped" not in stored
        admin.xdel(KEYS.stream, entry)
        (result,) = await fired(lane, firing(overlap="queue_one", overlapped=9))
        assert result.fired == 1
        stored = admin.hgetall(KEYS.spec("k"))
        assert stored[b"overlapped"] == b"9"
        assert b"held" not in stored

    async def test_a_jittered_job_is_delayed_and_wakes_the_promoter(
        self, lane: Lane, admin: Admin
    ) -> None:
        new = NewFire(AT_MS, b"member", b"", b"", "id", AT_MS + 300)
        await fired(lane, replace(firing(), fires=[new]))
        assert admin.zscore(KEYS.delayed, "member") == AT_MS + 300
        assert admin.llen(KEYS.wakeup) == 1

    @pytest.mark.parametrize("key", [KEYS.stream, KEYS.delayed, KEYS.repeat])
    async def test_a_key_of_another_kind_leaves_everything_as_it_was(
        self, lane: Lane, admin: Admin, key: bytes
    ) -> None:
        admin.delete(key)
        admin.set(key, "text")
        before = {each: admin.dump(each) for each in admin.keys("*")}
        with pytest.raises(CommandRefused):
            await fired(lane, firing())
        assert {each: admin.dump(each) for each in admin.keys("*")} == before

    async def test_at_the_memory_limit_nothing_is_half_done(self, lane: Lane, admin: Admin) -> None:
        arm(admin, "other")
        before = {each: admin.dump(each) for each in admin.keys("*")}
        admin.config_set("maxmemory", 1)
        try:
            with pytest.raises(ServerError):
                await fired(lane, firing(missed=1), firing("other"))
        finally:
            admin.config_set("maxmemory", 0)
        assert {each: admin.dump(each) for each in admin.keys("*")} == before


class TestDue:
    async def test_due_schedules_come_oldest_first_with_the_next_due_time(
        self, lane: Lane, admin: Admin
    ) -> None:
        seconds, micros = admin.time()
        now_ms = seconds * 1000 + micros // 1000
        admin.zadd(KEYS.repeat, {"k": now_ms - 5, "first": now_ms - 9, "next": now_ms + 60_000})
        found = await due(lane, KEYS, skip=0, limit=10)
        assert [each.key for each in found.schedules] == [b"first", b"k"]
        assert found.next_in_us is not None
        assert 50_000_000 < found.next_in_us <= 60_000_000
        assert 0 <= found.now_ms - now_ms < 5000
        (rest,) = (await due(lane, KEYS, skip=1, limit=1)).schedules
        assert rest.due_ms == now_ms - 5

    async def test_scores_that_are_no_instants_do_no_harm(self, lane: Lane, admin: Admin) -> None:
        admin.zadd(KEYS.repeat, {"k": "inf", "gone": "-inf"})
        found = await due(lane, KEYS, skip=0, limit=10)
        assert [each.due_ms for each in found.schedules] == [None]
        assert found.next_in_us == 3_600_000_000


class TestChanges:
    async def test_a_spec_that_others_have_stored_since_is_not_overwritten(
        self, lane: Lane, admin: Admin
    ) -> None:
        new = NewSpec(b"k", b"new", b"own", AT_MS)
        assert await upsert(lane, KEYS, new, known=b"") is False
        assert await upsert(lane, KEYS, new, known=b"other") is False
        assert admin.hgetall(KEYS.spec("k")) == {b"spec": b"spec"}
        assert await upsert(lane, KEYS, new, known=b"spec") is True
        assert admin.hgetall(KEYS.spec("k")) == {b"spec": b"new", b"tampu": b"own"}
        assert (admin.llen(KEYS.schedule_wakeup), admin.pttl(KEYS.schedule_wakeup) > 0) == (1, True)

    async def test_a_resumed_schedule_is_counted_and_published(
        self, lane: Lane, admin: Admin
    ) -> None:
        admin.hset(KEYS.spec("k"), "held", AT_MS)
        await pause(lane, KEYS, b"k")
        armed = Armed(b"k", b"%d" % AT_MS)
        assert await resume(lane, KEYS, armed, next_ms=AT_MS + 9, passed=4) is True
        assert admin.hgetall(KEYS.spec("k")) == {b"spec": b"spec", b"paused": b"4"}
        assert admin.zscore(KEYS.repeat, "k") == AT_MS + 9
        assert admin.llen(KEYS.schedule_wakeup) == 1

    async def test_a_schedule_paused_again_is_not_resumed_by_an_old_decision(
        self, lane: Lane, admin: Admin
    ) -> None:
        await pause(lane, KEYS, b"k")
        old = Armed(b"k", b"%d" % (AT_MS - 1))
        assert await resume(lane, KEYS, old, next_ms=AT_MS + 9, passed=4) is False
        assert admin.zscore(KEYS.paused, "k") == AT_MS
        assert admin.zscore(KEYS.repeat, "k") is None

    async def test_one_that_a_peer_stored_while_it_was_paused_stays_as_the_peer_wants_it(
        self, lane: Lane, admin: Admin
    ) -> None:
        await pause(lane, KEYS, b"k")
        arm(admin, "k", AT_MS + 50)
        armed = Armed(b"k", b"%d" % AT_MS)
        assert await resume(lane, KEYS, armed, next_ms=AT_MS + 9, passed=4) is True
        assert admin.zscore(KEYS.repeat, "k") == AT_MS + 50
        assert not admin.exists(KEYS.paused)
