"""Workers on real servers: every job is run, once, and by as many as there may be."""

import asyncio
from time import thread_time
from typing import Any

import msgpack
import pytest

from tampu.job import Job, NewJob
from tampu.wire.keys import check_queue_name
from tampu.worker import Worker
from tests.contract.workers import GROUP, KEYS, QUEUE, SOON, Calls, Crew, Gate, envelope
from tests.waiting import wait_until


class TestOneJob:
    async def test_what_was_added_arrives_as_it_was_given(self, crew: Crew) -> None:
        calls = Calls()
        await crew.hire(calls)
        added = await crew.queue.add("greet", {"to": "ada", "n": [1, 2.5, None, b"\x00"]})
        await calls.until(1)
        (job,) = calls.jobs
        assert (job.id, job.name, job.data) == (added.id, "greet", added.data)
        assert (job.attempt, job.created_at_ms) == (1, added.created_at_ms)
        await crew.settled()
        assert crew.pending() == 0

    async def test_a_job_without_a_name_has_the_empty_one(self, crew: Crew) -> None:
        calls = Calls()
        await crew.hire(calls)
        await crew.queue.add("", 1)
        await crew.queue.add("", 2, delay=0.01)
        crew.put({b"d": envelope(b"\x03")})
        await calls.until(3)
        assert [job.name for job in calls.jobs] == ["", "", ""]
        assert sorted(calls.data) == [1, 2, 3]

    async def test_each_job_of_a_bulk_keeps_its_own_name(self, crew: Crew) -> None:
        calls = Calls()
        await crew.hire(calls)
        await crew.queue.add_many([NewJob(f"n{i % 7}", i) for i in range(100)])
        await calls.until(100)
        assert {(job.name, job.data) for job in calls.jobs} == {
            (f"n{i % 7}", i) for i in range(100)
        }

    async def test_fields_may_stand_in_any_order_and_unknown_ones_do_not_matter(
        self, crew: Crew
    ) -> None:
        calls = Calls()
        await crew.hire(calls)
        crew.put({b"zz": b"?", b"n": b"named", b"d": envelope()})
        await calls.until(1)
        assert calls.jobs[0].name == "named"

    @pytest.mark.parametrize("size", [0, 1, 255, 256, 65_535, 65_536, 900_000])
    async def test_a_payload_of_any_size_arrives_byte_for_byte(self, crew: Crew, size: int) -> None:
        calls = Calls()
        await crew.hire(calls)
        data = bytes(i % 251 for i in range(size))
        await crew.queue.add("bytes", data)
        await calls.until(1)
        assert calls.data == [data]

    async def test_a_payload_is_read_whether_it_is_packed_once_or_twice(self, crew: Crew) -> None:
        """Peers in one language pack it once more, those in another do not."""
        calls = Calls()
        await crew.hire(calls)
        value = {"to": "ada"}
        crew.put({b"d": msgpack.packb(["twice", msgpack.packb(value), 1, 0])})
        crew.put({b"d": msgpack.packb(["once", value, 1, 0])})
        await calls.until(2)
        assert calls.data == [value, value]


class TestManyJobs:
    async def test_a_thousand_jobs_are_each_run_once_and_leave_nothing(self, crew: Crew) -> None:
        calls = Calls()
        await crew.hire(calls)
        await crew.queue.add_each("job", range(1000))
        await crew.settled()
        assert sorted(calls.data) == list(range(1000))
        assert crew.pending() == 0
        assert crew.admin.exists(KEYS.dead) == 0

    async def test_two_workers_share_the_jobs_and_neither_takes_nearly_all(
        self, crew: Crew
    ) -> None:
        mine, yours = Calls(), Calls()

        def slowed(calls: Calls) -> Any:  # noqa: ANN401 - a handler
            async def handler(job: Job[Any]) -> None:
                await calls(job)
                await asyncio.sleep(0.001)

            return handler

        await crew.hire(slowed(mine), concurrency=10)
        await crew.hire(slowed(yours), concurrency=10)
        await crew.queue.add_each("job", range(1000))
        await crew.settled()
        assert sorted(mine.data + yours.data) == list(range(1000))
        assert min(len(mine), len(yours)) >= 100

    async def test_a_second_worker_on_a_group_that_is_there_is_harmless(self, crew: Crew) -> None:
        calls = Calls()
        first = await crew.hire(calls)
        second = await crew.hire(calls)
        assert first.id != second.id
        assert len(crew.admin.xinfo_groups(KEYS.stream)) == 1
        await crew.queue.add_each("job", range(10))
        await crew.settled()
        assert sorted(calls.data) == list(range(10))

    async def test_jobs_added_before_any_worker_are_run(self, crew: Crew) -> None:
        await crew.queue.add_each("job", range(50))
        calls = Calls()
        await crew.hire(calls)
        await crew.settled()
        assert sorted(calls.data) == list(range(50))

    async def test_workers_of_another_group_get_every_job_too(self, crew: Crew) -> None:
        mine, yours = Gate(), Calls()
        await crew.hire(mine)
        await crew.hire(yours, group="audit")
        await crew.queue.add_each("job", range(5))
        await asyncio.gather(mine.until(5), yours.until(5))
        assert sorted(mine.data) == sorted(yours.data)
        mine.open.set()


class TestConcurrency:
    async def test_by_default_a_hundred_handlers_run_at_a_time(self, crew: Crew) -> None:
        gate = Gate()
        await crew.hire(gate)
        await crew.queue.add_each("job", range(150))
        await gate.until(100)
        gate.open.set()
        await crew.settled()
        assert gate.most == 100

    async def test_no_more_handlers_run_at_a_time_than_there_may(self, crew: Crew) -> None:
        inside = most = 0

        async def handler(job: Job[Any]) -> None:
            nonlocal inside, most
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(job.data % 3 / 1000)
            inside -= 1

        await crew.hire(handler, concurrency=7)
        await crew.queue.add_each("job", range(500))
        await crew.settled()
        assert most == 7

    async def test_a_worker_with_one_slot_reads_and_settles_quick_jobs_in_batches(
        self, crew: Crew
    ) -> None:
        calls = Calls()
        await crew.queue.add_each("job", range(10_000))
        crew.admin.config_resetstat()
        await crew.hire(calls, concurrency=1, events=False)
        await crew.settled()
        stats = crew.admin.info("commandstats")
        assert 0 < stats["cmdstat_xreadgroup"]["calls"] < 1000
        assert 0 < stats["cmdstat_xack"]["calls"] < 1000
        assert sorted(calls.data) == list(range(10_000))

    async def test_one_slot_runs_jobs_in_the_order_in_which_they_were_added(
        self, crew: Crew
    ) -> None:
        calls = Calls()
        await crew.hire(calls, concurrency=1)
        for i in range(100):
            await crew.queue.add("job", i)
        await calls.until(100)
        assert calls.data == list(range(100))

    async def test_handlers_that_never_suspend_leave_turns_to_others(self, crew: Crew) -> None:
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
        await crew.queue.add_each("job", ["quick"] * 5000)
        await crew.queue.add_each("job", ["slow"] * 1000)
        other = asyncio.create_task(take_turns())
        await crew.hire(handler, concurrency=10, events=False)
        await crew.settled()
        stopping.set()
        await other
        assert 0 < most_in_a_row < 100


class TestPrefetch:
    async def test_a_worker_with_slow_handlers_leaves_the_rest_to_an_idle_one(
        self, crew: Crew
    ) -> None:
        gate, idle = Gate(), Calls()
        slow = await crew.hire(gate, concurrency=2)
        await crew.queue.add_each("job", range(2))
        await gate.until(2)
        await crew.queue.add_each("job", range(2, 200))
        assert crew.pending(slow.id) <= 10  # a read that asked for more would have them by now
        await crew.hire(idle, concurrency=2)
        await wait_until(
            lambda: len(idle) >= 190, within=SOON, sentence="the idle one has nearly all"
        )
        assert crew.pending(slow.id) <= 10
        gate.open.set()
        await crew.settled()
        assert sorted(gate.data + idle.data) == list(range(200))

    async def test_a_worker_that_has_done_nothing_yet_reads_nothing_ahead(self, crew: Crew) -> None:
        gate = Gate()
        worker = await crew.hire(gate, concurrency=1)
        await crew.queue.add("job", 0)
        await gate.until(1)
        await crew.queue.add_each("job", range(1, 10))
        assert crew.pending(worker.id) == 1  # a read that asked for more would have them by now
        gate.open.set()
        await crew.settled()
        assert sorted(gate.data) == list(range(10))

    async def test_a_worker_that_turns_slow_hands_back_what_it_has_not_begun(
        self, crew: Crew
    ) -> None:
        opened = asyncio.Event()
        stuck, idle = Calls(), Calls()

        async def handler(job: Job[Any]) -> None:
            if job.data >= 3000:
                await stuck(job)
                await opened.wait()

        slow = await crew.hire(handler, concurrency=1)
        await crew.queue.add_each("job", range(3000))
        await crew.queue.add_each("job", range(3000, 3100))
        await stuck.until(1)
        await crew.hire(idle)
        await wait_until(
            lambda: len(idle) == 99 and crew.pending(slow.id) == 1,
            within=SOON,
            sentence="the idle one has run all but the one that is stuck",
        )
        assert set(idle.attempts) == {1}
        opened.set()
        await crew.settled()


class TestWhatIsGone:
    @pytest.mark.parametrize("gone", ["stream", "group"])
    async def test_what_was_deleted_is_made_anew_and_work_goes_on(
        self, crew: Crew, gone: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        calls = Calls()
        await crew.hire(calls)
        await crew.queue.add("before", 1)
        await crew.settled()
        if gone == "stream":
            crew.admin.delete(KEYS.stream)
        else:
            crew.admin.xgroup_destroy(KEYS.stream, GROUP)
        await crew.queue.add("after", 2)
        await calls.until(2)
        await crew.settled()
        assert calls.data == [1, 2]
        assert "the group is gone: made anew" in caplog.messages

    async def test_an_entry_deleted_while_it_was_pending_is_forgotten(self, crew: Crew) -> None:
        entry_id = crew.put({b"d": envelope()})
        crew.held_by_peer(entry_id, deliveries=1)
        crew.admin.xdel(KEYS.stream, entry_id)
        calls = Calls()
        await crew.hire(calls)
        await wait_until(lambda: crew.pending() == 0, within=SOON, sentence="nothing is pending")
        assert len(calls) == 0
        assert crew.admin.exists(KEYS.dead) == 0


class TestNames:
    async def test_a_worker_says_who_it_is_and_for_which_queue(self, crew: Crew) -> None:
        worker = await crew.hire(Calls())
        assert repr(worker) == f"<Worker {worker.id} of '{QUEUE}'>"
        await crew.queue.add("job")
        await wait_until(
            lambda: worker.id in crew.consumers(), within=SOON, sentence="it reads by that name"
        )

    def test_a_worker_is_made_without_a_loop_and_without_a_server(self) -> None:
        worker = Worker(check_queue_name("later"), Calls(), "redis://127.0.0.1:1")
        assert worker.id.startswith("t-")
