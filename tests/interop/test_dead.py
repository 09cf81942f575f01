"""Dead letters that one world writes are looked at and put back by the other."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from tampu import Backoff, Bury, BuryReason, JobFailed, Unrecoverable
from tampu.util.clock import now_ms
from tampu.wire.envelope import RetryOverride, decode_envelope
from tampu.wire.payload import encode_payload
from tests.contract.workers import Boom, Calls
from tests.interop.peer.values import unpacked
from tests.interop.shared_queue import SharedQueue

pytestmark = pytest.mark.chasquimq

BACKOFF = {"kind": "fixed", "delay_ms": 5, "jitter_ms": 1}


async def until_dead(shared: SharedQueue, count: int = 1) -> None:
    await shared.until(
        lambda: shared.admin.xlen(shared.keys.dead) >= count, f"{count} jobs are dead"
    )


async def letters_there(shared: SharedQueue) -> list[dict[str, Any]]:
    """What the peer sees of the dead letters."""
    found: list[dict[str, Any]] = await shared.ask("peek")
    return found


@pytest.mark.parametrize(
    ("handler", "reason", "runs"),
    [
        ({"fails": 99}, BuryReason.RETRIES_EXHAUSTED, 2),
        ({"gives_up": True}, BuryReason.UNRECOVERABLE, 1),
    ],
)
async def test_we_peek_and_replay_a_job_that_the_peer_buried(
    shared: SharedQueue, handler: dict[str, Any], reason: BuryReason, runs: int
) -> None:
    theirs = await shared.start_peer_worker(handler=handler)
    job_id = await shared.peer_add("job ñ", {"x": 1}, attempts=2, backoff=BACKOFF)
    await shared.called(theirs, runs)
    await until_dead(shared)
    await shared.stop_peer_worker(theirs)
    (letter,) = await shared.queue.dead.peek()
    assert (letter.job_id, letter.name, letter.data) == (job_id, "job ñ", {"x": 1})
    assert (letter.reason, letter.detail, letter.failure) == (reason, None, None)
    envelope = decode_envelope(letter.raw)
    assert await shared.queue.dead.replay() == 1
    assert await shared.queue.dead.peek() == []
    ((again, name),) = shared.waiting()
    assert (again.id, name, again.attempt) == (job_id, "job ñ", 0)
    assert (again.payload, again.retry) == (envelope.payload, envelope.retry)
    calls = Calls()
    await shared.start_worker(calls)
    await calls.until(1)
    assert (calls.jobs[0].id, calls.attempts) == (job_id, [1])


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("no such address"), "retries_exhausted"),
        (Unrecoverable("no use"), "unrecoverable"),
        (Bury("no more"), None),
    ],
)
async def test_the_peer_peeks_and_replays_a_job_that_we_buried(
    shared: SharedQueue, error: Exception, reason: str | None
) -> None:
    ours = await shared.start_worker(Boom(error))
    job = await shared.queue.add("job ñ", {"x": 1}, attempts=2, backoff=Backoff.fixed(0.005))
    await until_dead(shared)
    await ours.stop()
    (mine,) = await shared.queue.dead.peek()
    (letter,) = await letters_there(shared)
    assert letter["name"] == "job ñ"
    assert letter["reason"] == (reason or str(getattr(mine.reason, "value", mine.reason)))
    assert letter["detail"] == mine.detail
    envelope = decode_envelope(bytes.fromhex(letter["payload"]))
    assert (envelope.id, envelope.created_at_ms) == (job.id, job.created_at_ms)
    assert unpacked(envelope.payload.hex()) == {"x": 1}
    assert await shared.ask("replay") == 1
    assert shared.admin.xlen(shared.keys.dead) == 0
    ((again, name),) = shared.waiting()
    assert (again.id, name, again.attempt) == (job.id, "job ñ", 0)
    assert again.retry == RetryOverride(2, Backoff.fixed(0.005).to_wire())
    theirs = await shared.start_peer_worker()
    (call,) = await shared.called(theirs)
    assert (call["id"], call["attempt"]) == (job.id, 0)


async def test_reasons_that_only_we_have_are_text_to_the_peer(shared: SharedQueue) -> None:
    await shared.queue.add("nobody", 1)
    job = await shared.queue.add("somebody", 1, expires=0.001)
    await shared.until(lambda: now_ms() > job.created_at_ms + 1, "it has expired")
    await shared.start_worker({"somebody": Calls()})
    await until_dead(shared, 2)
    reasons = {letter["name"]: letter["reason"] for letter in await letters_there(shared)}
    assert reasons == {"nobody": "unknown_handler", "somebody": "expired"}


def odd_entries(shared: SharedQueue) -> list[bytes]:
    """What no worker can run, written as it is; the bytes of each."""
    bodies = [b"\xff\x00", b"", b"\x92\x01\x02"]
    for body in bodies:
        shared.admin.xadd(shared.keys.stream, {"d": body, "n": "odd"})
    shared.admin.xadd(shared.keys.stream, {"n": "odd", "other": "field"})
    return bodies


async def test_we_report_and_keep_bytes_that_the_peer_could_not_decode(shared: SharedQueue) -> None:
    bodies = odd_entries(shared)
    await shared.start_peer_worker()
    await until_dead(shared, 4)
    letters = await shared.queue.dead.peek()
    reasons = Counter(letter.reason for letter in letters)
    assert reasons == {BuryReason.DECODE_FAILED: 3, BuryReason.MALFORMED: 1}
    assert {(letter.job_id, letter.data) for letter in letters} == {(None, None)}
    assert sorted(letter.raw for letter in letters) == sorted([*bodies, b""])
    assert await shared.queue.dead.replay() == 0
    assert shared.admin.xlen(shared.keys.dead) == 4


async def test_the_peer_reports_and_keeps_bytes_that_we_could_not_decode(
    shared: SharedQueue,
) -> None:
    bodies = odd_entries(shared)
    await shared.start_worker(Calls())
    await until_dead(shared, 4)
    letters = await letters_there(shared)
    assert Counter(letter["reason"] for letter in letters) == {"decode_failed": 3, "malformed": 1}
    assert sorted(bytes.fromhex(letter["payload"]) for letter in letters) == sorted([*bodies, b""])
    assert {letter["name"] for letter in letters} == {"odd"}  # the peer itself drops it
    assert await shared.ask("replay") == 0
    assert shared.admin.xlen(shared.keys.dead) == 4


async def test_a_job_too_large_for_one_is_replayed_for_the_other(shared: SharedQueue) -> None:
    large = "x" * 100_000
    theirs = await shared.start_peer_worker(max_payload_bytes=1_000)
    await shared.queue.add("large", large)
    await until_dead(shared)
    await shared.stop_peer_worker(theirs)
    (letter,) = await shared.queue.dead.peek()
    assert (letter.reason, letter.data) == (BuryReason.OVERSIZE_PAYLOAD, large)
    assert await shared.queue.dead.replay() == 1
    ours = await shared.start_worker(Calls(), max_payload=1_000)
    await until_dead(shared)
    await ours.stop()
    (told,) = await letters_there(shared)
    assert (told["reason"], told["name"]) == ("oversize_payload", "large")
    assert await shared.ask("replay") == 1
    worker = await shared.start_peer_worker()
    (call,) = await shared.called(worker)
    assert call["data"] == large


async def test_undecodable_dead_jobs_block_the_peers_replay_but_not_ours(
    shared: SharedQueue,
) -> None:
    """Its replay looks at the first hundred letters only; ours goes on behind them."""
    worker = await shared.start_worker(Boom(Unrecoverable("no use")))
    for _ in range(100):
        shared.admin.xadd(shared.keys.stream, {"d": b"\xff"})
    await until_dead(shared, 100)
    await shared.queue.add("job", 1)
    await until_dead(shared, 101)
    await worker.stop()
    assert await shared.ask("replay") == 0
    assert await shared.queue.dead.replay() == 1


async def test_a_dead_job_is_replayed_once_by_either(shared: SharedQueue) -> None:
    worker = await shared.start_worker(Boom(Unrecoverable("no use")))
    await shared.queue.add_each("job", range(100))
    await until_dead(shared, 100)
    await worker.stop()
    async with asyncio.TaskGroup() as both:
        theirs = both.create_task(shared.ask("replay"))
        ours = both.create_task(shared.queue.dead.replay(1000))
    assert theirs.result() + ours.result() == 100
    assert sorted(envelope.payload for envelope, _ in shared.waiting()) == [
        encode_payload(n, max_bytes=10) for n in range(100)
    ]


async def test_a_replay_by_the_peer_makes_room_for_a_result(shared: SharedQueue) -> None:
    """The failure that we keep for those who wait is not in the way of the next end."""
    worker = await shared.start_worker(Boom(Unrecoverable("no use")), store_results=True)
    job = await shared.queue.add("job", 1)
    await until_dead(shared)
    with pytest.raises(JobFailed):
        await job.result(5)
    await worker.stop()
    assert await shared.ask("replay") == 1
    await shared.start_worker(Calls(), store_results=True)
    await shared.settled()
    assert await job.result(5) == 1
