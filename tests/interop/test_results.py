"""Results that one world stores are read by the other."""

import asyncio

import pytest

from tampu import NewJob, ResultTimeout
from tests.contract.workers import Boom, Calls
from tests.interop.peer.values import packed, unpacked
from tests.interop.shared_queue import SharedQueue
from tests.interop.test_jobs import VALUES

pytestmark = pytest.mark.chasquimq

WITHOUT_NONE = {label: value for label, value in VALUES.items() if value is not None}


async def test_every_kind_of_result_that_the_peer_stores_is_read_by_us(shared: SharedQueue) -> None:
    await shared.start_peer_worker(store_results=True)
    jobs = await shared.queue.add_many(
        [NewJob(label, value) for label, value in WITHOUT_NONE.items()]
    )
    await shared.settled()
    found = await shared.queue.results([job.id for job in jobs])
    wrong = [job.name for job in jobs if packed(found[job.id]) != packed(job.data)]
    assert wrong == []


async def test_every_kind_of_result_that_we_store_is_read_by_the_peer(shared: SharedQueue) -> None:
    await shared.start_worker(Calls(), store_results=True)
    ids = {label: await shared.peer_add(label, value) for label, value in WITHOUT_NONE.items()}
    await shared.settled()
    found = await shared.ask("results", job_ids=list(ids.values()))
    told = dict(zip(ids, found, strict=True))
    assert [label for label in ids if told[label] != packed(WITHOUT_NONE[label])] == []
    assert unpacked(await shared.ask("result", job_id=ids["nested"])) == unpacked(told["nested"])


async def test_the_peers_caller_gets_the_result_of_our_worker(shared: SharedQueue) -> None:
    await shared.start_worker(Calls(), store_results=True)
    assert unpacked(await shared.ask("wait_for", name="job", data=packed({"x": 1}))) == {"x": 1}


async def test_a_result_of_the_peers_is_found_when_a_wait_begins_and_when_it_ends(
    shared: SharedQueue,
) -> None:
    """It tells nobody that a job has ended, so nobody can be woken."""
    theirs = await shared.start_peer_worker(store_results=True, handler={"holds": True})
    job = await shared.queue.add("job", {"x": 1})
    await shared.called(theirs)
    shared.admin.config_resetstat()
    waits = asyncio.create_task(job.result(1))
    await shared.until(lambda: "cmdstat_mget" in shared.admin.info("commandstats"), "it has looked")
    await shared.peer.ask("free", worker=theirs)
    await shared.settled()
    assert not waits.done()
    assert await job.result(1) == {"x": 1}
    assert await waits == {"x": 1}


async def test_none_is_a_result_of_ours_and_none_at_the_peers(shared: SharedQueue) -> None:
    """For the peer None means that there is none, whoever stored it."""
    ours = await shared.start_worker(Calls(), store_results=True)
    job = await shared.queue.add("job", None)
    assert await job.result(5) is None
    assert unpacked(await shared.ask("result", job_id=job.id)) is None
    await ours.stop()
    await shared.start_peer_worker(store_results=True)
    job = await shared.queue.add("job", None)
    await shared.settled()
    with pytest.raises(ResultTimeout):
        await job.result(0)


async def test_lifetimes_of_results_are_the_same(shared: SharedQueue) -> None:
    ours = await shared.start_worker(Calls(), store_results=True, result_ttl=1.5)
    first = await shared.queue.add("job", 1)
    await first.result(5)
    assert shared.admin.ttl(shared.keys.result(first.id)) == 2
    await ours.stop()
    await shared.start_peer_worker(store_results=True, result_ttl_ms=1500)
    second = await shared.queue.add("job", 1)
    await shared.settled()
    assert shared.admin.ttl(shared.keys.result(second.id)) == 2


async def test_a_job_that_we_bury_has_no_result_for_the_peer(shared: SharedQueue) -> None:
    """Why it failed is kept where the peer does not look."""
    await shared.start_worker(Boom(), store_results=True, attempts=1)
    job_id = await shared.peer_add("job", 1)
    await shared.settled()
    assert unpacked(await shared.ask("result", job_id=job_id)) is None
    assert shared.admin.exists(shared.keys.failure(job_id))
