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
from tests.interop.road import Road

pytestmark = pytest.mark.chasquimq

BACKOFF = {"kind": "fixed", "delay_ms": 5, "jitter_ms": 1}


async def until_dead(road: Road, count: int = 1) -> None:
    await road.until(lambda: road.admin.xlen(road.keys.dead) >= count, f"{count} jobs are dead")


async def letters_there(road: Road) -> list[dict[str, Any]]:
    """What the peer sees of the dead letters."""
    found: list[dict[str, Any]] = await road.ask("peek")
    return found


@pytest.mark.parametrize(
    ("hand", "reason", "runs"),
    [
        ({"fails": 99}, BuryReason.RETRIES_EXHAUSTED, 2),
        ({"gives_up": True}, BuryReason.UNRECOVERABLE, 1),
    ],
)
async def test_what_the_peer_buries_is_peeked_and_replayed_by_us(
    road: Road, hand: dict[str, Any], reason: BuryReason, runs: int
) -> None:
    theirs = await road.hire_there(hand=hand)
    job_id = await road.add_there("job ñ", {"x": 1}, attempts=2, backoff=BACKOFF)
    await road.called(theirs, runs)
    await until_dead(road)
    await road.dismiss_there(theirs)
    (letter,) = await road.queue.dead.peek()
    assert (letter.job_id, letter.name, letter.data) == (job_id, "job ñ", {"x": 1})
    assert (letter.reason, letter.detail, letter.failure) == (reason, None, None)
    envelope = decode_envelope(letter.raw)
    assert await road.queue.dead.replay() == 1
    assert await road.queue.dead.peek() == []
    ((again, name),) = road.waiting()
    assert (again.id, name, again.attempt) == (job_id, "job ñ", 0)
    assert (again.payload, again.retry) == (envelope.payload, envelope.retry)
    calls = Calls()
    await road.hire(calls)
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
async def test_what_we_bury_is_peeked_and_replayed_by_the_peer(
    road: Road, error: Exception, reason: str | None
) -> None:
    ours = await road.hire(Boom(error))
    job = await road.queue.add("job ñ", {"x": 1}, attempts=2, backoff=Backoff.fixed(0.005))
    await until_dead(road)
    await ours.stop()
    (mine,) = await road.queue.dead.peek()
    (letter,) = await letters_there(road)
    assert letter["name"] == "job ñ"
    assert letter["reason"] == (reason or str(getattr(mine.reason, "value", mine.reason)))
    assert letter["detail"] == mine.detail
    envelope = decode_envelope(bytes.fromhex(letter["payload"]))
    assert (envelope.id, envelope.created_at_ms) == (job.id, job.created_at_ms)
    assert unpacked(envelope.payload.hex()) == {"x": 1}
    assert await road.ask("replay") == 1
    assert road.admin.xlen(road.keys.dead) == 0
    ((again, name),) = road.waiting()
    assert (again.id, name, again.attempt) == (job.id, "job ñ", 0)
    assert again.retry == RetryOverride(2, Backoff.fixed(0.005).to_wire())
    theirs = await road.hire_there()
    (call,) = await road.called(theirs)
    assert (call["id"], call["attempt"]) == (job.id, 0)


async def test_reasons_that_only_we_have_are_text_to_the_peer(road: Road) -> None:
    await road.queue.add("nobody", 1)
    job = await road.queue.add("somebody", 1, expires=0.001)
    await road.until(lambda: now_ms() > job.created_at_ms + 1, "it has expired")
    await road.hire({"somebody": Calls()})
    await until_dead(road, 2)
    reasons = {letter["name"]: letter["reason"] for letter in await letters_there(road)}
    assert reasons == {"nobody": "unknown_handler", "somebody": "expired"}


def odd_entries(road: Road) -> list[bytes]:
    """What no worker can run, written as it is; the bytes of each."""
    bodies = [b"\xff\x00", b"", b"\x92\x01\x02"]
    for body in bodies:
        road.admin.xadd(road.keys.stream, {"d": body, "n": "odd"})
    road.admin.xadd(road.keys.stream, {"n": "odd", "other": "field"})
    return bodies


async def test_what_the_peer_could_not_read_is_told_and_left_by_us(road: Road) -> None:
    bodies = odd_entries(road)
    await road.hire_there()
    await until_dead(road, 4)
    letters = await road.queue.dead.peek()
    reasons = Counter(letter.reason for letter in letters)
    assert reasons == {BuryReason.DECODE_FAILED: 3, BuryReason.MALFORMED: 1}
    assert {(letter.job_id, letter.data) for letter in letters} == {(None, None)}
    assert sorted(letter.raw for letter in letters) == sorted([*bodies, b""])
    assert await road.queue.dead.replay() == 0
    assert road.admin.xlen(road.keys.dead) == 4


async def test_what_we_could_not_read_is_told_and_left_by_the_peer(road: Road) -> None:
    bodies = odd_entries(road)
    await road.hire(Calls())
    await until_dead(road, 4)
    letters = await letters_there(road)
    assert Counter(letter["reason"] for letter in letters) == {"decode_failed": 3, "malformed": 1}
    assert sorted(bytes.fromhex(letter["payload"]) for letter in letters) == sorted([*bodies, b""])
    assert {letter["name"] for letter in letters} == {"odd"}  # the peer itself drops it
    assert await road.ask("replay") == 0
    assert road.admin.xlen(road.keys.dead) == 4


async def test_what_is_too_large_for_one_is_put_back_for_the_other(road: Road) -> None:
    large = "x" * 100_000
    theirs = await road.hire_there(max_payload_bytes=1_000)
    await road.queue.add("large", large)
    await until_dead(road)
    await road.dismiss_there(theirs)
    (letter,) = await road.queue.dead.peek()
    assert (letter.reason, letter.data) == (BuryReason.OVERSIZE_PAYLOAD, large)
    assert await road.queue.dead.replay() == 1
    ours = await road.hire(Calls(), max_payload=1_000)
    await until_dead(road)
    await ours.stop()
    (told,) = await letters_there(road)
    assert (told["reason"], told["name"]) == ("oversize_payload", "large")
    assert await road.ask("replay") == 1
    worker = await road.hire_there()
    (call,) = await road.called(worker)
    assert call["data"] == large


async def test_letters_that_cannot_be_read_keep_the_peer_from_the_others_and_not_us(
    road: Road,
) -> None:
    """Its replay looks at the first hundred letters only; ours goes on behind them."""
    worker = await road.hire(Boom(Unrecoverable("no use")))
    for _ in range(100):
        road.admin.xadd(road.keys.stream, {"d": b"\xff"})
    await until_dead(road, 100)
    await road.queue.add("job", 1)
    await until_dead(road, 101)
    await worker.stop()
    assert await road.ask("replay") == 0
    assert await road.queue.dead.replay() == 1


async def test_a_letter_is_put_back_once_whoever_replays(road: Road) -> None:
    worker = await road.hire(Boom(Unrecoverable("no use")))
    await road.queue.add_each("job", range(100))
    await until_dead(road, 100)
    await worker.stop()
    async with asyncio.TaskGroup() as both:
        theirs = both.create_task(road.ask("replay"))
        ours = both.create_task(road.queue.dead.replay(1000))
    assert theirs.result() + ours.result() == 100
    assert sorted(envelope.payload for envelope, _ in road.waiting()) == [
        encode_payload(n, max_bytes=10) for n in range(100)
    ]


async def test_a_replay_by_the_peer_clears_the_way_for_a_result(road: Road) -> None:
    """The failure that we keep for those who wait is not in the way of the next end."""
    worker = await road.hire(Boom(Unrecoverable("no use")), store_results=True)
    job = await road.queue.add("job", 1)
    await until_dead(road)
    with pytest.raises(JobFailed):
        await job.result(5)
    await worker.stop()
    assert await road.ask("replay") == 1
    await road.hire(Calls(), store_results=True)
    await road.settled()
    assert await job.result(5) == 1
