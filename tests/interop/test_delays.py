"""Delayed jobs: who adds them, who promotes them, who runs them and who takes them back."""

import time

import pytest

from tampu import Backoff, Promoter
from tampu.util.clock import instant
from tampu.wire.envelope import RetryOverride
from tests.contract.workers import Calls
from tests.interop.road import Road

pytestmark = pytest.mark.chasquimq

HOUR_MS = 3_600_000
HOUR_S = 3600


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.mark.parametrize("job_id", [None, "the id"])
async def test_a_delayed_job_of_the_peers_is_promoted_and_run_by_us(
    road: Road, job_id: str | None
) -> None:
    calls = Calls()
    await road.hire(calls)
    due_ms = now_ms() + 150
    given = await road.add_there("job ñ", {"x": 1}, delay_ms=150, job_id=job_id, attempts=7)
    await calls.until(1)
    assert now_ms() >= due_ms
    (job,) = calls.jobs
    assert (job.id, job.name, job.data, job.attempt) == (given, "job ñ", {"x": 1}, 1)
    # Ours deletes the index as theirs does, and leaves the marker.
    await road.until(lambda: not road.admin.exists(road.keys.index(given)), "no index is left")
    assert bool(road.admin.exists(road.keys.marker(given))) is (job_id is not None)


@pytest.mark.parametrize("job_id", [None, "the id"])
async def test_a_delayed_job_of_ours_is_promoted_and_run_by_the_peer(
    road: Road, job_id: str | None
) -> None:
    worker = await road.hire_there()
    due_ms = now_ms() + 150
    job = await road.queue.add("job ñ", {"x": 1}, delay=0.15, job_id=job_id, attempts=7)
    (call,) = await road.called(worker)
    assert call["at_ms"] >= due_ms
    assert (call["id"], call["name"], call["data"]) == (job.id, "job ñ", {"x": 1})
    await road.until(lambda: not road.admin.exists(road.keys.index(job.id)), "no index is left")
    assert bool(road.admin.exists(road.keys.marker(job.id))) is (job_id is not None)


async def test_what_the_peer_promotes_for_us_keeps_override_and_extras(road: Road) -> None:
    """It knows nothing of extras, and carries them along behind the envelope."""
    busy = await road.busy_there()
    backoff = Backoff.fixed(9)
    await road.queue.add(
        "job", 1, delay=0.05, attempts=3, backoff=backoff, headers={"trace": "1"}, tenant="acme"
    )
    await road.until(lambda: road.admin.xlen(road.keys.stream) == 5, "the peer has promoted it")
    assert road.holder("promoter") == busy
    assert road.waiting()[-1][0].retry == RetryOverride(3, backoff.to_wire())
    calls = Calls()
    await road.hire(calls, promote=False)
    await calls.until(1)
    (job,) = calls.jobs
    assert (job.name, job.headers, job.tenant) == ("job", {"trace": "1"}, "acme")


async def test_what_we_promote_for_the_peer_stays_byte_for_byte(road: Road) -> None:
    retry = {"kind": "exponential", "delay_ms": 9, "multiplier": 3.0}
    await road.add_there("job ñ", 2, delay_ms=50, attempts=3, backoff=retry, job_id="theirs")
    (member,) = road.admin.zrange(road.keys.delayed, 0, -1)
    async with Promoter(road.name, road.url):
        await road.until(lambda: road.admin.xlen(road.keys.stream) == 1, "it is promoted")
    ((_, fields),) = road.admin.xrange(road.keys.stream)
    assert fields == {b"d": member[4 + len("job ñ".encode()) :], b"n": "job ñ".encode()}
    worker = await road.hire_there()
    (call,) = await road.called(worker)
    assert (call["id"], call["name"], call["data"]) == ("theirs", "job ñ", 2)


@pytest.mark.parametrize("job_id", [None, "the id"])
async def test_the_peer_takes_back_what_we_have_delayed(road: Road, job_id: str | None) -> None:
    """Also without an id of the user's: ours always have the index that the peer looks for."""
    job = await road.queue.add("job", 1, delay="1h", job_id=job_id)
    assert await road.ask("cancel", job_id=job.id) is True
    assert await road.ask("cancel", job_id=job.id) is False
    left = [key for key in road.admin.keys(b"*") if b":tampu:" not in key]
    assert left == []
    # The id is free again, for both.
    if job_id is not None:
        assert (await road.queue.add("job", 2, delay="1h", job_id=job_id)).duplicate is False


@pytest.mark.parametrize("job_id", [None, "the id"])
async def test_we_take_back_what_the_peer_has_delayed(road: Road, job_id: str | None) -> None:
    """Also without an id of the user's, which the peer itself cannot."""
    given = await road.add_there("job", 1, delay_ms=HOUR_MS, job_id=job_id)
    if job_id is None:
        assert await road.ask("cancel", job_id=given) is False
    assert await road.queue.cancel(given) is True
    assert await road.queue.cancel(given) is False
    assert [key for key in road.admin.keys(b"*") if b":tampu:" not in key] == []


async def test_a_job_is_cancelled_or_run_whoever_promotes(road: Road) -> None:
    """Both worlds cancel while both worlds promote: never both, never neither."""
    calls = Calls()
    await road.hire(calls)
    theirs = await road.hire_there()
    ours = [await road.queue.add("job", n, delay=0.1, job_id=f"{n}") for n in range(0, 60, 2)]
    for n in range(1, 60, 2):
        await road.add_there("job", n, delay_ms=50, job_id=f"{n}")
    cancelled = set()
    for n in range(60):
        cancel = road.queue.cancel(f"{n}") if n % 2 else road.ask("cancel", job_id=f"{n}")
        if await cancel:
            cancelled.add(f"{n}")
    await road.settled()
    assert len(ours) == 30
    ran = [job.id for job in calls.jobs] + [each["id"] for each in await road.peer.calls(theirs)]
    assert sorted([*ran, *cancelled], key=int) == [f"{n}" for n in range(60)]


async def test_an_id_that_one_world_has_taken_is_taken_for_the_other(road: Road) -> None:
    await road.add_there("job", 1, delay_ms=HOUR_MS, job_id="theirs")
    assert (await road.queue.add("job", 2, delay="1h", job_id="theirs")).duplicate
    assert (await road.queue.add("job", 2, job_id="theirs")).duplicate
    await road.queue.add("job", 1, delay="1h", job_id="ours")
    await road.add_there("job", 2, delay_ms=HOUR_MS, job_id="ours")
    await road.queue.add("job", 1, job_id="at once")
    await road.add_there("job", 2, delay_ms=HOUR_MS, job_id="at once")
    delayed = sorted(envelope.id for envelope, _ in road.delayed())
    assert delayed == ["ours", "theirs"]
    assert [envelope.id for envelope, _ in road.waiting()] == ["at once"]


async def test_an_immediate_job_of_the_peers_takes_its_id_from_nobody(road: Road) -> None:
    """It sets no marker and looks for none; its own promise holds within one of its queues."""
    await road.queue.add("job", 1, job_id="same")
    await road.add_there("job", 2, job_id="same")
    await road.add_there("job", 3, job_id="same")
    other = [envelope.id for envelope, _ in road.waiting()]
    assert other == ["same", "same"]
    assert (await road.queue.add("job", 4, job_id="same")).duplicate


async def test_lifetimes_of_markers_and_indexes_are_about_those_of_the_peer(road: Road) -> None:
    await road.add_there("job", 1, delay_ms=60_000, job_id="theirs")
    await road.queue.add("job", 1, delay=60, job_id="ours")
    for key in (road.keys.marker, road.keys.index):
        assert abs(road.admin.ttl(key("theirs")) - road.admin.ttl(key("ours"))) <= 1
    assert HOUR_S < road.admin.ttl(road.keys.marker("ours")) <= HOUR_S + 60


async def test_we_move_and_hurry_what_the_peer_has_delayed(road: Road) -> None:
    for job_id in ("moved", "hurried"):
        await road.add_there("job", job_id, delay_ms=HOUR_MS, job_id=job_id, attempts=3)
    worker = await road.hire_there()
    assert await road.queue.run_now("hurried")
    assert await road.queue.reschedule("moved", delay=0.05)
    calls = await road.called(worker, 2)
    assert sorted(call["data"] for call in calls) == ["hurried", "moved"]
    await road.settled()


async def test_the_peer_takes_back_what_we_have_moved(road: Road) -> None:
    await road.queue.add("job", 1, delay="1h", expires="1h", job_id="moved")
    assert await road.queue.reschedule("moved", delay="2h")
    assert await road.ask("cancel", job_id="moved")
    assert road.delayed() == []


async def test_instants_and_delays_become_the_same_scores(road: Road) -> None:
    at_ms = now_ms() + HOUR_MS
    await road.queue.add("job", 1, at=instant(at_ms), job_id="at")
    await road.add_there("job", 1, at_ms=at_ms, job_id="at there")
    began_ms = now_ms()
    await road.queue.add("job", 1, delay="1h", job_id="ours")
    await road.add_there("job", 1, delay_ms=HOUR_MS, job_id="theirs")
    took_ms = now_ms() - began_ms
    found = {
        envelope.id: score
        for (envelope, _), (_, score) in zip(
            road.delayed(),
            road.admin.zrange(road.keys.delayed, 0, -1, withscores=True),
            strict=True,
        )
    }
    assert found["at"] == found["at there"] == at_ms
    assert 0 <= found["ours"] - began_ms - HOUR_MS <= took_ms
    assert 0 <= found["theirs"] - began_ms - HOUR_MS <= took_ms
