"""Batches on their way to a pool."""

import asyncio
from typing import Any

import pytest

from tampu.consumer.batching import BatchDelivery, Batches, BatchSettler, batch_value, jobs_of
from tampu.consumer.handler import Batch, HandlerPlan
from tampu.consumer.intake import Delivery
from tampu.outcome import Done, Failed, Throttled
from tampu.wire.dead import Failure
from tests.unit.consumer.deliveries import delivery, plan
from tests.unit.consumer.pools import FakeSettler

LONG = "1h"


class Collected:
    """Batches of one handler, what was offered to the pool, and how jobs were settled."""

    def __init__(self, batch: Batch) -> None:
        alone = plan()
        self.plan = HandlerPlan(alone.runner, 3, alone.backoff, None, batch=batch)
        self.alone = alone
        self.settler = FakeSettler()
        self.offered: list[BatchDelivery] = []
        plans: dict[str | None, HandlerPlan] = {"index": self.plan, "alone": alone}
        settler: Any = self.settler
        self.batches = Batches(plans, settler, free=self.free)
        self.batches.open(self.offered.extend)

    async def free(self, deliveries: list[Delivery]) -> bool:
        raise AssertionError(deliveries)

    def collect(self, *data: object) -> list[Delivery]:
        made = [delivery(each, made=self.plan) for each in data]
        assert self.batches.collect(made) == []
        return made


async def test_what_is_held_is_counted_until_a_slot_takes_it() -> None:
    collected = Collected(Batch(2, wait=LONG))
    made = collected.collect(1, 2, 3)
    assert collected.batches.held == 3
    (full,) = collected.offered
    assert collected.batches.waiting() == made[2:]
    full.begin(collected.settler)
    assert collected.batches.held == 1
    assert collected.batches.withdraw() == made[2:]
    assert collected.batches.held == 0


async def test_a_batch_that_waits_for_a_slot_takes_more_jobs() -> None:
    collected = Collected(Batch(3, wait=0))
    collected.collect(1)
    await asyncio.sleep(0.01)
    (work,) = collected.offered
    collected.collect(2)
    assert len(work) == 2
    work.begin(collected.settler)
    collected.collect(3)
    assert [len(each) for each in (work, *collected.offered[1:])] == [2]
    assert [each.job.data for each in collected.batches.withdraw()] == [3]


async def test_deliveries_without_a_batch_pass_and_set_the_share() -> None:
    collected = Collected(Batch(10, wait=LONG))
    assert (collected.batches.share, collected.batches.a_slot) == (0, 1)
    alone = delivery(made=collected.alone)
    mixed = [
        alone,
        delivery(made=collected.plan),
        delivery(made=collected.plan),
        delivery(made=collected.plan),
    ]
    assert collected.batches.collect(mixed) == [alone]
    assert collected.batches.share == 0.375
    collected.batches.withdraw()


async def test_jobs_that_are_taken_out_leave_and_an_empty_batch_is_forgotten() -> None:
    collected = Collected(Batch(2, wait=LONG))
    gone = collected.collect("gone")
    assert collected.batches.take_out(lambda each: each.job.data == "gone") == gone
    assert (collected.batches.held, collected.batches.waiting()) == (0, [])
    collected.collect("b", "c")
    assert [each.job.data for each in jobs_of(collected.offered)] == ["b", "c"]


async def test_each_job_that_is_left_gets_the_outcome_of_the_batch() -> None:
    collected = Collected(Batch(3, wait=LONG))
    collected.collect("a", "b", "c")
    (work,) = collected.offered
    settler = BatchSettler(collected.settler)
    settler.start(work)
    assert collected.settler.started == ["a", "b", "c"]
    work.job.done(work.job[1], 7)
    failed = Failed(Failure("E", "no"))
    assert collected.batches.running == 2
    settler.put(work, failed, 1)
    assert collected.batches.running == 0
    expected = [("b", Done(7)), ("a", failed), ("c", failed)]
    assert collected.settler.outcomes == expected


async def test_jobs_of_a_throttled_batch_go_back_in_an_order_that_keeps_theirs() -> None:
    collected = Collected(Batch(3, wait=LONG))
    collected.collect("a", "b", "c")
    settler = BatchSettler(collected.settler)
    settler.start(collected.offered[0])
    settler.put(collected.offered[0], Throttled(5), 1)
    assert [data for data, _ in collected.settler.outcomes] == ["c", "b", "a"]


def test_values_of_different_types_are_different() -> None:
    values: list[object] = [1, True, 1.0, "1", None, [1], {"a": 1}]
    found = {batch_value("by", {"by": each}) for each in values}
    assert len(found) == len(values)
    assert batch_value("by", {}) == batch_value("by", {"by": None}) == batch_value("by", 3)
    assert batch_value(None, 3) == b""
    with pytest.raises(ZeroDivisionError):
        batch_value(lambda data: 1 / data, 0)
