"""Who leads, leads for both worlds: one promotes and one fires, and hands over when it ends."""

from functools import partial

import pytest

from tampu import Every
from tests.contract.workers import Calls
from tests.interop.road import Road
from tests.waiting import wait_until

pytestmark = pytest.mark.chasquimq

SERVICES = ("promoter", "scheduler")
LEASE_MS = 5_000
LONG_MS = 60_000


def lock_of(road: Road, service: str) -> bytes:
    return road.keys.promoter_lock if service == "promoter" else road.keys.scheduler_lock


async def until_theirs(road: Road, worker: str) -> None:
    """Return when a worker of the peer's leads: its promoter by its name, its scheduler by `s-`."""
    await road.until_led("promoter", worker)
    await road.until(lambda: (road.holder("scheduler") or "").startswith("s-"), "it fires too")


class Renewals:
    """Counts how often a lease has been renewed."""

    def __init__(self, road: Road, service: str) -> None:
        self._left_ms = partial(road.admin.pttl, lock_of(road, service))
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
    road: Road,
) -> None:
    theirs = await road.hire_there()
    await until_theirs(road, theirs)
    held = {service: road.holder(service) for service in SERVICES}
    ours = await road.hire(Calls())
    await road.queue.schedule("tick", Every("1h"))
    for service in SERVICES:
        await Renewals(road, service).until(3)
        assert road.holder(service) == held[service]
    await road.dismiss_there(theirs)
    await road.until_led("promoter", ours.id)
    await road.until(lambda: road.holder("scheduler") not in {None, held["scheduler"]}, "ours")


async def test_theirs_waits_for_the_lead_of_ours_and_takes_it_when_that_ends(road: Road) -> None:
    ours = await road.hire(Calls())
    await road.until_led("promoter", ours.id)
    await road.until(lambda: road.holder("scheduler") is not None, "ours fires")
    held = {service: road.holder(service) for service in SERVICES}
    theirs = await road.hire_there()
    for service in SERVICES:
        await Renewals(road, service).until(1)  # ours renews once a second
        assert road.holder(service) == held[service]
    await ours.stop()
    await until_theirs(road, theirs)
    assert road.holder("scheduler") != held["scheduler"]


async def test_while_a_third_leads_neither_promotes_nor_fires(road: Road) -> None:
    for service in SERVICES:
        road.admin.set(lock_of(road, service), "somebody else", px=LONG_MS)
    calls = Calls()
    await road.hire(calls)
    theirs = await road.hire_there()
    await road.queue.add("late", 1, delay=0.01)
    await road.add_there("late", 2, delay_ms=10)
    await road.queue.schedule("tick", Every(0.05), limit=1)
    probes = [await road.queue.add("probe", n) for n in range(20)]
    await wait_until(
        lambda: road.admin.xlen(road.keys.stream) == 0, within=10, sentence="the probes are done"
    )
    # By then both have asked for the lead more than once: ours twice a second, theirs oftener.
    lock = lock_of(road, "scheduler")
    await road.until(lambda: road.admin.pttl(lock) < LONG_MS - 1_500, "the third leads for a while")
    ran = len(calls) + len(await road.peer.calls(theirs))
    assert ran == len(probes)
    assert road.admin.zcard(road.keys.delayed) == 2
    assert road.admin.zcard(road.keys.repeat) == 1
    assert {road.holder(service) for service in SERVICES} == {"somebody else"}
    for service in SERVICES:
        road.admin.delete(lock_of(road, service))
    await road.settled()
    await road.until(lambda: road.admin.zcard(road.keys.repeat) == 0, "it has fired")
    await road.settled()
    names = [job.name for job in calls.jobs]
    names += [call["name"] for call in await road.peer.calls(theirs)]
    assert sorted(name for name in names if name != "probe") == ["late", "late", "tick"]


async def test_nobody_deletes_the_lock_of_the_other(road: Road) -> None:
    """Whoever ends without leading leaves the lease as it is."""
    theirs = await road.hire_there()
    await until_theirs(road, theirs)
    held = {service: road.holder(service) for service in SERVICES}
    ours = await road.hire(Calls())
    await ours.stop()
    assert {service: road.holder(service) for service in SERVICES} == held
    await road.dismiss_there(theirs)
    ours = await road.hire(Calls())
    await road.until_led("promoter", ours.id)
    await road.until(lambda: road.holder("scheduler") is not None, "ours fires")
    held = {service: road.holder(service) for service in SERVICES}
    await road.dismiss_there(await road.hire_there())
    assert {service: road.holder(service) for service in SERVICES} == held


async def test_leases_last_as_long_in_both_worlds(road: Road) -> None:
    theirs = await road.hire_there()
    await until_theirs(road, theirs)
    for service in SERVICES:
        assert 4_000 < road.admin.pttl(lock_of(road, service)) <= LEASE_MS
    await road.dismiss_there(theirs)
    await road.hire(Calls())
    await road.until(lambda: None not in {road.holder(each) for each in SERVICES}, "ours leads")
    for service in SERVICES:
        assert 3_000 < road.admin.pttl(lock_of(road, service)) <= LEASE_MS
