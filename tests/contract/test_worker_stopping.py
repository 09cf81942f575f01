"""Workers that start and stop on real servers; the fixture looks at what they leave behind."""

import asyncio
import threading
from time import monotonic
from typing import Any

import pytest

from tampu.consumer import reader
from tampu.consumer.handler import Handler
from tampu.errors import OptionError, ServerUnreachable, WrongContext
from tampu.job import Job
from tampu.wire.event import EventKind
from tampu.worker import Worker
from tests.contract.workers import KEYS, SOON, Calls, Crew, Gate, connections, own_tasks
from tests.servers import free_port
from tests.unit.consumer.runners import child_handlers
from tests.waiting import wait_until

pytestmark = pytest.mark.every_server


def lease_threads() -> int:
    return sum(thread.name == "tampu-leases" for thread in threading.enumerate())


async def swamped(crew: Crew, gate: Gate, *, after: int) -> Worker:
    """A worker that was quick for so many jobs and is stuck now, with entries it has not begun."""

    async def handler(job: Job[Any]) -> object:
        return await gate(job) if job.data >= after else None

    worker = await crew.hire(handler, concurrency=1)
    await crew.queue.add_each("job", range(after + 300))
    await gate.until(1)
    return worker


class TestStopping:
    async def test_every_handler_that_began_is_let_finish(self, crew: Crew) -> None:
        gate = Gate()
        worker = await crew.hire(gate, concurrency=5)
        await crew.queue.add_each("job", range(20))
        await gate.until(5)
        stopping = asyncio.create_task(worker.stop())
        await wait_until(lambda: crew.pending() == 5, within=SOON, sentence="the others are back")
        gate.open.set()
        await stopping
        assert (gate.ended, len(gate)) == (5, 5)
        assert (await crew.queue.counts()).waiting == 15

    async def test_what_has_not_begun_goes_back_at_once_and_uncounted(
        self, crew: Crew, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(reader, "_STALE_S", 60.0)  # not because it has waited for long
        gate, idle = Gate(), Calls()
        worker = await swamped(crew, gate, after=2000)
        await crew.hire(idle)
        stopping = asyncio.create_task(worker.stop(grace=30))
        await wait_until(
            lambda: len(idle) == 299, within=SOON, sentence="the other one has all but one"
        )
        assert not stopping.done()
        assert set(idle.attempts) == {1}
        gate.open.set()
        await stopping
        await crew.settled()
        assert sorted(gate.data + idle.data) == list(range(2000, 2300))

    async def test_a_handler_that_outlasts_the_grace_is_cancelled_and_its_job_runs_elsewhere(
        self, crew: Crew
    ) -> None:
        gate, other = Gate(), Calls()
        worker = await crew.hire(gate, attempts=1)
        await crew.queue.add("job", 1, headers={"h": "v"}, attempts=1)
        await gate.until(1)
        began = monotonic()
        await worker.stop(grace=0.05)
        assert 0.05 <= monotonic() - began < SOON
        assert (gate.inside, gate.ended) == (0, 0)
        await crew.hire(other, attempts=1)
        await other.until(1)
        (job,) = other.jobs
        assert (job.data, job.attempt, job.headers) == (1, 1, {"h": "v"})

    async def test_a_plain_function_that_outlasts_the_grace_does_not_hold_up_the_stop(
        self, crew: Crew
    ) -> None:
        begun, opened = threading.Event(), threading.Event()

        def handler(job: Job[Any]) -> None:
            begun.set()
            opened.wait(SOON)

        worker = await crew.hire(handler)
        await crew.queue.add("job")
        await wait_until(begun.is_set, within=SOON, sentence="it has begun")
        await worker.stop(grace=0)
        opened.set()
        counts = await crew.queue.counts()
        assert (counts.waiting, counts.active) == (1, 0)

    async def test_a_child_process_that_outlasts_the_grace_is_killed(
        self,
        crew: Crew,
        tmp_path: Any,  # noqa: ANN401 - a Path
    ) -> None:
        worker = await crew.hire(Handler(child_handlers.sleeps, isolation="process"))
        told = tmp_path / "pid"
        await crew.queue.add("slow", [str(told), 60])
        await wait_until(told.exists, within=SOON, sentence="it has begun")
        await worker.stop(grace=0)
        assert (await crew.queue.counts()).waiting == 1

    async def test_what_was_done_is_settled_before_the_stop_is_through(self, crew: Crew) -> None:
        calls = Calls()
        worker = await crew.hire(calls, store_results=True)
        jobs = await crew.queue.add_each("job", range(500))
        await calls.until(500)
        await worker.stop()
        assert crew.is_settled()
        assert len(await crew.queue.results([job.id for job in jobs])) == 500

    async def test_events_of_what_was_done_are_written_before_the_stop_is_through(
        self, crew: Crew
    ) -> None:
        calls = Calls()
        worker = await crew.hire(calls)
        await crew.queue.add_each("job", range(300))
        await calls.until(300)
        await worker.stop()
        assert len([event for event in crew.events() if event.kind is EventKind.COMPLETED]) == 300

    async def test_what_is_added_after_the_stop_is_left_to_others(self, crew: Crew) -> None:
        for _ in range(10):
            calls = Calls()
            worker = await crew.hire(calls)
            await worker.stop()
            await crew.queue.add("job")
            counts = await crew.queue.counts()
            assert (counts.waiting, counts.active, len(calls)) == (1, 0, 0)
            crew.admin.delete(KEYS.stream)

    async def test_nothing_is_swallowed_by_workers_that_stop_under_load(self, crew: Crew) -> None:
        calls, number = Calls(), 0

        async def producing() -> None:
            nonlocal number
            while True:
                await crew.queue.add("job", number)
                number += 1

        producer = asyncio.create_task(producing())
        for runs in range(1, 11):
            worker = await crew.hire(calls)
            await calls.until(20 * runs)
            await worker.stop()
            assert crew.pending() == 0
        producer.cancel()
        await asyncio.wait([producer])
        await crew.hire(calls)
        await crew.settled()
        assert sorted(set(calls.data)) == list(range(max(number, len(set(calls.data)))))
        assert len(calls) == len(set(calls.data))
        assert set(calls.attempts) == {1}

    async def test_its_connections_are_closed_when_the_stop_is_through(self, crew: Crew) -> None:
        before = connections(crew.admin)
        for _ in range(3):
            worker = await crew.hire(Calls())
            assert connections(crew.admin) > before
            await worker.stop()
            await wait_until(
                lambda: connections(crew.admin) <= before,
                within=SOON,
                sentence="as many connections as before",
            )

    async def test_its_consumer_and_its_mark_are_gone_when_the_stop_is_through(
        self, crew: Crew
    ) -> None:
        calls = Calls()
        worker = await crew.hire(calls)
        await crew.queue.add("job")
        await calls.until(1)
        assert worker.id in crew.consumers()
        assert crew.admin.exists(KEYS.worker(worker.id.encode()))
        await worker.stop()
        assert worker.id not in crew.consumers()
        assert not crew.admin.exists(KEYS.worker(worker.id.encode()))

    async def test_the_promoters_lead_is_free_for_others_at_once(self, crew: Crew) -> None:
        worker = await crew.hire(Calls())
        await wait_until(
            lambda: bool(crew.admin.exists(KEYS.promoter_lock)), within=SOON, sentence="it leads"
        )
        await worker.stop()
        assert not crew.admin.exists(KEYS.promoter_lock)

    async def test_a_grace_that_cannot_be_is_refused_and_nothing_stops(self, crew: Crew) -> None:
        calls = Calls()
        worker = await crew.hire(calls)
        with pytest.raises(OptionError, match="grace"):
            await worker.stop(grace=-1)
        await crew.queue.add("job")
        await calls.until(1)


class TestOnce:
    async def test_a_second_stop_waits_for_the_first(self, crew: Crew) -> None:
        gate = Gate()
        worker = await crew.hire(gate)
        await crew.queue.add("job")
        await gate.until(1)
        stops = [asyncio.create_task(worker.stop()) for _ in range(2)]
        await asyncio.sleep(0)
        assert not any(stop.done() for stop in stops)
        gate.open.set()
        await asyncio.gather(*stops)
        await worker.stop()
        assert gate.ended == 1

    async def test_a_second_stop_with_a_shorter_grace_ends_the_first_sooner(
        self, crew: Crew
    ) -> None:
        gate = Gate()
        worker = await crew.hire(gate)
        await crew.queue.add("job")
        await gate.until(1)
        first = asyncio.create_task(worker.stop(grace=600))
        await asyncio.sleep(0)
        second = asyncio.create_task(worker.stop(grace=900))
        await wait_until(
            lambda: "tampu-draining" in own_tasks(), within=SOON, sentence="the grace has begun"
        )
        assert not first.done() and not second.done()
        await asyncio.wait_for(worker.stop(grace=0), SOON)
        await asyncio.wait_for(asyncio.gather(first, second), SOON)
        assert (gate.inside, gate.ended) == (0, 0)
        assert (await crew.queue.counts()).waiting == 1

    async def test_a_stop_that_is_cancelled_goes_on(self, crew: Crew) -> None:
        gate = Gate()
        worker = await crew.hire(gate)
        await crew.queue.add("job")
        await gate.until(1)
        stop = asyncio.create_task(worker.stop())
        await asyncio.sleep(0)
        stop.cancel()
        await asyncio.wait([stop])
        gate.open.set()
        await worker.stop()
        assert gate.ended == 1

    async def test_a_worker_is_used_once(self, crew: Crew) -> None:
        worker = await crew.hire(Calls())
        for again in (worker.start, worker.run, worker.__aenter__):
            with pytest.raises(WrongContext, match="each is used once"):
                await again()
        await worker.stop()
        with pytest.raises(WrongContext, match="each is used once"):
            await worker.start()

    async def test_a_worker_that_was_stopped_before_it_started_never_starts(
        self, crew: Crew
    ) -> None:
        worker = crew.make(Calls())
        await worker.stop()
        with pytest.raises(WrongContext, match="each is used once"):
            await worker.run()
        assert (lease_threads(), own_tasks().count("tampu-reader")) == (0, 0)


class TestPulse:
    async def test_it_tells_what_runs_and_when_the_server_was_last_heard(self, crew: Crew) -> None:
        gate = Gate()
        worker = crew.make(gate)
        assert worker.pulse is None
        await worker.start()
        await crew.queue.add_each("job", range(2))
        await gate.until(2)
        pulse = worker.pulse
        assert pulse is not None
        assert pulse.running == 2
        assert 0 <= pulse.silent_s < 60
        gate.open.set()
        await crew.settled()
        await wait_until(
            lambda: worker.pulse is not None and worker.pulse.running == 0,
            within=SOON,
            sentence="nothing runs",
        )


class TestRun:
    async def test_run_ends_when_another_task_stops_it(self, crew: Crew) -> None:
        calls = Calls()
        worker = crew.make(calls)
        running = asyncio.create_task(worker.run())
        await crew.queue.add("job")
        await calls.until(1)
        assert not running.done()
        await worker.stop()
        await asyncio.wait_for(running, SOON)

    async def test_a_handler_may_stop_its_worker(self, crew: Crew) -> None:
        stops: list[asyncio.Task[None]] = []

        async def handler(job: Job[Any]) -> None:
            stops.append(asyncio.create_task(worker.stop()))

        worker = crew.make(handler)
        await crew.queue.add("job")
        await asyncio.wait_for(worker.run(), SOON)
        assert crew.is_settled()

    async def test_cancelling_run_cancels_handlers_and_hands_their_jobs_back(
        self, crew: Crew
    ) -> None:
        gate = Gate()
        worker = crew.make(gate)
        running = asyncio.create_task(worker.run())
        await crew.queue.add("job")
        await gate.until(1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert (gate.inside, gate.ended) == (0, 0)
        assert (await crew.queue.counts()).waiting == 1

    async def test_leaving_the_block_stops_the_worker(self, crew: Crew) -> None:
        calls = Calls()
        async with crew.make(calls) as worker:
            await crew.queue.add("job")
            await calls.until(1)
            assert worker.id in crew.consumers()
        assert crew.is_settled()
        assert worker.id not in crew.consumers()

    async def test_stopping_while_it_starts_leaves_nothing_behind(self, crew: Crew) -> None:
        worker = crew.make(Calls())
        running = asyncio.create_task(worker.run())
        await asyncio.sleep(0)
        await worker.stop()
        await asyncio.wait_for(running, SOON)
        assert lease_threads() == 0


class TestStarting:
    async def test_a_server_that_is_not_there_is_an_error_and_nothing_is_left(self) -> None:
        worker = Worker("work", Calls(), f"redis://127.0.0.1:{free_port()}")
        with pytest.raises(ServerUnreachable):
            await worker.run()
        assert (own_tasks(), lease_threads()) == ([], 0)
        await worker.stop()

    async def test_a_server_that_refuses_is_an_error_and_nothing_is_left(self, crew: Crew) -> None:
        crew.admin.set(KEYS.stream, "not a stream")
        worker = crew.make(Calls())
        with pytest.raises(Exception, match="WRONGTYPE"):
            await worker.start()
        assert lease_threads() == 0
        crew.admin.delete(KEYS.stream)

    @pytest.mark.parametrize("turns", [0, 1, 2, 5, 20, 100, 500])
    async def test_a_start_that_is_cancelled_at_any_moment_leaves_nothing_behind(
        self, crew: Crew, turns: int
    ) -> None:
        worker = crew.make(Calls())
        starting = asyncio.create_task(worker.start())
        for _ in range(turns):
            await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait([starting], timeout=SOON)
        assert starting.done()
        await worker.stop()
        assert lease_threads() == 0
