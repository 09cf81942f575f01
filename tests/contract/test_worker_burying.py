"""Jobs that are given up on real servers: buried once, with all that is known of them."""

from typing import Any

import msgpack
import pytest

from tampu.backoff import Backoff
from tampu.job import Job
from tampu.outcome import Bury, Unrecoverable
from tampu.wire.event import EventKind
from tampu.wire.payload import encode_payload
from tests.contract.workers import KEYS, SOON, Boom, Calls, Crew, envelope
from tests.waiting import wait_until

pytestmark = pytest.mark.every_server

AT_ONCE = Backoff.fixed(0)


class NoSuchUser(Unrecoverable):
    """A subclass, as users make them."""


class TestWhatCannotBeRun:
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
    async def test_it_is_buried_with_its_name_and_bytes_and_nothing_is_left(
        self, crew: Crew, fields: dict[bytes, bytes], reason: str
    ) -> None:
        calls = Calls()
        await crew.hire(calls, max_payload=2000)
        entry_id = crew.put(fields)
        (letter,) = await crew.dead()
        await crew.settled()
        assert (letter.reason.value, letter.name) == (reason, "named")
        assert letter.raw == fields[b"d"]
        assert letter.detail
        ((_, kept),) = crew.admin.xrange(KEYS.dead)
        assert kept[b"source_id"] == entry_id
        assert kept.get(b"x") == fields.get(b"x")
        assert crew.pending() == 0
        assert len(calls) == 0

    async def test_an_entry_without_an_envelope_keeps_all_its_fields(self, crew: Crew) -> None:
        calls = Calls()
        await crew.hire(calls)
        crew.put({b"n": b"odd", b"what": b"\x00\xff", b"x": b"1"})
        (letter,) = await crew.dead()
        assert (letter.reason.value, letter.name) == ("malformed", "odd")
        assert msgpack.unpackb(letter.raw) == [b"n", b"odd", b"what", b"\x00\xff", b"x", b"1"]
        await crew.settled()
        assert len(calls) == 0

    async def test_a_name_that_is_no_text_is_kept_byte_for_byte(self, crew: Crew) -> None:
        boom = Boom(Bury("no"))
        await crew.hire(boom)
        crew.put({b"d": envelope(), b"n": b"\xff\xfe"})
        await crew.dead()
        ((_, kept),) = crew.admin.xrange(KEYS.dead)
        assert kept[b"n"] == b"\xff\xfe"
        assert boom.jobs[0].name == ""

    async def test_one_bad_entry_does_not_stop_its_neighbours(self, crew: Crew) -> None:
        for i in range(20):
            crew.put({b"d": b"\xc1"} if i % 2 else {b"d": envelope(bytes([i]))})
        calls = Calls()
        await crew.hire(calls)
        await crew.dead(10)
        await crew.settled()
        assert sorted(calls.data) == list(range(0, 20, 2))

    async def test_a_name_that_no_handler_has_is_buried_with_the_names_there_are(
        self, crew: Crew
    ) -> None:
        calls = Calls()
        await crew.hire({"greet": calls, "": calls})
        await crew.queue.add("greet", 1)
        await crew.queue.add("", 2)
        await crew.queue.add("part", 3)
        (letter,) = await crew.dead()
        await crew.settled()
        assert (letter.reason.value, letter.name, letter.data) == ("unknown_handler", "part", 3)
        assert letter.detail == "no handler for jobs named 'part'; this worker has 'greet', ''"
        assert sorted(calls.data) == [1, 2]

    async def test_a_job_that_did_not_start_in_time_is_buried_as_expired(self, crew: Crew) -> None:
        calls = Calls()
        added = await crew.queue.add("late", 1, expires=0.001)
        await wait_until(
            lambda: (
                crew.admin.time()[0] * 1000 + crew.admin.time()[1] // 1000
                > added.created_at_ms + 10
            ),
            within=SOON,
            sentence="its time is over",
        )
        await crew.hire(calls)
        (letter,) = await crew.dead()
        assert (letter.reason.value, letter.job_id, letter.attempt) == ("expired", added.id, 0)
        assert len(calls) == 0


class TestWhatIsGivenUp:
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
    async def test_it_is_run_once_whatever_attempts_are_left(
        self, crew: Crew, error: Exception, kind: str, own_attempts: int | None
    ) -> None:
        boom = Boom(error)
        await crew.hire(boom, attempts=5)
        await crew.queue.add("greet", {"to": "ada"}, attempts=own_attempts)
        (letter,) = await crew.dead()
        await crew.settled()
        assert boom.attempts == [1]
        assert (letter.reason.value, letter.attempt) == ("unrecoverable", 1)
        assert letter.failure.error_type.endswith(kind)
        assert letter.failure.message == "no such user"

    async def test_what_says_so_may_be_returned(self, crew: Crew) -> None:
        async def handler(job: Job[Any]) -> object:
            return Bury("enough")

        await crew.hire(handler)
        await crew.queue.add("greet")
        (letter,) = await crew.dead()
        assert (letter.reason.value, letter.failure.message) == ("unrecoverable", "enough")
        assert letter.failure.traceback == ""

    async def test_a_class_of_the_same_name_is_none(self, crew: Crew) -> None:
        other = type("Unrecoverable", (Exception,), {})
        boom = Boom(other("try again"))
        await crew.hire(boom, attempts=2, backoff=AT_ONCE)
        await crew.queue.add("greet")
        (letter,) = await crew.dead()
        assert boom.attempts == [1, 2]
        assert letter.reason.value == "retries_exhausted"

    async def test_the_letter_holds_all_that_is_known(self, crew: Crew) -> None:
        def deep() -> None:
            raise KeyError("who")

        async def handler(job: Job[Any]) -> None:
            deep()

        worker = await crew.hire(handler, attempts=2, backoff=AT_ONCE)
        added = await crew.queue.add("greet", {"to": "ada"}, attempts=1)
        (letter,) = await crew.dead()
        assert (letter.job_id, letter.name, letter.data) == (added.id, "greet", {"to": "ada"})
        assert (letter.attempt, letter.worker) == (1, worker.id)
        assert abs(letter.buried_at.timestamp() * 1000 - added.created_at_ms) < 60_000
        failure = letter.failure
        assert (failure.error_type, failure.message) == ("KeyError", "'who'")
        assert "in deep" in failure.traceback
        assert failure.traceback.rstrip().endswith("KeyError: 'who'")
        assert "runner.py" not in failure.traceback

    async def test_a_burial_is_told_in_the_log_without_data_or_message(
        self, crew: Crew, caplog: pytest.LogCaptureFixture
    ) -> None:
        boom = Boom(ValueError("secret-message"))
        with caplog.at_level("DEBUG", logger="tampu.consumer"):
            await crew.hire(boom, attempts=2, backoff=AT_ONCE)
            added = await crew.queue.add("greet", "secret-data")
            await crew.dead()
            await wait_until(
                lambda: "a job was buried" in caplog.messages, within=SOON, sentence="it is told"
            )
        (told,) = [each for each in caplog.records if each.message == "a job was buried"]
        assert told.levelname == "WARNING"
        assert told.__dict__["job_id"] == added.id
        assert told.__dict__["reason"] == "retries_exhausted"
        failed = [each for each in caplog.records if each.message == "an attempt failed"]
        assert [each.__dict__["attempt"] for each in failed] == [1, 2]
        assert {each.__dict__["error_type"] for each in failed} == {"ValueError"}
        assert not [each for each in caplog.records if "secret" in str(each.__dict__)]


class TestOnlyOnce:
    @pytest.mark.parametrize("poison", ["malformed", "failing", "crashed"])
    async def test_twenty_poison_entries_among_three_workers_make_twenty_letters(
        self, crew: Crew, poison: str
    ) -> None:
        boom = Boom()
        for i in range(20):
            if poison == "malformed":
                crew.put({b"n": b"%d" % i})
            else:
                crew.put({b"d": envelope(job_id=str(i)), b"n": b"%d" % i})
        if poison == "crashed":
            for entry_id, _ in crew.admin.xrange(KEYS.stream):
                crew.held_by_peer(entry_id, deliveries=2)
        for _ in range(3):
            await crew.hire(boom, attempts=2, backoff=AT_ONCE, lease="500ms")
        letters = await crew.dead(20)
        await crew.settled()
        assert sorted(int(letter.name) for letter in letters) == list(range(20))
        assert crew.admin.xlen(KEYS.dead) == 20
        assert crew.pending() == 0
        assert len(boom) == (40 if poison == "failing" else 0)

    async def test_no_letter_is_written_for_an_entry_that_was_settled_elsewhere(
        self, crew: Crew
    ) -> None:
        calls = Calls()

        async def handler(job: Job[Any]) -> None:
            entries = crew.admin.xrange(KEYS.stream)
            crew.admin.xack(KEYS.stream, "default", *[entry_id for entry_id, _ in entries])
            crew.admin.xdel(KEYS.stream, *[entry_id for entry_id, _ in entries])
            await calls(job)
            raise Bury("gone")

        worker = await crew.hire(handler)
        await crew.queue.add("greet")
        await calls.until(1)
        await worker.stop()
        assert crew.admin.exists(KEYS.dead) == 0
        assert not [event for event in crew.events() if event.kind is EventKind.DEAD]


class TestLength:
    async def test_the_oldest_letters_go_when_there_may_only_be_so_many(self, crew: Crew) -> None:
        await crew.hire(Boom(Bury()), dead_max_len=10, events=False)
        await crew.queue.add_each("boom", range(2000))
        await crew.settled()
        assert 10 <= crew.admin.xlen(KEYS.dead) < 500

    async def test_without_a_limit_none_goes(self, crew: Crew) -> None:
        await crew.hire(Boom(Bury()), events=False)
        await crew.queue.add_each("boom", range(1000))
        await crew.settled()
        assert crew.admin.xlen(KEYS.dead) == 1000


class TestReplay:
    @pytest.mark.parametrize("name", ["greet", ""])
    async def test_a_letter_that_is_replayed_runs_as_if_it_were_new(
        self, crew: Crew, name: str
    ) -> None:
        boom = Boom(times=2)
        await crew.hire(boom, attempts=2, backoff=AT_ONCE)
        added = await crew.queue.add(name, {"to": "ada"})
        (letter,) = await crew.dead()
        assert letter.name == name
        assert await crew.queue.dead.replay() == 1
        await boom.until(3)
        await crew.settled()
        assert boom.attempts == [1, 2, 1]
        assert {(job.id, job.name) for job in boom.jobs} == {(added.id, name)}
        assert crew.admin.xlen(KEYS.dead) == 0

    async def test_what_a_job_asks_for_survives_burial_and_replay(self, crew: Crew) -> None:
        boom = Boom()
        await crew.hire(boom, attempts=9)
        await crew.queue.add("greet", attempts=2, backoff=AT_ONCE)
        await crew.dead()
        await crew.queue.dead.replay()
        await boom.until(4)
        await crew.dead()
        assert boom.attempts == [1, 2, 1, 2]

    async def test_an_expired_job_that_is_replayed_runs(self, crew: Crew) -> None:
        calls = Calls()
        await crew.hire(calls)
        crew.put({b"d": envelope(), b"x": msgpack.packb({"deadline_ms": 1, "tenant": "t"})})
        await crew.dead()
        await crew.queue.dead.replay()
        await calls.until(1)
        assert calls.jobs[0].tenant == "t"


class TestExtras:
    async def test_what_travels_along_survives_delay_retry_burial_and_replay(
        self, crew: Crew
    ) -> None:
        boom = Boom(times=3)
        await crew.hire(boom, attempts=3, backoff=Backoff.fixed(0.01))
        added = await crew.queue.add(
            "greet",
            encode_payload("x", max_bytes=10),
            delay=0.02,
            timeout=5,
            headers={"traceparent": "00-1-2-01"},
            tenant="acme",
            expires="1h",
        )
        await crew.dead()
        await crew.queue.dead.replay()
        await boom.until(4)
        assert boom.attempts == [1, 2, 3, 1]
        assert len({job.extras.deadline_ms for job in boom.jobs}) == 1
        for job in boom.jobs:
            assert job.id == added.id
            assert (job.headers, job.tenant) == ({"traceparent": "00-1-2-01"}, "acme")
            assert job.extras.timeout_ms == 5000
