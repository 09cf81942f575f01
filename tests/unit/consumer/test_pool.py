"""The pool runs deliveries in its slots."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from time import monotonic

import pytest

from tampu.consumer.intake import Delivery
from tampu.consumer.pool import Pool
from tampu.outcome import Done, Failed, Outcome, Released
from tests.unit.consumer.deliveries import delivery, plan
from tests.unit.consumer.pools import SOON, FakeSettler, pool_of
from tests.waiting import wait_until

Run = Callable[[Delivery], Awaitable[Outcome]]


@pytest.fixture
def settler() -> FakeSettler:
    return FakeSettler()


@pytest.fixture
async def pool(settler: FakeSettler) -> AsyncIterator[Pool]:
    """A pool of three slots."""
    async with pool_of(3, settler) as opened:
        yield opened


def jobs(run: Run, count: int, *, first: int = 0, read_at: float = 0.0) -> list[Delivery]:
    made = plan(run)
    return [delivery(first + i, made=made, read_at=read_at) for i in range(count)]


class Gate:
    """A runner that waits until it is opened."""

    def __init__(self) -> None:
        self.open = asyncio.Event()

    async def __call__(self, delivery: Delivery) -> Outcome:
        await self.open.wait()
        return Done(delivery.job.data)


async def quick(delivery: Delivery) -> Outcome:
    return Done(delivery.job.data)


class TestWork:
    async def test_every_delivery_runs_once_and_its_outcome_is_settled(
        self, pool: Pool, settler: FakeSettler
    ) -> None:
        pool.offer(jobs(quick, 100))
        await settler.until(100)
        assert settler.outcomes == [(i, Done(i)) for i in range(100)]
        assert settler.started == list(range(100))

    async def test_as_many_handlers_run_at_the_same_time_as_there_are_slots(
        self, pool: Pool, settler: FakeSettler
    ) -> None:
        gate = Gate()
        pool.offer(jobs(gate, 10))
        await wait_until(lambda: pool.busy == 3, within=SOON, sentence="all slots are busy")
        assert (pool.size, pool.free, pool.waiting, len(pool.deliveries())) == (3, 0, 7, 10)
        gate.open.set()
        await settler.until(10)
        await wait_until(lambda: pool.free == 3, within=SOON, sentence="all slots are free")
        assert (pool.busy, pool.waiting, pool.deliveries()) == (0, 0, [])

    async def test_deliveries_offered_first_run_before_those_that_wait(
        self, pool: Pool, settler: FakeSettler
    ) -> None:
        gate = Gate()
        pool.offer(jobs(gate, 3))
        await wait_until(lambda: pool.busy == 3, within=SOON, sentence="all slots are busy")
        pool.offer(jobs(quick, 1, first=50))
        pool.offer(jobs(quick, 1, first=60), first=True)
        gate.open.set()
        await settler.until(5)
        assert settler.started == [0, 1, 2, 60, 50]

    async def test_room_is_signalled_when_slots_have_no_work_or_little_is_left(
        self, pool: Pool, settler: FakeSettler
    ) -> None:
        await wait_until(lambda: pool.free == 3, within=SOON, sentence="all slots are free")
        before, pool.low_mark = settler.room, 2
        gate = Gate()
        pool.offer(jobs(gate, 4))
        await wait_until(lambda: pool.busy == 3, within=SOON, sentence="all slots are busy")
        assert settler.room == before + 1  # two were left when the second slot had its own
        gate.open.set()
        await wait_until(lambda: pool.free == 3, within=SOON, sentence="all slots are free")
        assert settler.room == before + 4

    async def test_handlers_that_never_suspend_yield_to_the_loop(
        self, pool: Pool, settler: FakeSettler
    ) -> None:
        async def busy(delivery: Delivery) -> Outcome:
            until = monotonic() + 0.002
            while monotonic() < until:
                pass
            return Done(None)

        pool.offer(jobs(busy, 50))
        turns = 0
        while len(settler.outcomes) < 50:
            await asyncio.sleep(0)
            turns += 1
        assert turns >= 4  # 100 ms of work, of which each of three slots does about 6 at a time


class TestWithdrawing:
    async def test_only_deliveries_that_wait_are_withdrawn_the_youngest_first(
        self, pool: Pool, settler: FakeSettler
    ) -> None:
        gate = Gate()
        pool.offer(jobs(gate, 8))
        await wait_until(lambda: pool.busy == 3, within=SOON, sentence="all slots are busy")
        assert [each.job.data for each in pool.withdraw()] == [7, 6, 5, 4, 3]
        assert pool.withdraw() == []
        gate.open.set()
        await settler.until(3)

    async def test_the_next_delivery_says_how_long_it_has_waited(self, pool: Pool) -> None:
        assert pool.oldest_wait_s(10.0) == 0.0
        gate = Gate()
        pool.offer(jobs(gate, 5, read_at=4.0))
        await wait_until(lambda: pool.busy == 3, within=SOON, sentence="all slots are busy")
        assert pool.oldest_wait_s(10.0) == 6.0
        pool.withdraw()
        gate.open.set()


class TestEnding:
    async def test_running_handlers_get_the_grace_and_waiting_deliveries_do_not_start(
        self, pool: Pool, settler: FakeSettler
    ) -> None:
        gate = Gate()
        pool.offer(jobs(gate, 5))
        await wait_until(lambda: pool.busy == 3, within=SOON, sentence="all slots are busy")
        draining = asyncio.create_task(pool.drain(SOON))
        await asyncio.sleep(0)
        gate.open.set()
        await draining
        assert settler.outcomes == [(i, Done(i)) for i in range(3)]
        assert pool.waiting == 2

    async def test_handlers_that_outlast_the_grace_are_released(
        self, pool: Pool, settler: FakeSettler
    ) -> None:
        pool.offer(jobs(Gate(), 2))
        await wait_until(lambda: pool.busy == 2, within=SOON, sentence="two are busy")
        await pool.drain(0.01)
        assert {number for number, _ in settler.outcomes} == {0, 1}
        assert [outcome for _, outcome in settler.outcomes] == [Released(), Released()]

    async def test_a_handler_that_cancels_itself_has_failed_and_its_slot_goes_on(
        self, pool: Pool, settler: FakeSettler
    ) -> None:
        async def cancelling(delivery: Delivery) -> Outcome:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)
            return Done(None)

        pool.offer(jobs(cancelling, 6))
        await settler.until(6)
        pool.offer(jobs(quick, 6, first=10))
        await settler.until(12)
        assert all(isinstance(outcome, Failed) for _, outcome in settler.outcomes[:6])
        assert settler.outcomes[6:] == [(i, Done(i)) for i in range(10, 16)]

    async def test_a_cancellation_that_a_handler_leaves_pending_does_not_hit_the_next_job(
        self, settler: FakeSettler
    ) -> None:
        async def leaving(delivery: Delivery) -> Outcome:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            return Done(delivery.job.data)

        async def suspending(delivery: Delivery) -> Outcome:
            await asyncio.sleep(0)
            return Done(delivery.job.data)

        pool = Pool(1, settler, on_room=settler.on_room)
        for first in (0, 10):  # the second time the slot has gone to sleep in between
            pool.offer(jobs(leaving, 1, first=first))
            pool.offer(jobs(suspending, 2, first=first + 1))
            await settler.until(3 if first == 0 else 6)
            await wait_until(lambda: pool.free == 1, within=SOON, sentence="the slot is free")
        await pool.drain(0)
        assert [outcome for _, outcome in settler.outcomes] == [
            Done(i) for i in (0, 1, 2, 10, 11, 12)
        ]

    async def test_a_runner_that_raises_fails_the_attempt(
        self, pool: Pool, settler: FakeSettler
    ) -> None:
        async def raising(delivery: Delivery) -> Outcome:
            raise OSError("a runner must not do that")

        pool.offer(jobs(raising, 5))
        await settler.until(5)
        assert all(isinstance(outcome, Failed) for _, outcome in settler.outcomes)

    async def test_a_slot_that_fails_unexpectedly_is_replaced(
        self, pool: Pool, settler: FakeSettler, caplog: pytest.LogCaptureFixture
    ) -> None:
        settler.broken = True
        pool.offer(jobs(quick, 5))
        await wait_until(
            lambda: len(caplog.messages) == 5, within=SOON, sentence="five slots have failed"
        )
        settler.broken = False
        pool.offer(jobs(quick, 5))
        await settler.until(5)
        assert pool.busy == 0
