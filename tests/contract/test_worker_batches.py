"""How many calls a worker needs on real servers: few for many jobs, whatever they end in."""

from tampu.backoff import Backoff
from tampu.outcome import Bury
from tests.contract.workers import KEYS, Boom, Calls, Crew, envelope

JOBS = 1000
FEW = JOBS // 10


class TestCalls:
    async def filled(self, crew: Crew) -> None:
        """A thousand jobs wait, and what was asked so far is forgotten."""
        await crew.queue.add_each("job", range(JOBS))
        crew.forget_calls()

    async def test_jobs_are_read_and_acknowledged_many_at_a_time(self, crew: Crew) -> None:
        await self.filled(crew)
        await crew.hire(Calls(), events=False)
        await crew.settled()
        assert crew.calls("xreadgroup") < FEW
        assert crew.calls("xack") < FEW
        assert crew.calls("xdel") < FEW

    async def test_results_are_stored_many_at_a_time(self, crew: Crew) -> None:
        await self.filled(crew)
        await crew.hire(Calls(), events=False, store_results=True)
        await crew.settled()
        assert crew.calls() < FEW
        assert crew.admin.xlen(KEYS.notices) < FEW

    async def test_retries_are_scheduled_many_at_a_time(self, crew: Crew) -> None:
        await self.filled(crew)
        boom = Boom(times=JOBS)
        await crew.hire(boom, events=False, backoff=Backoff.fixed(0.05))
        await crew.settled()
        assert len(boom) == 2 * JOBS
        assert crew.calls() < FEW

    async def test_jobs_are_buried_many_at_a_time(self, crew: Crew) -> None:
        await self.filled(crew)
        await crew.hire(Boom(Bury()), events=False)
        await crew.settled()
        assert crew.admin.xlen(KEYS.dead) == JOBS
        assert crew.calls() < FEW

    async def test_entries_that_cannot_be_run_are_buried_many_at_a_time(self, crew: Crew) -> None:
        with crew.admin.pipeline() as step:
            for _ in range(JOBS):
                step.xadd(KEYS.stream, {b"d": b"\xc1"})
            step.execute()
        crew.forget_calls()
        await crew.hire(Calls(), events=False)
        await crew.settled()
        assert crew.admin.xlen(KEYS.dead) == JOBS
        assert crew.calls() < FEW

    async def test_events_are_written_many_at_a_time(self, crew: Crew) -> None:
        await self.filled(crew)
        worker = await crew.hire(Calls())
        await crew.settled()
        await worker.stop()
        assert crew.admin.xlen(KEYS.events) >= 2 * JOBS
        assert crew.calls() < FEW

    async def test_large_payloads_survive_failures_and_come_back_as_results(
        self, crew: Crew
    ) -> None:
        boom = Boom(times=20)
        await crew.hire(boom, store_results=True, backoff=Backoff.fixed(0))
        data = bytes(900_000)
        jobs = [await crew.queue.add("large", data) for _ in range(20)]
        for job in jobs:
            assert await job.result() == data

    async def test_an_idle_worker_asks_little(self, crew: Crew) -> None:
        calls = Calls()
        await crew.hire(calls)
        crew.put({b"d": envelope()})
        await calls.until(1)
        crew.forget_calls()
        await crew.queue.add("late", delay=1)
        await calls.until(2)
        assert crew.calls("xreadgroup") <= 5
        assert crew.calls() <= 30
