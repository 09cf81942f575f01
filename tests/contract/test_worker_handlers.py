"""Handlers of every kind on real servers, and what they can do to a worker."""

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
from tests.contract.workers import KEYS, SOON, Calls, Crew
from tests.unit.consumer.runners import child_handlers
from tests.waiting import wait_until

AT_ONCE = Backoff.fixed(0)
_request = ContextVar("request", default="none")


class Unspeakable(Exception):
    def __str__(self) -> NoReturn:
        raise RuntimeError("no words")


class TestKinds:
    async def test_a_plain_function_runs_in_a_thread_and_its_value_is_the_result(
        self, crew: Crew
    ) -> None:
        def handler(job: Job[Any]) -> str:
            return threading.current_thread().name

        await crew.hire(handler, store_results=True)
        job = await crew.queue.add("plain")
        assert str(await job.result()).startswith("tampu-handler")

    async def test_plain_functions_run_beside_each_other(self, crew: Crew) -> None:
        together = threading.Barrier(5)
        await crew.hire(lambda job: together.wait(SOON), concurrency=5, attempts=1)
        await crew.queue.add_each("plain", range(5))
        await crew.settled()
        assert crew.admin.exists(KEYS.dead) == 0

    async def test_partials_methods_and_objects_are_handlers(self, crew: Crew) -> None:
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
        await crew.hire(handlers, store_results=True)
        jobs = [await crew.queue.add(name, 10) for name in handlers]
        assert [await job.result() for job in jobs] == [11, 12, 13]

    async def test_each_name_has_its_own_handler_and_policy(self, crew: Crew) -> None:
        greeted, parted = Calls(), Calls()
        await crew.hire({"greet": greeted, "part": Handler(parted, attempts=1)})
        await crew.queue.add("greet", 1)
        await crew.queue.add("part", 2)
        await crew.settled()
        assert (greeted.data, parted.data) == ([1], [2])


class TestContext:
    async def test_the_current_job_is_known_in_async_code_after_every_await(
        self, crew: Crew
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

        await crew.hire(handler, concurrency=10)
        await crew.queue.add_each("job", range(50))
        await crew.settled()
        assert wrong == []

    async def test_the_current_job_is_known_in_threads(self, crew: Crew) -> None:
        wrong: list[str] = []

        def plain(job: Job[Any]) -> None:
            wrong.extend([current_job().id] if current_job().id != job.id else [])

        async def deeper(job: Job[Any]) -> None:
            found = await asyncio.to_thread(lambda: current_job().id)
            wrong.extend([found] if found != job.id else [])

        await crew.hire({"plain": plain, "deeper": deeper}, concurrency=4)
        await crew.queue.add_each("plain", range(20))
        await crew.queue.add_each("deeper", range(20))
        await crew.settled()
        assert wrong == []

    async def test_outside_of_a_handler_there_is_no_current_job(self, crew: Crew) -> None:
        await crew.hire(Calls())
        await crew.queue.add("job")
        await crew.settled()
        with pytest.raises(WrongContext, match="while it runs"):
            current_job()

    async def test_context_variables_of_who_started_the_worker_reach_threads(
        self, crew: Crew
    ) -> None:
        _request.set("of the test")
        await crew.hire(lambda job: _request.get(), store_results=True)
        job = await crew.queue.add("plain")
        assert await job.result() == "of the test"

    async def test_a_handler_cannot_wait_for_its_own_result(self, crew: Crew) -> None:
        async def handler(job: Job[Any]) -> None:
            await job.result()

        await crew.hire(handler, attempts=1)
        await crew.queue.add("job")
        (letter,) = await crew.dead()
        assert letter.failure.error_type == "tampu.errors.WrongContext"


class TestTimeLimits:
    @pytest.mark.parametrize("whose", ["worker", "handler", "job"])
    async def test_an_async_handler_is_cancelled_at_its_time_limit(
        self, crew: Crew, whose: str
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
        await crew.hire(inner, attempts=1, timeout=limits["worker"])
        await crew.queue.add("slow", timeout=0.05 if whose == "job" else None)
        (letter,) = await crew.dead()
        assert cancelled.is_set()
        assert letter.failure.error_type == "JobTimeout"
        assert letter.failure.message == "it ran longer than its time limit of 0.05 s"

    async def test_a_job_that_ran_too_long_is_tried_again(self, crew: Crew) -> None:
        calls = Calls()

        async def handler(job: Job[Any]) -> None:
            await calls(job)
            if job.attempt == 1:
                await asyncio.Event().wait()

        await crew.hire(handler, timeout=0.05, backoff=AT_ONCE)
        await crew.queue.add("slow")
        await calls.until(2)
        await crew.settled()
        assert calls.attempts == [1, 2]

    async def test_a_time_limit_of_the_handlers_own_is_an_error_like_any_other(
        self, crew: Crew
    ) -> None:
        async def handler(job: Job[Any]) -> None:
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()

        await crew.hire(handler, timeout=60, attempts=1)
        await crew.queue.add("slow")
        (letter,) = await crew.dead()
        assert letter.failure.error_type == "TimeoutError"

    async def test_a_plain_function_that_took_too_long_has_failed(self, crew: Crew) -> None:
        gone_on = threading.Event()
        await crew.hire(lambda job: gone_on.wait(0.1), timeout=0.02, attempts=1)
        await crew.queue.add("slow")
        (letter,) = await crew.dead()
        assert letter.failure.error_type == "JobTimeout"

    async def test_what_a_child_process_does_ends_at_its_time_limit(
        self,
        crew: Crew,
        tmp_path: Any,  # noqa: ANN401 - a Path
    ) -> None:
        handler = Handler(child_handlers.sleeps, isolation="process", attempts=1, timeout=0.1)
        await crew.hire(handler, store_results=True)
        told = str(tmp_path / "pid")
        first = await crew.queue.add("slow", [told, 0], timeout=60)  # ready: it may be slow
        await first.result()
        await crew.queue.add("slow", [told, 60])
        (letter,) = await crew.dead()
        assert letter.failure.error_type == "JobTimeout"
        pid = int((tmp_path / "pid").read_text())
        await wait_until(lambda: not _lives(pid), within=SOON, sentence="the child is gone")


class TestChildren:
    async def test_a_handler_of_its_own_process_gives_results_and_tells_progress(
        self, crew: Crew
    ) -> None:
        handlers = {
            "pid": Handler(child_handlers.pid, isolation="process"),
            "progress": Handler(child_handlers.progresses, isolation="process"),
        }
        worker = await crew.hire(handlers, store_results=True, concurrency=2)
        pid = await (await crew.queue.add("pid")).result()
        assert pid != os.getpid()
        told = await crew.queue.add("progress")
        assert await told.result() == "there"
        await worker.stop()
        percents = [e.fields["progress"] for e in crew.events(told.id) if "progress" in e.fields]
        assert percents == [10, 100]

    async def test_a_child_that_dies_is_a_failed_attempt(self, crew: Crew) -> None:
        await crew.hire(child_handlers.crashes, isolation="process", attempts=2, backoff=AT_ONCE)
        await crew.queue.add("crash", "exit")
        (letter,) = await crew.dead()
        assert letter.attempt == 2
        assert letter.failure.error_type == "ProcessCrashed"
        await crew.settled()


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
    async def test_whatever_it_raises_the_attempt_failed_and_the_worker_lives(
        self,
        crew: Crew,
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
        await crew.hire({"bad": bad, "good": calls}, concurrency=1, attempts=2, backoff=AT_ONCE)
        await crew.queue.add("bad")
        (letter,) = await crew.dead()
        assert letter.reason.value == "retries_exhausted"
        assert letter.attempt == 2
        assert kind in letter.failure.error_type or kind in letter.failure.message
        await crew.queue.add("good", 1)
        await calls.until(1)

    async def test_a_handler_that_cancels_its_own_task_has_failed(self, crew: Crew) -> None:
        calls = Calls()

        async def handler(job: Job[Any]) -> None:
            await calls(job)
            task = asyncio.current_task()
            assert task is not None
            if job.attempt == 1:
                task.cancel()
                await asyncio.sleep(0)

        await crew.hire(handler, concurrency=1, backoff=AT_ONCE)
        await crew.queue.add_each("bad", range(3))
        await calls.until(6)
        await crew.settled()
        assert sorted(calls.attempts) == [1, 1, 1, 2, 2, 2]

    async def test_a_cancellation_left_behind_does_not_reach_the_next_job(self, crew: Crew) -> None:
        calls = Calls()

        async def handler(job: Job[Any]) -> None:
            await asyncio.sleep(0)
            await calls(job)
            task = asyncio.current_task()
            assert task is not None
            if job.data == 0:
                task.cancel()  # and returns before it takes effect

        await crew.hire(handler, concurrency=1, attempts=1)
        await crew.queue.add_each("bad", range(3))
        await calls.until(3)
        await crew.settled()
        assert calls.data == [0, 1, 2]

    async def test_a_value_that_cannot_be_encoded_buries_the_job_if_results_are_kept(
        self, crew: Crew
    ) -> None:
        calls = Calls()

        async def handler(job: Job[Any]) -> object:
            await calls(job)
            return object()

        await crew.hire(handler, store_results=True)
        await crew.queue.add("odd")
        (letter,) = await crew.dead()
        await crew.settled()
        assert len(calls) == 1
        assert letter.reason.value == "unrecoverable"
        assert letter.failure.error_type == "tampu.EncodeError"

    async def test_a_value_that_cannot_be_encoded_does_not_matter_if_results_are_not_kept(
        self, crew: Crew
    ) -> None:
        async def handler(job: Job[Any]) -> object:
            return object()

        await crew.hire(handler)
        await crew.queue.add("odd")
        await crew.settled()
        assert crew.admin.exists(KEYS.dead) == 0

    async def test_what_a_handler_says_about_its_job_may_be_returned_from_a_thread(
        self, crew: Crew
    ) -> None:
        calls: list[int] = []

        def handler(job: Job[Any]) -> object:
            calls.append(job.attempt)
            return Snooze(0.01) if len(calls) < 3 else Bury("enough")

        await crew.hire(handler)
        await crew.queue.add("job")
        (letter,) = await crew.dead()
        assert calls == [1, 1, 1]
        assert letter.failure.message == "enough"


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
