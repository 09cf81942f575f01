"""A job is found by its id, wherever it is."""

from collections.abc import AsyncIterator

import pytest

from tampu import JobState, OptionError
from tampu.admin.jobs import job_info
from tampu.server.connect import Server
from tampu.server.lane import Lane
from tests.contract.workers import KEYS, Boom, Calls, Gate, Harness, envelope

pytestmark = pytest.mark.every_server


@pytest.fixture
async def work(server: Server, harness: Harness) -> AsyncIterator[Lane]:
    del harness  # it looks for tasks that are left: ours ends before
    async with await Lane.open(server, KEYS.stream) as opened:
        yield opened


async def test_a_job_that_waits(work: Lane, harness: Harness) -> None:
    await harness.queue.add_each("x", range(3))
    job = await harness.queue.add("welcome", {"to": "ada"})
    found = await job_info(work, KEYS, job.id)
    assert (found.state, found.name, found.data) == (JobState.WAITING, "welcome", {"to": "ada"})
    assert (found.attempt, found.created_at) == (0, job.created_at)
    assert found.entry_id is not None


async def test_a_job_that_runs_names_its_worker(work: Lane, harness: Harness) -> None:
    gate = Gate()
    worker = await harness.start_worker(gate)
    job = await harness.queue.add("x")
    await gate.until(1)
    found = await job_info(work, KEYS, job.id)
    gate.open.set()
    assert (found.state, found.worker, found.attempt) == (JobState.ACTIVE, worker.id, 1)


async def test_delayed_jobs_with_and_without_an_index(work: Lane, harness: Harness) -> None:
    await harness.queue.add("x", delay=60, job_id="indexed")
    harness.admin.zadd(
        KEYS.delayed, {b"\x01\0\0\0n" + envelope(job_id="a-retry", attempt=2): 5_000}
    )
    indexed = await job_info(work, KEYS, "indexed")
    retry = await job_info(work, KEYS, "a-retry")
    harness.admin.delete(KEYS.delayed)
    assert (indexed.state, indexed.name) == (JobState.DELAYED, "x")
    assert indexed.due_at is not None and indexed.created_at is not None
    assert (indexed.due_at - indexed.created_at).total_seconds() == pytest.approx(60, abs=5)
    assert (retry.state, retry.attempt) == (JobState.RETRYING, 2)
    assert retry.due_at is not None and retry.due_at.timestamp() == 5


async def test_a_dead_letter_and_a_result(work: Lane, harness: Harness) -> None:
    await harness.start_worker({"good": Calls(), "bad": Boom()}, attempts=1, store_results=True)
    good, bad = await harness.queue.add("good", [1, 2]), await harness.queue.add("bad", 3)
    await good.result()
    (letter,) = await harness.dead_letters()
    done = await job_info(work, KEYS, good.id)
    assert (done.state, done.result) == (JobState.DONE, [1, 2])
    found = await job_info(work, KEYS, bad.id)
    assert (found.state, found.dead_id, found.data) == (JobState.DEAD, letter.dead_id, 3)
    assert (found.reason, found.worker) == ("retries_exhausted", letter.worker)
    assert (found.failure, found.ended_at) == (letter.failure, letter.buried_at)


async def test_a_job_that_is_nowhere_is_unknown(work: Lane, harness: Harness) -> None:
    harness.add_entry({"d": b"\xc1"})
    harness.add_entry({"nothing": "here"})
    found = await job_info(work, KEYS, "nope")
    harness.admin.delete(KEYS.stream)
    assert (found.state, found.searched_all) == (JobState.UNKNOWN, True)


async def test_a_search_stops_at_its_limit_and_reports_it(work: Lane, harness: Harness) -> None:
    """A peer's job tells neither its place nor its time."""
    await harness.queue.add_each("x", range(2500))
    harness.add_entry({"d": envelope(job_id="a-peers")})
    missed = await job_info(work, KEYS, "a-peers", most=1000)
    assert (missed.state, missed.searched_all) == (JobState.UNKNOWN, False)
    assert (await job_info(work, KEYS, "a-peers")).state is JobState.WAITING
    assert (await job_info(work, KEYS, "a-peers", most=None)).state is JobState.WAITING
    harness.admin.delete(KEYS.stream)


async def test_an_invalid_id_is_an_error(work: Lane) -> None:
    with pytest.raises(OptionError, match="job_id"):
        await job_info(work, KEYS, "")
    with pytest.raises(OptionError, match="most"):
        await job_info(work, KEYS, "x", most=0)
