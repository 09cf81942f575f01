"""Time limits of handlers, and the context that each of them finds."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextvars import ContextVar
from typing import Any

import pytest

from tampu.consumer.intake import Delivery
from tampu.consumer.pool import Pool
from tampu.consumer.runners.local import LoopRunner, ThreadRunner
from tampu.consumer.runners.threads import HandlerThreads
from tampu.job import Job, current_job
from tampu.outcome import Bury, Done, Failed, Outcome, Released, UnrecoverableFailure
from tests.unit.consumer.deliveries import delivery, runner_plan
from tests.unit.consumer.pools import SOON, FakeSettler, pool_of
from tests.waiting import wait_until

_seen: ContextVar[object] = ContextVar("seen", default="nothing")
_other: ContextVar[object] = ContextVar("other", default="nothing")


@pytest.fixture
def settler() -> FakeSettler:
    return FakeSettler()


@pytest.fixture
async def pool(settler: FakeSettler) -> AsyncIterator[Pool]:
    """A pool with one slot, so that all jobs run one after the other."""
    async with pool_of(1, settler) as opened:
        yield opened


def on_loop(function: Any, data: object = None, *, timeout_s: float | None = None) -> Delivery:  # noqa: ANN401
    return delivery(data, made=runner_plan(LoopRunner(function)), timeout_s=timeout_s)


async def outcome_of(pool: Pool, settler: FakeSettler, one: Delivery) -> Outcome:
    """The outcome of a job. The pool runs another one after it."""

    async def next_one(job: Job[Any]) -> str:
        await asyncio.sleep(0)
        return "next"

    before = len(settler.outcomes)
    pool.offer([one, on_loop(next_one)])
    await settler.until(before + 2)
    (_, outcome), (_, following) = settler.outcomes[before:]
    assert following == Done("next")
    return outcome


def is_timeout(outcome: Outcome) -> bool:
    return isinstance(outcome, Failed) and outcome.failure.error_type == "JobTimeout"


class TestLimits:
    async def test_a_handler_is_cancelled_at_its_time_limit(
        self, pool: Pool, settler: FakeSettler
    ) -> None:
        cancelled = asyncio.Event()

        async def handler(job: Job[Any]) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        outcome = await outcome_of(pool, settler, on_loop(handler, timeout_s=0.01))
        assert is_timeout(outcome)
        assert cancelled.is_set()

    async def test_each_handler_has_its_own_limit(self, settler: FakeSettler) -> None:
        opened = asyncio.Event()

        async def handler(job: Job[Any]) -> object:
            await opened.wait()
            return job.data

        limits = [60.0, 0.04, None, 0.02, 60.0]
        async with pool_of(5, settler) as pool:
            pool.offer([on_loop(handler, limit, timeout_s=limit) for limit in limits])
            await settler.until(2)
            assert {number for number, _ in settler.outcomes} == {0.02, 0.04}
            pool.offer([on_loop(handler, "later", timeout_s=0.01)])
            await settler.until(3)
            assert all(is_timeout(outcome) for _, outcome in settler.outcomes)
            opened.set()
            await settler.until(6)
        assert [outcome for _, outcome in settler.outcomes[3:]] == [
            Done(60.0),
            Done(None),
            Done(60.0),
        ]

    async def test_an_attempt_that_ignores_its_cancellation_has_failed(
        self, pool: Pool, settler: FakeSettler
    ) -> None:
        async def handler(job: Job[Any]) -> str:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await asyncio.sleep(0)
            return "a value"

        assert is_timeout(await outcome_of(pool, settler, on_loop(handler, timeout_s=0.01)))

    async def test_an_attempt_that_blocked_the_loop_past_its_limit_has_failed(
        self, pool: Pool, settler: FakeSettler
    ) -> None:
        async def handler(job: Job[Any]) -> str:
            time.sleep(0.02)  # noqa: ASYNC251 - that is what is tested
            return "a value"

        assert is_timeout(await outcome_of(pool, settler, on_loop(handler, timeout_s=0.01)))

    async def test_an_attempt_that_raises_after_its_limit_keeps_its_traceback(
        self, pool: Pool, settler: FakeSettler
    ) -> None:
        async def handler(job: Job[Any]) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                raise OSError("while it ended")

        outcome = await outcome_of(pool, settler, on_loop(handler, timeout_s=0.01))
        assert isinstance(outcome, Failed)
        assert outcome.failure.error_type == "JobTimeout"
        assert "while it ended" in outcome.failure.traceback

    async def test_a_handler_can_bury_its_job_at_its_time_limit(
        self, pool: Pool, settler: FakeSettler
    ) -> None:
        async def handler(job: Job[Any]) -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise Bury("too slow") from None

        outcome = await outcome_of(pool, settler, on_loop(handler, timeout_s=0.01))
        assert isinstance(outcome, UnrecoverableFailure)

    async def test_a_timeout_inside_a_handler_is_its_own(
        self, pool: Pool, settler: FakeSettler
    ) -> None:
        async def handler(job: Job[Any]) -> str:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await asyncio.Event().wait()
            return "went on"

        outcome = await outcome_of(pool, settler, on_loop(handler, timeout_s=60))
        assert outcome == Done("went on")

    async def test_a_longer_timeout_inside_a_handler_does_not_take_the_cancellation(
        self, pool: Pool, settler: FakeSettler
    ) -> None:
        async def handler(job: Job[Any]) -> None:
            async with asyncio.timeout(60):
                await asyncio.Event().wait()

        assert is_timeout(await outcome_of(pool, settler, on_loop(handler, timeout_s=0.01)))

    async def test_a_handler_that_cancels_itself_has_not_reached_its_limit(
        self, pool: Pool, settler: FakeSettler
    ) -> None:
        async def handler(job: Job[Any]) -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)

        outcome = await outcome_of(pool, settler, on_loop(handler, timeout_s=60))
        assert isinstance(outcome, Failed)
        assert outcome.failure.error_type == "CancelledError"

    async def test_a_handler_that_the_worker_stops_is_released(self, settler: FakeSettler) -> None:
        begun = asyncio.Event()

        async def handler(job: Job[Any]) -> None:
            begun.set()
            await asyncio.Event().wait()

        async with pool_of(1, settler) as pool:
            pool.offer([on_loop(handler, timeout_s=60)])
            await begun.wait()
        assert settler.outcomes == [(None, Released())]

    async def test_a_plain_function_that_takes_longer_than_its_limit_fails_whatever_it_returns(
        self, pool: Pool, settler: FakeSettler
    ) -> None:
        threads, waiting = HandlerThreads(1), threading.Event()
        made = runner_plan(ThreadRunner(lambda job: waiting.wait(0.03), threads))
        outcome = await outcome_of(pool, settler, delivery(made=made, timeout_s=0.01))
        threads.close()
        assert is_timeout(outcome)


class Incomparable:
    def __eq__(self, other: object) -> bool:
        raise ValueError("which of them?")

    __hash__ = object.__hash__


class TestContext:
    async def test_a_job_does_not_see_what_an_earlier_one_has_set(
        self, pool: Pool, settler: FakeSettler
    ) -> None:
        async def handler(job: Job[Any]) -> object:
            before = (_seen.get(), _other.get())
            _seen.set(job.data)
            await asyncio.sleep(0)
            _other.set(job.data)
            assert current_job() is job
            return before

        pool.offer([on_loop(handler, number) for number in range(10)])
        await settler.until(10)
        assert [outcome for _, outcome in settler.outcomes] == [Done(("nothing", "nothing"))] * 10

    async def test_every_job_sees_what_was_set_before_the_pool_was_made(
        self, settler: FakeSettler
    ) -> None:
        async def handler(job: Job[Any]) -> object:
            before = _seen.get()
            _seen.set(job.data)
            return before

        _seen.set("by the program")
        async with pool_of(2, settler) as pool:
            _seen.set("after that")
            for _ in range(3):
                pool.offer([on_loop(handler, number) for number in range(4)])
            await settler.until(12)
        assert {str(outcome) for _, outcome in settler.outcomes} == {str(Done("by the program"))}

    async def test_a_variable_can_be_reset_and_the_slot_goes_on(
        self, pool: Pool, settler: FakeSettler
    ) -> None:
        async def handler(job: Job[Any]) -> object:
            token = _seen.set(job.data)
            await asyncio.sleep(0)
            _seen.reset(token)
            return id(asyncio.current_task())

        pool.offer([on_loop(handler, number) for number in range(5)])
        await settler.until(5)
        assert len({str(outcome) for _, outcome in settler.outcomes}) == 1

    async def test_values_that_cannot_be_compared_do_not_leak_either(
        self, settler: FakeSettler, caplog: pytest.LogCaptureFixture
    ) -> None:
        first = Incomparable()

        async def handler(job: Job[Any]) -> object:
            before = _seen.get()
            _seen.set(Incomparable())
            return before is first

        _seen.set(first)
        async with pool_of(1, settler) as pool:
            pool.offer([on_loop(handler, number) for number in range(3)])
            await settler.until(3)
        assert [outcome for _, outcome in settler.outcomes] == [Done(True)] * 3  # noqa: FBT003
        assert caplog.messages == []

    async def test_a_task_that_a_job_leaves_behind_keeps_its_job(
        self, pool: Pool, settler: FakeSettler
    ) -> None:
        left: list[asyncio.Task[str]] = []
        opened = asyncio.Event()

        async def look() -> str:
            await opened.wait()
            return current_job().id

        async def handler(job: Job[Any]) -> str:
            left.append(asyncio.create_task(look()))
            return current_job().id

        made = runner_plan(LoopRunner(handler))
        pool.offer([delivery(job_id=name, made=made) for name in "abc"])
        await settler.until(3)
        opened.set()
        assert await asyncio.gather(*left) == ["a", "b", "c"]
        assert [outcome for _, outcome in settler.outcomes] == [Done(name) for name in "abc"]

    async def test_a_replaced_slot_still_takes_jobs_that_come_later(
        self, pool: Pool, settler: FakeSettler
    ) -> None:
        async def handler(job: Job[Any]) -> None:
            _seen.set(job.data)

        for number in range(3):
            pool.offer([on_loop(handler, number)])
            await settler.until(number + 1)
            await wait_until(lambda: pool.free == 1, within=SOON, sentence="the slot is free")
