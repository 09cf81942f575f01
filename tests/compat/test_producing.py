"""Adding jobs and schedules; the numbers are those of the behaviours to re-test in the spec."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import msgpack
import pytest

from tampu.compat.chasquimq import BackoffSpec, MissedFiresPolicy, Producer, Queue, RepeatPattern
from tests.compat.harness import KEYS, QUEUE, Admin, Given, read_envelopes, read_names
from tests.servers import RunningServer
from tests.waiting import wait_until

EVERY = RepeatPattern.every(60_000)


class TestProducer:
    async def test_a_call_starts_at_once_and_returns_a_future(
        self, producer: Producer, admin: Admin
    ) -> None:
        adding = producer.add(b"a")
        await wait_until(
            lambda: admin.xlen(KEYS.stream) == 1, within=60, sentence="the job is added"
        )
        done, _ = await asyncio.wait([adding, producer.add(b"b")])
        assert len(done) == 2
        dead_letters = producer.peek_dlq(1)
        assert asyncio.isfuture(dead_letters)
        assert await dead_letters == []

    async def test_jobs_are_stored_under_the_keys_that_the_producer_reports(
        self, producer: Producer, admin: Admin
    ) -> None:
        """Behaviour 142."""
        first = await producer.add(b"a")
        await producer.add_bulk([b"b", b"c"])
        await producer.add_in(60_000, b"d")
        assert admin.xlen(producer.stream_key()) == 3
        assert admin.zcard(producer.delayed_key()) == 1
        assert producer.dlq_key() == f"{{chasqui:{QUEUE}}}:dlq"
        assert [entry[1] for entry in read_envelopes(admin)] == [b"a", b"b", b"c"]
        assert read_envelopes(admin)[0][0] == first

    async def test_a_delayed_job_with_the_same_id_is_added_once(
        self, producer: Producer, admin: Admin
    ) -> None:
        """Behaviour 143."""
        for _ in range(3):
            assert await producer.add_in_with_options(60_000, b"x", {"id": "one"}) == "one"
        assert admin.zcard(KEYS.delayed) == 1

    async def test_retry_options_are_written_unchanged(
        self, producer: Producer, admin: Admin
    ) -> None:
        """Behaviour 144."""
        backoff = {
            "kind": "exponential",
            "delay_ms": 250,
            "max_delay_ms": 30_000,
            "multiplier": 2.0,
            "jitter_ms": 50,
        }
        await producer.add_with_options(b"x", {"retry": {"max_attempts": 5, "backoff": backoff}})
        assert read_envelopes(admin)[0][4] == [5, ["exponential", 250, 30_000, 2.0, 50]]

    async def test_a_job_can_be_cancelled_once(self, producer: Producer) -> None:
        """Behaviour 145."""
        await producer.add_in_with_options(60_000, b"x", {"id": "one"})
        assert await producer.cancel_delayed("one") is True
        assert await producer.cancel_delayed("one") is False
        assert await producer.cancel_delayed_bulk(["one", "two"]) == [False, False]

    async def test_a_schedule_is_stored_listed_and_removed(self, producer: Producer) -> None:
        """Behaviour 147."""
        spec = {"key": "k", "job_name": "t", "pattern": EVERY.to_dict(), "payload": b"\x01"}
        assert await producer.upsert_repeatable(spec) == "k"
        (listed,) = await producer.list_repeatable(10)
        assert listed.pop("next_fire_ms") > 0
        assert listed == {
            "key": "k",
            "job_name": "t",
            "pattern": {"kind": "every", "interval_ms": 60_000},
            "limit": None,
            "start_after_ms": None,
            "end_before_ms": None,
            "missed_fires": None,
        }
        assert await producer.list_repeatable(0) == []
        assert await producer.remove_repeatable_by_key("k") is True
        assert await producer.remove_repeatable_by_key("k") is False

    @pytest.mark.parametrize(
        ("number", "spec"),
        [
            (149, {"pattern": {"kind": "sometimes"}}),
            (150, {"pattern": {"kind": "every", "interval_ms": 0}}),
        ],
    )
    async def test_an_invalid_pattern_is_a_value_error(
        self, producer: Producer, admin: Admin, number: int, spec: dict[str, Any]
    ) -> None:
        """Behaviours 149 and 150."""
        with pytest.raises(ValueError, match="pattern"):
            await producer.upsert_repeatable({"job_name": "t", "payload": b"\x01", **spec})
        assert admin.keys() == [], number

    async def test_an_unknown_kind_of_backoff_is_a_value_error(
        self, producer: Producer, admin: Admin
    ) -> None:
        """Behaviour 148."""
        backoff = {"kind": "sometimes", "delay_ms": 1}
        with pytest.raises(ValueError, match="unknown backoff kind"):
            await producer.add_with_options(b"x", {"retry": {"backoff": backoff}})
        assert admin.keys() == []

    async def test_any_bytes_are_added_unchanged(self, producer: Producer, admin: Admin) -> None:
        odd = [b"", b"\xc1", b"\x91" * 5000, bytes(2_000_000)]
        await producer.add_bulk(odd)
        await producer.add(odd[2])
        await producer.add_at(5, b"past")
        assert [entry[1] for entry in read_envelopes(admin)] == [*odd, odd[2], b"past"]

    async def test_a_producer_can_be_used_again_after_shutdown(
        self, producer: Producer, admin: Admin
    ) -> None:
        await producer.add(b"a")
        await producer.shutdown()
        await producer.add(b"b")
        assert admin.xlen(KEYS.stream) == 2


class TestAdding:
    async def test_the_payload_is_msgpack_in_a_binary_field(
        self, queue: Queue, admin: Admin
    ) -> None:
        """Behaviour 158."""
        job = await queue.add("n", {"x": 1})
        ((job_id, payload, _, attempt),) = read_envelopes(admin)
        assert (job_id, attempt) == (job.id, 0)
        assert payload == msgpack.packb({"x": 1}, use_bin_type=True)
        assert read_names(admin) == [b"n"]

    @pytest.mark.parametrize("more", [{}, {"attempts": 2}], ids=["fast", "fallback"])
    async def test_a_bulk_keeps_names_and_options(
        self, queue: Queue, admin: Admin, more: dict[str, Any]
    ) -> None:
        """Behaviours 160, 161 and 163."""
        jobs = [{"name": "a", "data": 1, **more}, {"name": "b", "data": 2}, {"name": "", "data": 3}]
        added = await queue.add_bulk(jobs)
        assert [job.name for job in added] == ["a", "b", ""]
        assert [entry[0] for entry in read_envelopes(admin)] == [job.id for job in added]
        assert read_names(admin) == [b"a", b"b", None]
        assert len(read_envelopes(admin)[0]) == (5 if more else 4)
        assert await queue.add_bulk([]) == []

    async def test_a_bulk_may_be_a_generator(self, queue: Queue, admin: Admin) -> None:
        generated: Given = ({"name": "a", "data": number} for number in range(3))
        added = await queue.add_bulk(generated)
        assert [entry[0] for entry in read_envelopes(admin)] == [job.id for job in added]
        assert len(added) == 3

    async def test_a_name_that_is_too_long_is_refused_and_nothing_is_added(
        self, queue: Queue, admin: Admin
    ) -> None:
        """Behaviour 162."""
        for add in (queue.add("x" * 257, 1), queue.add("ä" * 129, 1, repeat=EVERY)):
            with pytest.raises(RuntimeError, match="256"):
                await add
        with pytest.raises(RuntimeError, match="256"):
            await queue.add_bulk([{"name": "ok", "data": 1}, {"name": "x" * 257, "data": 2}])
        await queue.add("x" * 256, 1)
        assert admin.xlen(KEYS.stream) == 1
        assert admin.zcard(KEYS.repeat) == 0

    async def test_a_delayed_job_is_only_in_the_delayed_set(
        self, queue: Queue, admin: Admin
    ) -> None:
        """Behaviour 164."""
        await queue.add("n", 1, delay_ms=60_000)
        await queue.add("n", 1, delay=timedelta(minutes=1))
        span: Given = timedelta(minutes=1)  # not in the signature, but accepted
        await queue.add("n", 1, delay_ms=span)
        await queue.add("n", 1, delay_ms=datetime.now(UTC) + timedelta(minutes=1))
        naive = datetime.now(UTC).replace(tzinfo=None)
        await queue.add("n", 1, delay_ms=naive + timedelta(minutes=1))
        assert (admin.xlen(KEYS.stream), admin.zcard(KEYS.delayed)) == (0, 5)
        due = [score for _, score in admin.zrange(KEYS.delayed, 0, -1, withscores=True)]
        assert max(due) - min(due) < 10_000
        await queue.add("n", 1, delay_ms=0)
        await queue.add("n", 1, delay_ms=naive - timedelta(minutes=1))
        assert (admin.xlen(KEYS.stream), admin.zcard(KEYS.delayed)) == (2, 5)

    @pytest.mark.parametrize(
        ("attempts", "backoff", "written"),
        [
            (5, None, [5, None]),
            (None, 250, [None, ["fixed", 250, None, None, None]]),
            (None, BackoffSpec.exponential(100), [None, ["exponential", 100, None, 2.0, None]]),
            (3, BackoffSpec.fixed(10, 5), [3, ["fixed", 10, None, None, 5]]),
        ],
    )
    async def test_attempts_and_backoff_are_written_without_defaults(
        self, queue: Queue, admin: Admin, attempts: int, backoff: Given, written: list[Any]
    ) -> None:
        """Behaviour 165."""
        await queue.add("n", 1, attempts=attempts, backoff=backoff)
        assert read_envelopes(admin)[0][4] == written

    async def test_a_delayed_job_can_be_cancelled_by_its_given_or_generated_id(
        self, queue: Queue, admin: Admin
    ) -> None:
        """Behaviour 166."""
        named = await queue.add("n", 1, delay_ms=60_000, job_id="mine")
        unnamed = await queue.add("n", 1, delay_ms=60_000)
        for job in (named, unnamed):
            assert await queue.cancel_delayed(job.id) is True
            assert await queue.cancel_delayed(job.id) is False
        assert admin.zcard(KEYS.delayed) == 0

    async def test_an_invalid_repeat_or_backoff_is_refused(
        self, queue: Queue, admin: Admin
    ) -> None:
        """Behaviours 171 and 172."""
        with pytest.raises(ValueError, match="repeat dict must include kind"):
            await queue.add("n", 1, repeat={"every": 5})
        for wrong in ("5", 1.5, True):
            with pytest.raises(TypeError, match="backoff must be int"):
                await queue.add("n", 1, backoff=wrong)  # type: ignore[arg-type]
        assert admin.keys() == []

    async def test_an_invalid_delay_is_a_value_error(self, queue: Queue) -> None:
        """Behaviours 173 and 174."""
        for delay_ms in (-1, -0.5, float("nan"), float("inf")):
            with pytest.raises(ValueError, match="delay_ms must be"):
                await queue.add("n", 1, delay_ms=delay_ms)

    @pytest.mark.parametrize("days", [31, 400])
    async def test_max_delay_secs_compares_whole_seconds_and_0_means_ten_years(
        self, running: RunningServer, queue: Queue, days: int
    ) -> None:
        far = datetime.now(UTC) + timedelta(days=days)
        for add in (queue.add("n", 1, delay=timedelta(days=days)), queue.add("n", 1, delay_ms=far)):
            with pytest.raises(RuntimeError, match=r"^config: delay \d+s exceeds max_delay_secs"):
                await add
        await queue.add("n", 1, delay_ms=30 * 86_400_000 + 999)
        async with Queue(QUEUE, redis_url=running.url, max_delay_secs=0) as patient:
            await patient.add("n", 1, delay_ms=far)
            with pytest.raises(RuntimeError, match="exceeds max_delay_secs 316224000s"):
                await patient.add("n", 1, delay_ms=10**15)

    async def test_an_id_is_unique_among_immediate_and_delayed_jobs_of_every_client(
        self, running: RunningServer, queue: Queue, admin: Admin
    ) -> None:
        """Behaviours 177 and 178."""
        await queue.add("n", 1, job_id="now")
        await queue.add("n", 2, job_id="later", delay_ms=60_000)
        async with Queue(QUEUE, redis_url=running.url) as other:
            for job_id in ("now", "later"):
                for delay_ms in (None, 60_000):
                    job = await other.add_unique("n", 3, job_id=job_id, delay_ms=delay_ms)
                    assert job.id == job_id
        assert [entry[0] for entry in read_envelopes(admin)] == ["now"]
        assert admin.zcard(KEYS.delayed) == 1

    async def test_a_blank_id_is_refused(self, queue: Queue) -> None:
        """Behaviours 179 and 180."""
        for blank in ("", "  ", None):
            with pytest.raises(ValueError, match="add_unique: job_id must"):
                await queue.add_unique("n", 1, job_id=blank)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="add: job_id must"):
            await queue.add("n", 1, job_id=" ")
        with pytest.raises(TypeError, match="job_id"):
            await queue.add_unique("n", 1)  # type: ignore[call-arg]

    async def test_a_full_queue_refuses_new_jobs_and_keeps_the_waiting_ones(
        self, running: RunningServer, admin: Admin
    ) -> None:
        async with Queue(QUEUE, redis_url=running.url, max_stream_len=3) as short:
            for number in range(3):
                await short.add("n", number)
            with pytest.raises(RuntimeError, match=r"^redis: "):
                await short.add("n", 3)
        assert len(read_envelopes(admin)) == 3


class TestSchedules:
    @pytest.mark.parametrize(
        ("pattern", "key"),
        [
            (EVERY, "t::every:60000"),
            (RepeatPattern.cron("0 2 * * *"), "t::cron:0 2 * * *:UTC"),
            (RepeatPattern.cron("0 2 * * *", tz="UTC"), "t::cron:0 2 * * *:UTC"),
            (
                RepeatPattern.cron("*/5 * * * * *", tz="Europe/Berlin"),
                "t::cron:*/5 * * * * *:Europe/Berlin",
            ),
        ],
    )
    async def test_a_schedule_is_stored_listed_as_given_and_removed(
        self, queue: Queue, pattern: RepeatPattern, key: str
    ) -> None:
        """Behaviour 167."""
        far_ms = 4_000_000_000_000
        job = await queue.upsert_repeatable_job(
            "t", 1, repeat=pattern, limit=5, start_after_ms=1000, end_before_ms=far_ms
        )
        assert (job.id, job.name, job.data) == (key, "t", 1)
        (listed,) = await queue.get_repeatable_jobs()
        assert (listed.key, listed.pattern, listed.limit) == (key, pattern, 5)
        assert (listed.start_after_ms, listed.end_before_ms) == (1000, far_ms)
        assert await queue.get_repeatable_jobs(limit=0) == []
        assert await queue.remove_repeatable_by_key(key) is True
        assert await queue.remove_repeatable_by_key(key) is False

    async def test_an_end_after_the_year_9999_means_no_end_and_such_a_start_is_refused(
        self, queue: Queue
    ) -> None:
        never_ms = 2**53 - 1
        await queue.upsert_repeatable_job("t", 1, repeat=EVERY, end_before_ms=never_ms)
        (listed,) = await queue.get_repeatable_jobs()
        assert listed.end_before_ms is None
        with pytest.raises(ValueError, match=r"^spec\.start_after_ms must be before"):
            await queue.upsert_repeatable_job("t", 1, repeat=EVERY, start_after_ms=never_ms)
        with pytest.raises(ValueError, match=r"^pattern\.interval_ms must be at most"):
            await queue.add("t", 1, repeat=RepeatPattern.every(10**12))

    async def test_the_stored_spec_is_the_one_that_chasquimq_writes(
        self, queue: Queue, admin: Admin
    ) -> None:
        pattern = RepeatPattern.cron("0 2 * * *")
        key = (await queue.add("t", {"x": 1}, repeat=pattern)).id
        stored = msgpack.unpackb(admin.hget(KEYS.spec(key), "spec"))
        slot = msgpack.packb(msgpack.packb({"x": 1}))
        cron = {"Cron": ["0 2 * * *", None]}
        assert stored == [key, "t", cron, slot, None, None, None, 0]

    async def test_attempts_and_backoff_of_a_schedule_apply_to_its_jobs(
        self, queue: Queue, running: RunningServer, admin: Admin
    ) -> None:
        job = await queue.add("t", 1, repeat=EVERY, attempts=2, backoff=70)
        await queue._queues.current().schedules.trigger(job.id)
        assert read_envelopes(admin)[0][4] == [2, ["fixed", 70, None, None, None]]

    async def test_a_job_id_for_a_schedule_gives_a_warning(self, queue: Queue) -> None:
        with pytest.warns(RuntimeWarning, match="job_id has no effect on a schedule"):
            job = await queue.add_unique("t", 1, job_id="mine", repeat=EVERY)
        assert job.id == "t::every:60000"

    @pytest.mark.parametrize(
        ("given", "listed"),
        [
            (None, None),
            (MissedFiresPolicy.skip(), None),
            ({"kind": "skip"}, None),
            (MissedFiresPolicy.fire_once(), MissedFiresPolicy.fire_once()),
            (MissedFiresPolicy.fire_all(23), MissedFiresPolicy.fire_all(23)),
            ({"kind": "fire-all", "max_catchup": 7}, MissedFiresPolicy.fire_all(7)),
        ],
    )
    async def test_a_missed_fires_policy_is_listed_as_given_and_skip_as_none(
        self, queue: Queue, given: Given, listed: MissedFiresPolicy | None
    ) -> None:
        """Behaviour 183."""
        await queue.add("t", 1, repeat=EVERY, missed_fires=given)
        (found,) = await queue.get_repeatable_jobs()
        assert found.missed_fires == listed

    async def test_a_repeat_may_be_a_dict(self, queue: Queue) -> None:
        await queue.add("t", 1, repeat={"kind": "every", "interval_ms": 60_000})
        (job,) = await queue.add_bulk(
            [{"name": "t", "data": 1, "repeat": {"kind": "cron", "expression": "@daily"}}]
        )
        assert {found.key for found in await queue.get_repeatable_jobs()} == {
            "t::every:60000",
            job.id,
        }
