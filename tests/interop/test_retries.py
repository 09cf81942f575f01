"""A job that fails in one world is tried again in the other, as what it was."""

from itertools import pairwise
from typing import Any

import pytest

from tampu import Backoff, BuryReason
from tampu.wire.envelope import Envelope, RetryOverride, WireBackoff, decode_envelope
from tests.contract.workers import Boom, Calls, Gate
from tests.interop.shared_queue import SharedQueue

pytestmark = pytest.mark.chasquimq

# As ChasquiMQ is told, and as it then stands in the envelope.
OVERRIDES: dict[str, tuple[dict[str, Any], RetryOverride]] = {
    "attempts": ({"attempts": 4}, RetryOverride(4, None)),
    "a number": ({"backoff": 30}, RetryOverride(None, WireBackoff("fixed", 30, None, None, None))),
    "fixed": (
        {"attempts": 4, "backoff": {"kind": "fixed", "delay_ms": 30, "jitter_ms": 5}},
        RetryOverride(4, WireBackoff("fixed", 30, None, None, 5)),
    ),
    "exponential": (
        {
            "attempts": 5,
            "backoff": {
                "kind": "exponential",
                "delay_ms": 20,
                "max_delay_ms": 60,
                "multiplier": 3.0,
                "jitter_ms": 1,
            },
        },
        RetryOverride(5, WireBackoff("exponential", 20, 60, 3.0, 1)),
    ),
}
SLOW = Backoff.fixed(0.3)  # long enough for the other world to take its turn


async def until_delayed(shared: SharedQueue) -> tuple[Envelope, str]:
    """The only delayed job and its name, as soon as it is there."""
    await shared.until(lambda: len(shared.delayed()) == 1, "the job waits for another attempt")
    return shared.delayed()[0]


class Renewals:
    """Counts how often the idle time of what is held has begun anew."""

    def __init__(self, shared: SharedQueue) -> None:
        self._road = shared
        self._count = 0
        self._idle_ms = 0

    def _look(self) -> int:
        (held, *_) = self._road.admin.xpending_range(self._road.keys.stream, "default", "-", "+", 1)
        idle_ms = held["time_since_delivered"]
        self._count += idle_ms < self._idle_ms
        self._idle_ms = idle_ms
        return self._count

    async def until(self, count: int) -> None:
        await self._road.until(lambda: self._look() >= count, f"{count} renewals")


@pytest.mark.parametrize("given", OVERRIDES)
async def test_we_apply_the_peers_retry_override_and_keep_it(
    shared: SharedQueue, given: str
) -> None:
    options, override = OVERRIDES[given]
    boom = Boom()
    await shared.start_worker(boom, attempts=3, backoff=Backoff.fixed(0.01))
    await shared.peer_add("job", 1, **options)
    attempts = override.max_attempts or 3
    await boom.until(attempts)
    await shared.settled()
    assert boom.attempts == list(range(1, attempts + 1))
    (letter,) = await shared.queue.dead.peek()
    assert letter.reason is BuryReason.RETRIES_EXHAUSTED
    assert decode_envelope(letter.raw).retry == override
    assert await shared.ask("replay") == 1
    await boom.until(2 * attempts)
    assert boom.attempts == 2 * list(range(1, attempts + 1))


@pytest.mark.parametrize(
    ("backoff", "least_ms"),
    [
        (None, [100, 200, 400]),
        (Backoff.fixed(0.03), [30, 30, 30]),
        (Backoff.exponential(0.02, max=0.06, multiplier=3), [20, 60, 60]),
    ],
    ids=["the worker's own", "fixed", "exponential"],
)
async def test_the_peer_applies_our_retry_override(
    shared: SharedQueue, backoff: Backoff | None, least_ms: list[int]
) -> None:
    worker = await shared.start_peer_worker(handler={"fails": 99}, max_attempts=9)
    await shared.queue.add("job", 1, attempts=4, backoff=backoff)
    calls = await shared.called(worker, 4)
    assert [call["attempt"] for call in calls] == [0, 1, 2, 3]
    await shared.until(lambda: shared.admin.xlen(shared.keys.dead) == 1, "it is buried")
    waits_ms = [later["at_ms"] - call["at_ms"] for call, later in pairwise(calls)]
    assert all(waited >= least for waited, least in zip(waits_ms, least_ms, strict=True))


async def test_a_job_that_fails_in_turns_keeps_attempt_name_and_override(
    shared: SharedQueue,
) -> None:
    """Theirs, ours, theirs, ours: four attempts, and then it is dead."""
    job = await shared.queue.add("ping ñ", {"x": 1}, attempts=4, backoff=SLOW, job_id="ball")
    wire = RetryOverride(4, SLOW.to_wire())
    seen = []
    for attempt in (1, 2, 3):
        if attempt % 2:
            theirs = await shared.start_peer_worker(handler={"fails": 99})
            (call,) = await shared.called(theirs)
            told = call["id"], call["name"], call["data"], call["attempt"] + 1
            waits = await until_delayed(shared)
            await shared.stop_peer_worker(theirs)
        else:
            boom = Boom()
            ours = await shared.start_worker(boom)
            await boom.until(1)
            run = boom.jobs[0]
            told = run.id, run.name, run.data, run.attempt
            waits = await until_delayed(shared)
            await ours.stop()
        seen.append(told)
        envelope, name = waits
        assert (envelope.id, name, envelope.attempt) == (job.id, "ping ñ", attempt)
        assert envelope.retry == wire
        assert envelope.created_at_ms == job.created_at_ms
    boom = Boom()
    await shared.start_worker(boom)
    await boom.until(1)
    assert seen == [("ball", "ping ñ", {"x": 1}, attempt) for attempt in (1, 2, 3)]
    assert boom.attempts == [4]
    await shared.settled()
    (letter,) = await shared.queue.dead.peek()
    assert (letter.reason, letter.attempt) == (BuryReason.RETRIES_EXHAUSTED, 4)


async def test_a_job_that_failed_at_the_peers_succeeds_at_ours(shared: SharedQueue) -> None:
    theirs = await shared.start_peer_worker(handler={"fails": 99}, max_attempts=9)
    job_id = await shared.peer_add("job", 1, backoff=300)
    await shared.called(theirs)
    await until_delayed(shared)
    await shared.stop_peer_worker(theirs)
    calls = Calls()
    await shared.start_worker(calls)
    await calls.until(1)
    assert [(job.id, job.name, job.attempt) for job in calls.jobs] == [(job_id, "job", 2)]
    await shared.settled()


async def test_extras_of_ours_get_lost_when_the_peer_retries_and_the_job_does_not(
    shared: SharedQueue,
) -> None:
    """The peer writes the envelope anew; what correctness needs is in there."""
    theirs = await shared.start_peer_worker(handler={"fails": 99})
    await shared.queue.add("job", 1, attempts=5, backoff=SLOW, headers={"trace": "1"}, timeout=60)
    await shared.called(theirs)
    envelope, _ = await until_delayed(shared)
    await shared.stop_peer_worker(theirs)
    assert envelope.retry == RetryOverride(5, SLOW.to_wire())
    calls = Calls()
    await shared.start_worker(calls)
    await calls.until(1)
    (job,) = calls.jobs
    assert (job.attempt, job.headers) == (2, {})


async def test_a_job_that_a_peer_died_with_is_taken_over_and_counted(shared: SharedQueue) -> None:
    """The peer has no mark, so ours wait for a lease; its death is an attempt all the same."""
    await shared.start_peer_worker(handler={"holds": True}, claim_min_idle_ms=600_000)
    await shared.queue.add("job", 1)
    await shared.until(lambda: shared.held() == 1, "the peer holds it")
    calls = Calls()
    await shared.start_worker(calls, lease=0.5)
    await calls.until(1)
    assert calls.attempts == [2]


async def test_a_job_that_we_died_with_is_claimed_by_the_peer_and_not_counted(
    shared: SharedQueue,
) -> None:
    await shared.queue.add("job", 1)
    shared.admin.xgroup_create(shared.keys.stream, "default", "0")
    shared.admin.xreadgroup("default", "t-gone", {shared.keys.stream: ">"})
    theirs = await shared.start_peer_worker(claim_min_idle_ms=50)
    (call,) = await shared.called(theirs)
    assert (call["data"], call["attempt"]) == (1, 0)
    await shared.settled()


async def test_a_peer_that_claims_idle_entries_does_not_take_our_running_jobs(
    shared: SharedQueue,
) -> None:
    """Its CLAIM takes whatever has idled for a while: our leases are renewed well before."""
    gate = Gate()
    await shared.start_worker(gate, lease=1)
    job = await shared.queue.add("job", 1)
    await gate.until(1)
    theirs = await shared.start_peer_worker(claim_min_idle_ms=1000)
    await Renewals(shared).until(5)  # a third of the lease lies between two of them, at least
    gate.open.set()
    await shared.settled()
    assert [each.id for each in gate.jobs] == [job.id]
    assert await shared.peer.calls(theirs) == []
