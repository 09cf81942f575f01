"""Delayed jobs: who adds them, who promotes them, who runs them and who takes them back."""

import time
from functools import partial
from statistics import median
from typing import Any

import pytest

from tampu import Backoff, CancelState, Job, Promoter
from tampu.util.clock import instant
from tampu.wire.envelope import RetryOverride
from tests.contract.workers import Calls
from tests.interop.shared_queue import SharedQueue

pytestmark = pytest.mark.chasquimq

HOUR_MS = 3_600_000
HOUR_S = 3600


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.mark.parametrize("job_id", [None, "the id"])
async def test_a_delayed_job_of_the_peers_is_promoted_and_run_by_us(
    shared: SharedQueue, job_id: str | None
) -> None:
    calls = Calls()
    await shared.start_worker(calls)
    due_ms = now_ms() + 150
    given = await shared.peer_add("job ñ", {"x": 1}, delay_ms=150, job_id=job_id, attempts=7)
    await calls.until(1)
    assert now_ms() >= due_ms
    (job,) = calls.jobs
    assert (job.id, job.name, job.data, job.attempt) == (given, "job ñ", {"x": 1}, 1)
    # Ours deletes the index as theirs does, and leaves the marker.
    await shared.until(
        lambda: not shared.admin.exists(shared.keys.index(given)), "no index is left"
    )
    assert bool(shared.admin.exists(shared.keys.marker(given))) is (job_id is not None)


async def test_delayed_jobs_of_a_peers_producer_are_promoted_in_time(shared: SharedQueue) -> None:
    """It sends no wakeups, but once it was noticed we look every 100 ms."""
    late_ms: list[int] = []

    async def note(job: Job[Any]) -> None:
        late_ms.append(now_ms() - job.data)

    ours = await shared.start_worker(note)
    await shared.until_led("promoter", ours.id)
    for count in range(10):
        await shared.peer_add("job", now_ms() + 20, delay_ms=20)
        await shared.until(partial(is_longer, late_ms, count), "it has run")
    assert median(late_ms[1:]) <= 150


def is_longer(values: list[int], count: int) -> bool:
    return len(values) > count


@pytest.mark.parametrize("job_id", [None, "the id"])
async def test_a_delayed_job_of_ours_is_promoted_and_run_by_the_peer(
    shared: SharedQueue, job_id: str | None
) -> None:
    worker = await shared.start_peer_worker()
    due_ms = now_ms() + 150
    job = await shared.queue.add("job ñ", {"x": 1}, delay=0.15, job_id=job_id, attempts=7)
    (call,) = await shared.called(worker)
    assert call["at_ms"] >= due_ms
    assert (call["id"], call["name"], call["data"]) == (job.id, "job ñ", {"x": 1})
    await shared.until(
        lambda: not shared.admin.exists(shared.keys.index(job.id)), "no index is left"
    )
    assert bool(shared.admin.exists(shared.keys.marker(job.id))) is (job_id is not None)


async def test_a_job_promoted_by_the_peer_keeps_override_and_extras(shared: SharedQueue) -> None:
    """It knows nothing of extras, and carries them along behind the envelope."""
    busy = await shared.start_busy_peer_worker()
    backoff = Backoff.fixed(9)
    await shared.queue.add(
        "job", 1, delay=0.05, attempts=3, backoff=backoff, headers={"trace": "1"}, tenant="acme"
    )
    await shared.until(
        lambda: shared.admin.xlen(shared.keys.stream) == 5, "the peer has promoted it"
    )
    assert shared.holder("promoter") == busy
    assert shared.waiting()[-1][0].retry == RetryOverride(3, backoff.to_wire())
    calls = Calls()
    await shared.start_worker(calls, promote=False)
    await calls.until(1)
    (job,) = calls.jobs
    assert (job.name, job.headers, job.tenant) == ("job", {"trace": "1"}, "acme")


async def test_a_job_promoted_by_us_keeps_the_peers_bytes(shared: SharedQueue) -> None:
    retry = {"kind": "exponential", "delay_ms": 9, "multiplier": 3.0}
    await shared.peer_add("job ñ", 2, delay_ms=50, attempts=3, backoff=retry, job_id="theirs")
    (member,) = shared.admin.zrange(shared.keys.delayed, 0, -1)
    async with Promoter(shared.name, shared.url):
        await shared.until(lambda: shared.admin.xlen(shared.keys.stream) == 1, "it is promoted")
    ((_, fields),) = shared.admin.xrange(shared.keys.stream)
    assert fields == {b"d": member[4 + len("job ñ".encode()) :], b"n": "job ñ".encode()}
    worker = await shared.start_peer_worker()
    (call,) = await shared.called(worker)
    assert (call["id"], call["name"], call["data"]) == ("theirs", "job ñ", 2)


@pytest.mark.parametrize("job_id", [None, "the id"])
async def test_the_peer_cancels_a_job_that_we_delayed(
    shared: SharedQueue, job_id: str | None
) -> None:
    """Also without an id of the user's: ours always have the index that the peer looks for."""
    job = await shared.queue.add("job", 1, delay="1h", job_id=job_id)
    assert await shared.ask("cancel", job_id=job.id) is True
    assert await shared.ask("cancel", job_id=job.id) is False
    left = [key for key in shared.admin.keys(b"*") if b":tampu:" not in key]
    assert left == []
    # The id is free again, for both.
    if job_id is not None:
        assert (await shared.queue.add("job", 2, delay="1h", job_id=job_id)).duplicate is False


@pytest.mark.parametrize("job_id", [None, "the id"])
async def test_we_cancel_a_job_that_the_peer_delayed(
    shared: SharedQueue, job_id: str | None
) -> None:
    """Also without an id of the user's, which the peer itself cannot."""
    given = await shared.peer_add("job", 1, delay_ms=HOUR_MS, job_id=job_id)
    if job_id is None:
        assert await shared.ask("cancel", job_id=given) is False
    assert await shared.queue.job(given).cancel() is CancelState.CANCELLED
    assert await shared.queue.job(given).cancel() is CancelState.TOO_LATE
    assert [key for key in shared.admin.keys(b"*") if b":tampu:" not in key] == []


async def test_a_job_is_cancelled_or_run_whoever_promotes(shared: SharedQueue) -> None:
    """Both worlds cancel while both worlds promote: never both, never neither."""
    calls = Calls()
    await shared.start_worker(calls)
    theirs = await shared.start_peer_worker()
    ours = [await shared.queue.add("job", n, delay=0.1, job_id=f"{n}") for n in range(0, 60, 2)]
    for n in range(1, 60, 2):
        await shared.peer_add("job", n, delay_ms=50, job_id=f"{n}")
    cancelled = set()
    for n in range(60):
        if n % 2:
            (gone,) = await shared.queue.actions.cancel_delayed([f"{n}"])
        else:
            gone = await shared.ask("cancel", job_id=f"{n}")
        if gone:
            cancelled.add(f"{n}")
    await shared.settled()
    assert len(ours) == 30
    ran = [job.id for job in calls.jobs] + [each["id"] for each in await shared.peer.calls(theirs)]
    assert sorted([*ran, *cancelled], key=int) == [f"{n}" for n in range(60)]


async def test_an_id_that_one_world_has_taken_is_taken_for_the_other(shared: SharedQueue) -> None:
    await shared.peer_add("job", 1, delay_ms=HOUR_MS, job_id="theirs")
    assert (await shared.queue.add("job", 2, delay="1h", job_id="theirs")).duplicate
    assert (await shared.queue.add("job", 2, job_id="theirs")).duplicate
    await shared.queue.add("job", 1, delay="1h", job_id="ours")
    await shared.peer_add("job", 2, delay_ms=HOUR_MS, job_id="ours")
    await shared.queue.add("job", 1, job_id="at once")
    await shared.peer_add("job", 2, delay_ms=HOUR_MS, job_id="at once")
    delayed = sorted(envelope.id for envelope, _ in shared.delayed())
    assert delayed == ["ours", "theirs"]
    assert [envelope.id for envelope, _ in shared.waiting()] == ["at once"]


async def test_the_peers_immediate_job_does_not_reserve_its_id(shared: SharedQueue) -> None:
    """It sets no marker and looks for none; its own promise holds within one of its queues."""
    await shared.queue.add("job", 1, job_id="same")
    await shared.peer_add("job", 2, job_id="same")
    await shared.peer_add("job", 3, job_id="same")
    other = [envelope.id for envelope, _ in shared.waiting()]
    assert other == ["same", "same"]
    assert (await shared.queue.add("job", 4, job_id="same")).duplicate


async def test_lifetimes_of_markers_and_indexes_are_about_those_of_the_peer(
    shared: SharedQueue,
) -> None:
    await shared.peer_add("job", 1, delay_ms=60_000, job_id="theirs")
    await shared.queue.add("job", 1, delay=60, job_id="ours")
    for key in (shared.keys.marker, shared.keys.index):
        assert abs(shared.admin.ttl(key("theirs")) - shared.admin.ttl(key("ours"))) <= 1
    assert HOUR_S < shared.admin.ttl(shared.keys.marker("ours")) <= HOUR_S + 60


async def test_we_reschedule_and_promote_a_job_that_the_peer_delayed(shared: SharedQueue) -> None:
    for job_id in ("moved", "hurried"):
        await shared.peer_add("job", job_id, delay_ms=HOUR_MS, job_id=job_id, attempts=3)
    worker = await shared.start_peer_worker()
    assert await shared.queue.job("hurried").run_now()
    assert await shared.queue.job("moved").reschedule(delay=0.05)
    calls = await shared.called(worker, 2)
    assert sorted(call["data"] for call in calls) == ["hurried", "moved"]
    await shared.settled()


async def test_the_peer_cancels_a_job_that_we_rescheduled(shared: SharedQueue) -> None:
    await shared.queue.add("job", 1, delay="1h", expires="1h", job_id="moved")
    assert await shared.queue.job("moved").reschedule(delay="2h")
    assert await shared.ask("cancel", job_id="moved")
    assert shared.delayed() == []


async def test_instants_and_delays_become_the_same_scores(shared: SharedQueue) -> None:
    at_ms = now_ms() + HOUR_MS
    await shared.queue.add("job", 1, at=instant(at_ms), job_id="at")
    await shared.peer_add("job", 1, at_ms=at_ms, job_id="at there")
    began_ms = now_ms()
    await shared.queue.add("job", 1, delay="1h", job_id="ours")
    await shared.peer_add("job", 1, delay_ms=HOUR_MS, job_id="theirs")
    took_ms = now_ms() - began_ms
    found = {
        envelope.id: score
        for (envelope, _), (_, score) in zip(
            shared.delayed(),
            shared.admin.zrange(shared.keys.delayed, 0, -1, withscores=True),
            strict=True,
        )
    }
    assert found["at"] == found["at there"] == at_ms
    assert 0 <= found["ours"] - began_ms - HOUR_MS <= took_ms
    assert 0 <= found["theirs"] - began_ms - HOUR_MS <= took_ms
