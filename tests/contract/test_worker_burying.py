"""Jobs are buried once, with all that is known of them."""

from typing import Any

import msgpack
import pytest

from tampu.backoff import Backoff
from tampu.consumer.handler import Handler
from tampu.job import Job
from tampu.outcome import Bury, Unrecoverable
from tampu.wire.event import EventKind
from tampu.wire.payload import encode_payload
from tests.contract.workers import KEYS, SOON, Boom, Calls, Harness, envelope
from tests.unit.consumer.runners import child_handlers
from tests.waiting import wait_until

AT_ONCE = Backoff.fixed(0)


class NoSuchUser(Unrecoverable):
    """A subclass, as users write them."""


@pytest.mark.every_server
class TestRefusedEntries:
    @pytest.mark.parametrize(
        ("fields", "reason"),
        [
            ({b"n": b"named", b"d": b"\xc1junk"}, "decode_failed"),
            ({b"n": b"named", b"d": b""}, "decode_failed"),
            ({b"n": b"named", b"d": envelope(b"\xc1")}, "decode_failed"),
            ({b"n": b"named", b"d": envelope(), b"x": b"\xc1"}, "decode_failed"),
            ({b"n": b"named", b"d": envelope(bytes(3000))}, "oversize_payload"),
        ],
        ids=["junk", "empty", "payload", "extras", "oversize"],
    )
    async def test_a_refused_entry_is_buried_with_its_name_and_bytes(
        self, harness: Harness, fields: dict[bytes, bytes], reason: str
    ) -> None:
        calls = Calls()
        await harness.start_worker(calls, max_payload=2000)
        entry_id = harness.add_entry(fields)
        (letter,) = await harness.dead_letters()
        await harness.until_settled()
        assert (letter.reason.value, letter.name) == (reason, "named")
        assert letter.raw == fields[b"d"]
        assert letter.detail
        ((_, kept),) = harness.admin.xrange(KEYS.dead)
        assert kept[b"source_id"] == entry_id
        assert kept.get(b"x") == fields.get(b"x")
        assert harness.pending() == 0
        assert len(calls) == 0

    async def test_an_entry_without_an_envelope_is_buried_with_all_its_fields(
        self, harness: Harness
    ) -> None:
        calls = Calls()
        await harness.start_worker(calls)
        harness.add_entry({b"n": b"odd", b"what": b"\x00\xff", b"x": b"1"})
        (letter,) = await harness.dead_letters()
        assert (letter.reason.value, letter.name) == ("malformed", "odd")
        assert msgpack.unpackb(letter.raw) == [b"n", b"odd", b"what", b"\x00\xff", b"x", b"1"]
        await harness.until_settled()
        assert len(calls) == 0

    async def test_a_name_that_is_not_utf8_is_kept_byte_for_byte(self, harness: Harness) -> None:
        boom = Boom(Bury("no"))
        await harness.start_worker(boom)
        harness.add_entry({b"d": envelope(), b"n": b"\xff\xfe"})
        await harness.dead_letters()
        ((_, kept),) = harness.admin.xrange(KEYS.dead)
        assert kept[b"n"] == b"\xff\xfe"
        assert boom.jobs[0].name == ""

    async def test_one_bad_entry_does_not_stop_the_others(self, harness: Harness) -> None:
        for i in range(20):
            harness.add_entry({b"d": b"\xc1"} if i % 2 else {b"d": envelope(bytes([i]))})
        calls = Calls()
        await harness.start_worker(calls)
        await harness.dead_letters(10)
        await harness.until_settled()
        assert sorted(calls.data) == list(range(0, 20, 2))

    async def test_a_job_without_a_handler_is_buried_and_the_known_names_are_listed(
        self, harness: Harness
    ) -> None:
        calls = Calls()
        await harness.start_worker({"greet": calls, "": calls})
        await harness.queue.add("greet", 1)
        await harness.queue.add("", 2)
        await harness.queue.add("part", 3)
        (letter,) = await harness.dead_letters()
        await harness.until_settled()
        assert (letter.reason.value, letter.name, letter.data) == ("unknown_handler", "part", 3)
        assert letter.detail == "no handler for jobs named 'part'; this worker has 'greet', ''"
        assert sorted(calls.data) == [1, 2]

    async def test_a_job_that_did_not_start_in_time_is_buried_as_expired(
        self, harness: Harness
    ) -> None:
        calls = Calls()
        added = await harness.queue.add("late", 1, expires=0.001)
        await wait_until(
            lambda: (
                harness.admin.time()[0] * 1000 + harness.admin.time()[1] // 1000
                > added.created_at_ms + 10
            ),
            within=SOON,
            sentence="its deadline has passed",
        )
        await harness.start_worker(calls)
        (letter,) = await harness.dead_letters()
        assert (letter.reason.value, letter.job_id, letter.attempt) == ("expired", added.id, 0)
        assert len(calls) == 0


class TestUnrecoverable:
    @pytest.mark.parametrize(
        ("error", "kind"),
        [
            (Unrecoverable("no such user"), "tampu.outcome.Unrecoverable"),
            (NoSuchUser("no such user"), "NoSuchUser"),
            (Bury("no such user"), "tampu.outcome.Bury"),
        ],
        ids=["unrecoverable", "subclass", "bury"],
    )
    @pytest.mark.parametrize("own_attempts", [None, 10])
    async def test_an_unrecoverable_job_runs_once_even_if_attempts_are_left(
        self, harness: Harness, error: Exception, kind: str, own_attempts: int | None
    ) -> None:
        boom = Boom(error)
        await harness.start_worker(boom, attempts=5)
        await harness.queue.add("greet", {"to": "ada"}, attempts=own_attempts)
        (letter,) = await harness.dead_letters()
        await harness.until_settled()
        assert boom.attempts == [1]
        assert (letter.reason.value, letter.attempt) == ("unrecoverable", 1)
        assert letter.failure.error_type.endswith(kind)
        assert letter.failure.message == "no such user"

    async def test_bury_can_be_returned(self, harness: Harness) -> None:
        async def handler(job: Job[Any]) -> object:
            return Bury("enough")

        await harness.start_worker(handler)
        await harness.queue.add("greet")
        (letter,) = await harness.dead_letters()
        assert (letter.reason.value, letter.failure.message) == ("unrecoverable", "enough")
        assert letter.failure.traceback == ""

    async def test_another_class_of_the_same_name_is_retried(self, harness: Harness) -> None:
        other = type("Unrecoverable", (Exception,), {})
        boom = Boom(other("try again"))
        await harness.start_worker(boom, attempts=2, backoff=AT_ONCE)
        await harness.queue.add("greet")
        (letter,) = await harness.dead_letters()
        assert boom.attempts == [1, 2]
        assert letter.reason.value == "retries_exhausted"

    @pytest.mark.every_server
    async def test_the_dead_letter_holds_all_that_is_known(self, harness: Harness) -> None:
        def deep() -> None:
            raise KeyError("who")

        async def handler(job: Job[Any]) -> None:
            deep()

        worker = await harness.start_worker(handler, attempts=2, backoff=AT_ONCE)
        added = await harness.queue.add("greet", {"to": "ada"}, attempts=1)
        (letter,) = await harness.dead_letters()
        assert (letter.job_id, letter.name, letter.data) == (added.id, "greet", {"to": "ada"})
        assert (letter.attempt, letter.worker) == (1, worker.id)
        assert abs(letter.buried_at.timestamp() * 1000 - added.created_at_ms) < 60_000
        failure = letter.failure
        assert (failure.error_type, failure.message) == ("KeyError", "'who'")
        assert "in deep" in failure.traceback
        assert failure.traceback.rstrip().endswith("KeyError: 'who'")
        assert "runner.py" not in failure.traceback

    async def test_failed_attempts_and_the_burial_are_logged_without_the_data(
        self, harness: Harness, caplog: pytest.LogCaptureFixture
    ) -> None:
        await harness.start_worker(Boom(ValueError("no such user")), attempts=2, backoff=AT_ONCE)
        added = await harness.queue.add("greet", "secret-data")
        await harness.dead_letters()
        await wait_until(lambda: len(caplog.records) == 3, within=SOON, sentence="all is logged")
        job, error = f"job {added.id} (greet)", "ValueError: no such user"
        assert caplog.messages == [
            f"{job} failed on attempt 1 of 2, next in 0 s: {error}",
            f"{job} failed on attempt 2 of 2, no attempts left: {error}",
            f"{job} buried (retries_exhausted, attempt 2): {error}",
        ]
        for record in caplog.records[:2]:
            assert (record.exc_text or "").startswith("Traceback (most recent call last):")
            assert (record.exc_text or "").endswith(error)
        for record in caplog.records:
            facts = record.__dict__
            assert (facts["queue"], facts["job_id"], record.levelname) == (
                "work",
                added.id,
                "WARNING",
            )
            assert "secret" not in str(facts)

    async def test_a_failure_in_a_child_process_is_logged_with_its_traceback(
        self, harness: Harness, caplog: pytest.LogCaptureFixture
    ) -> None:
        handler = Handler(child_handlers.raises_plain, isolation="process")
        await harness.start_worker(handler, attempts=1)
        await harness.queue.add("greet", "anything")
        await harness.dead_letters()
        failed = caplog.records[0]
        assert failed.getMessage().endswith("no attempts left: LookupError: plain")
        assert "in raises_plain" in (failed.exc_text or "")


@pytest.mark.every_server
class TestOnlyOnce:
    @pytest.mark.parametrize("poison", ["malformed", "failing", "crashed"])
    async def test_twenty_bad_entries_among_three_workers_make_twenty_dead_letters(
        self, harness: Harness, poison: str
    ) -> None:
        boom = Boom()
        for i in range(20):
            if poison == "malformed":
                harness.add_entry({b"n": b"%d" % i})
            else:
                harness.add_entry({b"d": envelope(job_id=str(i)), b"n": b"%d" % i})
        if poison == "crashed":
            for entry_id, _ in harness.admin.xrange(KEYS.stream):
                harness.hold_as_peer(entry_id, deliveries=2)
        for _ in range(3):
            await harness.start_worker(boom, attempts=2, backoff=AT_ONCE, lease="500ms")
        letters = await harness.dead_letters(20)
        await harness.until_settled()
        assert sorted(int(letter.name) for letter in letters) == list(range(20))
        assert harness.admin.xlen(KEYS.dead) == 20
        assert harness.pending() == 0
        assert len(boom) == (40 if poison == "failing" else 0)

    async def test_no_dead_letter_is_written_for_an_entry_that_another_worker_settled(
        self, harness: Harness
    ) -> None:
        calls = Calls()

        async def handler(job: Job[Any]) -> None:
            entries = harness.admin.xrange(KEYS.stream)
            harness.admin.xack(KEYS.stream, "default", *[entry_id for entry_id, _ in entries])
            harness.admin.xdel(KEYS.stream, *[entry_id for entry_id, _ in entries])
            await calls(job)
            raise Bury("gone")

        worker = await harness.start_worker(handler)
        await harness.queue.add("greet")
        await calls.until(1)
        await worker.stop()
        assert harness.admin.exists(KEYS.dead) == 0
        assert not [event for event in harness.events() if event.kind is EventKind.DEAD]


@pytest.mark.every_server
class TestLength:
    async def test_the_oldest_dead_letters_are_dropped_at_the_limit(self, harness: Harness) -> None:
        await harness.start_worker(Boom(Bury()), dead_max_len=10, events=False)
        await harness.queue.add_each("boom", range(2000))
        await harness.until_settled()
        assert 10 <= harness.admin.xlen(KEYS.dead) < 500

    async def test_without_a_limit_no_dead_letter_is_dropped(self, harness: Harness) -> None:
        await harness.start_worker(Boom(Bury()), events=False)
        await harness.queue.add_each("boom", range(1000))
        await harness.until_settled()
        assert harness.admin.xlen(KEYS.dead) == 1000


@pytest.mark.every_server
class TestReplay:
    @pytest.mark.parametrize("name", ["greet", ""])
    async def test_a_replayed_dead_letter_runs_like_a_new_job(
        self, harness: Harness, name: str
    ) -> None:
        boom = Boom(times=2)
        await harness.start_worker(boom, attempts=2, backoff=AT_ONCE)
        added = await harness.queue.add(name, {"to": "ada"})
        (letter,) = await harness.dead_letters()
        assert letter.name == name
        assert await harness.queue.dead.replay() == 1
        await boom.until(3)
        await harness.until_settled()
        assert boom.attempts == [1, 2, 1]
        assert {(job.id, job.name) for job in boom.jobs} == {(added.id, name)}
        assert harness.admin.xlen(KEYS.dead) == 0

    async def test_the_options_of_a_job_survive_burial_and_replay(self, harness: Harness) -> None:
        boom = Boom()
        await harness.start_worker(boom, attempts=9)
        await harness.queue.add("greet", attempts=2, backoff=AT_ONCE)
        await harness.dead_letters()
        await harness.queue.dead.replay()
        await boom.until(4)
        await harness.dead_letters()
        assert boom.attempts == [1, 2, 1, 2]

    async def test_a_replayed_expired_job_runs(self, harness: Harness) -> None:
        calls = Calls()
        await harness.start_worker(calls)
        harness.add_entry(
            {b"d": envelope(), b"x": msgpack.packb({"deadline_ms": 1, "tenant": "t"})}
        )
        await harness.dead_letters()
        await harness.queue.dead.replay()
        await calls.until(1)
        assert calls.jobs[0].tenant == "t"


@pytest.mark.every_server
class TestExtras:
    async def test_extras_survive_delay_retry_burial_and_replay(self, harness: Harness) -> None:
        boom = Boom(times=3)
        await harness.start_worker(boom, attempts=3, backoff=Backoff.fixed(0.01))
        added = await harness.queue.add(
            "greet",
            encode_payload("x", max_bytes=10),
            delay=0.02,
            timeout=5,
            headers={"traceparent": "00-1-2-01"},
            tenant="acme",
            expires="1h",
        )
        await harness.dead_letters()
        await harness.queue.dead.replay()
        await boom.until(4)
        assert boom.attempts == [1, 2, 3, 1]
        assert len({job.extras.deadline_ms for job in boom.jobs}) == 1
        for job in boom.jobs:
            assert job.id == added.id
            assert (job.headers, job.tenant) == ({"traceparent": "00-1-2-01"}, "acme")
            assert job.extras.timeout_ms == 5000
