"""What a queue tells about one of its jobs, in every state."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tampu import Backoff, Every, Job, JobInfo, JobState, NewJob, Queue, Retry
from tampu.admin.queues import Purgeable, purge_jobs
from tampu.server.connect import connect
from tampu.server.lane import Lane
from tests.contract.workers import KEYS, SOON, Boom, Calls, Gate, Harness
from tests.waiting import wait_until

pytestmark = pytest.mark.every_server

AT_ONCE = Backoff.fixed(0)


async def state_of(queue: Queue, job_id: str) -> JobState:
    return (await queue.job(job_id).info()).state


async def until_state(queue: Queue, job_id: str, state: JobState) -> JobInfo:
    """What is known about a job as soon as it is in a state."""
    found: list[JobInfo] = []

    async def has_it() -> bool:
        found[:] = [await queue.job(job_id).info()]
        return found[0].state is state

    await wait_until(has_it, within=SOON, sentence=f"{job_id} is {state.value}")
    return found[0]


class TestStates:
    async def test_a_waiting_job_tells_what_its_producer_gave(self, harness: Harness) -> None:
        job = await harness.queue.add(
            "welcome", {"to": "ada"}, attempts=4, headers={"trace": "5"}, tenant="acme"
        )
        info = await job.info()
        assert (info.id, info.state, info.name) == (job.id, JobState.WAITING, "welcome")
        assert (info.data, info.attempt, info.attempts) == ({"to": "ada"}, 0, 4)
        assert (info.headers, info.tenant) == ({"trace": "5"}, "acme")
        assert (info.created_at, info.due_at, info.worker) == (job.created_at, None, None)
        assert (info.failed_at, info.failure) == ((), None)
        assert repr(info) == f"<JobInfo {job.id} waiting>"

    async def test_an_active_job_names_its_worker_and_says_how_far_it_is(
        self, harness: Harness
    ) -> None:
        gate = Gate()

        async def handle(job: Job[Any]) -> object:
            job.progress(40)
            return await gate(job)

        worker = await harness.start_worker(handle)
        job = await harness.queue.add("x")
        await gate.until(1)

        async def has_told() -> bool:
            return (await job.info()).progress == 40

        await wait_until(has_told, within=SOON, sentence="its events are written")
        info = await job.info()
        gate.open.set()
        assert (info.state, info.worker, info.attempt) == (JobState.ACTIVE, worker.id, 1)
        assert info.started_at is not None and info.started_at >= job.created_at
        assert info.ended_at is None

    async def test_a_delayed_job_says_when_it_is_due(self, harness: Harness) -> None:
        at = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
        await harness.queue.add("x", 5, job_id="later", at=at)
        info = await harness.queue.job("later").info()
        assert (info.state, info.due_at, info.data) == (JobState.DELAYED, at, 5)
        harness.admin.delete(KEYS.delayed)

    async def test_a_job_between_attempts_tells_its_last_error_and_all_times(
        self, harness: Harness
    ) -> None:
        """With an id of our own and with one of the user's, which are kept differently."""
        began = datetime.now(UTC) - timedelta(seconds=1)

        async def handle(job: Job[Any]) -> None:
            raise Retry(f"failed {job.attempt}", after=0 if job.attempt == 1 else "1h")

        await harness.start_worker(handle, attempts=5)
        jobs = [await harness.queue.add("x"), await harness.queue.add("x", job_id="order:17")]
        for job in jobs:
            info = await until_state(harness.queue, job.id, JobState.RETRYING)
            assert (info.attempt, info.name) == (2, "x")
            assert info.due_at is not None
            assert info.due_at > datetime.now(UTC) + timedelta(minutes=30)
            first, second = info.failed_at
            assert began < first <= second < info.due_at
            assert info.failure is not None
            assert "Retry" in info.failure.error_type
            assert info.failure.message == "failed 2"
            assert await job.run_now() is True
        harness.admin.delete(KEYS.delayed)

    async def test_the_error_of_an_earlier_attempt_shows_while_the_next_one_runs(
        self, harness: Harness
    ) -> None:
        gate = Gate()

        async def handle(job: Job[Any]) -> object:
            if job.attempt == 1:
                raise ValueError("first")
            return await gate(job)

        await harness.start_worker(handle, attempts=2, backoff=AT_ONCE)
        job = await harness.queue.add("x", job_id="x")
        await gate.until(1)
        info = await job.info()
        gate.open.set()
        assert (info.state, info.attempt, len(info.failed_at)) == (JobState.ACTIVE, 2, 1)
        assert info.failure is not None
        assert (info.failure.error_type, info.failure.message) == ("ValueError", "first")
        assert "in handle" in info.failure.traceback

    @pytest.mark.parametrize("store_results", [True, False])
    async def test_a_dead_job_says_why(self, harness: Harness, *, store_results: bool) -> None:
        await harness.start_worker(Boom(), attempts=2, backoff=AT_ONCE, store_results=store_results)
        job = await harness.queue.add("x", 3)
        (letter,) = await harness.dead_letters()
        info = await job.info()
        assert (info.state, info.reason) == (JobState.DEAD, "retries_exhausted")
        assert (info.name, info.data, info.attempt) == ("x", 3, 2)
        assert (info.dead_id, info.failure) == (letter.dead_id, letter.failure)
        assert (info.ended_at, info.worker) == (letter.buried_at, letter.worker)
        assert (info.entry_id, info.due_at) == (None, None)

    async def test_a_done_job_has_its_result_and_when_it_ended(self, harness: Harness) -> None:
        await harness.start_worker(Calls(), store_results=True)
        job = await harness.queue.add("x", [1, 2])
        assert await job.result() == [1, 2]

        async def has_end() -> bool:
            return (await job.info()).ended_at is not None

        await wait_until(has_end, within=SOON, sentence="its events are written")
        info = await job.info()
        assert (info.state, info.result, info.name) == (JobState.DONE, [1, 2], "x")

    async def test_without_results_the_events_tell_that_a_job_is_done(
        self, harness: Harness
    ) -> None:
        await harness.start_worker(Calls())
        job = await harness.queue.add("x")
        info = await until_state(harness.queue, job.id, JobState.DONE)
        assert (info.result, info.attempt, info.name) == (None, 1, "x")

    async def test_a_cancelled_job_is_known_as_that(self, harness: Harness) -> None:
        job = await harness.queue.add("x")
        await job.cancel()
        assert await state_of(harness.queue, job.id) is JobState.CANCELLED

    async def test_a_job_that_nobody_added_is_unknown(self, harness: Harness) -> None:
        await harness.queue.add_each("x", range(3))
        info = await harness.queue.job("nope").info()
        assert (info.state, info.searched_all, info.name) == (JobState.UNKNOWN, True, None)
        harness.admin.delete(KEYS.stream)

    async def test_a_job_of_a_schedule_names_it(self, harness: Harness) -> None:
        await harness.queue.schedules.add("tick", Every("1h"), key="hourly")
        job = await harness.queue.schedules.trigger("hourly")
        info = await job.info()
        assert info.schedule_key == "hourly" and info.scheduled_at is not None
        harness.admin.flushdb()


class TestLifeAgain:
    """What is told about a job is never what was true of another one with its id."""

    @pytest.mark.parametrize("store_results", [True, False])
    async def test_a_buried_id_is_free_and_the_new_job_knows_nothing_of_the_old_one(
        self, harness: Harness, *, store_results: bool
    ) -> None:
        worker = await harness.start_worker(Boom(), attempts=1, store_results=store_results)
        await harness.queue.add("x", "old", job_id="order:17")
        await harness.dead_letters()
        await worker.stop()
        again = await harness.queue.add("x", "new", job_id="order:17")
        assert again.duplicate is False
        info = await again.info()
        assert (info.state, info.data, info.failure) == (JobState.WAITING, "new", None)

    async def test_a_replayed_job_starts_without_failures(self, harness: Harness) -> None:
        boom = Boom(times=2)
        worker = await harness.start_worker(boom, attempts=2, backoff=AT_ONCE, store_results=True)
        job = await harness.queue.add("x", 5, job_id="x")
        await harness.dead_letters()
        await worker.stop()
        assert await harness.queue.dead.replay() == 1
        info = await job.info()
        assert (info.state, info.data, info.attempt) == (JobState.WAITING, 5, 0)
        assert (info.failure, info.failed_at) == (None, ())
        await harness.start_worker(boom, store_results=True)
        assert await job.result() == 5
        assert boom.attempts == [1, 2, 1]

    @pytest.mark.parametrize("how", ["dead", "queue"])
    async def test_purging_dead_letters_leaves_no_id_taken(
        self, harness: Harness, how: str
    ) -> None:
        await harness.start_worker(Boom(), attempts=1)
        await harness.queue.add_many([NewJob("x", job_id=f"order:{n}") for n in range(3)])
        await harness.dead_letters(3)
        if how == "dead":
            assert await harness.queue.dead.purge(everything=True) == 3
        else:
            async with (
                await connect(harness.running.url) as server,
                await Lane.open(server, KEYS.stream) as lane,
            ):
                assert (await purge_jobs(lane, KEYS, [Purgeable.DEAD])).dead == 3
        again = await harness.queue.add_many([NewJob("x", job_id=f"order:{n}") for n in range(3)])
        assert [job.duplicate for job in again] == [False] * 3
        await harness.dead_letters(3)
