"""Ordered jobs: one at a time of each key, and the next one only after it."""

import asyncio
from collections import defaultdict
from typing import Any
from zlib import crc32

import pytest

from tampu import Job, NewJob, Snooze
from tampu.backoff import Backoff
from tests.contract.workers import KEYS, Boom, Harness, until_empty
from tests.effort import THOROUGH
from tests.gates import look_at_gate
from tests.waiting import wait_until

pytestmark = pytest.mark.every_server


@pytest.mark.timeout(600 if THOROUGH else 120)
async def test_ordered_jobs_succeed_in_their_order_whatever_happens(harness: Harness) -> None:
    """Some fail, some are snoozed, and a worker is stopped in mid-run."""
    keys, each = (1000, 100) if THOROUGH else (60, 8)
    done: dict[str, list[int]] = defaultdict(list)
    inside: set[str] = set()

    async def work(job: Job[Any]) -> None:
        key, number = job.data
        assert key not in inside, "two of a key at a time"
        inside.add(key)
        try:
            await asyncio.sleep(0)
            chance = (crc32(f"{key} {number}".encode()) + job.attempt) % 40
            if job.attempt == 1 and chance < 4:
                raise ValueError("in its first attempt")
            if chance == 20 and (key, number) not in snoozed:
                snoozed.add((key, number))
                raise Snooze(0.01)
            done[key].append(number)
        finally:
            inside.discard(key)

    snoozed: set[tuple[str, int]] = set()
    options: Any = {"concurrency": 50, "backoff": Backoff.fixed(0.01), "attempts": 10}
    first = await harness.start_worker(work, **options)
    for number in range(each):
        jobs = [NewJob("j", [f"k{k}", number], key=f"k{k}", ordered=True) for k in range(keys)]
        await harness.queue.add_many(jobs)
    await harness.start_worker(work, **options)
    await wait_until(
        lambda: sum(map(len, done.values())) > keys * each // 4, within=300, sentence="a quarter"
    )
    await first.stop(grace=0)
    await wait_until(
        lambda: sum(map(len, done.values())) >= keys * each, within=300, sentence="all are done"
    )
    await until_empty(harness)
    assert done == {f"k{key}": list(range(each)) for key in range(keys)}


async def test_a_buried_job_lets_the_next_of_its_key_run(harness: Harness) -> None:
    boom = Boom(times=1)
    await harness.start_worker(boom, attempts=1)
    for number in range(3):
        await harness.queue.add("j", number, key="k", ordered=True)
    await boom.until(3)
    assert boom.data == [0, 1, 2]
    await until_empty(harness)


async def test_a_job_that_waits_to_be_retried_holds_up_its_key_only(harness: Harness) -> None:
    boom = Boom(times=1)
    await harness.start_worker(boom, attempts=2, backoff=Backoff.fixed(60), concurrency=1)
    await harness.queue.add("j", "a1", key="a", ordered=True)
    await boom.until(1)
    await harness.queue.add("j", "a2", key="a", ordered=True)
    await harness.queue.add("j", "b1", key="b", ordered=True)
    await boom.until(2)
    assert boom.data == ["a1", "b1"]
    assert look_at_gate(harness.admin, KEYS).lined == 2
