"""Adding jobs: what is written to the server, and what the producer gets."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis

from tampu import (
    Backoff,
    EncodeError,
    EventKind,
    NewJob,
    OptionError,
    Queue,
)
from tampu.wire.entry import decode_member
from tampu.wire.envelope import RetryOverride, decode_envelope
from tampu.wire.event import decode_event
from tampu.wire.extras import Extras, decode_extras
from tampu.wire.keys import QueueKeys
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


def everything(admin: redis.Redis) -> dict[bytes, bytes]:
    keys: Any = admin.keys("*")
    return {key: admin.dump(key) for key in keys}  # type: ignore[misc]


class TestAdd:
    async def test_a_job_is_written_to_the_stream_as_chasquimq_would_write_it(
        self, queue: Queue, admin: redis.Redis
    ) -> None:
        job = await queue.add("welcome", {"to": "ada"})
        (flat,) = flat_entries(admin)
        assert flat[::2] == [b"d", b"n"]
        assert flat[3] == b"welcome"
        # array of 4, the id, bin(msgpack(data)), the time, attempt 0
        assert flat[1].startswith(b"\x94\xba" + job.id.encode() + b"\xc4\x08\x81\xa2to\xa3ada\xcf")
        assert flat[1].endswith(b"\x00")
        assert decode_envelope(flat[1]).created_at_ms == job.created_at_ms

    async def test_the_producer_gets_what_was_added(self, queue: Queue) -> None:
        before = datetime.now(UTC)
        data = {"to": "ada"}
        job = await queue.add("welcome", data)
        assert (job.name, job.attempt, job.duplicate) == ("welcome", 0, False)
        assert job.data is data
        assert before - timedelta(seconds=1) < job.created_at <= datetime.now(UTC)

    async def test_a_job_needs_neither_name_nor_data(
        self, queue: Queue, admin: redis.Redis
    ) -> None:
        await queue.add("")
        await queue.add("", delay=60)
        (flat,) = flat_entries(admin)
        assert flat[::2] == [b"d"]
        assert waiting(admin)[0].data is None
        ((member, _),) = delayed(admin)
        assert member.startswith(b"\x00\x00\x00\x00")

    async def test_options_are_written_to_the_envelope_and_the_extras(
        self, queue: Queue, admin: redis.Redis
    ) -> None:
        backoff = Backoff.exponential(0.1, max=30, multiplier=2, jitter=0.1)
        job = await queue.add(
            "welcome",
            1,
            attempts=5,
            backoff=backoff,
            timeout=9,
            headers={"trace": "t1"},
            tenant="acme",
            expires="1h",
        )
        (found,) = waiting(admin)
        assert found.envelope.retry == RetryOverride(5, backoff.to_wire())
        assert found.extras == job.extras
        assert (found.extras.timeout_ms, found.extras.tenant) == (9000, "acme")
        assert found.extras.headers == {"trace": "t1"}
        assert found.extras.deadline_ms is not None
        assert abs(found.extras.deadline_ms - job.created_at_ms - 3_600_000) < 1000

    async def test_options_that_are_none_count_as_not_given(
        self, queue: Queue, admin: redis.Redis
    ) -> None:
        await queue.add("a", delay=None, job_id=None, headers=None)
        assert flat_entries(admin)[0][::2] == [b"d", b"n"]

    async def test_a_delayed_job_is_only_in_the_delayed_set(
        self, queue: Queue, admin: redis.Redis
    ) -> None:
        await queue.add("a", {"x": 1}, delay="90s", timeout=5)
        seconds, micros = admin.time()
        ((member, score),) = delayed(admin)
        assert 89_000 < score - (seconds * 1000 + micros // 1000) <= 90_000
        parts = decode_member(member)
        assert parts.name == "a"
        assert decode_extras(parts.extras) == Extras(timeout_ms=5000)
        assert admin.exists(KEYS.stream) == 0
        assert admin.keys("*dlid*") == []

    async def test_an_instant_is_kept_to_the_millisecond(
        self, queue: Queue, admin: redis.Redis
    ) -> None:
        at = datetime.now(UTC).replace(microsecond=123_000) + timedelta(hours=1)
        await queue.add("a", at=at)
        ((_, score),) = delayed(admin)
        assert score == round(at.timestamp() * 1000)

    @pytest.mark.parametrize(
        "when", [{"delay": 0}, {"at": datetime(2001, 1, 1, tzinfo=UTC)}, {"delay": "0s"}]
    )
    async def test_a_job_that_is_already_due_goes_to_the_stream(
        self, queue: Queue, admin: redis.Redis, when: dict[str, Any]
    ) -> None:
        await queue.add("a", job_id="x", **when)
        assert waiting_ids(admin) == ["x"]
        assert admin.exists(KEYS.delayed, KEYS.index("x")) == 0

    @pytest.mark.parametrize(
        ("error", "name", "data", "options"),
        [
            (OptionError, "x" * 257, None, {}),
            (OptionError, None, None, {}),
            (OptionError, ["a"], None, {}),
            (OptionError, "a", None, {"delay": -1}),
            (OptionError, "a", None, {"delay": 1, "at": datetime.now(UTC)}),
            (OptionError, "a", None, {"attempts": 0}),
            (OptionError, "a", None, {"backoff": "fixed"}),
            (OptionError, "a", None, {"job_id": " "}),
            (OptionError, "a", None, {"urgency": 1}),
            (OptionError, "a", None, {"priority": 10}),
            (OptionError, "a", None, {"ordered": True}),
            (OptionError, "a", None, {"delay": "31d"}),
            (EncodeError, "a", object(), {}),
            (EncodeError, "a", object(), {"delay": 1}),
            (EncodeError, "a", "x" * (1024 * 1024), {}),
            (EncodeError, "a", 2**64, {}),
        ],
    )
    async def test_invalid_input_raises_and_nothing_is_written(
        self,
        queue: Queue,
        admin: redis.Redis,
        error: type[Exception],
        name: Any,  # noqa: ANN401
        data: object,
        options: dict[str, Any],
    ) -> None:
        with pytest.raises(error):
            await queue.add(name, data, **options)
        assert everything(admin) == {}


class TestIds:
    async def test_an_id_is_added_once_by_any_method_and_producer(
        self, queue: Queue, admin: redis.Redis, running: RunningServer
    ) -> None:
        async with Queue(QUEUE, running.url) as other:
            first = await queue.add("a", 1, job_id="x")
            rest = [
                await queue.add("a", 2, job_id="x"),
                await other.add("a", 3, job_id="x"),
                await other.add("a", 4, job_id="x", delay=60),
                await other.add("a", 5, job_id="x", at=datetime.now(UTC) + timedelta(hours=1)),
            ]
        assert (first.id, first.duplicate) == ("x", False)
        assert [(job.id, job.duplicate) for job in rest] == [("x", True)] * 4
        assert [job.data for job in waiting(admin)] == [1]
        assert admin.exists(KEYS.delayed) == 0

    async def test_a_delayed_id_is_taken_and_can_be_found(
        self, queue: Queue, admin: redis.Redis
    ) -> None:
        for _ in range(3):
            await queue.add("a", 1, job_id="x", delay=60)
        assert (await queue.add("a", 1, job_id="x")).duplicate
        ((member, _),) = delayed(admin)
        assert admin.get(KEYS.index("x")) == member
        assert admin.get(KEYS.marker("x")) == b"1"
        assert {admin.ttl(KEYS.marker("x")), admin.ttl(KEYS.index("x"))} <= {3659, 3660}
        assert admin.exists(KEYS.stream) == 0

    async def test_concurrent_adds_of_one_id_add_it_once(
        self, queue: Queue, admin: redis.Redis, running: RunningServer
    ) -> None:
        async with Queue(QUEUE, running.url) as other:
            jobs = await asyncio.gather(
                *[each.add("a", job_id="x", delay=60) for each in (queue, other) * 20]
            )
        assert [job.duplicate for job in jobs].count(False) == 1
        assert admin.zcard(KEYS.delayed) == 1

    async def test_distinct_ids_are_independent(self, queue: Queue, admin: redis.Redis) -> None:
        for number in range(5):
            await queue.add("a", job_id=f"x{number}", delay=60)
        assert admin.zcard(KEYS.delayed) == 5

    async def test_unique_for_is_how_long_an_id_stays_taken(
        self, running: RunningServer, admin: redis.Redis
    ) -> None:
        async with Queue(QUEUE, running.url, unique_for="10m") as queue:
            await queue.add("a", job_id="x")
            await queue.add("a", job_id="y", unique_for="1d", delay=10)
        assert admin.ttl(KEYS.marker("x")) in {600, 601}
        assert admin.ttl(KEYS.marker("y")) in {86_409, 86_410}


class TestAddMany:
    @pytest.mark.parametrize("count", [1000, 2501])
    async def test_all_jobs_are_added_in_their_order(
        self, queue: Queue, admin: redis.Redis, count: int
    ) -> None:
        jobs = await queue.add_many(NewJob("a", number) for number in range(count))
        found = waiting(admin)
        assert [job.data for job in found] == list(range(count))
        assert [job.envelope.id for job in found] == [job.id for job in jobs]
        assert [job.data for job in jobs] == list(range(count))

    async def test_each_job_has_its_own_name_and_options(
        self, queue: Queue, admin: redis.Redis
    ) -> None:
        jobs = await queue.add_many(
            [
                NewJob("a", 1),
                NewJob("b", 2, attempts=3),
                NewJob("c", 3, delay=60, job_id="later"),
                NewJob("", 4),
                NewJob("e", 5, job_id="now"),
                NewJob("f", 6, job_id="now"),
            ]
        )
        found = waiting(admin)
        assert [(job.name, job.data) for job in found] == [("a", 1), ("b", 2), ("", 4), ("e", 5)]
        assert [job.duplicate for job in jobs] == [False] * 5 + [True]
        assert [jobs[2].id, jobs[4].id, jobs[5].id] == ["later", "now", "now"]
        assert admin.zcard(KEYS.delayed) == 1

    async def test_repeated_ids_are_added_once(self, queue: Queue, admin: redis.Redis) -> None:
        await queue.add_many([NewJob("a", job_id=i, delay=60) for i in ("1", "2", "3")])
        again = await queue.add_many([NewJob("a", job_id=i, delay=60) for i in ("2", "3", "4")])
        assert [job.duplicate for job in again] == [True, True, False]
        assert admin.zcard(KEYS.delayed) == 4

    async def test_an_empty_list_writes_nothing(self, queue: Queue, admin: redis.Redis) -> None:
        assert await queue.add_many([]) == []
        assert await queue.add_each("a", []) == []
        assert await queue.add_each("a", [], delay=5) == []
        assert everything(admin) == {}

    @pytest.mark.parametrize(
        "bad",
        [
            NewJob("a", object()),
            NewJob("a", object(), delay=1),
            NewJob("x" * 257),
            NewJob("a", attempts=0),
            NewJob("a", "x" * 1024 * 1024),
            ("a", 1),
            None,
        ],
    )
    async def test_one_invalid_job_leaves_the_server_untouched(
        self,
        queue: Queue,
        admin: redis.Redis,
        bad: Any,  # noqa: ANN401
    ) -> None:
        good = [NewJob("a", number) for number in range(1500)]
        with pytest.raises((OptionError, EncodeError)):
            await queue.add_many([*good, bad])
        assert everything(admin) == {}

    async def test_large_payloads_are_split_into_several_calls(
        self, queue: Queue, admin: redis.Redis
    ) -> None:
        datas = ["x" * 900_000 + str(number) for number in range(12)]
        admin.config_resetstat()
        await queue.add_each("a", datas)
        assert [job.data for job in waiting(admin)] == datas
        assert script_calls(admin) == 3

    async def test_add_each_adds_one_job_per_item_with_the_same_options(
        self, queue: Queue, admin: redis.Redis
    ) -> None:
        await queue.add_each("a", iter(range(3)))
        await queue.add_each("b", range(3), delay=60, tenant="t")
        assert [(job.name, job.data) for job in waiting(admin)] == [("a", 0), ("a", 1), ("a", 2)]
        assert admin.zcard(KEYS.delayed) == 3

    async def test_add_each_refuses_a_job_id(self, queue: Queue, admin: redis.Redis) -> None:
        with pytest.raises(OptionError, match=r"^Invalid job_id 'x'"):
            await queue.add_each("a", [1], job_id="x")
        assert everything(admin) == {}
        (job,) = await queue.add_many([NewJob("a", 1, job_id="x")])
        assert job.id == "x"


async def test_adds_are_written_to_the_events_stream_if_events_are_on(
    running: RunningServer, admin: redis.Redis
) -> None:
    async with Queue(QUEUE, running.url, events=True) as queue:
        now = await queue.add("a")
        later = await queue.add("b", delay=60, job_id="x")
        await queue.add("b", job_id="x")
    told = [decode_event(flat) for flat in flat_entries(admin, KEYS.events)]
    assert [(event.kind, event.job_id, event.name) for event in told] == [
        (EventKind.ADDED, now.id, "a"),
        (EventKind.DELAYED, later.id, "b"),
    ]
    assert told[1].fields == {"delay_ms": 60_000}


async def test_other_queues_are_not_touched(
    queue: Queue, running: RunningServer, admin: redis.Redis
) -> None:
    other = QueueKeys("other")
    async with Queue("other", running.url) as second:
        await second.add("a", job_id="x")
        assert not (await queue.add("a", job_id="x")).duplicate
    assert admin.xlen(other.stream) == admin.xlen(KEYS.stream) == 1
