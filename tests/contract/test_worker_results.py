"""Results: stored with the ack, and pushed to whoever waits."""

import asyncio
from typing import Any

import pytest

from tampu.backoff import Backoff
from tampu.errors import JobFailed, OptionError, ResultTimeout
from tampu.job import Job
from tampu.outcome import Bury
from tests.contract.workers import KEYS, SOON, Boom, Calls, Gate, Harness
from tests.waiting import wait_until

AT_ONCE = Backoff.fixed(0)
VALUES: list[object] = [None, False, 0, "", b"", [], {}, {"a": [1, 2.5, b"\x00"]}, "x" * 70_000]


@pytest.mark.every_server
class TestStored:
    async def test_a_result_equals_what_the_handler_returned(self, harness: Harness) -> None:
        await harness.start_worker(Calls(), store_results=True)
        jobs = await harness.queue.add_each("echo", VALUES)
        assert [await job.result() for job in jobs] == VALUES

    async def test_several_results_can_be_read_at_once_by_id(self, harness: Harness) -> None:
        await harness.start_worker(Calls(), store_results=True)
        jobs = await harness.queue.add_each("echo", range(20))
        await harness.until_settled()
        found = await harness.queue.results([*(job.id for job in jobs), "unknown"])
        assert found == {job.id: job.data for job in jobs}

    async def test_a_result_can_be_read_again_and_by_others(self, harness: Harness) -> None:
        await harness.start_worker(Calls(), store_results=True)
        job = await harness.queue.add("echo", 7)
        assert await job.result() == 7
        assert await job.result() == 7
        assert await harness.queue.job(job.id).result() == 7

    async def test_a_result_expires(self, harness: Harness) -> None:
        await harness.start_worker(Calls(), store_results=True, result_ttl=1)
        job = await harness.queue.add("echo", 7)
        assert await job.result() == 7
        assert harness.admin.pttl(KEYS.result(job.id)) <= 1000
        await wait_until(
            lambda: not harness.admin.exists(KEYS.result(job.id)), within=60, sentence="it expired"
        )
        assert await harness.queue.results([job.id]) == {}

    async def test_by_default_a_result_is_kept_for_an_hour(self, harness: Harness) -> None:
        await harness.start_worker(Calls(), store_results=True)
        job = await harness.queue.add("echo", 7)
        await job.result()
        assert 3_590_000 < harness.admin.pttl(KEYS.result(job.id)) <= 3_600_000

    async def test_without_store_results_nothing_is_stored_or_announced(
        self, harness: Harness
    ) -> None:
        await harness.start_worker({"echo": Calls(), "bad": Boom(Bury())})
        echo = await harness.queue.add("echo", 7)
        bad = await harness.queue.add("bad", 7)
        await harness.dead_letters()
        await harness.until_settled()
        keys = [KEYS.result(echo.id), KEYS.failure(bad.id), KEYS.notices]
        assert harness.admin.exists(*keys) == 0
        with pytest.raises(ResultTimeout, match="does it store results"):
            await echo.result(timeout=0.05)

    async def test_a_retried_job_has_the_result_of_its_last_attempt(self, harness: Harness) -> None:
        async def handler(job: Job[Any]) -> int:
            if job.attempt < 3:
                raise ValueError
            return job.attempt

        await harness.start_worker(handler, store_results=True, backoff=AT_ONCE)
        job = await harness.queue.add("late")
        assert await job.result() == 3


class TestFailed:
    @pytest.mark.parametrize(
        ("error", "reason", "kind"),
        [
            (KeyError("who"), "retries_exhausted", "KeyError"),
            (Bury("no such user"), "unrecoverable", "tampu.outcome.Bury"),
        ],
        ids=["exhausted", "buried"],
    )
    async def test_waiting_for_a_failed_job_raises_its_last_error(
        self, harness: Harness, error: Exception, reason: str, kind: str
    ) -> None:
        await harness.start_worker(Boom(error), attempts=2, backoff=AT_ONCE, store_results=True)
        job = await harness.queue.add("bad")
        with pytest.raises(JobFailed) as told:
            await job.result()
        assert (told.value.job_id, told.value.reason) == (job.id, reason)
        assert (told.value.error_type, told.value.message) == (kind, str(error))
        assert "in __call__" in told.value.traceback
        assert harness.admin.exists(KEYS.result(job.id)) == 0
        found = await harness.queue.results([job.id])
        assert isinstance(found[job.id], JobFailed)

    async def test_waiting_for_a_refused_job_raises_why(self, harness: Harness) -> None:
        await harness.start_worker({"known": Calls()}, store_results=True)
        job = await harness.queue.add("unknown")
        sentence = r"failed \(unknown_handler\): .*no handler for jobs named 'unknown'"
        with pytest.raises(JobFailed, match=sentence):
            await job.result()

    async def test_a_replayed_job_that_succeeds_has_a_result(self, harness: Harness) -> None:
        await harness.start_worker(Boom(times=1), attempts=1, store_results=True)
        job = await harness.queue.add("bad", 5)
        with pytest.raises(JobFailed):
            await job.result()
        await harness.queue.dead.replay()
        await harness.until_settled()
        assert await job.result() == 5


class TestWaiting:
    @pytest.mark.every_server
    async def test_a_waiter_is_woken_when_the_job_ends(self, harness: Harness) -> None:
        gate = Gate()
        await harness.start_worker(gate, store_results=True)
        job = await harness.queue.add("slow", 3)
        waiting = asyncio.create_task(job.result())
        await gate.until(1)
        assert not waiting.done()
        gate.open.set()
        assert await waiting == 3

    async def test_many_can_wait_at_once(self, harness: Harness) -> None:
        await harness.start_worker(Calls(), store_results=True)
        jobs = await harness.queue.add_each("echo", range(300))
        found = await asyncio.gather(*(job.result() for job in jobs))
        assert found == list(range(300))

    async def test_a_wait_ends_at_its_time_limit_and_can_be_cancelled(
        self, harness: Harness
    ) -> None:
        gate = Gate()
        await harness.start_worker(gate, store_results=True)
        job = await harness.queue.add("slow", 3)
        with pytest.raises(ResultTimeout, match=job.id):
            await job.result(timeout=0.02)
        waiting = asyncio.create_task(job.result())
        await gate.until(1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        gate.open.set()
        assert await job.result() == 3

    async def test_an_invalid_time_limit_is_refused(self, harness: Harness) -> None:
        job = await harness.queue.add("slow")
        with pytest.raises(OptionError, match="timeout"):
            await job.result(timeout=-1)


@pytest.mark.every_server
class TestOnlyIfItCounted:
    async def test_a_result_is_not_stored_for_an_entry_that_another_worker_settled(
        self, harness: Harness
    ) -> None:
        done = asyncio.Event()

        async def handler(job: Job[Any]) -> int:
            ((entry_id, _),) = harness.admin.xrange(KEYS.stream)
            harness.admin.xack(KEYS.stream, "default", entry_id)
            harness.admin.xdel(KEYS.stream, entry_id)
            done.set()
            return 1

        worker = await harness.start_worker(handler, store_results=True)
        job = await harness.queue.add("lost")
        await asyncio.wait_for(done.wait(), SOON)
        await worker.stop()
        assert harness.admin.exists(KEYS.result(job.id)) == 0
