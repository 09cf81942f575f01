"""Behaviours of producers, by their numbers in ChasquiMQ's re-test list (142 to 183)."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import msgpack
import pytest

from tampu.compat.chasquimq import BackoffSpec, MissedFiresPolicy, Producer, Queue, RepeatPattern
from tests.compat.shop import KEYS, QUEUE, Admin, Given, envelopes, names
from tests.servers import RunningServer
from tests.waiting import wait_until

EVERY = RepeatPattern.every(60_000)


class TestLowLevel:
    async def test_a_call_begins_when_it_is_made_and_gives_a_future(
        self, producer: Producer, admin: Admin
    ) -> None:
        adding = producer.add(b"a")
        await wait_until(lambda: admin.xlen(KEYS.stream) == 1, within=10, sentence="it is added")
        done, _ = await asyncio.wait([adding, producer.add(b"b")])
        assert len(done) == 2
        asking = producer.peek_dlq(1)
        assert asyncio.isfuture(asking)
        assert await asking == []

    async def test_142_adds_go_to_the_keys_that_the_producer_names(
        self, producer: Producer, admin: Admin
    ) -> None:
        first = await producer.add(b"a")
        await producer.add_bulk([b"b", b"c"])
        await producer.add_in(60_000, b"d")
        assert admin.xlen(producer.stream_key()) == 3
        assert admin.zcard(producer.delayed_key()) == 1
        assert producer.dlq_key() == f"{{chasqui:{QUEUE}}}:dlq"
        assert [entry[1] for entry in envelopes(admin)] == [b"a", b"b", b"c"]
        assert envelopes(admin)[0][0] == first

    async def test_143_an_id_is_delayed_once(self, producer: Producer, admin: Admin) -> None:
        for _ in range(3):
            assert await producer.add_in_with_options(60_000, b"x", {"id": "one"}) == "one"
        assert admin.zcard(KEYS.delayed) == 1

    async def test_144_a_retry_override_is_written_as_it_was_given(
        self, producer: Producer, admin: Admin
    ) -> None:
        backoff = {
            "kind": "exponential",
            "delay_ms": 250,
            "max_delay_ms": 30_000,
            "multiplier": 2.0,
            "jitter_ms": 50,
        }
        await producer.add_with_options(b"x", {"retry": {"max_attempts": 5, "backoff": backoff}})
        assert envelopes(admin)[0][4] == [5, ["exponential", 250, 30_000, 2.0, 50]]

    async def test_145_cancelling_is_true_once(self, producer: Producer) -> None:
        await producer.add_in_with_options(60_000, b"x", {"id": "one"})
        assert await producer.cancel_delayed("one") is True
        assert await producer.cancel_delayed("one") is False
        assert await producer.cancel_delayed_bulk(["one", "two"]) == [False, False]

    async def test_147_a_schedule_is_stored_listed_and_removed_once(
        self, producer: Producer
    ) -> None:
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
    async def test_149_150_a_pattern_that_cannot_be_is_a_value_error(
        self, producer: Producer, admin: Admin, number: int, spec: dict[str, Any]
    ) -> None:
        with pytest.raises(ValueError, match="pattern"):
            await producer.upsert_repeatable({"job_name": "t", "payload": b"\x01", **spec})
        assert admin.keys() == [], number

    async def test_148_an_unknown_kind_of_backoff_is_a_value_error(
        self, producer: Producer, admin: Admin
    ) -> None:
        backoff = {"kind": "sometimes", "delay_ms": 1}
        with pytest.raises(ValueError, match="unknown backoff kind"):
            await producer.add_with_options(b"x", {"retry": {"backoff": backoff}})
        assert admin.keys() == []

    async def test_any_bytes_are_added_as_they_are(self, producer: Producer, admin: Admin) -> None:
        odd = [b"", b"\xc1", b"\x91" * 5000, bytes(2_000_000)]
        await producer.add_bulk(odd)
        await producer.add(odd[2])
        await producer.add_at(5, b"past")
        assert [entry[1] for entry in envelopes(admin)] == [*odd, odd[2], b"past"]

    async def test_a_producer_works_again_after_its_shutdown(
        self, producer: Producer, admin: Admin
    ) -> None:
        await producer.add(b"a")
        await producer.shutdown()
        await producer.add(b"b")
        assert admin.xlen(KEYS.stream) == 2


class TestAdding:
    async def test_158_the_payload_is_msgpack_in_a_bin(self, queue: Queue, admin: Admin) -> None:
        job = await queue.add("n", {"x": 1})
        ((job_id, payload, _, attempt),) = envelopes(admin)
        assert (job_id, attempt) == (job.id, 0)
        assert payload == msgpack.packb({"x": 1}, use_bin_type=True)
        assert names(admin) == [b"n"]

    @pytest.mark.parametrize("more", [{}, {"attempts": 2}], ids=["fast", "fallback"])
    async def test_160_161_163_a_bulk_keeps_names_and_options(
        self, queue: Queue, admin: Admin, more: dict[str, Any]
    ) -> None:
        jobs = [{"name": "a", "data": 1, **more}, {"name": "b", "data": 2}, {"name": "", "data": 3}]
        added = await queue.add_bulk(jobs)
        assert [job.name for job in added] == ["a", "b", ""]
        assert [entry[0] for entry in envelopes(admin)] == [job.id for job in added]
        assert names(admin) == [b"a", b"b", None]
        assert len(envelopes(admin)[0]) == (5 if more else 4)
        assert await queue.add_bulk([]) == []

    async def test_a_bulk_may_be_a_generator(self, queue: Queue, admin: Admin) -> None:
        generated: Given = ({"name": "a", "data": number} for number in range(3))
        added = await queue.add_bulk(generated)
        assert [entry[0] for entry in envelopes(admin)] == [job.id for job in added]
        assert len(added) == 3

    async def test_162_a_long_name_is_refused_and_nothing_is_added(
        self, queue: Queue, admin: Admin
    ) -> None:
        for add in (queue.add("x" * 257, 1), queue.add("ä" * 129, 1, repeat=EVERY)):
            with pytest.raises(RuntimeError, match="256"):
                await add
        with pytest.raises(RuntimeError, match="256"):
            await queue.add_bulk([{"name": "ok", "data": 1}, {"name": "x" * 257, "data": 2}])
        await queue.add("x" * 256, 1)
        assert admin.xlen(KEYS.stream) == 1
        assert admin.zcard(KEYS.repeat) == 0

    async def test_164_a_delayed_job_lies_only_among_the_delayed(
        self, queue: Queue, admin: Admin
    ) -> None:
        await queue.add("n", 1, delay_ms=60_000)
        await queue.add("n", 1, delay=timedelta(minutes=1))
        span: Given = timedelta(minutes=1)  # not in the signature, and taken all the same
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
    async def test_165_attempts_and_backoff_leave_open_what_was_left_open(
        self, queue: Queue, admin: Admin, attempts: int, backoff: Given, written: list[Any]
    ) -> None:
        await queue.add("n", 1, attempts=attempts, backoff=backoff)
        assert envelopes(admin)[0][4] == written

    async def test_166_a_delayed_job_is_taken_back_with_or_without_an_id_of_its_own(
        self, queue: Queue, admin: Admin
    ) -> None:
        named = await queue.add("n", 1, delay_ms=60_000, job_id="mine")
        made = await queue.add("n", 1, delay_ms=60_000)
        for job in (named, made):
            assert await queue.cancel_delayed(job.id) is True
            assert await queue.cancel_delayed(job.id) is False
        assert admin.zcard(KEYS.delayed) == 0

    async def test_171_172_a_repeat_and_a_backoff_of_a_wrong_shape_are_refused(
        self, queue: Queue, admin: Admin
    ) -> None:
        with pytest.raises(ValueError, match="repeat dict must include kind"):
            await queue.add("n", 1, repeat={"every": 5})
        for wrong in ("5", 1.5, True):
            with pytest.raises(TypeError, match="backoff must be int"):
                await queue.add("n", 1, backoff=wrong)  # type: ignore[arg-type]
        assert admin.keys() == []

    async def test_173_174_a_delay_that_cannot_be_is_a_value_error(self, queue: Queue) -> None:
        for delay_ms in (-1, -0.5, float("nan"), float("inf")):
            with pytest.raises(ValueError, match="delay_ms must be"):
                await queue.add("n", 1, delay_ms=delay_ms)

    @pytest.mark.parametrize("days", [31, 400])
    async def test_max_delay_secs_counts_whole_seconds_and_0_is_no_limit(
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

    async def test_177_178_an_id_is_taken_on_every_path_and_by_every_queue(
        self, running: RunningServer, queue: Queue, admin: Admin
    ) -> None:
        await queue.add("n", 1, job_id="now")
        await queue.add("n", 2, job_id="later", delay_ms=60_000)
        async with Queue(QUEUE, redis_url=running.url) as other:
            for job_id in ("now", "later"):
                for delay_ms in (None, 60_000):
                    job = await other.add_unique("n", 3, job_id=job_id, delay_ms=delay_ms)
                    assert job.id == job_id
        assert [entry[0] for entry in envelopes(admin)] == ["now"]
        assert admin.zcard(KEYS.delayed) == 1

    async def test_179_180_a_blank_id_is_refused(self, queue: Queue) -> None:
        for blank in ("", "  ", None):
            with pytest.raises(ValueError, match="add_unique: job_id must"):
                await queue.add_unique("n", 1, job_id=blank)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="add: job_id must"):
            await queue.add("n", 1, job_id=" ")
        with pytest.raises(TypeError, match="job_id"):
            await queue.add_unique("n", 1)  # type: ignore[call-arg]

    async def test_a_full_queue_refuses_instead_of_dropping_what_waits(
        self, running: RunningServer, admin: Admin
    ) -> None:
        async with Queue(QUEUE, redis_url=running.url, max_stream_len=3) as short:
            for number in range(3):
                await short.add("n", number)
            with pytest.raises(RuntimeError, match=r"^redis: "):
                await short.add("n", 3)
        assert len(envelopes(admin)) == 3


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
    async def test_167_a_schedule_is_stored_listed_as_given_and_removed(
        self, queue: Queue, pattern: RepeatPattern, key: str
    ) -> None:
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

    async def test_an_end_beyond_every_date_is_none_and_such_a_start_is_refused(
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

    async def test_the_spec_is_the_peers_byte_for_byte(self, queue: Queue, admin: Admin) -> None:
        pattern = RepeatPattern.cron("0 2 * * *")
        key = (await queue.add("t", {"x": 1}, repeat=pattern)).id
        stored = msgpack.unpackb(admin.hget(KEYS.spec(key), "spec"))
        slot = msgpack.packb(msgpack.packb({"x": 1}))
        pattern_written = {"Cron": ["0 2 * * *", None]}
        assert stored == [key, "t", pattern_written, slot, None, None, None, 0]

    async def test_attempts_and_backoff_of_a_schedule_hold_for_its_jobs(
        self, queue: Queue, running: RunningServer, admin: Admin
    ) -> None:
        job = await queue.add("t", 1, repeat=EVERY, attempts=2, backoff=70)
        tampu = queue._line.queue()
        await tampu.trigger(job.id)
        assert envelopes(admin)[0][4] == [2, ["fixed", 70, None, None, None]]

    async def test_an_id_for_a_schedule_is_not_passed_over_in_silence(self, queue: Queue) -> None:
        with pytest.warns(RuntimeWarning, match="job_id means nothing for a schedule"):
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
    async def test_183_a_missed_policy_is_listed_as_given_and_skip_as_none(
        self, queue: Queue, given: Given, listed: MissedFiresPolicy | None
    ) -> None:
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
