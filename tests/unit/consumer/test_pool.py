"""The slots in which handlers run."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from time import monotonic

import pytest

from tampu.consumer.intake import Delivery
from tampu.consumer.pool import Pool
from tampu.outcome import Done, Failed, Outcome, Released
from tests.unit.consumer.deliveries import delivery, plan
from tests.waiting import wait_until

SOON = 10.0
Run = Callable[[Delivery], Awaitable[Outcome]]


class Ends:
    """Notes what began and what ended how."""

    def __init__(self) -> None:
        self.begun: list[object] = []
        self.outcomes: list[tuple[object, Outcome]] = []
        self.room = 0
        self.broken = False

    def start(self, delivery: Delivery) -> None:
        self.begun.append(delivery.job.data)

    def put(self, delivery: Delivery, outcome: Outcome, duration_ns: int) -> None:
        assert duration_ns >= 0
        if self.broken:
            raise OSError("a settler must not do that")
        self.outcomes.append((delivery.job.data, outcome))

    def on_room(self) -> None:
        self.room += 1

    async def until(self, count: int) -> None:
        await wait_until(
            lambda: len(self.outcomes) >= count, within=SOON, sentence=f"{count} runs have ended"
        )


@pytest.fixture
def ends() -> Ends:
    return Ends()


@pytest.fixture
async def pool(ends: Ends) -> AsyncIterator[Pool]:
    """A pool of three slots."""
    opened = Pool(3, ends, on_room=ends.on_room)
    opened.start()
    yield opened
    await opened.drain(0)
    names = [task.get_name() for task in asyncio.all_tasks()]
    assert not [name for name in names if name.startswith("tampu-slot")]


def jobs(run: Run, count: int, *, first: int = 0, read_at: float = 0.0) -> list[Delivery]:
    made = plan(run)
    return [delivery(first + i, made=made, read_at=read_at) for i in range(count)]


class Gate:
    """Runs that wait until they may go on."""

    def __init__(self) -> None:
        self.open = asyncio.Event()

    async def __call__(self, delivery: Delivery) -> Outcome:
        await self.open.wait()
        return Done(delivery.job.data)


async def quick(delivery: Delivery) -> Outcome:
    return Done(delivery.job.data)


class TestWork:
    async def test_every_delivery_is_run_once_and_its_outcome_told(
        self, pool: Pool, ends: Ends
    ) -> None:
        pool.offer(jobs(quick, 100))
        await ends.until(100)
        assert ends.outcomes == [(i, Done(i)) for i in range(100)]
        assert ends.begun == list(range(100))

    async def test_as_many_run_at_a_time_as_there_are_slots(self, pool: Pool, ends: Ends) -> None:
        gate = Gate()
        pool.offer(jobs(gate, 10))
        await wait_until(lambda: pool.busy == 3, within=SOON, sentence="all slots are busy")
        assert (pool.size, pool.free, pool.waiting, len(pool.held())) == (3, 0, 7, 10)
        gate.open.set()
        await ends.until(10)
        await wait_until(lambda: pool.free == 3, within=SOON, sentence="all slots are free")
        assert (pool.busy, pool.waiting, pool.held()) == (0, 0, [])

    async def test_what_is_offered_first_goes_before_what_waits(
        self, pool: Pool, ends: Ends
    ) -> None:
        gate = Gate()
        pool.offer(jobs(gate, 3))
        await wait_until(lambda: pool.busy == 3, within=SOON, sentence="all slots are busy")
        pool.offer(jobs(quick, 1, first=50))
        pool.offer(jobs(quick, 1, first=60), first=True)
        gate.open.set()
        await ends.until(5)
        assert ends.begun == [0, 1, 2, 60, 50]

    async def test_room_is_told_when_slots_run_out_of_work_or_little_is_left(
        self, pool: Pool, ends: Ends
    ) -> None:
        await wait_until(lambda: pool.free == 3, within=SOON, sentence="all slots are free")
        told, pool.low_mark = ends.room, 2
        gate = Gate()
        pool.offer(jobs(gate, 4))
        await wait_until(lambda: pool.busy == 3, within=SOON, sentence="all slots are busy")
        assert ends.room == told + 1  # two were left when the second slot had its own
        gate.open.set()
        await wait_until(lambda: pool.free == 3, within=SOON, sentence="all slots are free")
        assert ends.room == told + 4

    async def test_runs_that_never_suspend_give_way(self, pool: Pool, ends: Ends) -> None:
        async def busy(delivery: Delivery) -> Outcome:
            until = monotonic() + 0.002
            while monotonic() < until:
                pass
            return Done(None)

        pool.offer(jobs(busy, 50))
        turns = 0
        while len(ends.outcomes) < 50:
            await asyncio.sleep(0)
            turns += 1
        assert turns >= 4  # 100 ms of work, of which each of three slots does about 6 at a time


class TestTakingBack:
    async def test_only_what_no_slot_has_is_taken_back_the_youngest_first(
        self, pool: Pool, ends: Ends
    ) -> None:
        gate = Gate()
        pool.offer(jobs(gate, 8))
        await wait_until(lambda: pool.busy == 3, within=SOON, sentence="all slots are busy")
        assert [each.job.data for each in pool.withdraw(keep=2)] == [7, 6, 5]
        assert [each.job.data for each in pool.withdraw()] == [4, 3]
        assert pool.withdraw() == []
        gate.open.set()
        await ends.until(3)

    async def test_the_first_in_line_says_how_long_it_waits(self, pool: Pool) -> None:
        assert pool.oldest_wait_s(10.0) == 0.0
        gate = Gate()
        pool.offer(jobs(gate, 5, read_at=4.0))
        await wait_until(lambda: pool.busy == 3, within=SOON, sentence="all slots are busy")
        assert pool.oldest_wait_s(10.0) == 6.0
        pool.withdraw()
        gate.open.set()


class TestEnding:
    async def test_running_ones_get_the_grace_and_waiting_ones_are_not_begun(
        self, pool: Pool, ends: Ends
    ) -> None:
        gate = Gate()
        pool.offer(jobs(gate, 5))
        await wait_until(lambda: pool.busy == 3, within=SOON, sentence="all slots are busy")
        draining = asyncio.create_task(pool.drain(SOON))
        await asyncio.sleep(0)
        gate.open.set()
        await draining
        assert ends.outcomes == [(i, Done(i)) for i in range(3)]
        assert pool.waiting == 2

    async def test_what_outlasts_the_grace_is_abandoned(self, pool: Pool, ends: Ends) -> None:
        pool.offer(jobs(Gate(), 2))
        await wait_until(lambda: pool.busy == 2, within=SOON, sentence="two are busy")
        await pool.drain(0.01)
        assert {number for number, _ in ends.outcomes} == {0, 1}
        assert [outcome for _, outcome in ends.outcomes] == [Released(), Released()]

    async def test_a_run_that_cancels_itself_has_failed_and_its_slot_goes_on(
        self, pool: Pool, ends: Ends
    ) -> None:
        async def cancelling(delivery: Delivery) -> Outcome:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)
            return Done(None)

        pool.offer(jobs(cancelling, 6))
        await ends.until(6)
        pool.offer(jobs(quick, 6, first=10))
        await ends.until(12)
        assert all(isinstance(outcome, Failed) for _, outcome in ends.outcomes[:6])
        assert ends.outcomes[6:] == [(i, Done(i)) for i in range(10, 16)]

    async def test_a_cancellation_left_behind_reaches_nobody(self, ends: Ends) -> None:
        async def leaving(delivery: Delivery) -> Outcome:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            return Done(delivery.job.data)

        async def suspending(delivery: Delivery) -> Outcome:
            await asyncio.sleep(0)
            return Done(delivery.job.data)

        pool = Pool(1, ends, on_room=ends.on_room)
        pool.start()
        for first in (0, 10):  # the second time the slot has gone to sleep in between
            pool.offer(jobs(leaving, 1, first=first))
            pool.offer(jobs(suspending, 2, first=first + 1))
            await ends.until(3 if first == 0 else 6)
            await wait_until(lambda: pool.free == 1, within=SOON, sentence="the slot is free")
        await pool.drain(0)
        assert [outcome for _, outcome in ends.outcomes] == [Done(i) for i in (0, 1, 2, 10, 11, 12)]

    async def test_a_runner_that_raises_has_failed_the_attempt(
        self, pool: Pool, ends: Ends
    ) -> None:
        async def raising(delivery: Delivery) -> Outcome:
            raise OSError("a runner must not do that")

        pool.offer(jobs(raising, 5))
        await ends.until(5)
        assert all(isinstance(outcome, Failed) for _, outcome in ends.outcomes)

    async def test_a_slot_that_dies_of_the_unforeseen_is_opened_anew(
        self, pool: Pool, ends: Ends, caplog: pytest.LogCaptureFixture
    ) -> None:
        ends.broken = True
        pool.offer(jobs(quick, 5))
        await wait_until(
            lambda: caplog.messages.count("a slot died") == 5, within=SOON, sentence="five died"
        )
        ends.broken = False
        pool.offer(jobs(quick, 5))
        await ends.until(5)
        assert pool.busy == 0
