"""Dead letters, looked at, put back and done away with."""

import asyncio

import pytest
import redis

from tampu import Backoff, BuryReason, Closed, EventKind, Failure, OptionError, Queue
from tampu.wire.dead import DeadEntry, encode_dead
from tampu.wire.envelope import Envelope, RetryOverride, decode_envelope, encode_envelope
from tampu.wire.event import decode_event
from tampu.wire.extras import Extras, append_extras, encode_extras
from tampu.wire.payload import encode_payload
from tests.contract.queues import KEYS, QUEUE, flat_entries, waiting, waiting_ids
from tests.servers import RunningServer

pytestmark = pytest.mark.every_server

RETRY = RetryOverride(5, Backoff.fixed(1).to_wire())
EXTRAS = Extras(timeout_ms=5000, tenant="acme")


def envelope(job_id: str, data: object = None, attempt: int = 4) -> bytes:
    payload = encode_payload(data, max_bytes=1000)
    return encode_envelope(Envelope(job_id, payload, 1_794_725_043_642, attempt, RETRY))


def bury(
    admin: redis.Redis,
    body: bytes,
    *,
    name: bytes = b"welcome",
    reason: BuryReason = BuryReason.RETRIES_EXHAUSTED,
    failure: Failure | None = None,
    extras: Extras | None = None,
    dead_id: str = "*",
) -> str:
    letter = DeadEntry(
        envelope=body,
        source_id="1-1",
        reason=reason,
        raw_name=name,
        failure=failure,
        attempt=5,
        worker="t-1",
        extras=None if extras is None else encode_extras(extras),
    )
    added = admin.execute_command("XADD", KEYS.dead, dead_id, *encode_dead(letter))
    return str(added.decode())


class TestPeek:
    async def test_peeking_shows_every_field_and_removes_nothing(
        self, queue: Queue, admin: redis.Redis
    ) -> None:
        failure = Failure("ValueError", "no such address", "Traceback ...")
        body = envelope("id1", {"to": "ada"})
        dead_id = bury(admin, body, failure=failure)
        (letter,) = await queue.dead.peek()
        assert (letter.dead_id, letter.name, letter.job_id) == (dead_id, "welcome", "id1")
        assert letter.reason is BuryReason.RETRIES_EXHAUSTED
        assert letter.data == {"to": "ada"}
        assert (letter.failure, letter.attempt, letter.worker) == (failure, 5, "t-1")
        assert letter.raw == body
        assert round(letter.buried_at.timestamp() * 1000) == int(dead_id.partition("-")[0])
        assert admin.xlen(KEYS.dead) == 1

    async def test_a_peers_dead_letter_is_read(self, queue: Queue, admin: redis.Redis) -> None:
        admin.xadd(
            KEYS.dead, {"d": b"", "source_id": "7-1", "reason": "malformed", "detail": "no d"}
        )
        (letter,) = await queue.dead.peek()
        assert (letter.reason, letter.detail) == (BuryReason.MALFORMED, "no d")
        assert (letter.job_id, letter.data, letter.raw, letter.name) == (None, None, b"", "")

    async def test_bytes_that_cannot_be_decoded_are_kept_exactly(
        self, queue: Queue, admin: redis.Redis
    ) -> None:
        bury(admin, b"\xc1\xff\x00", reason=BuryReason.DECODE_FAILED)
        broken_payload = encode_envelope(Envelope("id2", b"\xc1", 1, 0))
        bury(admin, broken_payload, name=b"\xff", reason=BuryReason.DECODE_FAILED)
        first, second = await queue.dead.peek()
        assert (first.raw, first.job_id) == (b"\xc1\xff\x00", None)
        assert (second.raw, second.job_id, second.data) == (broken_payload, "id2", None)

    async def test_pages_follow_each_other(self, queue: Queue, admin: redis.Redis) -> None:
        ids = [bury(admin, envelope(f"id{number}")) for number in range(25)]
        first = await queue.dead.peek()
        assert [letter.dead_id for letter in first] == ids[:20]
        rest = await queue.dead.peek(20, after=first[-1].dead_id)
        assert [letter.dead_id for letter in rest] == ids[20:]
        assert await queue.dead.peek(after=ids[-1]) == []

    @pytest.mark.parametrize(("count", "after"), [(0, None), (-1, None), (1, "x"), (1, "+")])
    async def test_invalid_input_is_refused(
        self, queue: Queue, count: int, after: str | None
    ) -> None:
        with pytest.raises(OptionError):
            await queue.dead.peek(count, after=after)

    async def test_data_is_not_shown(self, queue: Queue, admin: redis.Redis) -> None:
        bury(admin, envelope("id1", "s3cret"))
        assert "s3cret" not in repr(await queue.dead.peek())


class TestReplay:
    async def test_a_job_runs_as_if_it_were_new(self, queue: Queue, admin: redis.Redis) -> None:
        bury(admin, envelope("id1", 7), extras=EXTRAS)
        admin.set(KEYS.failure("id1"), "why")
        assert await queue.dead.replay() == 1
        (job,) = waiting(admin)
        assert (job.envelope.id, job.data, job.name) == ("id1", 7, "welcome")
        assert (job.envelope.attempt, job.envelope.retry) == (0, RETRY)
        assert job.extras == EXTRAS
        assert admin.xlen(KEYS.dead) == 0
        assert admin.exists(KEYS.failure("id1")) == 0

    async def test_a_dead_job_without_a_name_is_replayed_without_one(
        self, queue: Queue, admin: redis.Redis
    ) -> None:
        bury(admin, envelope("id1"), name=b"")
        assert await queue.dead.replay() == 1
        assert [flat[::2] for flat in flat_entries(admin)] == [[b"d"]]

    async def test_extras_after_the_envelope_are_kept(
        self, queue: Queue, admin: redis.Redis
    ) -> None:
        bury(admin, append_extras(envelope("id1", 7), EXTRAS), reason=BuryReason.OVERSIZE_PAYLOAD)
        assert await queue.dead.replay() == 1
        (job,) = waiting(admin)
        assert (job.extras, job.data) == (EXTRAS, 7)

    async def test_an_expired_job_gets_another_chance(
        self, queue: Queue, admin: redis.Redis
    ) -> None:
        extras = Extras(deadline_ms=5, tenant="acme")
        bury(admin, envelope("id1"), extras=extras, reason=BuryReason.EXPIRED)
        bury(admin, envelope("id2"), extras=extras)
        await queue.dead.replay()
        first, second = waiting(admin)
        assert first.extras == Extras(tenant="acme")
        assert second.extras == extras

    async def test_an_undecodable_dead_job_stays_and_does_not_block_others(
        self, queue: Queue, admin: redis.Redis
    ) -> None:
        broken = [bury(admin, b"\xc1", reason=BuryReason.DECODE_FAILED) for _ in range(150)]
        bury(admin, envelope("id1"))
        bury(admin, envelope("id2"))
        assert await queue.dead.replay(1) == 1
        assert await queue.dead.replay() == 1
        assert waiting_ids(admin) == ["id1", "id2"]
        assert [letter.dead_id for letter in await queue.dead.peek(200)] == broken

    async def test_an_empty_queue_has_no_dead_jobs(self, queue: Queue) -> None:
        assert await queue.dead.replay() == 0

    async def test_four_who_replay_at_once_put_each_back_once(
        self, running: RunningServer, admin: redis.Redis
    ) -> None:
        for number in range(50):
            bury(admin, envelope(f"id{number}"))
        queues = [Queue(QUEUE, running.url) for _ in range(4)]
        moved = await asyncio.gather(*[queue.dead.replay() for queue in queues])
        assert sum(moved) == 50
        assert sorted(waiting_ids(admin)) == sorted(f"id{number}" for number in range(50))
        assert admin.xlen(KEYS.dead) == 0
        for queue in queues:
            await queue.close()

    async def test_only_those_that_were_named(self, queue: Queue, admin: redis.Redis) -> None:
        ids = [bury(admin, envelope(f"id{number}")) for number in range(3)]
        bury(admin, envelope("bye"), name=b"bye")
        bury(admin, envelope("crash"), reason=BuryReason.CRASHED)
        assert await queue.dead.replay(ids=[ids[1], "1-1"]) == 1
        assert await queue.dead.replay(name="bye") == 1
        assert await queue.dead.replay(reason="crashed") == 1
        assert await queue.dead.replay(reason=BuryReason.CRASHED) == 0
        assert await queue.dead.replay(ids=[]) == 0
        assert waiting_ids(admin) == ["id1", "bye", "crash"]
        assert await queue.dead.replay(1) == 1
        assert waiting_ids(admin)[3:] == ["id0"]

    async def test_replays_are_published_with_events_on(
        self, running: RunningServer, admin: redis.Redis
    ) -> None:
        bury(admin, envelope("id1"))
        async with Queue(QUEUE, running.url, events=True) as queue:
            await queue.dead.replay()
        (told,) = [decode_event(flat) for flat in flat_entries(admin, KEYS.events)]
        assert (told.kind, told.job_id, told.name) == (EventKind.REPLAYED, "id1", "welcome")

    @pytest.mark.parametrize(
        "options", [{"count": 0}, {"ids": "1-1"}, {"ids": ["x"]}, {"ids": [5]}, {"count": True}]
    )
    async def test_invalid_input_is_refused_and_nothing_is_replayed(
        self, queue: Queue, admin: redis.Redis, options: dict[str, object]
    ) -> None:
        bury(admin, envelope("id1"))
        with pytest.raises(OptionError):
            await queue.dead.replay(**options)  # type: ignore[arg-type]
        assert admin.xlen(KEYS.dead) == 1


class TestPurge:
    async def test_no_filter_at_all_is_refused(self, queue: Queue, admin: redis.Redis) -> None:
        bury(admin, envelope("id1"))
        with pytest.raises(OptionError, match=r"^Invalid everything "):
            await queue.dead.purge()
        with pytest.raises(OptionError, match=r"^Invalid everything "):
            await queue.dead.purge(everything=True, name="welcome")
        assert admin.xlen(KEYS.dead) == 1

    async def test_everything_is_everything(self, queue: Queue, admin: redis.Redis) -> None:
        for number in range(250):
            bury(admin, envelope(f"id{number}"))
        assert await queue.dead.purge(everything=True) == 250
        assert await queue.dead.purge(everything=True) == 0
        assert admin.xlen(KEYS.dead) == 0

    async def test_age_is_measured_by_the_servers_clock(
        self, queue: Queue, admin: redis.Redis
    ) -> None:
        seconds, _ = admin.time()
        for age_s in (100_000, 90_000, 80_000):
            bury(admin, envelope("old"), dead_id=f"{(seconds - age_s) * 1000}-0")
        fresh = bury(admin, envelope("id1"))
        assert await queue.dead.purge(older_than="1d", name="other") == 0
        assert await queue.dead.purge(older_than="1d") == 2
        assert await queue.dead.purge(older_than="20h", name="welcome") == 1
        assert [letter.dead_id for letter in await queue.dead.peek()] == [fresh]
        with pytest.raises(OptionError):
            await queue.dead.purge(older_than=-1)

    async def test_only_those_that_all_filters_take(self, queue: Queue, admin: redis.Redis) -> None:
        ids = [bury(admin, envelope(f"id{number}")) for number in range(120)]
        bye = bury(admin, envelope("bye"), name=b"bye")
        crash = bury(admin, b"\xc1", reason=BuryReason.CRASHED)
        assert await queue.dead.purge(ids=ids[:5], name="bye") == 0
        assert await queue.dead.purge(ids=[*ids[:110], "1-1"]) == 110
        assert await queue.dead.purge(reason=BuryReason.CRASHED) == 1
        assert await queue.dead.purge(name="bye") == 1
        left = [letter.dead_id for letter in await queue.dead.peek()]
        assert left == ids[110:]
        assert {bye, crash}.isdisjoint(left)


async def test_a_closed_queue_has_no_dead_letters(running: RunningServer) -> None:
    queue = Queue(QUEUE, running.url)
    await queue.close()
    for call in (queue.dead.peek(), queue.dead.replay(), queue.dead.purge(everything=True)):
        with pytest.raises(Closed):
            await call


def test_the_sample_envelopes_decode_as_intended() -> None:
    assert decode_envelope(envelope("id1", 7)).attempt == 4
