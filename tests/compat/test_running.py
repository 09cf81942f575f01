"""Running jobs; the numbers are those of the behaviours to re-test in the spec."""

import asyncio
import threading
from contextvars import ContextVar

import pytest

from tampu.compat.chasquimq import (
    Consumer,
    Job,
    Producer,
    Queue,
    RepeatPattern,
    Scheduler,
    UnrecoverableError,
    Worker,
)
from tests.compat.harness import (
    KEYS,
    QUEUE,
    SOON,
    Given,
    Harness,
    RecordingHandler,
    do_nothing,
    echo,
)
from tests.servers import RunningServer
from tests.waiting import wait_until


class PoisonPill(UnrecoverableError):
    """A user's subclass."""


_tenant: ContextVar[str] = ContextVar("tenant", default="nobody")

SameName = type("UnrecoverableError", (Exception,), {})


class TestConsumer:
    async def test_each_job_runs_once_and_no_entry_stays_pending(
        self, harness: Harness, producer: Producer
    ) -> None:
        """Behaviours 151 and 152."""
        handler = RecordingHandler()
        harness.start_consumer(handler, concurrency=4)
        ids = await producer.add_bulk([b"%d" % number for number in range(50)])
        await handler.wait_for(50)
        await harness.wait_until_settled()
        assert sorted(job.id for job in handler.jobs) == sorted(ids)
        assert {job.attempt for job in handler.jobs} == {0}
        assert harness.admin.xpending(KEYS.stream, "default")["pending"] == 0

    async def test_bytes_arrive_unchanged(self, harness: Harness, producer: Producer) -> None:
        handler = RecordingHandler()
        harness.start_consumer(handler)
        odd = [b"\xc1", b"", b"\x91" * 300]
        await producer.add_bulk(odd)
        await producer.add_in_with_options(1, b"\xff", {"name": "late"})
        await handler.wait_for(4)
        assert {job.payload for job in handler.jobs} == {*odd, b"\xff"}
        assert repr(next(job for job in handler.jobs if job.name == "late")).endswith(
            "payload_len=1)"
        )

    async def test_a_job_that_fails_is_retried_with_a_higher_attempt(
        self, harness: Harness, producer: Producer
    ) -> None:
        """Behaviour 153."""
        handler = RecordingHandler(failures=2)
        harness.start_consumer(handler)
        backoff = {"kind": "fixed", "delay_ms": 1, "jitter_ms": 0}
        await producer.add_with_options(b"x", {"retry": {"backoff": backoff}})
        await handler.wait_for(3)
        assert [job.attempt for job in handler.jobs] == [0, 1, 2]

    @pytest.mark.parametrize("error", [UnrecoverableError, PoisonPill])
    async def test_an_unrecoverable_error_buries_the_job_at_once(
        self, harness: Harness, producer: Producer, error: type[Exception]
    ) -> None:
        """Behaviours 154 and 155."""
        handler = RecordingHandler(failures=99, error=error)
        harness.start_consumer(handler, max_attempts=5)
        await producer.add(b"x")
        (letter,) = await harness.dead_letters()
        assert (letter["reason"], len(handler)) == ("unrecoverable", 1)

    async def test_another_class_of_the_same_name_is_retried_like_any_error(
        self, harness: Harness, producer: Producer
    ) -> None:
        """Behaviour 156."""
        handler = RecordingHandler(failures=99, error=SameName)
        harness.start_consumer(handler)
        await producer.add_with_options(b"x", {"retry": {"max_attempts": 2}})
        (letter,) = await harness.dead_letters()
        assert (letter["reason"], len(handler)) == ("retries_exhausted", 2)

    async def test_dead_letters_can_be_inspected_and_replayed(
        self, harness: Harness, producer: Producer
    ) -> None:
        """Behaviour 146."""
        harness.admin.xadd(KEYS.stream, {"z": "1"})
        harness.start_consumer(RecordingHandler(failures=1))
        await harness.dead_letters()
        await producer.add_with_options(b"\xc1", {"name": "n", "retry": {"max_attempts": 1}})
        malformed, spent = await harness.dead_letters(2)
        assert (malformed["reason"], malformed["payload"], malformed["name"]) == (
            "malformed",
            b"",
            "",
        )
        assert isinstance(malformed["detail"], str)
        assert (spent["reason"], spent["name"], spent["detail"]) == ("retries_exhausted", "n", None)
        assert b"\xc1" in spent["payload"]
        assert set(spent) == {"dlq_id", "source_id", "reason", "detail", "payload", "name"}
        assert await producer.replay_dlq(0) == 0
        assert await producer.peek_dlq(0) == []
        assert await producer.replay_dlq(10) == 1
        await harness.wait_until_settled()
        assert [letter["dlq_id"] for letter in await producer.peek_dlq(9)] == [malformed["dlq_id"]]

    @pytest.mark.parametrize("by", ["task", "thread"])
    async def test_shutdown_from_another_task_or_thread_ends_run(
        self, running: RunningServer, by: str
    ) -> None:
        """Behaviour 157."""
        consumer = Consumer(running.url, QUEUE)
        working = asyncio.ensure_future(consumer.run(do_nothing))
        with running.admin() as admin:
            await wait_until(
                lambda: bool(admin.exists(KEYS.stream)),
                within=SOON,
                sentence="the consumer is running",
            )
        if by == "task":
            consumer.shutdown()
        else:
            threading.Thread(target=consumer.shutdown).start()
        await asyncio.wait_for(working, SOON)
        consumer.shutdown()
        await asyncio.wait_for(consumer.run(do_nothing), SOON)  # returns at once

    @pytest.mark.parametrize("returned", [True, "text", {"a": 1}, bytearray(b"x")])
    async def test_a_result_other_than_bytes_is_not_stored_and_is_no_failure(
        self, harness: Harness, producer: Producer, returned: object
    ) -> None:
        handler = RecordingHandler(returned)
        harness.start_consumer(handler, store_results=True)
        job_id = await producer.add(b"x")
        await harness.wait_until_settled()
        assert await producer.get_result(job_id) is None
        assert (len(handler), await producer.peek_dlq(1)) == (1, [])

    async def test_run_starts_when_it_is_called(self, harness: Harness, producer: Producer) -> None:
        handler = RecordingHandler()
        consumer = Consumer(harness.url, QUEUE)
        running = consumer.run(handler)
        assert asyncio.isfuture(running)
        await producer.add(b"x")
        await handler.wait_for(1)
        consumer.shutdown()
        await asyncio.wait_for(running, SOON)


class TestWorker:
    async def test_the_handler_gets_the_job_as_it_was_added(self, harness: Harness) -> None:
        """Behaviour 159."""
        handler = RecordingHandler()
        harness.start_worker(handler)
        added = await harness.queue.add("send", {"to": "ada", "n": [1, None, b"\x00"]})
        await handler.wait_for(1)
        assert handler.jobs == [added]
        assert isinstance(handler.jobs[0], Job)

    @pytest.mark.parametrize("kind", ["async", "lambda"])
    async def test_context_variables_set_for_one_job_are_not_set_for_the_next(
        self, harness: Harness, kind: str
    ) -> None:
        tasks, found = set(), []

        async def handler(job: Job) -> None:
            found.append(_tenant.get())
            tasks.add(asyncio.current_task())
            _tenant.set(job.data)

        plain = lambda job: handler(job)  # noqa: E731, PLW0108 - not an async function
        harness.start_worker(handler if kind == "async" else plain, concurrency=1)
        await harness.queue.add_bulk([{"name": "n", "data": f"tenant {n}"} for n in range(3)])
        await harness.wait_until_settled()
        assert found == ["nobody"] * 3
        assert len(tasks) == 3

    @pytest.mark.parametrize("error", [SystemExit, GeneratorExit, asyncio.CancelledError])
    async def test_any_exception_of_a_handler_is_a_failed_attempt(
        self, harness: Harness, error: type[Exception]
    ) -> None:
        handler = RecordingHandler(failures=1, error=error)
        harness.start_worker(handler)
        await harness.queue.add("n", 1, backoff=1)
        await handler.wait_for(2)
        assert [job.attempt for job in handler.jobs] == [0, 1]

    @pytest.mark.parametrize(
        ("option", "given"),
        [
            ("max_attempts", 0),
            ("consumer_id", "a b"),
            ("max_payload_bytes", 0),
            ("dlq_max_stream_len", 0),
            ("claim_min_idle_ms", 10**12),
            ("claim_min_idle_ms", 10**18),
            ("result_ttl_ms", 10**12),
        ],
    )
    def test_options_that_only_tampu_refuses_are_named_as_in_chasquimq(
        self, option: str, given: Given
    ) -> None:
        with pytest.raises(ValueError, match=f"^Invalid {option} {given!r}: "):
            Worker(QUEUE, echo, **{option: given})

    async def test_a_worker_fires_schedules(self, harness: Harness) -> None:
        """Behaviour 170."""
        handler = RecordingHandler()
        harness.start_worker(handler)
        await harness.queue.add("tick", 7, repeat=RepeatPattern.every(50))
        await handler.wait_for(3)
        assert {(job.name, job.data, job.attempt) for job in handler.jobs} == {("tick", 7, 0)}

    async def test_a_separate_scheduler_fires_for_workers_without_one(
        self, harness: Harness, running: RunningServer
    ) -> None:
        handler = RecordingHandler()
        harness.start_worker(handler, run_scheduler=False)
        await harness.queue.add("tick", 7, repeat=RepeatPattern.every(50))
        scheduler = Scheduler(running.url, QUEUE, holder_id="mine")
        working = asyncio.ensure_future(scheduler.run())
        await handler.wait_for(2)
        assert b"mine" in harness.admin.get(KEYS.scheduler_lock)
        scheduler.shutdown()
        await asyncio.wait_for(working, SOON)
        assert harness.admin.get(KEYS.scheduler_lock) is None

    async def test_close_can_be_called_before_run_and_twice(self, running: RunningServer) -> None:
        """Behaviour 175."""
        early = Worker(QUEUE, echo, redis_url=running.url)
        await early.close()
        await asyncio.wait_for(early.run(), SOON)
        worker = Worker(QUEUE, echo, redis_url=running.url)
        first, second = asyncio.create_task(worker.run()), asyncio.create_task(worker.run())
        await wait_until(lambda: worker.is_running, within=60, sentence="the worker is running")
        await worker.close()
        await worker.close()
        await asyncio.wait_for(asyncio.gather(first, second), SOON)
        assert (worker.is_running, worker.is_closed, worker.name) == (False, True, QUEUE)

    async def test_close_lets_running_handlers_finish(self, harness: Harness) -> None:
        began, may_end, ended = asyncio.Event(), asyncio.Event(), []

        async def slow(job: Job) -> None:
            began.set()
            await may_end.wait()
            ended.append(job.id)

        worker = harness.start_worker(slow)
        job = await harness.queue.add("n", 1)
        await began.wait()
        await worker.close()
        assert worker.is_running
        may_end.set()
        await wait_until(lambda: not worker.is_running, within=SOON, sentence="run has returned")
        assert ended == [job.id]

    async def test_another_worker_takes_over_the_job_of_a_cancelled_run(
        self, harness: Harness
    ) -> None:
        began = asyncio.Event()

        async def endless(job: Job) -> None:
            began.set()
            await asyncio.Event().wait()

        first = Worker(QUEUE, endless, redis_url=harness.url)
        running = asyncio.create_task(first.run())
        await harness.queue.add("n", 1)
        await began.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not first.is_running
        handler = RecordingHandler()
        harness.start_worker(handler)
        await handler.wait_for(1)

    async def test_a_worker_runs_100_jobs_at_a_time_by_default(self, harness: Harness) -> None:
        """Behaviour 176."""
        inside, most, may_end = 0, 0, asyncio.Event()

        async def slow(job: Job) -> None:
            nonlocal inside, most
            inside += 1
            most = max(most, inside)
            await may_end.wait()
            inside -= 1

        harness.start_worker(slow)
        await harness.queue.add_bulk([{"name": "n", "data": 1}] * 150)
        await wait_until(lambda: most == 100, within=SOON, sentence="100 run")
        may_end.set()
        await harness.wait_until_settled()
        assert most == 100

    async def test_a_plain_handler_runs_in_a_thread(self, harness: Harness) -> None:
        def plain(job: Job) -> object:
            assert threading.current_thread() is not threading.main_thread()
            return [job.data, job.attempt]

        harness.start_worker(plain, store_results=True)
        harness.start_worker(lambda job: echo(job), store_results=True)  # noqa: PLW0108 - not an async function
        jobs = await harness.queue.add_bulk([{"name": "n", "data": n} for n in range(40)])
        values = [await job.wait_for_result(timeout=SOON) for job in jobs]
        assert {str(value) for value in values} <= {
            *(f"[{n}, 0]" for n in range(40)),
            *(str(n) for n in range(40)),
        }

    async def test_the_consumer_id_is_part_of_the_consumers_name(self, harness: Harness) -> None:
        harness.start_worker(echo, consumer_id="host-7")

        def consumers() -> list[bytes]:
            if not harness.admin.exists(KEYS.stream):
                return []
            return [each["name"] for each in harness.admin.xinfo_consumers(KEYS.stream, "default")]

        await wait_until(
            lambda: any(b"host-7" in name for name in consumers()),
            within=SOON,
            sentence="the consumer is listed",
        )

    async def test_options_without_effect_are_logged(
        self, running: RunningServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level("INFO", "tampu.compat"):
            Worker(QUEUE, echo, redis_url=running.url, read_count=5, scheduler_tick_ms=10)
            Producer(running.url, QUEUE, pool_size=2)
        assert [record.getMessage() for record in caplog.records] == [
            "Worker: options without effect in tampu: read_count, scheduler_tick_ms",
            "Producer: options without effect in tampu: pool_size",
        ]
        assert caplog.records[1].__dict__["options"] == "pool_size"

    async def test_leaving_the_context_closes_queue_and_worker(
        self, running: RunningServer
    ) -> None:
        """Behaviour 189."""
        async with (
            Queue(QUEUE, redis_url=running.url) as queue,
            Worker(QUEUE, echo, redis_url=running.url) as worker,
        ):
            working = asyncio.create_task(worker.run())
            await queue.add("n", 1)
        await asyncio.wait_for(working, SOON)
        assert queue.is_closed
        assert worker.is_closed

    async def test_a_server_that_is_not_available_is_a_runtime_error(self) -> None:
        nowhere = "redis://127.0.0.1:1"
        for awaited in (
            Queue(QUEUE, redis_url=nowhere).add("n", 1),
            Worker(QUEUE, echo, redis_url=nowhere).run(),
            Producer(nowhere, QUEUE).add(b"x"),
            Consumer(nowhere, QUEUE).run(do_nothing),
        ):
            with pytest.raises(RuntimeError, match=r"^redis: "):
                await awaited
