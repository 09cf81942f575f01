"""The ways to run a handler: whatever it does becomes an outcome."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from typing import Any, TypeAlias

import pytest

from tampu.consumer.runners.local import LoopRunner, ProcessRunner, ThreadRunner
from tampu.consumer.runners.threads import HandlerThreads
from tampu.job import Job, current_job, enter_job
from tampu.outcome import Bury, Done, Failed, Outcome, Retry, Snooze, Snoozed, UnrecoverableFailure
from tests.unit.consumer.deliveries import delivery
from tests.unit.consumer.runners import child_handlers

Make: TypeAlias = Callable[..., Any]

_seen: ContextVar[str] = ContextVar("seen", default="nothing")


@pytest.fixture
async def threads() -> AsyncIterator[HandlerThreads]:
    made = HandlerThreads(2)
    yield made
    made.close()


async def run(runner: Any, **options: Any) -> Outcome:  # noqa: ANN401
    one = delivery(**options)
    enter_job(one.job)  # as the pool does
    outcome: Outcome = await runner.run(one)
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
    @pytest.mark.parametrize("make", [handler, plain_handler])
    @pytest.mark.parametrize("value", [None, 0, "x", (1,), object()])
    async def test_a_returned_value_is_the_outcome(
        self,
        make: Make,
        value: object,
        threads: HandlerThreads,
    ) -> None:
        runner = LoopRunner(make(value)) if make is handler else ThreadRunner(make(value), threads)
        assert await run(runner) == Done(value)

    @pytest.mark.parametrize("make", [handler, plain_handler])
    @pytest.mark.parametrize("how", ["raised", "returned"])
    async def test_retry_snooze_and_bury_can_be_raised_or_returned(
        self,
        make: Make,
        how: str,
        threads: HandlerThreads,
    ) -> None:
        async def outcome_of(error: Exception) -> Outcome:
            function = make(error) if how == "returned" else make(error=error)
            runner = LoopRunner(function) if make is handler else ThreadRunner(function, threads)
            return await run(runner)

        assert await outcome_of(Snooze(2)) == Snoozed(2000)
        retry = await outcome_of(Retry("later", after=3))
        assert isinstance(retry, Failed)
        assert (retry.after_ms, retry.failure.message) == (3000, "later")
        assert isinstance(await outcome_of(Bury("enough")), UnrecoverableFailure)

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
        threads: HandlerThreads,
    ) -> None:
        function = make(error=error)
        runner = LoopRunner(function) if make is handler else ThreadRunner(function, threads)
        outcome = await run(runner)
        assert isinstance(outcome, Failed)
        assert outcome.failure.error_type == type(error).__name__
        assert outcome.failure.message == str(error)

    @pytest.mark.parametrize("make", [handler, plain_handler])
    async def test_without_failures_in_the_log_only_the_last_attempt_has_a_whole_traceback(
        self,
        make: Make,
        threads: HandlerThreads,
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
        self, make: Make, threads: HandlerThreads
    ) -> None:
        function = make(error=ValueError("x"))
        runner = LoopRunner(function) if make is handler else ThreadRunner(function, threads)
        outcome = await run(runner, attempt=1)
        assert isinstance(outcome, Failed)
        assert "in function" in outcome.failure.traceback


class TestOnTheLoop:
    async def test_cancellation_passes(self) -> None:
        begun = asyncio.Event()

        async def function(job: Job[Any]) -> None:
            begun.set()
            await asyncio.Event().wait()

        running = asyncio.create_task(run(LoopRunner(function)))
        await begun.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


class TestInAThread:
    async def test_it_knows_its_job_and_the_context_of_the_worker(
        self, threads: HandlerThreads
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

    async def test_closing_does_not_wait_for_running_functions(self) -> None:
        begun, opened = threading.Event(), threading.Event()

        def function(job: Job[Any]) -> None:
            begun.set()
            opened.wait(20)

        runner = ThreadRunner(function, HandlerThreads(1))
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
