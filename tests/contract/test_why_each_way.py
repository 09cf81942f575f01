"""Each way in which a job can wait, and what `why` says: its kind, who holds it, when it opens."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

import pytest

from tampu import (
    Backoff,
    Breaker,
    Concurrency,
    Debounce,
    Job,
    NewJob,
    Rate,
    RateLimited,
    Snooze,
    WaitsFor,
    Why,
)
from tampu.util.clock import instant
from tests.contract.workers import KEYS, SOON, Boom, Calls, Gate, Harness
from tests.waiting import wait_until

HOUR = Backoff.fixed(3600)
Waiting = tuple[Job[Any], str | Callable[[], str], datetime | None]
"""A job that waits, and the sentence and the instant that `why` must give.

A function gives the sentence if it changes while the worker reads.
"""


def text(at: datetime | None) -> str:
    assert at is not None
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def wakes_at(harness: Harness, resource: str) -> datetime:
    """When the gate itself means to let the next job through."""
    return instant(int(harness.admin.zscore(KEYS.gate + b":wake", resource)))


async def until_it_waits(harness: Harness, resource: str) -> None:
    def waits_long() -> bool:
        """Not only until somebody looks again."""
        at_ms: Any = harness.admin.zscore(KEYS.gate + b":wake", resource)
        return at_ms is not None and at_ms > (time.time() + 60) * 1000

    await wait_until(waits_long, within=SOON, sentence=f"a line waits for {resource}")


async def without_a_worker(harness: Harness) -> Waiting:
    return await harness.queue.add("x", key="a"), "No worker serves its queue.", None


async def in_a_paused_queue(harness: Harness) -> Waiting:
    await harness.start_worker(Calls())
    await harness.queue.pause()
    return await harness.queue.add("x", key="a"), "Its queue is paused.", None


async def in_the_stream(harness: Harness) -> Waiting:
    gate = Gate()
    await harness.start_worker(gate, concurrency=1)
    await harness.queue.add("x")
    await gate.until(1)
    jobs = await harness.queue.add_each("x", range(200))

    def sentence() -> str:
        waiting = harness.admin.xlen(KEYS.stream) - harness.pending()
        return (
            "It is the turn of this job, or nearly: "
            f"{waiting} jobs wait for a worker that has a slot for them."
        )

    return jobs[-1], sentence, None


async def behind_others_of_its_line(harness: Harness) -> Waiting:
    gate = Gate()
    await harness.start_worker(gate, concurrency=1)
    await harness.queue.add("x", key="a")
    await gate.until(1)
    jobs = await harness.queue.add_many([NewJob("x", n, key="a") for n in range(200)])

    def sentence() -> str:
        ahead = harness.admin.llen(KEYS.gate + b":line:5/a") - 1
        return (
            f"{ahead} jobs of its line come first; {ahead + 1} jobs wait in all lines, and workers "
            "have no free slot."
        )

    return jobs[-1], sentence, None


async def held_by_a_limit(harness: Harness) -> Waiting:
    gate, limits = Gate(), [Concurrency(7, by="t")]
    await harness.start_worker(gate, concurrency=20)
    holders = await harness.queue.add_many([NewJob("x", {"t": "a"}, limits=limits)] * 7)
    await gate.until(7)
    named = ", ".join(job.id for job in holders[:5])
    sentence = f"x(t) lets 7 jobs of a run at a time, and 7 run now: {named}, ...."
    return await harness.queue.add("x", {"t": "a"}, limits=limits), sentence, None


async def held_by_a_limit_of_its_value(harness: Harness) -> Waiting:
    gate, limits = Gate(), [Concurrency(7, by="t")]
    await harness.start_worker(gate, concurrency=20)
    first = await harness.queue.add("x", {"t": "a"}, limits=limits)
    await gate.until(1)
    await harness.queue.limits.set("x(t)", Concurrency(1), value="a")
    sentence = f"x(t) lets 1 job of a run at a time, and 1 run now: {first.id}."
    return await harness.queue.add("x", {"t": "a"}, limits=limits), sentence, None


async def for_a_rate(harness: Harness, *, strict: bool = False) -> Waiting:
    limits = [Rate("1/h", by="t", strict=strict)]
    await harness.start_worker(Calls())
    await harness.queue.add("x", {"t": "a"}, limits=limits)
    job = await harness.queue.add("x", {"t": "a"}, limits=limits)
    await until_it_waits(harness, "x(t):a")
    opens = wakes_at(harness, "x(t):a")
    return (
        job,
        f"x(t) lets 1/h jobs of a start; the next one may start at {text(opens)}.",
        opens,
    )


async def for_a_window(harness: Harness) -> Waiting:
    return await for_a_rate(harness, strict=True)


async def for_a_closed_limit(harness: Harness) -> Waiting:
    await harness.start_worker(Boom(RateLimited("1h")))
    job = await harness.queue.add("x", limits=[Concurrency(5)])
    await until_it_waits(harness, "x()")
    opens = wakes_at(harness, "x()")
    return job, f"A job has met a rate limit: x() is closed until {text(opens)}.", opens


async def for_a_breaker(harness: Harness) -> Waiting:
    breaker = Breaker(failures=1, of=2, cooldown="1h")
    await harness.start_worker(Boom(), attempts=1, concurrency=1)
    await harness.queue.add_each("x", range(2), breaker=breaker)
    await harness.dead_letters(2)
    job = await harness.queue.add("x", breaker=breaker)
    (stopped,) = await harness.queue.limits.stopped_tasks()
    when = text(stopped.until)
    return (
        job,
        f"Too many of the last 2 attempts of x failed: one of its jobs is tried at {when}.",
        stopped.until,
    )


async def behind_one_that_runs(harness: Harness) -> Waiting:
    gate = Gate()
    await harness.start_worker(gate)
    first = await harness.queue.add("x", key="a", ordered=True)
    await gate.until(1)
    job = await harness.queue.add("x", key="a", ordered=True)
    return job, f"The jobs of key a run one after the other, and {first.id} runs now.", None


async def behind_one_that_has_failed(harness: Harness) -> Waiting:
    await harness.start_worker(Boom(), backoff=HOUR)
    await harness.queue.add("x", key="a", ordered=True)
    job = await harness.queue.add("x", key="a", ordered=True)
    await until_it_waits(harness, ">:a")
    due = wakes_at(harness, ">:a")
    return (
        job,
        "The jobs of key a run one after the other, and the first one waits for its next attempt "
        f"until {text(due)}.",
        due,
    )


async def behind_one_that_is_dead(harness: Harness) -> Waiting:
    await harness.start_worker(Boom(), attempts=1)
    options: Any = {"key": "a", "ordered": True, "on_dead": "halt"}
    await harness.queue.add("x", **options)
    job = await harness.queue.add("x", **options)
    await harness.dead_letters()
    sentence = (
        "The jobs of key a run one after the other, and the first one is dead: it was halted."
    )
    return job, sentence, None


async def delayed(harness: Harness) -> Waiting:
    job = await harness.queue.add("x", delay="1h", limits=[Concurrency(1)])
    due = instant(int(harness.admin.zrange(KEYS.delayed, 0, 0, withscores=True)[0][1]))
    return job, f"It is delayed until {text(due)}.", due


async def debounced(harness: Harness) -> Waiting:
    await harness.queue.add("x", 1, debounce=Debounce("1h"))
    job = await harness.queue.add("x", 2, debounce=Debounce("1h"))
    due = instant(int(harness.admin.zrange(KEYS.delayed, 0, 0, withscores=True)[0][1]))
    return job, f"It is delayed until {text(due)}.", due


async def put_off(harness: Harness, error: BaseException, sentence: str) -> Waiting:
    await harness.start_worker(Boom(error), backoff=HOUR)
    job = await harness.queue.add("x", key="a")
    await wait_until(
        lambda: harness.admin.zcard(KEYS.delayed) == 1, within=SOON, sentence="it waits"
    )
    due = instant(int(harness.admin.zrange(KEYS.delayed, 0, 0, withscores=True)[0][1]))
    return job, f"{sentence} {text(due)}.", due


async def snoozed(harness: Harness) -> Waiting:
    return await put_off(harness, Snooze("1h"), "It is delayed until")


async def failed(harness: Harness) -> Waiting:
    return await put_off(harness, ValueError("no"), "Attempt 1 failed; the next one is due at")


async def dead(harness: Harness) -> Waiting:
    await harness.start_worker(Boom(), attempts=1)
    job = await harness.queue.add("x", key="a")
    await harness.dead_letters()
    return job, "It is dead (retries_exhausted) until somebody replays it.", None


async def expired(harness: Harness) -> Waiting:
    job = await harness.queue.add("x", key="a", expires=0.001)
    await asyncio.sleep(0.01)  # it expires
    await harness.start_worker(Calls())
    await harness.dead_letters()
    return job, "It is dead (expired) until somebody replays it.", None


async def running(harness: Harness) -> Waiting:
    gate = Gate()
    worker = await harness.start_worker(gate)
    job = await harness.queue.add("x", key="a")
    await gate.until(1)
    return job, f"It is not waiting: worker {worker.id} has it, attempt 1.", None


async def done(harness: Harness) -> Waiting:
    await harness.start_worker(Calls(), store_results=True)
    job = await harness.queue.add("x", key="a")
    await job.result(SOON)
    return job, "It is not waiting: it is done.", None


async def cancelled(harness: Harness) -> Waiting:
    job = await harness.queue.add("x", key="a")
    await job.cancel()
    return job, "It is not waiting: it was cancelled.", None


async def dropped(harness: Harness) -> Waiting:
    job = await harness.queue.add("x", key="a", keep="latest")
    await harness.queue.add("x", key="a", keep="latest")
    return job, "It is not waiting: it was cancelled.", None


async def unknown(harness: Harness) -> Waiting:
    sentence = "There is no such job: it is done, was removed, or was never added."
    return harness.queue.job("nobody"), sentence, None


WAYS: dict[Callable[[Harness], Awaitable[Waiting]], WaitsFor] = {
    without_a_worker: WaitsFor.WORKER,
    in_a_paused_queue: WaitsFor.RESUME,
    in_the_stream: WaitsFor.SLOT,
    behind_others_of_its_line: WaitsFor.TURN,
    held_by_a_limit: WaitsFor.LIMIT,
    held_by_a_limit_of_its_value: WaitsFor.LIMIT,
    for_a_rate: WaitsFor.RATE,
    for_a_window: WaitsFor.RATE,
    for_a_closed_limit: WaitsFor.CLOSED,
    for_a_breaker: WaitsFor.BREAKER,
    behind_one_that_runs: WaitsFor.ORDER,
    behind_one_that_has_failed: WaitsFor.ORDER,
    behind_one_that_is_dead: WaitsFor.ORDER,
    delayed: WaitsFor.TIME,
    debounced: WaitsFor.TIME,
    snoozed: WaitsFor.TIME,
    failed: WaitsFor.RETRY,
    dead: WaitsFor.REPLAY,
    expired: WaitsFor.REPLAY,
    running: WaitsFor.NOTHING,
    done: WaitsFor.NOTHING,
    cancelled: WaitsFor.NOTHING,
    dropped: WaitsFor.NOTHING,
    unknown: WaitsFor.NOTHING,
}


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_why_tells_the_true_reason(
    harness: Harness, way: Callable[[Harness], Awaitable[Waiting]]
) -> None:
    job, sentence, until = await way(harness)
    found: list[tuple[Why, str]] = []

    async def is_told() -> bool:
        why = await job.why()
        found[:] = [(why, sentence if isinstance(sentence, str) else sentence())]
        return why.waits_for is WAYS[way] and (callable(sentence) <= (why.sentence == found[0][1]))

    await wait_until(is_told, within=SOON, sentence=f"it waits for {WAYS[way]}")
    ((why, expected),) = found
    assert (why.job_id, why.until) == (job.id, until)
    if way is held_by_a_limit:  # which five of the seven are named is not fixed
        assert len(set(why.holders)) == 5
        assert (why.sentence[:60], why.sentence[-7:]) == (expected[:60], expected[-7:])
    else:
        assert why.sentence == expected
    harness.admin.delete(KEYS.delayed)


def test_every_kind_of_waiting_is_tried() -> None:
    # The steps of a chain are in `test_flow_removing.py`.
    assert set(WAYS.values()) == set(WaitsFor) - {WaitsFor.STEP}
