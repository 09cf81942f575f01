"""Results of workers on real servers: stored with the ack, and pushed to who waits."""

import asyncio
from typing import Any

import pytest

from tampu.backoff import Backoff
from tampu.errors import JobFailed, OptionError, ResultTimeout
from tampu.job import Job
from tampu.outcome import Bury
from tests.contract.workers import KEYS, SOON, Boom, Calls, Crew, Gate
from tests.waiting import wait_until

pytestmark = pytest.mark.every_server

AT_ONCE = Backoff.fixed(0)
VALUES: list[object] = [None, False, 0, "", b"", [], {}, {"a": [1, 2.5, b"\x00"]}, "x" * 70_000]


class TestStored:
    async def test_what_a_handler_returns_comes_back_as_it_was(self, crew: Crew) -> None:
        await crew.hire(Calls(), store_results=True)
        jobs = await crew.queue.add_each("echo", VALUES)
        assert [await job.result() for job in jobs] == VALUES

    async def test_several_results_are_got_at_once_by_id(self, crew: Crew) -> None:
        await crew.hire(Calls(), store_results=True)
        jobs = await crew.queue.add_each("echo", range(20))
        await crew.settled()
        found = await crew.queue.results([*(job.id for job in jobs), "unknown"])
        assert found == {job.id: job.data for job in jobs}

    async def test_a_result_can_be_asked_for_again_and_by_others(self, crew: Crew) -> None:
        await crew.hire(Calls(), store_results=True)
        job = await crew.queue.add("echo", 7)
        assert await job.result() == 7
        assert await job.result() == 7
        assert await crew.queue.result(job.id) == 7

    async def test_a_result_is_gone_when_its_time_is_over(self, crew: Crew) -> None:
        await crew.hire(Calls(), store_results=True, result_ttl=1)
        job = await crew.queue.add("echo", 7)
        assert await job.result() == 7
        assert crew.admin.pttl(KEYS.result(job.id)) <= 1000
        await wait_until(
            lambda: not crew.admin.exists(KEYS.result(job.id)), within=10, sentence="it expired"
        )
        assert await crew.queue.results([job.id]) == {}

    async def test_by_default_a_result_is_kept_for_an_hour(self, crew: Crew) -> None:
        await crew.hire(Calls(), store_results=True)
        job = await crew.queue.add("echo", 7)
        await job.result()
        assert 3_590_000 < crew.admin.pttl(KEYS.result(job.id)) <= 3_600_000

    async def test_without_store_results_nothing_is_stored_or_told(self, crew: Crew) -> None:
        await crew.hire({"echo": Calls(), "bad": Boom(Bury())})
        echo = await crew.queue.add("echo", 7)
        bad = await crew.queue.add("bad", 7)
        await crew.dead()
        await crew.settled()
        keys = [KEYS.result(echo.id), KEYS.failure(bad.id), KEYS.notices]
        assert crew.admin.exists(*keys) == 0
        with pytest.raises(ResultTimeout, match="store_results=True"):
            await echo.result(timeout=0.05)

    async def test_a_retried_job_has_the_result_of_its_last_attempt(self, crew: Crew) -> None:
        async def handler(job: Job[Any]) -> int:
            if job.attempt < 3:
                raise ValueError
            return job.attempt

        await crew.hire(handler, store_results=True, backoff=AT_ONCE)
        job = await crew.queue.add("late")
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
    async def test_who_waits_is_told_what_the_last_attempt_raised(
        self, crew: Crew, error: Exception, reason: str, kind: str
    ) -> None:
        await crew.hire(Boom(error), attempts=2, backoff=AT_ONCE, store_results=True)
        job = await crew.queue.add("bad")
        with pytest.raises(JobFailed) as told:
            await job.result()
        assert (told.value.job_id, told.value.reason) == (job.id, reason)
        assert (told.value.error_type, told.value.message) == (kind, str(error))
        assert "in __call__" in told.value.traceback
        assert crew.admin.exists(KEYS.result(job.id)) == 0
        found = await crew.queue.results([job.id])
        assert isinstance(found[job.id], JobFailed)

    async def test_who_waits_for_a_job_that_cannot_be_run_is_told_why(self, crew: Crew) -> None:
        await crew.hire({"known": Calls()}, store_results=True)
        job = await crew.queue.add("unknown")
        sentence = r"failed for good \(unknown_handler\): .*no handler for jobs named 'unknown'"
        with pytest.raises(JobFailed, match=sentence):
            await job.result()

    async def test_a_job_that_is_replayed_and_succeeds_has_a_result(self, crew: Crew) -> None:
        await crew.hire(Boom(times=1), attempts=1, store_results=True)
        job = await crew.queue.add("bad", 5)
        with pytest.raises(JobFailed):
            await job.result()
        await crew.queue.dead.replay()
        await crew.settled()
        assert await job.result() == 5


class TestWaiting:
    async def test_who_waits_is_woken_when_the_job_ends(self, crew: Crew) -> None:
        gate = Gate()
        await crew.hire(gate, store_results=True)
        job = await crew.queue.add("slow", 3)
        waiting = asyncio.create_task(job.result())
        await gate.until(1)
        assert not waiting.done()
        gate.open.set()
        assert await waiting == 3

    async def test_many_wait_at_once(self, crew: Crew) -> None:
        await crew.hire(Calls(), store_results=True)
        jobs = await crew.queue.add_each("echo", range(300))
        found = await asyncio.gather(*(job.result() for job in jobs))
        assert found == list(range(300))

    async def test_a_wait_ends_at_its_time_limit_and_can_be_cancelled(self, crew: Crew) -> None:
        gate = Gate()
        await crew.hire(gate, store_results=True)
        job = await crew.queue.add("slow", 3)
        with pytest.raises(ResultTimeout, match=job.id):
            await job.result(timeout=0.02)
        waiting = asyncio.create_task(job.result())
        await gate.until(1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        gate.open.set()
        assert await job.result() == 3

    async def test_a_time_limit_that_cannot_be_is_refused(self, crew: Crew) -> None:
        job = await crew.queue.add("slow")
        with pytest.raises(OptionError, match="timeout"):
            await job.result(timeout=-1)


class TestOnlyIfItCounted:
    async def test_a_result_is_not_stored_for_an_entry_that_was_settled_elsewhere(
        self, crew: Crew
    ) -> None:
        done = asyncio.Event()

        async def handler(job: Job[Any]) -> int:
            ((entry_id, _),) = crew.admin.xrange(KEYS.stream)
            crew.admin.xack(KEYS.stream, "default", entry_id)
            crew.admin.xdel(KEYS.stream, entry_id)
            done.set()
            return 1

        worker = await crew.hire(handler, store_results=True)
        job = await crew.queue.add("lost")
        await asyncio.wait_for(done.wait(), SOON)
        await worker.stop()
        assert crew.admin.exists(KEYS.result(job.id)) == 0
