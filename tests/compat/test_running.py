"""Behaviours of workers, by their numbers in ChasquiMQ's re-test list (151 to 189)."""

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
from tests.compat.shop import KEYS, QUEUE, SOON, Given, Seen, Shop, echo, nothing
from tests.servers import RunningServer
from tests.waiting import wait_until


class PoisonPill(UnrecoverableError):
    """A user's subclass."""


_tenant: ContextVar[str] = ContextVar("tenant", default="nobody")

Namesake = type("UnrecoverableError", (Exception,), {})


class TestLowLevel:
    async def test_151_152_each_job_runs_once_and_leaves_nothing_pending(
        self, shop: Shop, producer: Producer
    ) -> None:
        seen = Seen()
        shop.consume(seen, concurrency=4)
        ids = await producer.add_bulk([b"%d" % number for number in range(50)])
        await seen.until(50)
        await shop.settled()
        assert sorted(job.id for job in seen.jobs) == sorted(ids)
        assert {job.attempt for job in seen.jobs} == {0}
        assert shop.admin.xpending(KEYS.stream, "default")["pending"] == 0

    async def test_what_bytes_are_added_is_what_bytes_arrive(
        self, shop: Shop, producer: Producer
    ) -> None:
        seen = Seen()
        shop.consume(seen)
        odd = [b"\xc1", b"", b"\x91" * 300]
        await producer.add_bulk(odd)
        await producer.add_in_with_options(1, b"\xff", {"name": "late"})
        await seen.until(4)
        assert {job.payload for job in seen.jobs} == {*odd, b"\xff"}
        assert repr(next(job for job in seen.jobs if job.name == "late")).endswith("payload_len=1)")

    async def test_153_what_raises_is_tried_again_with_a_higher_attempt(
        self, shop: Shop, producer: Producer
    ) -> None:
        seen = Seen(fails=2)
        shop.consume(seen)
        backoff = {"kind": "fixed", "delay_ms": 1, "jitter_ms": 0}
        await producer.add_with_options(b"x", {"retry": {"backoff": backoff}})
        await seen.until(3)
        assert [job.attempt for job in seen.jobs] == [0, 1, 2]

    @pytest.mark.parametrize("error", [UnrecoverableError, PoisonPill])
    async def test_154_155_an_unrecoverable_error_buries_at_once(
        self, shop: Shop, producer: Producer, error: type[Exception]
    ) -> None:
        seen = Seen(fails=99, error=error)
        shop.consume(seen, max_attempts=5)
        await producer.add(b"x")
        (letter,) = await shop.letters()
        assert (letter["reason"], len(seen)) == ("unrecoverable", 1)

    async def test_156_a_namesake_is_retried_like_any_other_error(
        self, shop: Shop, producer: Producer
    ) -> None:
        seen = Seen(fails=99, error=Namesake)
        shop.consume(seen)
        await producer.add_with_options(b"x", {"retry": {"max_attempts": 2}})
        (letter,) = await shop.letters()
        assert (letter["reason"], len(seen)) == ("retries_exhausted", 2)

    async def test_146_dead_letters_of_bytes_are_seen_and_put_back(
        self, shop: Shop, producer: Producer
    ) -> None:
        shop.admin.xadd(KEYS.stream, {"z": "1"})
        shop.consume(Seen(fails=1))
        await shop.letters()
        await producer.add_with_options(b"\xc1", {"name": "n", "retry": {"max_attempts": 1}})
        malformed, spent = await shop.letters(2)
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
        await shop.settled()
        assert [letter["dlq_id"] for letter in await producer.peek_dlq(9)] == [malformed["dlq_id"]]

    @pytest.mark.parametrize("by", ["task", "thread"])
    async def test_157_shutdown_from_elsewhere_ends_run(
        self, running: RunningServer, by: str
    ) -> None:
        consumer = Consumer(running.url, QUEUE)
        working = asyncio.ensure_future(consumer.run(nothing))
        with running.admin() as admin:
            await wait_until(
                lambda: bool(admin.exists(KEYS.stream)), within=SOON, sentence="it is at work"
            )
        if by == "task":
            consumer.shutdown()
        else:
            threading.Thread(target=consumer.shutdown).start()
        await asyncio.wait_for(working, SOON)
        consumer.shutdown()
        await asyncio.wait_for(consumer.run(nothing), SOON)  # over is over

    @pytest.mark.parametrize("gives", [True, "text", {"a": 1}, bytearray(b"x")])
    async def test_a_result_that_is_no_bytes_is_none_and_no_failure(
        self, shop: Shop, producer: Producer, gives: object
    ) -> None:
        seen = Seen(gives)
        shop.consume(seen, store_results=True)
        job_id = await producer.add(b"x")
        await shop.settled()
        assert await producer.get_result(job_id) is None
        assert (len(seen), await producer.peek_dlq(1)) == (1, [])

    async def test_run_begins_when_it_is_called(self, shop: Shop, producer: Producer) -> None:
        seen = Seen()
        consumer = Consumer(shop.url, QUEUE)
        running = consumer.run(seen)
        assert asyncio.isfuture(running)
        await producer.add(b"x")
        await seen.until(1)
        consumer.shutdown()
        await asyncio.wait_for(running, SOON)


class TestWorker:
    async def test_159_a_job_comes_to_the_handler_as_it_was_added(self, shop: Shop) -> None:
        seen = Seen()
        shop.hire(seen)
        added = await shop.queue.add("send", {"to": "ada", "n": [1, None, b"\x00"]})
        await seen.until(1)
        assert seen.jobs == [added]
        assert isinstance(seen.jobs[0], Job)

    @pytest.mark.parametrize("kind", ["async", "lambda"])
    async def test_what_a_handler_sets_for_its_job_is_not_there_for_the_next(
        self, shop: Shop, kind: str
    ) -> None:
        tasks, found = set(), []

        async def handler(job: Job) -> None:
            found.append(_tenant.get())
            tasks.add(asyncio.current_task())
            _tenant.set(job.data)

        plain = lambda job: handler(job)  # noqa: E731, PLW0108 - no async function
        shop.hire(handler if kind == "async" else plain, concurrency=1)
        await shop.queue.add_bulk([{"name": "n", "data": f"tenant {n}"} for n in range(3)])
        await shop.settled()
        assert found == ["nobody"] * 3
        assert len(tasks) == 3

    @pytest.mark.parametrize("error", [SystemExit, GeneratorExit, asyncio.CancelledError])
    async def test_whatever_a_handler_raises_is_a_failure(
        self, shop: Shop, error: type[Exception]
    ) -> None:
        seen = Seen(fails=1, error=error)
        shop.hire(seen)
        await shop.queue.add("n", 1, backoff=1)
        await seen.until(2)
        assert [job.attempt for job in seen.jobs] == [0, 1]

    @pytest.mark.parametrize(
        ("option", "given"),
        [
            ("max_attempts", 0),
            ("consumer_id", "a b"),
            ("max_payload_bytes", 0),
            ("dlq_max_stream_len", 0),
            ("claim_min_idle_ms", 10**12),
            ("result_ttl_ms", 10**12),
        ],
    )
    def test_what_only_tampu_refuses_is_named_as_the_caller_names_it(
        self, option: str, given: Given
    ) -> None:
        with pytest.raises(ValueError, match=f"^{option}={given!r} cannot be"):
            Worker(QUEUE, echo, **{option: given})

    async def test_170_its_scheduler_fires(self, shop: Shop) -> None:
        seen = Seen()
        shop.hire(seen)
        await shop.queue.add("tick", 7, repeat=RepeatPattern.every(50))
        await seen.until(3)
        assert {(job.name, job.data, job.attempt) for job in seen.jobs} == {("tick", 7, 0)}

    async def test_a_scheduler_of_its_own_fires_for_workers_that_do_not(
        self, shop: Shop, running: RunningServer
    ) -> None:
        seen = Seen()
        shop.hire(seen, run_scheduler=False)
        await shop.queue.add("tick", 7, repeat=RepeatPattern.every(50))
        scheduler = Scheduler(running.url, QUEUE, holder_id="mine")
        working = asyncio.ensure_future(scheduler.run())
        await seen.until(2)
        assert b"mine" in shop.admin.get(KEYS.scheduler_lock)
        scheduler.shutdown()
        await asyncio.wait_for(working, SOON)
        assert shop.admin.get(KEYS.scheduler_lock) is None

    async def test_175_close_is_safe_at_any_time(self, running: RunningServer) -> None:
        early = Worker(QUEUE, echo, redis_url=running.url)
        await early.close()
        await asyncio.wait_for(early.run(), SOON)
        worker = Worker(QUEUE, echo, redis_url=running.url)
        first, second = asyncio.create_task(worker.run()), asyncio.create_task(worker.run())
        await wait_until(lambda: worker.is_running, within=10, sentence="it runs")
        await worker.close()
        await worker.close()
        await asyncio.wait_for(asyncio.gather(first, second), SOON)
        assert (worker.is_running, worker.is_closed, worker.name) == (False, True, QUEUE)

    async def test_close_lets_what_runs_come_to_its_end(self, shop: Shop) -> None:
        began, may_end, ended = asyncio.Event(), asyncio.Event(), []

        async def slow(job: Job) -> None:
            began.set()
            await may_end.wait()
            ended.append(job.id)

        worker = shop.hire(slow)
        job = await shop.queue.add("n", 1)
        await began.wait()
        await worker.close()
        assert worker.is_running
        may_end.set()
        await wait_until(lambda: not worker.is_running, within=SOON, sentence="it has ended")
        assert ended == [job.id]

    async def test_a_run_that_is_cancelled_leaves_its_job_to_others(self, shop: Shop) -> None:
        began = asyncio.Event()

        async def endless(job: Job) -> None:
            began.set()
            await asyncio.Event().wait()

        first = Worker(QUEUE, endless, redis_url=shop.url)
        running = asyncio.create_task(first.run())
        await shop.queue.add("n", 1)
        await began.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not first.is_running
        seen = Seen()
        shop.hire(seen)
        await seen.until(1)

    async def test_176_a_hundred_at_a_time_unless_told_otherwise(self, shop: Shop) -> None:
        inside, most, may_end = 0, 0, asyncio.Event()

        async def slow(job: Job) -> None:
            nonlocal inside, most
            inside += 1
            most = max(most, inside)
            await may_end.wait()
            inside -= 1

        shop.hire(slow)
        await shop.queue.add_bulk([{"name": "n", "data": 1}] * 150)
        await wait_until(lambda: most == 100, within=SOON, sentence="100 run")
        may_end.set()
        await shop.settled()
        assert most == 100

    async def test_a_plain_handler_runs_in_a_thread(self, shop: Shop) -> None:
        def plain(job: Job) -> object:
            assert threading.current_thread() is not threading.main_thread()
            return [job.data, job.attempt]

        shop.hire(plain, store_results=True)
        shop.hire(lambda job: echo(job), store_results=True)  # noqa: PLW0108 - no async function
        jobs = await shop.queue.add_bulk([{"name": "n", "data": n} for n in range(40)])
        values = [await job.wait_for_result(timeout=SOON) for job in jobs]
        assert {str(value) for value in values} <= {
            *(f"[{n}, 0]" for n in range(40)),
            *(str(n) for n in range(40)),
        }

    async def test_its_consumer_id_shows_among_the_consumers(self, shop: Shop) -> None:
        shop.hire(echo, consumer_id="host-7")

        def consumers() -> list[bytes]:
            if not shop.admin.exists(KEYS.stream):
                return []
            return [each["name"] for each in shop.admin.xinfo_consumers(KEYS.stream, "default")]

        await wait_until(
            lambda: any(b"host-7" in name for name in consumers()),
            within=SOON,
            sentence="its name is there",
        )

    async def test_options_without_effect_are_told(
        self, running: RunningServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level("INFO", "tampu.compat"):
            Worker(QUEUE, echo, redis_url=running.url, read_count=5, scheduler_tick_ms=10)
            Producer(running.url, QUEUE, pool_size=2)
        assert [record.__dict__["options"] for record in caplog.records] == [
            "read_count, scheduler_tick_ms",
            "pool_size",
        ]

    async def test_189_contexts_close_what_they_were_given(self, running: RunningServer) -> None:
        async with (
            Queue(QUEUE, redis_url=running.url) as queue,
            Worker(QUEUE, echo, redis_url=running.url) as worker,
        ):
            working = asyncio.create_task(worker.run())
            await queue.add("n", 1)
        await asyncio.wait_for(working, SOON)
        assert queue.is_closed
        assert worker.is_closed

    async def test_no_server_is_a_runtime_error(self) -> None:
        nowhere = "redis://127.0.0.1:1"
        for awaited in (
            Queue(QUEUE, redis_url=nowhere).add("n", 1),
            Worker(QUEUE, echo, redis_url=nowhere).run(),
            Producer(nowhere, QUEUE).add(b"x"),
            Consumer(nowhere, QUEUE).run(nothing),
        ):
            with pytest.raises(RuntimeError, match=r"^redis: "):
                await awaited
