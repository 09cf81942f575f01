"""Workers that start and stop; the harness checks that they leave nothing open."""

import asyncio
import threading
from time import monotonic
from typing import Any

import pytest

from tampu.consumer.handler import Handler
from tampu.errors import OptionError, ServerUnreachable, WrongContext
from tampu.job import Job
from tampu.services import reaper
from tampu.wire.event import EventKind
from tampu.worker import Worker
from tests.contract.workers import KEYS, SOON, Calls, Gate, Harness, connections, own_tasks
from tests.servers import free_port
from tests.unit.consumer.runners import child_handlers
from tests.waiting import wait_until


def lease_threads() -> int:
    return sum(thread.name == "tampu-leases" for thread in threading.enumerate())


async def make_stuck_worker(harness: Harness, gate: Gate, *, after: int) -> Worker:
    """A worker that was quick for so many jobs and is now stuck, with entries waiting."""

    async def handler(job: Job[Any]) -> object:
        return await gate(job) if job.data >= after else None

    worker = await harness.start_worker(handler, concurrency=1)
    await harness.queue.add_each("job", range(after + 300))
    await gate.until(1)
    return worker


class TestStopping:
    async def test_running_handlers_can_finish(self, harness: Harness) -> None:
        gate = Gate()
        worker = await harness.start_worker(gate, concurrency=5)
        await harness.queue.add_each("job", range(20))
        await gate.until(5)
        stopping = asyncio.create_task(worker.stop())
        await wait_until(
            lambda: harness.pending() == 5, within=SOON, sentence="the others are released"
        )
        gate.open.set()
        await stopping
        assert (gate.ended, len(gate)) == (5, 5)
        assert (await harness.queue.counts()).waiting == 15

    @pytest.mark.every_server
    async def test_jobs_that_have_not_started_are_released_at_once_and_not_counted(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(reaper, "_STALE_S", 60.0)  # not because they have waited too long
        gate, idle = Gate(), Calls()
        worker = await make_stuck_worker(harness, gate, after=2000)
        await harness.start_worker(idle)
        stopping = asyncio.create_task(worker.stop(grace=30))
        await wait_until(
            lambda: len(idle) == 299, within=SOON, sentence="the other worker has all but one"
        )
        assert not stopping.done()
        assert set(idle.attempts) == {1}
        gate.open.set()
        await stopping
        await harness.until_settled()
        assert sorted(gate.data + idle.data) == list(range(2000, 2300))

    @pytest.mark.every_server
    async def test_a_handler_that_outlasts_the_grace_is_cancelled_and_another_worker_runs_its_job(
        self, harness: Harness
    ) -> None:
        gate, other = Gate(), Calls()
        worker = await harness.start_worker(gate, attempts=1)
        await harness.queue.add("job", 1, headers={"h": "v"}, attempts=1)
        await gate.until(1)
        began = monotonic()
        await worker.stop(grace=0.05)
        assert 0.05 <= monotonic() - began < SOON
        assert (gate.inside, gate.ended) == (0, 0)
        await harness.start_worker(other, attempts=1)
        await other.until(1)
        (job,) = other.jobs
        assert (job.data, job.attempt, job.headers) == (1, 1, {"h": "v"})

    async def test_a_plain_function_that_outlasts_the_grace_does_not_delay_the_stop(
        self, harness: Harness
    ) -> None:
        started, opened = threading.Event(), threading.Event()

        def handler(job: Job[Any]) -> None:
            started.set()
            opened.wait(SOON)

        worker = await harness.start_worker(handler)
        await harness.queue.add("job")
        await wait_until(started.is_set, within=SOON, sentence="it has started")
        await worker.stop(grace=0)
        opened.set()
        counts = await harness.queue.counts()
        assert (counts.waiting, counts.active) == (1, 0)

    async def test_a_child_process_that_outlasts_the_grace_is_killed(
        self,
        harness: Harness,
        tmp_path: Any,  # noqa: ANN401 - a Path
    ) -> None:
        worker = await harness.start_worker(Handler(child_handlers.sleeps, isolation="process"))
        told = tmp_path / "pid"
        await harness.queue.add("slow", [str(told), 60])
        await wait_until(told.exists, within=SOON, sentence="it has started")
        await worker.stop(grace=0)
        assert (await harness.queue.counts()).waiting == 1

    @pytest.mark.every_server
    async def test_finished_jobs_are_settled_before_the_stop_returns(
        self, harness: Harness
    ) -> None:
        calls = Calls()
        worker = await harness.start_worker(calls, store_results=True)
        jobs = await harness.queue.add_each("job", range(500))
        await calls.until(500)
        await worker.stop()
        assert harness.is_settled()
        assert len(await harness.queue.results([job.id for job in jobs])) == 500

    async def test_events_are_written_before_the_stop_returns(self, harness: Harness) -> None:
        calls = Calls()
        worker = await harness.start_worker(calls)
        await harness.queue.add_each("job", range(300))
        await calls.until(300)
        await worker.stop()
        assert (
            len([event for event in harness.events() if event.kind is EventKind.COMPLETED]) == 300
        )

    async def test_jobs_added_after_the_stop_are_left_to_other_workers(
        self, harness: Harness
    ) -> None:
        for _ in range(10):
            calls = Calls()
            worker = await harness.start_worker(calls)
            await worker.stop()
            await harness.queue.add("job")
            counts = await harness.queue.counts()
            assert (counts.waiting, counts.active, len(calls)) == (1, 0, 0)
            harness.admin.delete(KEYS.stream)

    @pytest.mark.every_server
    async def test_workers_that_stop_under_load_lose_nothing(self, harness: Harness) -> None:
        calls, number = Calls(), 0

        async def producing() -> None:
            nonlocal number
            while True:
                await harness.queue.add("job", number)
                number += 1

        producer = asyncio.create_task(producing())
        for runs in range(1, 11):
            worker = await harness.start_worker(calls)
            await calls.until(20 * runs)
            await worker.stop()
            assert harness.pending() == 0
        producer.cancel()
        await asyncio.wait([producer])
        await harness.start_worker(calls)
        await harness.until_settled()
        assert sorted(set(calls.data)) == list(range(max(number, len(set(calls.data)))))
        assert len(calls) == len(set(calls.data))
        assert set(calls.attempts) == {1}

    @pytest.mark.every_server
    async def test_connections_are_closed_when_the_stop_returns(self, harness: Harness) -> None:
        before = connections(harness.admin)
        for _ in range(3):
            worker = await harness.start_worker(Calls())
            assert connections(harness.admin) > before
            await worker.stop()
            await wait_until(
                lambda: connections(harness.admin) <= before,
                within=SOON,
                sentence="there are as many connections as before",
            )

    @pytest.mark.every_server
    async def test_the_consumer_and_the_heartbeat_are_removed_when_the_stop_returns(
        self, harness: Harness
    ) -> None:
        calls = Calls()
        worker = await harness.start_worker(calls)
        await harness.queue.add("job")
        await calls.until(1)
        assert worker.id in harness.consumers()
        assert harness.admin.exists(KEYS.worker(worker.id.encode()))
        await worker.stop()
        assert worker.id not in harness.consumers()
        assert not harness.admin.exists(KEYS.worker(worker.id.encode()))

    @pytest.mark.every_server
    async def test_another_promoter_can_lead_at_once(self, harness: Harness) -> None:
        worker = await harness.start_worker(Calls())
        await wait_until(
            lambda: bool(harness.admin.exists(KEYS.promoter_lock)), within=SOON, sentence="it leads"
        )
        await worker.stop()
        assert not harness.admin.exists(KEYS.promoter_lock)

    async def test_an_invalid_grace_is_refused_and_nothing_stops(self, harness: Harness) -> None:
        calls = Calls()
        worker = await harness.start_worker(calls)
        with pytest.raises(OptionError, match="grace"):
            await worker.stop(grace=-1)
        await harness.queue.add("job")
        await calls.until(1)


class TestOnce:
    async def test_a_second_stop_waits_for_the_first(self, harness: Harness) -> None:
        gate = Gate()
        worker = await harness.start_worker(gate)
        await harness.queue.add("job")
        await gate.until(1)
        stops = [asyncio.create_task(worker.stop()) for _ in range(2)]
        await asyncio.sleep(0)
        assert not any(stop.done() for stop in stops)
        gate.open.set()
        await asyncio.gather(*stops)
        await worker.stop()
        assert gate.ended == 1

    async def test_a_second_stop_can_shorten_the_grace(self, harness: Harness) -> None:
        gate = Gate()
        worker = await harness.start_worker(gate)
        await harness.queue.add("job")
        await gate.until(1)
        first = asyncio.create_task(worker.stop(grace=600))
        await asyncio.sleep(0)
        second = asyncio.create_task(worker.stop(grace=900))
        await wait_until(
            lambda: "tampu-drain" in own_tasks(), within=SOON, sentence="the grace has started"
        )
        assert not first.done() and not second.done()
        await asyncio.wait_for(worker.stop(grace=0), SOON)
        await asyncio.wait_for(asyncio.gather(first, second), SOON)
        assert (gate.inside, gate.ended) == (0, 0)
        assert (await harness.queue.counts()).waiting == 1

    async def test_a_stop_that_is_cancelled_goes_on(self, harness: Harness) -> None:
        gate = Gate()
        worker = await harness.start_worker(gate)
        await harness.queue.add("job")
        await gate.until(1)
        stop = asyncio.create_task(worker.stop())
        await asyncio.sleep(0)
        stop.cancel()
        await asyncio.wait([stop])
        gate.open.set()
        await worker.stop()
        assert gate.ended == 1

    async def test_a_worker_can_be_started_only_once(self, harness: Harness) -> None:
        worker = await harness.start_worker(Calls())
        for again in (worker.start, worker.run, worker.__aenter__):
            with pytest.raises(WrongContext, match="it can be started only once"):
                await again()
        await worker.stop()
        with pytest.raises(WrongContext, match="it can be started only once"):
            await worker.start()

    async def test_a_worker_that_was_stopped_cannot_be_started(self, harness: Harness) -> None:
        worker = harness.make_worker(Calls())
        await worker.stop()
        with pytest.raises(WrongContext, match="it can be started only once"):
            await worker.run()
        assert (lease_threads(), own_tasks().count("tampu-reader")) == (0, 0)


class TestHealth:
    async def test_health_counts_running_handlers_and_the_age_of_the_heartbeat(
        self, harness: Harness
    ) -> None:
        gate = Gate()
        worker = harness.make_worker(gate)
        assert worker.health is None
        await worker.start()
        await harness.queue.add_each("job", range(2))
        await gate.until(2)
        health = worker.health
        assert health is not None
        assert health.running == 2
        assert 0 <= health.heartbeat_age_s < 60
        gate.open.set()
        await harness.until_settled()
        await wait_until(
            lambda: worker.health is not None and worker.health.running == 0,
            within=SOON,
            sentence="nothing runs",
        )


class TestRun:
    async def test_run_ends_when_another_task_stops_it(self, harness: Harness) -> None:
        calls = Calls()
        worker = harness.make_worker(calls)
        running = asyncio.create_task(worker.run())
        await harness.queue.add("job")
        await calls.until(1)
        assert not running.done()
        await worker.stop()
        await asyncio.wait_for(running, SOON)

    async def test_a_handler_can_stop_its_worker(self, harness: Harness) -> None:
        stops: list[asyncio.Task[None]] = []

        async def handler(job: Job[Any]) -> None:
            stops.append(asyncio.create_task(worker.stop()))

        worker = harness.make_worker(handler)
        await harness.queue.add("job")
        await asyncio.wait_for(worker.run(), SOON)
        assert harness.is_settled()

    async def test_cancelling_run_cancels_handlers_and_releases_their_jobs(
        self, harness: Harness
    ) -> None:
        gate = Gate()
        worker = harness.make_worker(gate)
        running = asyncio.create_task(worker.run())
        await harness.queue.add("job")
        await gate.until(1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert (gate.inside, gate.ended) == (0, 0)
        assert (await harness.queue.counts()).waiting == 1

    async def test_leaving_the_block_stops_the_worker(self, harness: Harness) -> None:
        calls = Calls()
        async with harness.make_worker(calls) as worker:
            await harness.queue.add("job")
            await calls.until(1)
            assert worker.id in harness.consumers()
        assert harness.is_settled()
        assert worker.id not in harness.consumers()

    async def test_stopping_while_it_starts_leaves_nothing(self, harness: Harness) -> None:
        worker = harness.make_worker(Calls())
        running = asyncio.create_task(worker.run())
        await asyncio.sleep(0)
        await worker.stop()
        await asyncio.wait_for(running, SOON)
        assert lease_threads() == 0


class TestStarting:
    async def test_an_unreachable_server_is_an_error_and_nothing_is_left(self) -> None:
        worker = Worker("work", Calls(), f"redis://127.0.0.1:{free_port()}")
        with pytest.raises(ServerUnreachable):
            await worker.run()
        assert (own_tasks(), lease_threads()) == ([], 0)
        await worker.stop()

    @pytest.mark.every_server
    async def test_a_server_that_refuses_is_an_error_and_nothing_is_left(
        self, harness: Harness
    ) -> None:
        harness.admin.set(KEYS.stream, "not a stream")
        worker = harness.make_worker(Calls())
        with pytest.raises(Exception, match="WRONGTYPE"):
            await worker.start()
        assert lease_threads() == 0
        harness.admin.delete(KEYS.stream)

    @pytest.mark.parametrize("turns", [0, 1, 2, 5, 20, 100, 500])
    async def test_a_start_that_is_cancelled_at_any_moment_leaves_nothing(
        self, harness: Harness, turns: int
    ) -> None:
        worker = harness.make_worker(Calls())
        starting = asyncio.create_task(worker.start())
        for _ in range(turns):
            await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait([starting], timeout=SOON)
        assert starting.done()
        await worker.stop()
        assert lease_threads() == 0
