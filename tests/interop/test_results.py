"""Results that one world stores are read by the other."""

import asyncio

import pytest

from tampu import NewJob, ResultTimeout
from tests.contract.workers import Boom, Calls
from tests.interop.peer.values import packed, unpacked
from tests.interop.road import Road
from tests.interop.test_jobs import VALUES

pytestmark = pytest.mark.chasquimq

WITHOUT_NONE = {label: value for label, value in VALUES.items() if value is not None}


async def test_every_kind_of_result_that_the_peer_stores_is_read_by_us(road: Road) -> None:
    await road.hire_there(store_results=True)
    jobs = await road.queue.add_many(
        [NewJob(label, value) for label, value in WITHOUT_NONE.items()]
    )
    await road.settled()
    found = await road.queue.results([job.id for job in jobs])
    wrong = [job.name for job in jobs if packed(found[job.id]) != packed(job.data)]
    assert wrong == []


async def test_every_kind_of_result_that_we_store_is_read_by_the_peer(road: Road) -> None:
    await road.hire(Calls(), store_results=True)
    ids = {label: await road.add_there(label, value) for label, value in WITHOUT_NONE.items()}
    await road.settled()
    found = await road.ask("results", job_ids=list(ids.values()))
    told = dict(zip(ids, found, strict=True))
    assert [label for label in ids if told[label] != packed(WITHOUT_NONE[label])] == []
    assert unpacked(await road.ask("result", job_id=ids["nested"])) == unpacked(told["nested"])


async def test_the_peers_caller_gets_what_our_worker_returns(road: Road) -> None:
    await road.hire(Calls(), store_results=True)
    assert unpacked(await road.ask("wait_for", name="job", data=packed({"x": 1}))) == {"x": 1}


async def test_a_result_of_the_peers_is_found_when_a_wait_begins_and_when_it_ends(
    road: Road,
) -> None:
    """It tells nobody that a job has ended, so nobody can be woken."""
    theirs = await road.hire_there(store_results=True, hand={"holds": True})
    job = await road.queue.add("job", {"x": 1})
    await road.called(theirs)
    road.admin.config_resetstat()
    waits = asyncio.create_task(job.result(1))
    await road.until(lambda: "cmdstat_mget" in road.admin.info("commandstats"), "it has looked")
    await road.peer.ask("free", worker=theirs)
    await road.settled()
    assert not waits.done()
    assert await job.result(1) == {"x": 1}
    assert await waits == {"x": 1}


async def test_none_is_a_result_of_ours_and_none_at_the_peers(road: Road) -> None:
    """For the peer None means that there is none, whoever stored it."""
    ours = await road.hire(Calls(), store_results=True)
    job = await road.queue.add("job", None)
    assert await job.result(5) is None
    assert unpacked(await road.ask("result", job_id=job.id)) is None
    await ours.stop()
    await road.hire_there(store_results=True)
    job = await road.queue.add("job", None)
    await road.settled()
    with pytest.raises(ResultTimeout):
        await job.result(0)


async def test_lifetimes_of_results_are_the_same(road: Road) -> None:
    ours = await road.hire(Calls(), store_results=True, result_ttl=1.5)
    first = await road.queue.add("job", 1)
    await first.result(5)
    assert road.admin.ttl(road.keys.result(first.id)) == 2
    await ours.stop()
    await road.hire_there(store_results=True, result_ttl_ms=1500)
    second = await road.queue.add("job", 1)
    await road.settled()
    assert road.admin.ttl(road.keys.result(second.id)) == 2


async def test_a_job_that_we_bury_has_no_result_for_the_peer(road: Road) -> None:
    """Why it failed is kept where the peer does not look."""
    await road.hire(Boom(), store_results=True, attempts=1)
    job_id = await road.add_there("job", 1)
    await road.settled()
    assert unpacked(await road.ask("result", job_id=job_id)) is None
    assert road.admin.exists(road.keys.failure(job_id))
