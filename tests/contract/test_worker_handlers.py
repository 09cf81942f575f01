"""Handlers of every kind, and what they can do to a worker."""

import asyncio
import functools
import os
import threading
from contextvars import ContextVar
from typing import Any, NoReturn

import pytest

from tampu.backoff import Backoff
from tampu.consumer.handler import Function, Handler
from tampu.errors import WrongContext
from tampu.job import Job, current_job
from tampu.outcome import Bury, Snooze
from tests.contract.workers import KEYS, SOON, Calls, Harness
from tests.unit.consumer.runners import child_handlers
from tests.waiting import wait_until

AT_ONCE = Backoff.fixed(0)
_request = ContextVar("request", default="none")


class Unspeakable(Exception):
    def __str__(self) -> NoReturn:
        raise RuntimeError("no words")


class TestKinds:
    async def test_a_plain_function_runs_in_a_thread_and_its_value_is_the_result(
        self, harness: Harness
    ) -> None:
        def handler(job: Job[Any]) -> str:
            return threading.current_thread().name

        await harness.start_worker(handler, store_results=True)
        job = await harness.queue.add("plain")
        assert str(await job.result()).startswith("tampu-handler")

    async def test_plain_functions_run_at_the_same_time(self, harness: Harness) -> None:
        together = threading.Barrier(5)
        await harness.start_worker(lambda job: together.wait(SOON), concurrency=5, attempts=1)
        await harness.queue.add_each("plain", range(5))
        await harness.until_settled()
        assert harness.admin.exists(KEYS.dead) == 0

    async def test_partials_methods_and_objects_are_handlers(self, harness: Harness) -> None:
        class Adder:
            async def add(self, job: Job[Any]) -> object:
                return job.data + 1

            async def __call__(self, job: Job[Any]) -> object:
                return job.data + 2

        async def more(job: Job[Any], by: int) -> object:
            return job.data + by

        handlers: dict[str, Function] = {
            "method": Adder().add,
            "object": Adder(),
            "partial": functools.partial(more, by=3),
        }
        await harness.start_worker(handlers, store_results=True)
        jobs = [await harness.queue.add(name, 10) for name in handlers]
        assert [await job.result() for job in jobs] == [11, 12, 13]

    async def test_each_name_has_its_own_handler_and_policy(self, harness: Harness) -> None:
        greeted, parted = Calls(), Calls()
        await harness.start_worker({"greet": greeted, "part": Handler(parted, attempts=1)})
        await harness.queue.add("greet", 1)
        await harness.queue.add("part", 2)
        await harness.until_settled()
        assert (greeted.data, parted.data) == ([1], [2])


class TestContext:
    async def test_the_current_job_is_known_in_async_code_after_every_await(
        self, harness: Harness
    ) -> None:
        wrong: list[str] = []

        async def inner() -> str:
            await asyncio.sleep(0.001)
            return current_job().id

        async def handler(job: Job[Any]) -> None:
            for _ in range(3):
                await asyncio.sleep(0)
                found = [current_job().id, await inner(), await asyncio.create_task(inner())]
                wrong.extend(each for each in found if each != job.id)

        await harness.start_worker(handler, concurrency=10)
        await harness.queue.add_each("job", range(50))
        await harness.until_settled()
        assert wrong == []

    async def test_the_current_job_is_known_in_threads(self, harness: Harness) -> None:
        wrong: list[str] = []

        def plain(job: Job[Any]) -> None:
            wrong.extend([current_job().id] if current_job().id != job.id else [])

        async def deeper(job: Job[Any]) -> None:
            found = await asyncio.to_thread(lambda: current_job().id)
            wrong.extend([found] if found != job.id else [])

        await harness.start_worker({"plain": plain, "deeper": deeper}, concurrency=4)
        await harness.queue.add_each("plain", range(20))
        await harness.queue.add_each("deeper", range(20))
        await harness.until_settled()
        assert wrong == []

    async def test_outside_a_handler_there_is_no_current_job(self, harness: Harness) -> None:
        await harness.start_worker(Calls())
        await harness.queue.add("job")
        await harness.until_settled()
        with pytest.raises(WrongContext, match="no job is running"):
            current_job()

    async def test_context_variables_set_before_the_start_reach_threads(
        self, harness: Harness
    ) -> None:
        _request.set("of the test")
        await harness.start_worker(lambda job: _request.get(), store_results=True)
        job = await harness.queue.add("plain")
        assert await job.result() == "of the test"

    async def test_a_handler_cannot_wait_for_its_own_result(self, harness: Harness) -> None:
        async def handler(job: Job[Any]) -> None:
            await job.result()

        await harness.start_worker(handler, attempts=1)
        await harness.queue.add("job")
        (letter,) = await harness.dead_letters()
        assert letter.failure.error_type == "tampu.errors.WrongContext"


class TestTimeLimits:
    @pytest.mark.parametrize("whose", ["worker", "handler", "job"])
    async def test_an_async_handler_is_cancelled_at_its_time_limit(
        self, harness: Harness, whose: str
    ) -> None:
        cancelled = asyncio.Event()

        async def handler(job: Job[Any]) -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise

        limits = {"worker": 60.0, "handler": 60.0}
        for narrower in ("worker", "handler"):
            if whose == narrower:
                limits[narrower] = 0.05
        inner = Handler(handler, timeout=limits["handler"] if whose != "worker" else None)
        await harness.start_worker(inner, attempts=1, timeout=limits["worker"])
        await harness.queue.add("slow", timeout=0.05 if whose == "job" else None)
        (letter,) = await harness.dead_letters()
        assert cancelled.is_set()
        assert letter.failure.error_type == "JobTimeout"
        assert letter.failure.message == "it ran longer than its time limit of 0.05 s"

    async def test_a_job_that_runs_too_long_is_retried(self, harness: Harness) -> None:
        calls = Calls()

        async def handler(job: Job[Any]) -> None:
            await calls(job)
            if job.attempt == 1:
                await asyncio.Event().wait()

        await harness.start_worker(handler, timeout=0.05, backoff=AT_ONCE)
        await harness.queue.add("slow")
        await calls.until(2)
        await harness.until_settled()
        assert calls.attempts == [1, 2]

    async def test_a_timeout_error_raised_by_the_handler_is_like_any_other_error(
        self, harness: Harness
    ) -> None:
        async def handler(job: Job[Any]) -> None:
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()

        await harness.start_worker(handler, timeout=60, attempts=1)
        await harness.queue.add("slow")
        (letter,) = await harness.dead_letters()
        assert letter.failure.error_type == "TimeoutError"

    async def test_a_plain_function_that_takes_too_long_fails(self, harness: Harness) -> None:
        gone_on = threading.Event()
        await harness.start_worker(lambda job: gone_on.wait(0.1), timeout=0.02, attempts=1)
        await harness.queue.add("slow")
        (letter,) = await harness.dead_letters()
        assert letter.failure.error_type == "JobTimeout"

    async def test_a_child_process_is_killed_at_the_time_limit(
        self,
        harness: Harness,
        tmp_path: Any,  # noqa: ANN401 - a Path
    ) -> None:
        handler = Handler(child_handlers.sleeps, isolation="process", attempts=1, timeout=0.1)
        await harness.start_worker(handler, store_results=True)
        told = str(tmp_path / "pid")
        first = await harness.queue.add("slow", [told, 0], timeout=60)  # ready: it may be slow
        await first.result()
        await harness.queue.add("slow", [told, 60])
        (letter,) = await harness.dead_letters()
        assert letter.failure.error_type == "JobTimeout"
        pid = int((tmp_path / "pid").read_text())
        await wait_until(lambda: not _lives(pid), within=SOON, sentence="the child has ended")


class TestChildren:
    async def test_a_handler_in_a_child_process_returns_results_and_reports_progress(
        self, harness: Harness
    ) -> None:
        handlers = {
            "pid": Handler(child_handlers.pid, isolation="process"),
            "progress": Handler(child_handlers.progresses, isolation="process"),
        }
        worker = await harness.start_worker(handlers, store_results=True, concurrency=2)
        pid = await (await harness.queue.add("pid")).result()
        assert pid != os.getpid()
        told = await harness.queue.add("progress")
        assert await told.result() == "there"
        await worker.stop()
        percents = [e.fields["progress"] for e in harness.events(told.id) if "progress" in e.fields]
        assert percents == [10, 100]

    async def test_a_child_process_that_dies_fails_the_attempt(self, harness: Harness) -> None:
        await harness.start_worker(
            child_handlers.crashes, isolation="process", attempts=2, backoff=AT_ONCE
        )
        await harness.queue.add("crash", "exit")
        (letter,) = await harness.dead_letters()
        assert letter.attempt == 2
        assert letter.failure.error_type == "ProcessCrashed"
        await harness.until_settled()


class TestHostileHandlers:
    @pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
    @pytest.mark.parametrize(
        ("error", "kind"),
        [
            (SystemExit(3), "SystemExit"),
            (KeyboardInterrupt(), "KeyboardInterrupt"),
            (asyncio.CancelledError(), "CancelledError"),
            (GeneratorExit(), "GeneratorExit"),
            (StopIteration(), "StopIteration"),
            (Unspeakable(), "Unspeakable"),
            (ExceptionGroup("several", [ValueError()]), "ExceptionGroup"),
        ],
        ids=lambda given: type(given).__name__ if isinstance(given, BaseException) else "",
    )
    async def test_any_exception_fails_the_attempt_and_the_worker_goes_on(
        self,
        harness: Harness,
        error: BaseException,
        kind: str,
        plain: bool,  # noqa: FBT001
    ) -> None:
        calls = Calls()

        async def raising(job: Job[Any]) -> None:
            raise error

        def raising_plainly(job: Job[Any]) -> None:
            raise error

        bad = raising_plainly if plain else raising
        await harness.start_worker(
            {"bad": bad, "good": calls}, concurrency=1, attempts=2, backoff=AT_ONCE
        )
        await harness.queue.add("bad")
        (letter,) = await harness.dead_letters()
        assert letter.reason.value == "retries_exhausted"
        assert letter.attempt == 2
        assert kind in letter.failure.error_type or kind in letter.failure.message
        await harness.queue.add("good", 1)
        await calls.until(1)

    async def test_a_handler_that_cancels_its_own_task_fails(self, harness: Harness) -> None:
        calls = Calls()

        async def handler(job: Job[Any]) -> None:
            await calls(job)
            task = asyncio.current_task()
            assert task is not None
            if job.attempt == 1:
                task.cancel()
                await asyncio.sleep(0)

        await harness.start_worker(handler, concurrency=1, backoff=AT_ONCE)
        await harness.queue.add_each("bad", range(3))
        await calls.until(6)
        await harness.until_settled()
        assert sorted(calls.attempts) == [1, 1, 1, 2, 2, 2]

    async def test_a_cancellation_left_pending_does_not_hit_the_next_job(
        self, harness: Harness
    ) -> None:
        calls = Calls()

        async def handler(job: Job[Any]) -> None:
            await asyncio.sleep(0)
            await calls(job)
            task = asyncio.current_task()
            assert task is not None
            if job.data == 0:
                task.cancel()  # and returns before it takes effect

        await harness.start_worker(handler, concurrency=1, attempts=1)
        await harness.queue.add_each("bad", range(3))
        await calls.until(3)
        await harness.until_settled()
        assert calls.data == [0, 1, 2]

    async def test_a_value_that_cannot_be_encoded_buries_the_job_if_results_are_stored(
        self, harness: Harness
    ) -> None:
        calls = Calls()

        async def handler(job: Job[Any]) -> object:
            await calls(job)
            return object()

        await harness.start_worker(handler, store_results=True)
        await harness.queue.add("odd")
        (letter,) = await harness.dead_letters()
        await harness.until_settled()
        assert len(calls) == 1
        assert letter.reason.value == "unrecoverable"
        assert letter.failure.error_type == "tampu.EncodeError"

    async def test_a_value_that_cannot_be_encoded_is_fine_if_results_are_not_stored(
        self, harness: Harness
    ) -> None:
        async def handler(job: Job[Any]) -> object:
            return object()

        await harness.start_worker(handler)
        await harness.queue.add("odd")
        await harness.until_settled()
        assert harness.admin.exists(KEYS.dead) == 0

    async def test_snooze_and_bury_can_be_returned_from_a_thread(self, harness: Harness) -> None:
        calls: list[int] = []

        def handler(job: Job[Any]) -> object:
            calls.append(job.attempt)
            return Snooze(0.01) if len(calls) < 3 else Bury("enough")

        await harness.start_worker(handler)
        await harness.queue.add("job")
        (letter,) = await harness.dead_letters()
        assert calls == [1, 1, 1]
        assert letter.failure.message == "enough"


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
