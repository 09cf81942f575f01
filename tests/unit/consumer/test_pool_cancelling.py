"""Cancelling jobs that wait or run."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tampu.consumer.intake import Delivery
from tampu.consumer.pool import Pool
from tampu.consumer.runners.local import LoopRunner, ProcessRunner, ThreadRunner
from tampu.consumer.runners.threads import HandlerThreads
from tampu.job import Job, current_job
from tampu.outcome import Cancelled, Done, Snooze
from tampu.wire.payload import encode_payload
from tests.unit.consumer.deliveries import delivery, runner_plan
from tests.unit.consumer.pools import SOON, FakeSettler, pool_of
from tests.unit.consumer.runners import child_handlers
from tests.unit.consumer.runners.child_runs import is_gone, pid_in
from tests.waiting import wait_until

LONG = 60.0


@pytest.fixture
def settler() -> FakeSettler:
    return FakeSettler()


@pytest.fixture
async def pool(settler: FakeSettler) -> AsyncIterator[Pool]:
    """A pool with one slot, so that all jobs run one after the other."""
    async with pool_of(1, settler) as opened:
        yield opened


@pytest.fixture
async def threads() -> AsyncIterator[HandlerThreads]:
    made = HandlerThreads(1)
    yield made
    made.close()


class Waiting:
    """An async handler that waits, and does what it is told when it is cancelled."""

    def __init__(self, when_cancelled: Callable[[], object] | None = None) -> None:
        self.begun, self.cancelled, self.go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._when_cancelled = when_cancelled

    async def __call__(self, job: Job[Any]) -> object:
        self.begun.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            assert job.cancelled
            self.cancelled.set()
            if self._when_cancelled is None:
                raise
            return self._when_cancelled()
        return job.data


class Stubborn(Waiting):
    """An async handler that ignores its cancellation."""

    async def __call__(self, job: Job[Any]) -> object:
        self.begun.set()
        while not self.go_on.is_set():
            try:
                await self.go_on.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
        return job.data


class Looking:
    """A plain handler that looks whether its job is cancelled."""

    def __init__(self, when_cancelled: Callable[[], object] = lambda: None) -> None:
        self.begun, self.cancelled, self.go_on = (threading.Event() for _ in range(3))
        self._when_cancelled = when_cancelled

    def __call__(self, job: Job[Any]) -> object:
        self.begun.set()
        while not self.go_on.wait(0.002):
            if current_job().cancelled:
                self.cancelled.set()
                return self._when_cancelled()
        return job.data

    async def until_begun(self) -> None:
        await wait_until(self.begun.is_set, within=SOON, sentence="the function runs")


def fail() -> object:
    raise OSError("it was told to stop")


def job(number: int, handler: Any, *, timeout_s: float | None = None) -> Delivery:  # noqa: ANN401
    made = runner_plan(LoopRunner(handler))
    return delivery(number, job_id=str(number), made=made, timeout_s=timeout_s)


def plain_job(number: int, handler: Any, threads: HandlerThreads) -> Delivery:  # noqa: ANN401
    made = runner_plan(ThreadRunner(handler, threads))
    return delivery(number, job_id=str(number), made=made)


async def quick(job: Job[Any]) -> object:
    await asyncio.sleep(0)
    return job.data


class TestWaiting:
    async def test_a_job_that_waits_does_not_start(self, pool: Pool, settler: FakeSettler) -> None:
        handler = Waiting()
        pool.offer([job(1, handler), job(2, quick), job(3, quick)])
        await handler.begun.wait()
        assert pool.cancel("2", grace_s=5) is True
        assert pool.waiting == 1
        handler.go_on.set()
        await settler.until(3)
        assert settler.outcomes == [(2, Cancelled()), (1, Done(1)), (3, Done(3))]
        assert settler.started == [1, 3]

    async def test_a_job_that_is_not_here_is_not_cancelled(
        self, pool: Pool, settler: FakeSettler
    ) -> None:
        pool.offer([job(1, quick)])
        await settler.until(1)
        assert pool.cancel("1", grace_s=5) is False
        assert pool.cancel("2", grace_s=5) is False
        assert settler.outcomes == [(1, Done(1))]


class TestOnTheLoop:
    async def test_the_handler_is_cancelled_and_the_slot_goes_on(
        self, pool: Pool, settler: FakeSettler
    ) -> None:
        handler = Waiting()
        pool.offer([job(1, handler), job(2, quick)])
        await handler.begun.wait()
        assert pool.cancel("1", grace_s=LONG) is True
        assert pool.cancel("1", grace_s=LONG) is True  # the second call changes nothing
        await settler.until(2)
        assert settler.outcomes == [(1, Cancelled()), (2, Done(2))]
        assert handler.cancelled.is_set()

    @pytest.mark.parametrize("end", [fail, lambda: Snooze(1)])
    async def test_whatever_it_raises_then_it_was_cancelled(
        self, pool: Pool, settler: FakeSettler, end: Callable[[], object]
    ) -> None:
        handler = Waiting(end)
        pool.offer([job(1, handler, timeout_s=LONG)])
        await handler.begun.wait()
        pool.cancel("1", grace_s=LONG)
        await settler.until(1)
        assert settler.outcomes == [(1, Cancelled())]

    async def test_if_it_still_returns_a_value_it_is_done(
        self, pool: Pool, settler: FakeSettler
    ) -> None:
        handler = Waiting(lambda: "finished")
        pool.offer([job(1, handler), job(2, quick)])
        await handler.begun.wait()
        pool.cancel("1", grace_s=LONG)
        await settler.until(2)
        assert settler.outcomes == [(1, Done("finished")), (2, Done(2))]

    async def test_one_that_returns_after_its_time_limit_was_cancelled(
        self, pool: Pool, settler: FakeSettler
    ) -> None:
        handler = Stubborn()
        pool.offer([job(1, handler, timeout_s=0.01)])
        await handler.cancelled.wait()  # at the limit
        pool.cancel("1", grace_s=LONG)
        handler.go_on.set()
        await settler.until(1)
        assert settler.outcomes == [(1, Cancelled())]

    async def test_all_that_run_under_one_id_are_cancelled(self, settler: FakeSettler) -> None:
        first, second = Waiting(), Waiting()
        async with pool_of(2, settler) as pool:
            pool.offer([job(1, first), job(1, second)])
            await first.begun.wait()
            await second.begun.wait()
            pool.cancel("1", grace_s=LONG)
            await settler.until(2)
        assert [outcome for _, outcome in settler.outcomes] == [Cancelled()] * 2

    async def test_one_that_ignores_it_is_abandoned_after_the_grace(
        self, pool: Pool, settler: FakeSettler, caplog: pytest.LogCaptureFixture
    ) -> None:
        handler = Stubborn()
        pool.offer([job(1, handler), job(2, quick)])
        await handler.begun.wait()
        pool.cancel("1", grace_s=0.01)
        await settler.until(2)
        assert settler.outcomes == [(1, Cancelled()), (2, Done(2))]
        assert caplog.messages == [
            "job 1 (greet) was cancelled but still runs after 0.01 s: it is abandoned"
        ]
        assert caplog.records[0].levelno == logging.WARNING
        pool.offer([job(3, quick)])
        await settler.until(3)
        handler.go_on.set()  # nobody looks at what it returns now

    async def test_an_abandoned_handler_is_cancelled_again_when_the_pool_is_drained(
        self, settler: FakeSettler
    ) -> None:
        handler = Stubborn()
        async with pool_of(1, settler) as pool:
            pool.offer([job(1, handler)])
            await handler.begun.wait()
            pool.cancel("1", grace_s=0.01)
            await settler.until(1)
            handler.cancelled.clear()
            draining = asyncio.create_task(pool.drain(0))
            await handler.cancelled.wait()
            handler.go_on.set()
            await draining
        assert settler.outcomes == [(1, Cancelled())]

    async def test_a_job_that_is_cancelled_while_the_pool_drains_is_not_released(
        self, settler: FakeSettler
    ) -> None:
        handler = Stubborn()
        async with pool_of(1, settler) as pool:
            pool.offer([job(1, handler)])
            await handler.begun.wait()
            pool.cancel("1", grace_s=LONG)
            draining = asyncio.create_task(pool.drain(LONG))
            await handler.cancelled.wait()
            pool.limit_grace(0)
            handler.go_on.set()
            await draining
        assert [outcome for _, outcome in settler.outcomes] == [Done(1)]


class TestInAThread:
    async def test_the_function_sees_it_and_what_it_raises_then_does_not_count(
        self, pool: Pool, settler: FakeSettler, threads: HandlerThreads
    ) -> None:
        handler = Looking(fail)
        one = plain_job(1, handler, threads)
        pool.offer([one, plain_job(2, lambda job: job.cancelled, threads)])
        await handler.until_begun()
        assert one.job.cancelled is False
        assert pool.cancel("1", grace_s=LONG) is True
        await settler.until(2)
        assert handler.cancelled.is_set()
        assert settler.outcomes == [(1, Cancelled()), (2, Done(False))]  # noqa: FBT003
        assert one.job.cancelled is False

    async def test_if_it_returns_it_is_done(
        self, pool: Pool, settler: FakeSettler, threads: HandlerThreads
    ) -> None:
        handler = Looking(lambda: "finished")
        pool.offer([plain_job(1, handler, threads)])
        await handler.until_begun()
        pool.cancel("1", grace_s=LONG)
        await settler.until(1)
        assert settler.outcomes == [(1, Done("finished"))]

    async def test_one_that_does_not_look_is_abandoned_and_its_thread_is_replaced(
        self,
        pool: Pool,
        settler: FakeSettler,
        threads: HandlerThreads,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        begun, opened, saw = threading.Event(), threading.Event(), list[bool]()

        def handler(job: Job[Any]) -> None:
            begun.set()
            opened.wait(20)
            saw.append(job.cancelled)

        one = plain_job(1, handler, threads)
        pool.offer([one, plain_job(2, lambda job: "other", threads)])
        await wait_until(begun.is_set, within=SOON, sentence="the function runs")
        pool.cancel("1", grace_s=0.01)
        await settler.until(2)
        assert settler.outcomes == [(1, Cancelled()), (2, Done("other"))]
        assert "abandoned" in caplog.text
        opened.set()
        await wait_until(lambda: saw == [True], within=SOON, sentence="it still saw it")
        await wait_until(lambda: not one.job.cancelled, within=SOON, sentence="nothing is left")


class TestInAProcess:
    async def test_the_child_is_killed_and_another_takes_the_next_job(
        self, pool: Pool, settler: FakeSettler, tmp_path: Path
    ) -> None:
        runner = ProcessRunner(child_handlers.sleeps, limit=1)
        made = runner_plan(runner)

        def sleeping(number: int, seconds: float) -> Delivery:
            one = delivery(number, job_id=str(number), made=made)
            payload = encode_payload([str(tmp_path / str(number)), seconds], max_bytes=1000)
            envelope = one.envelope.__class__(str(number), payload, 0, 0, None)
            return one.__class__(one.entry_id, envelope, one.job, made, b"greet", b"", 0.0, None)

        pool.offer([sleeping(1, 60), sleeping(2, 0)])
        pid = await pid_in(tmp_path / "1")
        assert pool.cancel("1", grace_s=5) is True
        await wait_until(lambda: is_gone(pid), within=SOON, sentence="the child is gone")
        await settler.until(2)
        assert settler.outcomes[0] == (1, Cancelled())
        assert isinstance(settler.outcomes[1][1], Done)
        await runner.close()
