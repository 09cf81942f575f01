"""How many calls a worker needs: few for many jobs, whatever their outcomes."""

from tampu.backoff import Backoff
from tampu.outcome import Bury
from tests.contract.workers import KEYS, Boom, Calls, Harness, envelope

JOBS = 1000
FEW = JOBS // 10


class TestCalls:
    async def filled(self, harness: Harness) -> None:
        """Add a thousand jobs and reset the counts of calls."""
        await harness.queue.add_each("job", range(JOBS))
        harness.reset_calls()

    async def test_jobs_are_read_and_acknowledged_in_batches(self, harness: Harness) -> None:
        await self.filled(harness)
        await harness.start_worker(Calls(), events=False)
        await harness.until_settled()
        assert harness.calls("xreadgroup") < FEW
        assert harness.calls("xack") < FEW
        assert harness.calls("xdel") < FEW

    async def test_results_are_stored_in_batches(self, harness: Harness) -> None:
        await self.filled(harness)
        await harness.start_worker(Calls(), events=False, store_results=True)
        await harness.until_settled()
        assert harness.calls() < FEW
        assert harness.admin.xlen(KEYS.notices) < FEW

    async def test_retries_are_scheduled_in_batches(self, harness: Harness) -> None:
        await self.filled(harness)
        boom = Boom(times=JOBS)
        await harness.start_worker(boom, events=False, backoff=Backoff.fixed(0.05))
        await harness.until_settled()
        assert len(boom) == 2 * JOBS
        assert harness.calls() < FEW

    async def test_jobs_are_buried_in_batches(self, harness: Harness) -> None:
        await self.filled(harness)
        await harness.start_worker(Boom(Bury()), events=False)
        await harness.until_settled()
        assert harness.admin.xlen(KEYS.dead) == JOBS
        assert harness.calls() < FEW

    async def test_refused_entries_are_buried_in_batches(self, harness: Harness) -> None:
        with harness.admin.pipeline() as step:
            for _ in range(JOBS):
                step.xadd(KEYS.stream, {b"d": b"\xc1"})
            step.execute()
        harness.reset_calls()
        await harness.start_worker(Calls(), events=False)
        await harness.until_settled()
        assert harness.admin.xlen(KEYS.dead) == JOBS
        assert harness.calls() < FEW

    async def test_events_are_written_in_batches(self, harness: Harness) -> None:
        await self.filled(harness)
        worker = await harness.start_worker(Calls())
        await harness.until_settled()
        await worker.stop()
        assert harness.admin.xlen(KEYS.events) >= 2 * JOBS
        assert harness.calls() < FEW

    async def test_large_payloads_survive_retries_and_are_stored_as_results(
        self, harness: Harness
    ) -> None:
        boom = Boom(times=20)
        await harness.start_worker(boom, store_results=True, backoff=Backoff.fixed(0))
        data = bytes(900_000)
        jobs = [await harness.queue.add("large", data) for _ in range(20)]
        for job in jobs:
            assert await job.result() == data

    async def test_an_idle_worker_makes_few_calls(self, harness: Harness) -> None:
        calls = Calls()
        await harness.start_worker(calls)
        harness.add_entry({b"d": envelope()})
        await calls.until(1)
        harness.reset_calls()
        await harness.queue.add("late", delay=1)
        await calls.until(2)
        assert harness.calls("xreadgroup") <= 5
        assert harness.calls() <= 30
