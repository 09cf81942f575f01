"""How a job is found by its id: in one step if possible, and never beyond a limit."""

from collections.abc import AsyncIterator

import pytest

from tampu import Backoff, CancelState, JobInfo, JobState, NewJob, OptionError
from tampu.admin.found import JobFinder
from tampu.admin.jobs import job_info
from tampu.server.connect import Server
from tampu.server.lane import Lane
from tampu.util.ids import new_id
from tests.contract.workers import KEYS, SOON, Boom, Calls, Gate, Harness, envelope
from tests.waiting import wait_until

pytestmark = pytest.mark.every_server

AT_ONCE = Backoff.fixed(0)

BACKLOG = 3000
SEARCHES = ("xrange", "xrevrange", "zscan")


@pytest.fixture
async def work(server: Server, harness: Harness) -> AsyncIterator[Lane]:
    del harness  # it looks for tasks that are left: ours ends before
    async with await Lane.open(server, KEYS.stream) as opened:
        yield opened


async def look(harness: Harness, job_id: str) -> tuple[JobInfo, dict[str, int]]:
    """What is known about a job, and how many pages were read to find it."""
    harness.reset_calls()
    info = await harness.queue.job(job_id).info()
    calls = {name: harness.calls(name) for name in SEARCHES}
    calls["xrevrange"] -= 1  # it looks at the latest events
    return info, calls


class TestByMarker:
    """The marker of an id that a user chose holds the job's entry."""

    async def test_a_job_behind_a_backlog_is_found_in_one_step(self, harness: Harness) -> None:
        await harness.queue.add_each("x", range(BACKLOG))
        await harness.queue.add("wanted", 5, job_id="order:17")
        await harness.queue.add_each("x", range(BACKLOG))
        info, calls = await look(harness, "order:17")
        assert (info.state, info.name, info.data) == (JobState.WAITING, "wanted", 5)
        # fields_of reads the one entry
        assert calls == {"xrange": 1, "xrevrange": 0, "zscan": 0}
        assert harness.admin.get(KEYS.marker("order:17")).decode() == info.entry_id

    async def test_it_is_cancelled_in_one_step_too(self, harness: Harness) -> None:
        await harness.queue.add_each("x", range(BACKLOG))
        job = await harness.queue.add("wanted", job_id="order:17")
        harness.reset_calls()
        assert await job.cancel() is CancelState.CANCELLED
        assert {name: harness.calls(name) for name in SEARCHES} == {
            "xrange": 1,
            "xrevrange": 1,  # of what the job has yielded
            "zscan": 0,
        }

    async def test_after_it_was_promoted(self, harness: Harness) -> None:
        gate = Gate()
        await harness.start_worker(gate, concurrency=1, events=False)
        await harness.queue.add("first")
        await gate.until(1)
        await harness.queue.add("wanted", 5, job_id="order:17", delay=0.05)
        await wait_until(
            lambda: (harness.admin.get(KEYS.marker("order:17")) or b"1") != b"1",
            within=SOON,
            sentence="it is promoted",
        )
        await harness.queue.add_each("x", range(BACKLOG))
        info, calls = await look(harness, "order:17")
        assert (info.name, info.data) == ("wanted", 5)
        assert info.state in {JobState.WAITING, JobState.ACTIVE}
        assert (calls["xrange"], calls["zscan"]) == (1, 0)
        await harness.workers[0].stop(grace=0)

    @pytest.mark.parametrize("backoff", [0, 3600])
    async def test_after_a_failed_attempt(self, harness: Harness, backoff: int) -> None:
        boom, gate = Boom(), Gate()

        async def handle(job: object) -> object:
            return await (boom(job) if not boom.jobs else gate(job))  # type: ignore[arg-type]

        await harness.start_worker(handle, attempts=2, backoff=Backoff.fixed(backoff))
        await harness.queue.add("wanted", 5, job_id="order:17")
        await boom.until(1)
        if backoff:
            await wait_until(
                lambda: harness.admin.zcard(KEYS.delayed) == 1,
                within=SOON,
                sentence="it waits for its next attempt",
            )
        else:
            await gate.until(1)
        await harness.queue.add_each("x", range(BACKLOG), delay="1h")
        info, calls = await look(harness, "order:17")
        assert info.state is (JobState.RETRYING if backoff else JobState.ACTIVE)
        assert (info.data, calls["zscan"]) == (5, 0)
        assert calls["xrange"] == (0 if backoff else 1)
        harness.admin.delete(KEYS.delayed)
        gate.open.set()

    async def test_a_marker_of_a_peer_tells_no_place_and_the_job_is_searched(
        self, harness: Harness
    ) -> None:
        harness.admin.set(KEYS.marker("order:17"), "1")
        await harness.queue.add_each("x", range(BACKLOG))
        harness.add_entry({"d": envelope(job_id="order:17"), "n": "peers"})
        info, calls = await look(harness, "order:17")
        assert (info.state, info.name) == (JobState.WAITING, "peers")
        assert calls["xrange"] > 1


class TestByTime:
    """An id of our own holds the time at which it was made, and entries have theirs."""

    @pytest.mark.parametrize("place", [0, BACKLOG // 2, BACKLOG])
    async def test_a_job_of_a_backlog_is_found_near_its_time(
        self, harness: Harness, place: int
    ) -> None:
        await harness.queue.add_each("x", range(place))
        job = await harness.queue.add("wanted", 5)
        await harness.queue.add_each("x", range(BACKLOG - place))
        info, calls = await look(harness, job.id)
        assert (info.state, info.data) == (JobState.WAITING, 5)
        assert calls["xrange"] <= 2 and calls["zscan"] == 0
        assert (await harness.queue.job(job.id).cancel()) is CancelState.CANCELLED

    async def test_many_that_were_added_together_are_found_together(
        self, work: Lane, harness: Harness
    ) -> None:
        await harness.queue.add_each("x", range(BACKLOG))
        wanted = [job.id for job in await harness.queue.add_each("y", range(500))]
        finder = JobFinder(work, KEYS, most=1000)
        harness.reset_calls()
        found = await finder.find(wanted)
        assert found.keys() == set(wanted)
        assert harness.calls("xrange") <= 10
        harness.admin.delete(KEYS.stream)

    async def test_a_clock_that_is_ahead_is_no_problem(self, harness: Harness) -> None:
        await harness.queue.add_each("x", range(BACKLOG))
        seconds, micros = harness.admin.time()
        ours = new_id(seconds * 1000 + micros // 1000 + 5_000)
        harness.add_entry({"d": envelope(job_id=ours), "n": "ahead"})
        info, _ = await look(harness, ours)
        assert (info.state, info.name) == (JobState.WAITING, "ahead")

    async def test_a_retried_job_is_far_from_its_time_and_is_found(self, harness: Harness) -> None:
        gate = Gate()
        await harness.start_worker(gate, concurrency=1, events=False)
        old = new_id(1_794_725_043_642)
        await harness.queue.add("first")
        await gate.until(1)
        await harness.queue.add_each("x", range(50))
        harness.add_entry({"d": envelope(job_id=old, attempt=1), "n": "retried"})
        info, _ = await look(harness, old)
        assert (info.name, info.attempt) == ("retried", 1)
        gate.open.set()


class TestSearching:
    """What leads to no place is searched: a peer's job, an index that has expired."""

    async def test_delayed_jobs_with_and_without_an_index(self, harness: Harness) -> None:
        await harness.queue.add("x", delay=60, job_id="indexed")
        member = b"\x01\0\0\0n" + envelope(job_id="a-retry", attempt=2)
        harness.admin.zadd(KEYS.delayed, {member: 5_000})
        indexed = await harness.queue.job("indexed").info()
        retry = await harness.queue.job("a-retry").info()
        harness.admin.delete(KEYS.delayed)
        assert (indexed.state, indexed.name) == (JobState.DELAYED, "x")
        assert indexed.due_at is not None and indexed.created_at is not None
        assert (indexed.due_at - indexed.created_at).total_seconds() == pytest.approx(60, abs=5)
        assert (retry.state, retry.attempt) == (JobState.RETRYING, 2)
        assert retry.due_at is not None and retry.due_at.timestamp() == 5

    async def test_entries_that_hold_no_job_are_passed_over(self, harness: Harness) -> None:
        harness.add_entry({"d": b"\xc1"})
        harness.add_entry({"nothing": "here"})
        harness.add_entry({"d": envelope(job_id="behind"), "n": "x"})
        assert (await harness.queue.job("behind").info()).state is JobState.WAITING
        info = await harness.queue.job("nope").info()
        assert (info.state, info.searched_all) == (JobState.UNKNOWN, True)
        harness.admin.delete(KEYS.stream)

    async def test_a_search_stops_at_its_limit_and_reports_it(
        self, work: Lane, harness: Harness
    ) -> None:
        await harness.queue.add_each("x", range(2500))
        harness.add_entry({"d": envelope(job_id="a-peers")})
        missed = await job_info(work, KEYS, "a-peers", most=1000)
        assert (missed.state, missed.searched_all) == (JobState.UNKNOWN, False)
        assert (await job_info(work, KEYS, "a-peers")).state is JobState.WAITING
        assert (await job_info(work, KEYS, "a-peers", most=None)).state is JobState.WAITING
        harness.admin.delete(KEYS.stream)

    async def test_an_invalid_id_is_an_error(self, work: Lane, harness: Harness) -> None:
        with pytest.raises(OptionError, match="job_id"):
            harness.queue.job("")
        with pytest.raises(OptionError, match="job_id"):
            await job_info(work, KEYS, "")
        with pytest.raises(OptionError, match="most"):
            await job_info(work, KEYS, "x", most=0)


async def test_jobs_without_an_id_of_their_own_write_nothing_more(harness: Harness) -> None:
    """Finding costs a job nothing: no marker and no index, at rest, running or retrying."""
    boom = Boom(times=1)
    await harness.start_worker(boom, attempts=2, backoff=AT_ONCE, events=False, history=False)
    await harness.queue.add("x")
    await boom.until(2)
    await harness.until_settled()
    await harness.workers[0].stop()
    kept = {key for key in harness.admin.keys("*") if b":producer:" not in key}
    assert kept <= {KEYS.stream, KEYS.watchers, KEYS.watch_wakeup, KEYS.wakeup}


async def test_ids_of_many_jobs_are_found_in_one_pass(harness: Harness) -> None:
    jobs = await harness.queue.add_each("x", range(BACKLOG))
    chosen = await harness.queue.add_many([NewJob("y", job_id=f"order:{n}") for n in range(100)])
    wanted = [job.id for job in (*jobs[::10], *chosen)]
    harness.reset_calls()
    states = await harness.queue.cancel_many(wanted)
    assert set(states) == {CancelState.CANCELLED}
    assert harness.calls("evalsha") <= 3
    calls = Calls()
    await harness.start_worker(calls)
    await harness.until_settled()
    assert {job.id for job in calls.jobs} == {job.id for job in jobs} - set(wanted)
