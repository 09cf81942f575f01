"""Delayed jobs on real servers: taken back, put off, run at once, by their ids."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis

from tampu import CancelState, EventKind, NewJob, OptionError, Queue, SyncQueue
from tampu.server.lane import Lane
from tampu.server.scripts.delayed import count_unfinished
from tampu.wire.entry import decode_member, encode_member
from tampu.wire.envelope import Envelope, decode_envelope, encode_envelope
from tampu.wire.event import Event, decode_event
from tampu.wire.extras import decode_extras
from tests.contract.queues import (
    KEYS,
    QUEUE,
    delayed,
    flat_entries,
    script_calls,
    waiting,
    waiting_ids,
)
from tests.servers import RunningServer

pytestmark = pytest.mark.every_server

HOUR_MS = 3_600_000
CANCELLED = CancelState.CANCELLED
TOO_LATE = CancelState.TOO_LATE


@pytest.fixture
def admin(running: RunningServer) -> Iterator[Any]:
    with running.admin() as opened:
        yield opened


def keys_left(admin: redis.Redis) -> set[bytes]:
    """What the queue has on the server, but for what expires soon: memory, wakeups, notices."""
    found: Any = admin.keys("*")
    passing = {KEYS.wakeup, KEYS.notices}
    return {
        key
        for key in found
        if b":producer:" not in key and b":failure:" not in key and key not in passing
    }


def ids_delayed(admin: redis.Redis) -> set[str]:
    return {decode_envelope(decode_member(member).envelope).id for member, _ in delayed(admin)}


def put_delayed(admin: redis.Redis, job_id: str, *, name: str = "peers", attempt: int = 0) -> bytes:
    """A job that somebody delayed without an index, due in an hour; its member."""
    envelope = encode_envelope(Envelope(job_id, b"\x01", 1_794_725_043_642, attempt, None))
    member = encode_member(name, envelope)
    admin.zadd(KEYS.delayed, {member: server_ms(admin) + HOUR_MS})
    return member


def server_ms(admin: redis.Redis) -> int:
    told: Any = admin.time()
    return int(told[0]) * 1000 + int(told[1]) // 1000


def due_in_ms(admin: redis.Redis) -> float:
    ((_, score),) = delayed(admin)
    return score - server_ms(admin)


def events(admin: redis.Redis) -> list[Event]:
    return [decode_event(flat) for flat in flat_entries(admin, KEYS.events)]


class TestCancel:
    @pytest.mark.parametrize("name", ["welcome", ""])
    async def test_a_job_with_an_id_is_gone_with_its_index_and_marker(
        self, queue: Queue, admin: redis.Redis, name: str
    ) -> None:
        await queue.add(name, job_id="x", delay=60)
        assert await queue.job("x").cancel() is CANCELLED
        assert keys_left(admin) == set()
        assert await queue.job("x").cancel() is TOO_LATE

    async def test_a_job_without_an_id_of_the_user_s_can_be_cancelled_too(
        self, queue: Queue, admin: redis.Redis
    ) -> None:
        job, other = await queue.add_each("a", [1, 2], delay=60)
        assert admin.get(KEYS.index(job.id)) is not None
        assert await queue.job(job.id).cancel() is CANCELLED
        assert ids_delayed(admin) == {other.id}
        assert keys_left(admin) == {KEYS.delayed, KEYS.index(other.id)}

    async def test_an_unknown_id_changes_nothing(self, queue: Queue, admin: redis.Redis) -> None:
        await queue.add("a", job_id="x", delay=60)
        before = keys_left(admin)
        assert await queue.job("y").cancel() is TOO_LATE
        assert keys_left(admin) == before

    async def test_a_miss_leaves_the_marker_of_a_job_that_waits(
        self, queue: Queue, admin: redis.Redis
    ) -> None:
        await queue.add("a", job_id="x")
        assert await queue.job("x").run_now() is False
        assert await queue.actions.cancel_delayed(["x", "x"]) == [False, False]
        assert admin.exists(KEYS.marker("x")) == 1
        assert waiting_ids(admin) == ["x"]

    async def test_a_cancelled_id_can_be_delayed_again(
        self, queue: Queue, admin: redis.Redis
    ) -> None:
        await queue.add("a", 1, job_id="x", delay=60)
        await queue.job("x").cancel()
        again = await queue.add("a", 2, job_id="x", delay=60)
        assert not again.duplicate
        assert ids_delayed(admin) == {"x"}

    async def test_answers_stand_in_the_order_of_the_ids(
        self, queue: Queue, admin: redis.Redis
    ) -> None:
        jobs = await queue.add_each("a", range(5), delay=60)
        asked = [jobs[3].id, "unknown", jobs[0].id, jobs[3].id]
        assert await queue.cancel_many(asked) == [CANCELLED, TOO_LATE, CANCELLED, CANCELLED]
        assert ids_delayed(admin) == {jobs[1].id, jobs[2].id, jobs[4].id}

    async def test_many_take_few_calls(self, queue: Queue, admin: redis.Redis) -> None:
        jobs = await queue.add_each("a", range(1200), delay=60)
        await (await queue.add("load the script", delay=60)).cancel()
        admin.config_resetstat()
        answers = await queue.cancel_many([job.id for job in jobs])
        assert set(answers) == {CANCELLED}
        assert script_calls(admin) == 3
        assert keys_left(admin) == set()

    async def test_no_ids_are_no_call(self, queue: Queue, admin: redis.Redis) -> None:
        admin.config_resetstat()
        assert await queue.cancel_many([]) == []
        assert script_calls(admin) == 0

    @pytest.mark.parametrize("ids", ["abc", [""], ["a", None], ["x" * 513]])
    async def test_an_invalid_id_is_named_and_nothing_is_cancelled(
        self,
        queue: Queue,
        admin: redis.Redis,
        ids: Any,  # noqa: ANN401 - wrong on purpose
    ) -> None:
        await queue.add("a", job_id="a", delay=60)
        with pytest.raises(OptionError, match="job_id"):
            await queue.cancel_many(ids)
        assert ids_delayed(admin) == {"a"}


class TestWithoutAnIndex:
    """A retry that waits, a peer's job without an id, an index that is gone."""

    @pytest.mark.parametrize("job_id", ["plain", "a*c", "[x]", "back\\slash?", "ä-^ü", "01K9Z"])
    async def test_the_job_is_found_whatever_its_id_holds(
        self, queue: Queue, admin: redis.Redis, job_id: str
    ) -> None:
        put_delayed(admin, job_id)
        put_delayed(admin, "abc")
        put_delayed(admin, "x")
        assert await queue.job(job_id).cancel() is CANCELLED
        assert ids_delayed(admin) == {"abc", "x"}

    async def test_an_id_inside_another_jobs_data_does_not_match(
        self, queue: Queue, admin: redis.Redis
    ) -> None:
        await queue.add("wanted", {"id": "wanted"}, job_id="wanted-not", delay=60)
        put_delayed(admin, "unwanted", name="wanted")
        assert await queue.job("wanted").cancel() is TOO_LATE
        assert await queue.job("wanted").run_now() is False
        assert await queue.job("wanted").reschedule(delay=1) is False
        assert ids_delayed(admin) == {"wanted-not", "unwanted"}

    async def test_a_retry_that_waits_is_cancelled_and_frees_its_id(
        self, queue: Queue, admin: redis.Redis
    ) -> None:
        admin.set(KEYS.marker("x"), "1")
        put_delayed(admin, "x", attempt=2)
        assert await queue.job("x").cancel() is CANCELLED
        assert keys_left(admin) == set()

    async def test_an_index_of_another_member_is_left_alone(
        self, queue: Queue, admin: redis.Redis
    ) -> None:
        put_delayed(admin, "x", attempt=1)
        admin.set(KEYS.index("x"), b"promoted before")
        assert await queue.job("x").run_now() is True
        assert admin.get(KEYS.index("x")) == b"promoted before"

    async def test_an_index_that_outlived_its_member_finds_nothing(
        self, queue: Queue, admin: redis.Redis
    ) -> None:
        await queue.add("a", job_id="x", delay=60)
        ((member, _),) = delayed(admin)
        admin.zrem(KEYS.delayed, member)  # as a promoter does, before it deletes the index
        before = keys_left(admin)
        assert await queue.job("x").cancel() is TOO_LATE
        assert await queue.job("x").reschedule(delay=1) is False
        assert await queue.job("x").run_now() is False
        assert keys_left(admin) == before == {KEYS.index("x"), KEYS.marker("x")}

    async def test_many_are_found_among_thousands_and_among_poison(
        self, queue: Queue, admin: redis.Redis
    ) -> None:
        await queue.add_each("a", range(3000), delay=60)
        admin.zadd(KEYS.delayed, {b"xy": 1e15, b"\xff\0\0\0abc": 1e15})
        for job_id in ("p1", "p2", "p3"):
            put_delayed(admin, job_id)
        asked = ["p3", "none", "p1", "p3"]
        assert await queue.cancel_many(asked) == [CANCELLED, TOO_LATE, CANCELLED, CANCELLED]
        assert admin.zcard(KEYS.delayed) == 3003
        assert await queue.job("p2").run_now() is True
        assert waiting_ids(admin) == ["p2"]


class TestReschedule:
    @pytest.mark.parametrize("later", [True, False])
    async def test_a_job_is_due_at_its_new_time_and_nothing_else_of_it_changes(
        self, queue: Queue, admin: redis.Redis, *, later: bool
    ) -> None:
        await queue.add("a", {"n": 1}, job_id="x", delay="1h", timeout=5)
        ((member, _),) = delayed(admin)
        delay_s = 7200 if later else 60
        assert await queue.job("x").reschedule(delay=delay_s) is True
        ((moved, _),) = delayed(admin)
        assert moved == member == admin.get(KEYS.index("x"))
        assert delay_s * 1000 - 1000 < due_in_ms(admin) <= delay_s * 1000
        kept_s = delay_s + 3600
        assert kept_s - 2 <= int(str(admin.ttl(KEYS.index("x")))) <= kept_s
        assert kept_s - 2 <= int(str(admin.ttl(KEYS.marker("x")))) <= kept_s + 1

    async def test_an_instant_is_kept_to_the_millisecond(
        self, queue: Queue, admin: redis.Redis
    ) -> None:
        job = await queue.add("a", delay=60)
        at = datetime.now(UTC).replace(microsecond=123_000) + timedelta(hours=1)
        assert await queue.job(job.id).reschedule(at=at) is True
        ((_, score),) = delayed(admin)
        assert score == round(at.timestamp() * 1000)
        assert admin.exists(KEYS.marker(job.id)) == 0

    async def test_an_id_stays_reserved_for_unique_for_after_the_due_time(
        self, queue: Queue, admin: redis.Redis
    ) -> None:
        await queue.add("a", job_id="x", delay=60, unique_for="1d")
        await queue.job("x").reschedule(delay=660)
        assert 86_400 + 655 < int(str(admin.ttl(KEYS.marker("x")))) <= 86_400 + 662

    async def test_expiry_moves_with_the_due_time(self, queue: Queue, admin: redis.Redis) -> None:
        await queue.add("a", 1, job_id="x", delay="1h", expires="10m", tenant="t")
        assert await queue.job("x").reschedule(delay="2h") is True
        ((member, score),) = delayed(admin)
        parts = decode_member(member)
        extras = decode_extras(parts.extras)
        assert extras.deadline_ms is not None
        assert abs(extras.deadline_ms - score - 600_000) < 2000
        assert (parts.name, extras.tenant) == ("a", "t")
        assert admin.get(KEYS.index("x")) == member
        assert await queue.job("x").cancel() is CANCELLED

    @pytest.mark.parametrize("options", [{"delay": 0}, {"at": datetime(2001, 1, 1, tzinfo=UTC)}])
    async def test_a_time_that_has_passed_makes_it_due(
        self, queue: Queue, admin: redis.Redis, options: dict[str, Any]
    ) -> None:
        job = await queue.add("a", delay=60)
        assert await queue.job(job.id).reschedule(**options) is True
        assert due_in_ms(admin) <= 0

    async def test_a_job_without_an_index_is_rescheduled_without_one(
        self, queue: Queue, admin: redis.Redis
    ) -> None:
        put_delayed(admin, "x", attempt=1)
        assert await queue.job("x").reschedule(delay=60) is True
        assert 59_000 < due_in_ms(admin) <= 60_000
        assert keys_left(admin) == {KEYS.delayed}

    async def test_jobs_that_are_not_delayed_are_left_alone(
        self, queue: Queue, admin: redis.Redis
    ) -> None:
        await queue.add("a", job_id="x")
        before = keys_left(admin)
        assert await queue.job("x").reschedule(delay=60) is False
        assert keys_left(admin) == before

    @pytest.mark.parametrize(
        ("option", "options"),
        [
            ("delay", {}),
            ("at", {"delay": 1, "at": datetime(2030, 1, 1, tzinfo=UTC)}),
            ("delay", {"delay": "31d"}),
            ("at", {"at": datetime.now(UTC) + timedelta(days=31)}),
            ("at", {"at": datetime(2030, 1, 1)}),  # noqa: DTZ001 - wrong on purpose
            ("delay", {"delay": -1}),
        ],
    )
    async def test_an_impossible_time_is_named_and_nothing_moves(
        self, queue: Queue, admin: redis.Redis, option: str, options: dict[str, Any]
    ) -> None:
        await queue.add("a", job_id="x", delay=60)
        before = delayed(admin)
        with pytest.raises(OptionError) as refused:
            await queue.job("x").reschedule(**options)
        assert refused.value.option == option
        assert delayed(admin) == before


class TestRunNow:
    async def test_a_job_waits_at_once_with_all_it_had(
        self, queue: Queue, admin: redis.Redis
    ) -> None:
        await queue.add("a", {"n": 1}, job_id="x", delay="1h", attempts=3)
        assert await queue.job("x").run_now() is True
        (job,) = waiting(admin)
        assert (job.envelope.id, job.name, job.data) == ("x", "a", {"n": 1})
        assert job.envelope.retry is not None
        assert keys_left(admin) == {KEYS.stream, KEYS.marker("x")}
        assert await queue.job("x").run_now() is False
        assert (await queue.add("a", job_id="x")).duplicate

    async def test_a_member_that_no_job_can_be_made_of_is_not_run(
        self, queue: Queue, admin: redis.Redis
    ) -> None:
        admin.set(KEYS.index("x"), b"xy")
        admin.zadd(KEYS.delayed, {b"xy": 1e15})
        assert await queue.job("x").run_now() is False
        assert admin.zcard(KEYS.delayed) == 1

    async def test_of_many_at_once_one_moves_it(self, queue: Queue, admin: redis.Redis) -> None:
        job = await queue.add("a", delay=60)
        moved = await asyncio.gather(*[queue.job(job.id).run_now() for _ in range(10)])
        assert moved.count(True) == 1
        assert waiting_ids(admin) == [job.id]


class TestTelling:
    async def test_changes_to_delayed_jobs_are_published_with_events_on(
        self, running: RunningServer, admin: redis.Redis
    ) -> None:
        async with Queue(QUEUE, running.url, events=True) as queue:
            await queue.add_many(
                [NewJob("a", job_id=job_id, delay=60) for job_id in ("x", "y", "z")]
            )
            assert await queue.cancel_many(["x", "none"]) == [CANCELLED, TOO_LATE]
            assert await queue.job("y").run_now() is True
        told = [event for event in events(admin) if event.kind is not EventKind.DELAYED]
        assert {(event.kind, event.job_id, event.name) for event in told} == {
            (EventKind.CANCELLED, "x", "a"),
            (EventKind.WAITING, "y", "a"),
        }
        assert all(isinstance(event.ts, int) for event in told)

    async def test_without_events_nothing_is_published(
        self, queue: Queue, admin: redis.Redis
    ) -> None:
        jobs = await queue.add_each("a", [1, 2], delay=60)
        await queue.job(jobs[0].id).cancel()
        await queue.job(jobs[1].id).run_now()
        assert admin.exists(KEYS.events) == 0


def test_a_queue_for_threads_does_the_same(running: RunningServer, admin: redis.Redis) -> None:
    with SyncQueue(QUEUE, running.url) as queue:
        first, second, third, fourth = queue.add_each("a", range(4), delay=60)
        assert queue.job(first.id).cancel() is CANCELLED
        assert queue.cancel_many([second.id, first.id]) == [CANCELLED, TOO_LATE]
        assert queue.job(third.id).reschedule(delay="2h") is True
        assert queue.job(fourth.id).run_now() is True
    assert ids_delayed(admin) == {third.id}
    assert due_in_ms(admin) > HOUR_MS
    assert waiting_ids(admin) == [fourth.id]


async def test_drained_counts_waiting_running_and_due_jobs(
    queue: Queue, lane: Lane, admin: redis.Redis
) -> None:
    assert await count_unfinished(lane, KEYS) == 0
    await queue.add_each("x", range(3))
    await queue.add("x", delay="1h")
    assert await count_unfinished(lane, KEYS) == 3
    admin.xgroup_create(KEYS.stream, "default", "0")
    admin.xreadgroup("default", "somebody", {KEYS.stream: ">"}, count=2)
    assert await count_unfinished(lane, KEYS) == 3
    admin.zadd(KEYS.delayed, {"due": 1})
    assert await count_unfinished(lane, KEYS) == 4
