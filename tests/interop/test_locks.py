"""Who leads, leads for both worlds: one promotes and one fires, and hands over when it ends."""

from functools import partial

import pytest

from tampu import Every
from tests.contract.workers import Calls
from tests.interop.shared_queue import SharedQueue
from tests.waiting import wait_until

pytestmark = pytest.mark.chasquimq

SERVICES = ("promoter", "scheduler")
LEASE_MS = 5_000
LONG_MS = 60_000


def lock_of(shared: SharedQueue, service: str) -> bytes:
    return shared.keys.promoter_lock if service == "promoter" else shared.keys.scheduler_lock


async def until_theirs(shared: SharedQueue, worker: str) -> None:
    """Return when a worker of the peer's leads: its promoter by its name, its scheduler by `s-`."""
    await shared.until_led("promoter", worker)
    await shared.until(lambda: (shared.holder("scheduler") or "").startswith("s-"), "it fires too")


class Renewals:
    """Counts how often a lease has been renewed."""

    def __init__(self, shared: SharedQueue, service: str) -> None:
        self._left_ms = partial(shared.admin.pttl, lock_of(shared, service))
        self._before_ms = self._left_ms()
        self._count = 0

    def _look(self) -> int:
        left_ms = self._left_ms()
        self._count += left_ms > self._before_ms
        self._before_ms = left_ms
        return self._count

    async def until(self, count: int) -> None:
        await wait_until(
            lambda: self._look() >= count, within=LEASE_MS / 1000 * count, sentence="it is renewed"
        )


async def test_ours_waits_for_the_lead_of_the_peers_and_takes_it_when_that_ends(
    shared: SharedQueue,
) -> None:
    theirs = await shared.start_peer_worker()
    await until_theirs(shared, theirs)
    held = {service: shared.holder(service) for service in SERVICES}
    ours = await shared.start_worker(Calls())
    await shared.queue.schedules.add("tick", Every("1h"))
    for service in SERVICES:
        await Renewals(shared, service).until(3)
        assert shared.holder(service) == held[service]
    await shared.stop_peer_worker(theirs)
    await shared.until_led("promoter", ours.id)
    await shared.until(lambda: shared.holder("scheduler") not in {None, held["scheduler"]}, "ours")


async def test_theirs_waits_for_the_lead_of_ours_and_takes_it_when_that_ends(
    shared: SharedQueue,
) -> None:
    ours = await shared.start_worker(Calls())
    await shared.until_led("promoter", ours.id)
    await shared.until(lambda: shared.holder("scheduler") is not None, "ours fires")
    held = {service: shared.holder(service) for service in SERVICES}
    theirs = await shared.start_peer_worker()
    for service in SERVICES:
        await Renewals(shared, service).until(1)  # ours renews once a second
        assert shared.holder(service) == held[service]
    await ours.stop()
    await until_theirs(shared, theirs)
    assert shared.holder("scheduler") != held["scheduler"]


async def test_only_the_leader_promotes_and_fires(shared: SharedQueue) -> None:
    for service in SERVICES:
        shared.admin.set(lock_of(shared, service), "somebody else", px=LONG_MS)
    calls = Calls()
    await shared.start_worker(calls)
    theirs = await shared.start_peer_worker()
    await shared.queue.add("late", 1, delay=0.01)
    await shared.peer_add("late", 2, delay_ms=10)
    await shared.queue.schedules.add("tick", Every(0.05), limit=1)
    probes = [await shared.queue.add("probe", n) for n in range(20)]
    await wait_until(
        lambda: shared.admin.xlen(shared.keys.stream) == 0,
        within=60,
        sentence="the probes are done",
    )
    # By then both have asked for the lead more than once: ours twice a second, theirs oftener.
    lock = lock_of(shared, "scheduler")
    await shared.until(
        lambda: shared.admin.pttl(lock) < LONG_MS - 1_500, "the third leads for a while"
    )
    ran = len(calls) + len(await shared.peer.calls(theirs))
    assert ran == len(probes)
    assert shared.admin.zcard(shared.keys.delayed) == 2
    assert shared.admin.zcard(shared.keys.repeat) == 1
    assert {shared.holder(service) for service in SERVICES} == {"somebody else"}
    for service in SERVICES:
        shared.admin.delete(lock_of(shared, service))
    await shared.settled()
    await shared.until(lambda: shared.admin.zcard(shared.keys.repeat) == 0, "it has fired")
    await shared.settled()
    names = [job.name for job in calls.jobs]
    names += [call["name"] for call in await shared.peer.calls(theirs)]
    assert sorted(name for name in names if name != "probe") == ["late", "late", "tick"]


async def test_nobody_deletes_the_lock_of_the_other(shared: SharedQueue) -> None:
    """Whoever ends without leading leaves the lease as it is."""
    theirs = await shared.start_peer_worker()
    await until_theirs(shared, theirs)
    held = {service: shared.holder(service) for service in SERVICES}
    ours = await shared.start_worker(Calls())
    await ours.stop()
    assert {service: shared.holder(service) for service in SERVICES} == held
    await shared.stop_peer_worker(theirs)
    ours = await shared.start_worker(Calls())
    await shared.until_led("promoter", ours.id)
    await shared.until(lambda: shared.holder("scheduler") is not None, "ours fires")
    held = {service: shared.holder(service) for service in SERVICES}
    await shared.stop_peer_worker(await shared.start_peer_worker())
    assert {service: shared.holder(service) for service in SERVICES} == held


async def test_leases_last_as_long_in_both_worlds(shared: SharedQueue) -> None:
    theirs = await shared.start_peer_worker()
    await until_theirs(shared, theirs)
    for service in SERVICES:
        assert 4_000 < shared.admin.pttl(lock_of(shared, service)) <= LEASE_MS
    await shared.stop_peer_worker(theirs)
    await shared.start_worker(Calls())
    await shared.until(lambda: None not in {shared.holder(each) for each in SERVICES}, "ours leads")
    for service in SERVICES:
        assert 3_000 < shared.admin.pttl(lock_of(shared, service)) <= LEASE_MS
