"""Workers run every job once, as many at the same time as allowed."""

import asyncio
from time import thread_time
from typing import Any

import msgpack
import pytest

from tampu.job import Job, NewJob
from tampu.wire.names import check_queue_name
from tampu.worker import Worker
from tests.contract.workers import GROUP, KEYS, QUEUE, SOON, Calls, Gate, Harness, envelope
from tests.waiting import wait_until


class TestOneJob:
    async def test_a_job_arrives_as_it_was_added(self, harness: Harness) -> None:
        calls = Calls()
        await harness.start_worker(calls)
        added = await harness.queue.add("greet", {"to": "ada", "n": [1, 2.5, None, b"\x00"]})
        await calls.until(1)
        (job,) = calls.jobs
        assert (job.id, job.name, job.data) == (added.id, "greet", added.data)
        assert (job.attempt, job.created_at_ms) == (1, added.created_at_ms)
        await harness.until_settled()
        assert harness.pending() == 0

    async def test_a_job_without_a_name_has_an_empty_name(self, harness: Harness) -> None:
        calls = Calls()
        await harness.start_worker(calls)
        await harness.queue.add("", 1)
        await harness.queue.add("", 2, delay=0.01)
        harness.add_entry({b"d": envelope(b"\x03")})
        await calls.until(3)
        assert [job.name for job in calls.jobs] == ["", "", ""]
        assert sorted(calls.data) == [1, 2, 3]

    async def test_each_job_of_a_batch_keeps_its_own_name(self, harness: Harness) -> None:
        calls = Calls()
        await harness.start_worker(calls)
        await harness.queue.add_many([NewJob(f"n{i % 7}", i) for i in range(100)])
        await calls.until(100)
        assert {(job.name, job.data) for job in calls.jobs} == {
            (f"n{i % 7}", i) for i in range(100)
        }

    async def test_fields_can_come_in_any_order_and_unknown_ones_are_ignored(
        self, harness: Harness
    ) -> None:
        calls = Calls()
        await harness.start_worker(calls)
        harness.add_entry({b"zz": b"?", b"n": b"named", b"d": envelope()})
        await calls.until(1)
        assert calls.jobs[0].name == "named"

    @pytest.mark.parametrize("size", [0, 1, 255, 256, 65_535, 65_536, 900_000])
    async def test_a_payload_of_any_size_arrives_byte_for_byte(
        self, harness: Harness, size: int
    ) -> None:
        calls = Calls()
        await harness.start_worker(calls)
        data = bytes(i % 251 for i in range(size))
        await harness.queue.add("bytes", data)
        await calls.until(1)
        assert calls.data == [data]

    async def test_a_payload_can_be_packed_once_or_twice(self, harness: Harness) -> None:
        """Peers in one language pack it a second time, those in another do not."""
        calls = Calls()
        await harness.start_worker(calls)
        value = {"to": "ada"}
        harness.add_entry({b"d": msgpack.packb(["twice", msgpack.packb(value), 1, 0])})
        harness.add_entry({b"d": msgpack.packb(["once", value, 1, 0])})
        await calls.until(2)
        assert calls.data == [value, value]


class TestManyJobs:
    async def test_a_thousand_jobs_run_once_each_and_nothing_is_left(
        self, harness: Harness
    ) -> None:
        calls = Calls()
        await harness.start_worker(calls)
        await harness.queue.add_each("job", range(1000))
        await harness.until_settled()
        assert sorted(calls.data) == list(range(1000))
        assert harness.pending() == 0
        assert harness.admin.exists(KEYS.dead) == 0

    async def test_two_workers_share_the_jobs(self, harness: Harness) -> None:
        mine, yours = Calls(), Calls()

        def slowed(calls: Calls) -> Any:  # noqa: ANN401 - a handler
            async def handler(job: Job[Any]) -> None:
                await calls(job)
                await asyncio.sleep(0.001)

            return handler

        await harness.start_worker(slowed(mine), concurrency=10)
        await harness.start_worker(slowed(yours), concurrency=10)
        await harness.queue.add_each("job", range(1000))
        await harness.until_settled()
        assert sorted(mine.data + yours.data) == list(range(1000))
        assert min(len(mine), len(yours)) >= 100

    async def test_a_second_worker_joins_the_existing_group(self, harness: Harness) -> None:
        calls = Calls()
        first = await harness.start_worker(calls)
        second = await harness.start_worker(calls)
        assert first.id != second.id
        assert len(harness.admin.xinfo_groups(KEYS.stream)) == 1
        await harness.queue.add_each("job", range(10))
        await harness.until_settled()
        assert sorted(calls.data) == list(range(10))

    async def test_jobs_added_before_the_first_worker_run(self, harness: Harness) -> None:
        await harness.queue.add_each("job", range(50))
        calls = Calls()
        await harness.start_worker(calls)
        await harness.until_settled()
        assert sorted(calls.data) == list(range(50))

    async def test_workers_of_another_group_get_every_job_too(self, harness: Harness) -> None:
        mine, yours = Gate(), Calls()
        await harness.start_worker(mine)
        await harness.start_worker(yours, group="audit")
        await harness.queue.add_each("job", range(5))
        await asyncio.gather(mine.until(5), yours.until(5))
        assert sorted(mine.data) == sorted(yours.data)
        mine.open.set()


class TestConcurrency:
    async def test_by_default_a_hundred_handlers_run_at_the_same_time(
        self, harness: Harness
    ) -> None:
        gate = Gate()
        await harness.start_worker(gate)
        await harness.queue.add_each("job", range(150))
        await gate.until(100)
        gate.open.set()
        await harness.until_settled()
        assert gate.most == 100

    async def test_concurrency_limits_how_many_handlers_run_at_the_same_time(
        self, harness: Harness
    ) -> None:
        inside = most = 0

        async def handler(job: Job[Any]) -> None:
            nonlocal inside, most
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(job.data % 3 / 1000)
            inside -= 1

        await harness.start_worker(handler, concurrency=7)
        await harness.queue.add_each("job", range(500))
        await harness.until_settled()
        assert most == 7

    async def test_a_worker_with_one_slot_reads_and_settles_quick_jobs_in_batches(
        self, harness: Harness
    ) -> None:
        calls = Calls()
        await harness.queue.add_each("job", range(10_000))
        harness.admin.config_resetstat()
        await harness.start_worker(calls, concurrency=1, events=False)
        await harness.until_settled()
        stats = harness.admin.info("commandstats")
        assert 0 < stats["cmdstat_xreadgroup"]["calls"] < 1000
        assert 0 < stats["cmdstat_xack"]["calls"] < 1000
        assert sorted(calls.data) == list(range(10_000))

    async def test_one_slot_runs_jobs_in_the_order_in_which_they_were_added(
        self, harness: Harness
    ) -> None:
        calls = Calls()
        await harness.start_worker(calls, concurrency=1)
        for i in range(100):
            await harness.queue.add("job", i)
        await calls.until(100)
        assert calls.data == list(range(100))

    async def test_handlers_that_never_suspend_let_others_run(self, harness: Harness) -> None:
        in_a_row = most_in_a_row = 0  # slow ones, without a turn for others
        stopping = asyncio.Event()

        async def take_turns() -> None:
            nonlocal in_a_row, most_in_a_row
            while not stopping.is_set():
                await asyncio.sleep(0)
                most_in_a_row, in_a_row = max(most_in_a_row, in_a_row), 0

        async def handler(job: Job[Any]) -> None:
            nonlocal in_a_row
            in_a_row += job.data == "slow"
            until = thread_time() + (0.001 if job.data == "slow" else 0)
            while thread_time() < until:
                pass

        # Hundreds are fetched ahead while jobs are quick, and then they are not.
        await harness.queue.add_each("job", ["quick"] * 5000)
        await harness.queue.add_each("job", ["slow"] * 1000)
        other = asyncio.create_task(take_turns())
        await harness.start_worker(handler, concurrency=10, events=False)
        await harness.until_settled()
        stopping.set()
        await other
        assert 0 < most_in_a_row < 100


class TestReadingAhead:
    async def test_a_worker_with_slow_handlers_leaves_the_rest_to_an_idle_one(
        self, harness: Harness
    ) -> None:
        gate, idle = Gate(), Calls()
        slow = await harness.start_worker(gate, concurrency=2)
        await harness.queue.add_each("job", range(2))
        await gate.until(2)
        await harness.queue.add_each("job", range(2, 200))
        assert harness.pending(slow.id) <= 10  # a read that asked for more would have them by now
        await harness.start_worker(idle, concurrency=2)
        await wait_until(
            lambda: len(idle) >= 190, within=SOON, sentence="the idle worker has run nearly all"
        )
        assert harness.pending(slow.id) <= 10
        gate.open.set()
        await harness.until_settled()
        assert sorted(gate.data + idle.data) == list(range(200))

    async def test_a_new_worker_reads_nothing_ahead(self, harness: Harness) -> None:
        gate = Gate()
        worker = await harness.start_worker(gate, concurrency=1)
        await harness.queue.add("job", 0)
        await gate.until(1)
        await harness.queue.add_each("job", range(1, 10))
        assert harness.pending(worker.id) == 1  # a read that asked for more would have them by now
        gate.open.set()
        await harness.until_settled()
        assert sorted(gate.data) == list(range(10))

    async def test_a_worker_that_becomes_slow_releases_jobs_that_have_not_started(
        self, harness: Harness
    ) -> None:
        opened = asyncio.Event()
        stuck, idle = Calls(), Calls()

        async def handler(job: Job[Any]) -> None:
            if job.data >= 3000:
                await stuck(job)
                await opened.wait()

        slow = await harness.start_worker(handler, concurrency=1)
        await harness.queue.add_each("job", range(3000))
        await harness.queue.add_each("job", range(3000, 3100))
        await stuck.until(1)
        await harness.start_worker(idle)
        await wait_until(
            lambda: len(idle) == 99 and harness.pending(slow.id) == 1,
            within=SOON,
            sentence="the idle worker has run all but the stuck job",
        )
        assert set(idle.attempts) == {1}
        opened.set()
        await harness.until_settled()


class TestDeletedKeys:
    @pytest.mark.parametrize("gone", ["stream", "group"])
    async def test_a_deleted_stream_or_group_is_created_again(
        self, harness: Harness, gone: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        calls = Calls()
        await harness.start_worker(calls)
        await harness.queue.add("before", 1)
        await harness.until_settled()
        if gone == "stream":
            harness.admin.delete(KEYS.stream)
        else:
            harness.admin.xgroup_destroy(KEYS.stream, GROUP)
        await harness.queue.add("after", 2)
        await calls.until(2)
        await harness.until_settled()
        assert calls.data == [1, 2]
        assert (
            f"group {GROUP} of {{chasqui:work}}:stream was deleted: creating it" in caplog.messages
        )

    async def test_an_entry_deleted_while_pending_is_acknowledged(self, harness: Harness) -> None:
        entry_id = harness.add_entry({b"d": envelope()})
        harness.hold_as_peer(entry_id, deliveries=1)
        harness.admin.xdel(KEYS.stream, entry_id)
        calls = Calls()
        await harness.start_worker(calls)
        await wait_until(lambda: harness.pending() == 0, within=SOON, sentence="nothing is pending")
        assert len(calls) == 0
        assert harness.admin.exists(KEYS.dead) == 0


class TestNames:
    async def test_the_repr_of_a_worker_names_it_and_its_queue(self, harness: Harness) -> None:
        worker = await harness.start_worker(Calls())
        assert repr(worker) == f"<Worker {worker.id} of '{QUEUE}'>"
        await harness.queue.add("job")
        await wait_until(
            lambda: worker.id in harness.consumers(),
            within=SOON,
            sentence="it has a consumer of that name",
        )

    def test_a_worker_can_be_created_without_a_loop_or_a_server(self) -> None:
        worker = Worker(check_queue_name("later"), Calls(), "redis://127.0.0.1:1")
        assert worker.id.startswith("t-")
