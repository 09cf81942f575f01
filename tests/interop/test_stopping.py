"""Cancelling and pausing on a shared queue: the peer's workers know nothing of it."""

import pytest

from tampu import CancelState, JobState
from tests.contract.workers import Calls
from tests.interop.shared_queue import SharedQueue

pytestmark = pytest.mark.chasquimq


@pytest.mark.parametrize("job_id", [None, "the id"])
async def test_we_cancel_a_job_of_the_peers_that_waits(
    shared: SharedQueue, job_id: str | None
) -> None:
    given = await shared.peer_add("job", 1, job_id=job_id)
    assert (await shared.queue.job(given).info()).state is JobState.WAITING
    assert await shared.queue.job(given).cancel() is CancelState.CANCELLED
    assert shared.waiting() == []


async def test_the_peer_runs_a_job_that_it_holds_to_its_end(shared: SharedQueue) -> None:
    theirs = await shared.start_peer_worker(handler={"holds": True}, run_scheduler=False)
    job = await shared.queue.add("job", 1, job_id="the id")
    await shared.called(theirs)
    info = await job.info()
    assert (info.state, info.attempt) == (JobState.ACTIVE, 1)
    assert await job.cancel() is CancelState.CANCELLING
    await shared.peer.ask("free", worker=theirs)
    await shared.settled()
    await shared.called(theirs)
    assert (await job.info()).state is not JobState.CANCELLED


async def test_the_peer_runs_the_jobs_of_a_paused_queue_and_we_do_not(shared: SharedQueue) -> None:
    await shared.queue.pause()
    ours = Calls()
    await shared.start_worker(ours)
    theirs = await shared.start_peer_worker(run_scheduler=False)
    jobs = await shared.queue.add_each("job", range(20))
    told = await shared.called(theirs, 20)
    assert {each["id"] for each in told} == {job.id for job in jobs}
    assert len(ours) == 0
    await shared.queue.resume()
