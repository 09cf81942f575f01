"""The ways to run a handler: whatever it does becomes an outcome."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any, TypeAlias

import pytest

from tampu.consumer.runners.local import LoopRunner, ProcessRunner, ThreadRunner
from tampu.job import Job, current_job
from tampu.outcome import Bury, Done, Failed, Outcome, Retry, Snooze, Snoozed, UnrecoverableFailure
from tests.unit.consumer.deliveries import delivery
from tests.unit.consumer.runners import child_handlers

Make: TypeAlias = Callable[..., Any]

_seen: ContextVar[str] = ContextVar("seen", default="nothing")


@pytest.fixture
async def threads() -> AsyncIterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


async def run(runner: Any, **options: Any) -> Outcome:  # noqa: ANN401
    outcome: Outcome = await runner.run(delivery(**options))
    return outcome


def handler(value: object = None, error: BaseException | None = None) -> Any:  # noqa: ANN401
    """An async function that returns or raises this."""

    async def function(job: Job[Any]) -> object:
        if error is not None:
            raise error
        return value

    return function


def plain_handler(value: object = None, error: BaseException | None = None) -> Any:  # noqa: ANN401
    """A plain function that returns or raises this."""

    def function(job: Job[Any]) -> object:
        if error is not None:
            raise error
        return value

    return function


class TestBoth:
    @pytest.mark.parametrize("timeout_s", [None, 5.0])
    @pytest.mark.parametrize("make", [handler, plain_handler])
    @pytest.mark.parametrize("value", [None, 0, "x", (1,), object()])
    async def test_a_returned_value_is_the_outcome(
        self,
        make: Make,
        value: object,
        timeout_s: float | None,
        threads: ThreadPoolExecutor,
    ) -> None:
        runner = LoopRunner(make(value)) if make is handler else ThreadRunner(make(value), threads)
        assert await run(runner, timeout_s=timeout_s) == Done(value)

    @pytest.mark.parametrize("timeout_s", [None, 5.0])
    @pytest.mark.parametrize("make", [handler, plain_handler])
    @pytest.mark.parametrize("how", ["raised", "returned"])
    async def test_retry_snooze_and_bury_can_be_raised_or_returned(
        self,
        make: Make,
        how: str,
        timeout_s: float | None,
        threads: ThreadPoolExecutor,
    ) -> None:
        async def outcome_of(error: Exception) -> Outcome:
            function = make(error) if how == "returned" else make(error=error)
            runner = LoopRunner(function) if make is handler else ThreadRunner(function, threads)
            return await run(runner, timeout_s=timeout_s)

        assert await outcome_of(Snooze(2)) == Snoozed(2000)
        retry = await outcome_of(Retry("later", after=3))
        assert isinstance(retry, Failed)
        assert (retry.after_ms, retry.failure.message) == (3000, "later")
        assert isinstance(await outcome_of(Bury("enough")), UnrecoverableFailure)

    @pytest.mark.parametrize("timeout_s", [None, 5.0])
    @pytest.mark.parametrize("make", [handler, plain_handler])
    @pytest.mark.parametrize(
        "error",
        [ValueError("x"), SystemExit(1), KeyboardInterrupt(), GeneratorExit(), TimeoutError("own")],
        ids=lambda error: type(error).__name__,
    )
    async def test_any_exception_fails_the_attempt(
        self,
        make: Make,
        error: BaseException,
        timeout_s: float | None,
        threads: ThreadPoolExecutor,
    ) -> None:
        function = make(error=error)
        runner = LoopRunner(function) if make is handler else ThreadRunner(function, threads)
        outcome = await run(runner, timeout_s=timeout_s)
        assert isinstance(outcome, Failed)
        assert outcome.failure.error_type == type(error).__name__
        assert outcome.failure.message == str(error)

    @pytest.mark.parametrize("make", [handler, plain_handler])
    async def test_without_failures_in_the_log_only_the_last_attempt_has_a_whole_traceback(
        self,
        make: Make,
        threads: ThreadPoolExecutor,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        caplog.set_level("ERROR", logger="tampu.consumer.reporter")
        function = make(error=ValueError("x"))
        runner = LoopRunner(function) if make is handler else ThreadRunner(function, threads)
        first, last = await run(runner, attempt=1), await run(runner, attempt=3)
        assert isinstance(first, Failed)
        assert isinstance(last, Failed)
        assert "in function" in first.failure.traceback
        assert "raise error" not in first.failure.traceback, "the source costs the time"
        assert "in function" in last.failure.traceback
        assert "raise error" in last.failure.traceback

    @pytest.mark.parametrize("make", [handler, plain_handler])
    async def test_an_attempt_that_will_be_logged_has_a_traceback(
        self, make: Make, threads: ThreadPoolExecutor
    ) -> None:
        function = make(error=ValueError("x"))
        runner = LoopRunner(function) if make is handler else ThreadRunner(function, threads)
        outcome = await run(runner, attempt=1)
        assert isinstance(outcome, Failed)
        assert "in function" in outcome.failure.traceback


class TestOnTheLoop:
    async def test_a_time_limit_cancels_it(self) -> None:
        cancelled = asyncio.Event()

        async def function(job: Job[Any]) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        outcome = await run(LoopRunner(function), timeout_s=0.01)
        assert isinstance(outcome, Failed)
        assert outcome.failure.error_type == "JobTimeout"
        assert cancelled.is_set()

    @pytest.mark.parametrize("timeout_s", [None, 5.0])
    async def test_cancellation_passes(self, timeout_s: float | None) -> None:
        begun = asyncio.Event()

        async def function(job: Job[Any]) -> None:
            begun.set()
            await asyncio.Event().wait()

        running = asyncio.create_task(run(LoopRunner(function), timeout_s=timeout_s))
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    async def test_the_current_job_is_the_one_that_runs(self) -> None:
        async def function(job: Job[Any]) -> object:
            await asyncio.sleep(0)
            return [current_job() is job]

        assert await run(LoopRunner(function)) == Done([True])


class TestInAThread:
    async def test_it_knows_its_job_and_the_context_of_the_worker(
        self, threads: ThreadPoolExecutor
    ) -> None:
        _seen.set("by the worker")

        def function(job: Job[Any]) -> object:
            was = _seen.get()
            _seen.set("by the handler")
            main = threading.current_thread() is threading.main_thread()
            return [current_job() is job, was, main]

        for _ in range(2):
            outcome = await run(ThreadRunner(function, threads))
            assert outcome == Done([True, "by the worker", False])

    async def test_an_attempt_that_takes_longer_than_its_limit_fails_whatever_it_returns(
        self, threads: ThreadPoolExecutor
    ) -> None:
        waiting = threading.Event()
        runner = ThreadRunner(lambda job: waiting.wait(0.03), threads)
        outcome = await run(runner, timeout_s=0.01)
        assert isinstance(outcome, Failed)
        assert outcome.failure.error_type == "JobTimeout"

    async def test_closing_does_not_wait_for_running_functions(self) -> None:
        begun, opened = threading.Event(), threading.Event()

        def function(job: Job[Any]) -> None:
            begun.set()
            opened.wait(20)

        runner = ThreadRunner(function, ThreadPoolExecutor(1))
        running = asyncio.create_task(run(runner))
        await asyncio.to_thread(begun.wait, 20)
        await runner.close()
        assert not running.done()
        opened.set()
        assert await running == Done(None)


class TestInAProcess:
    async def test_the_child_gets_the_whole_job_and_sends_back_the_value(self) -> None:
        runner = ProcessRunner(child_handlers.facts, limit=1)
        try:
            outcome = await run(runner, attempt=2)
        finally:
            await runner.close()
        assert outcome == Done(["j", "greet", 1, 2, 1000, None, True])
