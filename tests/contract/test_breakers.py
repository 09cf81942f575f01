"""Breakers: a task that keeps failing is stopped, one job is tried, and then all go on or none."""

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tampu import (
    App,
    Breaker,
    Bury,
    Every,
    Job,
    JobInfo,
    JobState,
    NewJob,
    OptionError,
    Queue,
    RateLimited,
    Snooze,
    WaitsFor,
)
from tampu.backoff import Backoff
from tampu.server.lane import Lane
from tampu.server.scripts.gate import NotedOutcome, note_outcomes
from tampu.util.clock import to_ms
from tampu.wire.lines import BreakerDefinition
from tests.contract.apps import working
from tests.contract.workers import KEYS, SOON, Calls, Harness, until_empty
from tests.gates import ManualGate, TakenJob, assert_empty, assert_sound
from tests.servers import RunningServer
from tests.waiting import wait_until

QUICK = Breaker(failures=0.5, of=4, cooldown="0.3s")
WRONG: Any = {"breaker": 0.5}
LONG = Breaker(failures=0.5, of=4, cooldown="1h")


class Service(Calls):
    """A handler that fails as long as the service that it needs is down.

    So many calls fail at once, the others wait until they may end.
    """

    def __init__(self, *, at_once: int) -> None:
        super().__init__()
        self.is_down, self.at_once, self.end = True, at_once, asyncio.Event()

    async def __call__(self, job: Job[Any]) -> object:
        self.jobs.append(job)
        if len(self) > self.at_once:
            await self.end.wait()
        if self.is_down:
            raise ConnectionError("the service is down")
        return job.data


def jobs_of(name: str, count: int, breaker: Breaker) -> list[NewJob]:
    return [NewJob(name, n, breaker=breaker, attempts=1) for n in range(count)]


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name.endswith(".breakers")]


async def is_stopped(harness: Harness, task: str = "call") -> bool:
    return task in [each.task for each in await harness.queue.limits.stopped_tasks()]


async def until_stopped(harness: Harness, service: Service) -> None:
    """Wait until the task is stopped, and its worker has at most the job that waits to end."""
    await wait_until(lambda: is_stopped(harness), within=SOON, sentence="the task is stopped")
    await wait_until(
        lambda: harness.pending() == len(service) - service.at_once,
        within=SOON,
        sentence="what had passed, and has not started, was given back",
    )


async def until_in_line(harness: Harness, job: Job[Any], waits_for: WaitsFor) -> str:
    """Wait until a job waits for this; why, in a sentence."""
    found: list[str] = []

    async def waits() -> bool:
        why = await harness.queue.job(job.id).why()
        found.append(why.sentence)
        return why.waits_for is waits_for

    await wait_until(waits, within=SOON, sentence=f"it waits for {waits_for}")
    return found[-1]


@pytest.mark.every_server
async def test_a_task_that_keeps_failing_is_stopped_and_others_go_on(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    service, other = Service(at_once=4), Calls()
    caplog.set_level(logging.WARNING, "tampu.consumer.breakers")
    await harness.queue.add_many(jobs_of("call", 40, LONG))
    await harness.start_worker({"call": service, "other": other}, concurrency=1)
    await until_stopped(harness, service)
    service.end.set()
    last = (await harness.queue.add("call", 40, breaker=LONG)).id
    await harness.queue.add("other", "x")
    await other.until(1)
    why = await harness.queue.job(last).why()
    assert why.waits_for is WaitsFor.BREAKER
    assert "Too many of the last 4 attempts of call failed: one of its jobs is tried at" in str(why)
    assert why.until is not None
    (stopped,) = await harness.queue.limits.stopped_tasks()
    assert stopped.until == why.until
    await wait_until(
        lambda: harness.admin.xlen(KEYS.stream) == 0,
        within=SOON,
        sentence="the rest is in its line",
    )
    assert len(service) in {4, 5}
    assert logged(caplog) == [
        "4 of the last 4 attempts of call failed: none of its jobs starts for 3600 s"
    ]
    assert_sound(harness.admin, KEYS)


async def test_the_job_that_is_tried_lets_the_others_go_on(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    service = Service(at_once=4)
    caplog.set_level(logging.WARNING, "tampu.consumer.breakers")
    await harness.queue.add_many(jobs_of("call", 40, QUICK))
    await harness.start_worker(service, concurrency=1)
    await wait_until(lambda: is_stopped(harness), within=SOON, sentence="the task is stopped")
    service.is_down = False
    service.end.set()
    await until_empty(harness)
    assert len(service) == 40
    assert not await is_stopped(harness)
    assert logged(caplog)[-1] == "call works again: its jobs start again"
    assert harness.admin.exists(KEYS.gate + b":over") == 0


@pytest.mark.every_server
async def test_attempts_are_counted_over_all_workers_and_producers(harness: Harness) -> None:
    breaker = Breaker(failures=1, of=6, cooldown="1h")
    async with Queue(harness.queue.name, harness.running.url) as other:
        for producer in (harness.queue, other):
            service = Service(at_once=3)
            worker = await harness.start_worker(service)
            await producer.add_many(jobs_of("call", 3, breaker))
            await harness.dead_letters(3 if producer is harness.queue else 6)
            await worker.stop()
    assert await is_stopped(harness)
    assert_sound(harness.admin, KEYS)


@pytest.mark.parametrize("ends", ["retry", "bury", "timeout"])
async def test_whatever_fails_an_attempt_counts(harness: Harness, ends: str) -> None:
    async def fail(_: Job[Any]) -> None:
        if ends == "bury":
            raise Bury
        if ends == "timeout":
            await asyncio.sleep(60)
        raise ValueError("once more")

    await harness.start_worker(fail, attempts=9, backoff=Backoff.fixed(0.01), timeout=0.2)
    await harness.queue.add_many([NewJob("call", n, breaker=LONG) for n in range(4)])
    await wait_until(lambda: is_stopped(harness), within=SOON, sentence="the task is stopped")


async def test_attempts_that_do_not_fail_keep_a_task_going(harness: Harness) -> None:
    """Half of them succeed, or are put off; more than half would have to fail."""
    breaker = Breaker(failures=0.6, of=4, cooldown="1h")
    put_off: set[int] = set()

    async def handle(job: Job[int]) -> None:
        if job.data not in put_off:
            put_off.add(job.data)
            raise (Snooze(0.01), RateLimited(0.01))[job.data % 2]
        if job.data % 2:
            raise ValueError("every other one")

    await harness.queue.add_many(jobs_of("call", 40, breaker))
    await harness.start_worker(handle, concurrency=1)
    await until_empty(harness)
    assert len(put_off) == 40
    assert not await is_stopped(harness)


async def test_a_stopped_task_can_be_resumed_by_hand(harness: Harness) -> None:
    service = Service(at_once=4)
    await harness.queue.add_many(jobs_of("call", 10, LONG))
    await harness.start_worker(service, concurrency=1)
    await until_stopped(harness, service)
    service.is_down = False
    service.end.set()
    assert await harness.queue.resume(task="other") is False
    assert await is_stopped(harness)
    assert await harness.queue.resume(task="call") is True
    await until_empty(harness)
    assert len(service) == 10
    assert await harness.queue.limits.stopped_tasks() == []


async def test_the_job_that_is_tried_is_named(harness: Harness) -> None:
    """Even if its worker stops in between: then another one has it."""
    entered, leave = asyncio.Event(), asyncio.Event()
    breaker = Breaker(failures=1, of=1, cooldown="50ms")
    tried: list[str] = []

    async def handle(job: Job[Any]) -> None:
        if job.data == 0:
            raise ValueError("stops it")
        tried.append(job.id)
        entered.set()
        await leave.wait()

    first = await harness.start_worker(handle, concurrency=1)
    await harness.queue.add_many(jobs_of("call", 1, breaker))
    await wait_until(lambda: is_stopped(harness), within=SOON, sentence="the task is stopped")
    (*_, last) = await harness.queue.add_many(jobs_of("call", 4, breaker)[1:])
    await entered.wait()
    entered.clear()
    await first.stop(grace=0)
    await harness.start_worker(handle, concurrency=10)
    await entered.wait()
    sentence = await until_in_line(harness, last, WaitsFor.BREAKER)
    assert f"{tried[-1]} is tried now" in sentence
    (stopped,) = await harness.queue.limits.stopped_tasks()
    assert stopped.until is None
    assert len(tried) == 2
    leave.set()
    await until_empty(harness)


async def test_a_task_of_an_app_has_a_breaker_and_so_do_its_schedules(
    running: RunningServer,
) -> None:
    app = App(running.url)
    calls = 0

    @app.schedule(Every("20ms"), key="often")
    @app.task(breaker=Breaker(failures=1, of=3, cooldown=timedelta(hours=1)), attempts=1)
    async def call() -> None:
        nonlocal calls
        calls += 1
        raise ConnectionError("the service is down")

    async def is_stopped() -> bool:
        return bool(await app.queue().limits.stopped_tasks())

    async def waits() -> bool:
        counts = await app.queue().counts()
        return counts.waiting > 0 and counts.active == 0

    async with working(app):
        await wait_until(is_stopped, within=SOON, sentence="the task is stopped")
        await wait_until(waits, within=SOON, sentence="jobs of the schedule wait, and none runs")
        ran = calls
        (stopped,) = await app.queue().limits.stopped_tasks()
        assert stopped.task == "call"
        info: JobInfo = await (await call.enqueue()).info()
        assert info.state is JobState.WAITING
        assert calls == ran


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Breaker(failures=0), "Invalid failures 0: expected a share above 0, at most 1"),
        (lambda: Breaker(failures=float("nan")), "Invalid failures nan"),
        (lambda: Breaker(failures=20), "Invalid failures 20"),
        (lambda: Breaker(of=0), "Invalid of 0"),
        (lambda: Breaker(of=1001), "Invalid of 1001"),
        (lambda: Breaker(cooldown=0), "Invalid cooldown 0"),
        (lambda: App().task(**WRONG), r"Invalid breaker 0.5: expected Breaker\(...\)"),
    ],
)
def test_impossible_breakers_are_refused(make: Callable[[], object], problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        make()


# --- at the gate ----------------------------------------------------------------------------------


class ByHand:
    """Takes the jobs of a task with a breaker, and says how they ended."""

    def __init__(self, gate: ManualGate, lane: Lane, breaker: Breaker) -> None:
        self._gate, self._lane, self._breaker = gate, lane, breaker
        cooldown_ms = to_ms("cooldown", breaker.cooldown)
        of = breaker.of
        self._resource = BreakerDefinition("call", breaker.failures, of, cooldown_ms).resource

    async def take(self) -> list[TakenJob]:
        """Wait until something passes, and take it."""
        taken: list[TakenJob] = []

        async def has_passed() -> bool:
            await self._gate.admit()
            taken.extend(self._gate.read())
            return bool(taken)

        await wait_until(has_passed, within=SOON, sentence="a job has passed")
        return taken

    async def end(self, *jobs: TakenJob, failed: bool) -> list[bool]:
        """Have them end so; whether the breaker has stopped the task or let it go on."""
        outcomes = [NotedOutcome(self._resource, job.entry_id, failed) for job in jobs]
        changes = await note_outcomes(self._lane, self._gate.keys, outcomes)
        await self._gate.settle(jobs)
        self._gate.sound()
        return [each.stops for each in changes]


@pytest.mark.every_server
async def test_each_cooldown_tries_one_job_while_it_fails(gate: ManualGate, lane: Lane) -> None:
    breaker = Breaker(failures=1, of=2, cooldown="200ms")
    by_hand = ByHand(gate, lane, breaker)
    await gate.queue.add_many(jobs_of("call", 20, breaker))
    await gate.want(2)
    taken = await by_hand.take()
    assert await by_hand.end(*taken, failed=True) == [True]
    at_ms = taken[-1].at_ms
    for _ in range(2):
        (tried,) = await by_hand.take()
        assert tried.at_ms >= at_ms + 200
        assert await gate.admit() == 0, "only one is tried"
        assert await by_hand.end(tried, failed=True) == [], "it is stopped already"
        at_ms = tried.at_ms
    (tried,) = await by_hand.take()
    assert await by_hand.end(tried, failed=False) == [False]
    assert sorted(await gate.drain(2)) == list(range(5, 20))
    assert_empty(gate.admin, gate.keys)


@pytest.mark.every_server
async def test_what_started_before_says_nothing_about_now(gate: ManualGate, lane: Lane) -> None:
    breaker = Breaker(failures=1, of=2, cooldown="100ms")
    by_hand = ByHand(gate, lane, breaker)
    await gate.queue.add_many(jobs_of("call", 20, breaker))
    await gate.want(5)
    *slow, one, two = await by_hand.take()
    assert await by_hand.end(one, two, failed=True) == [True]
    assert await by_hand.end(slow.pop(), failed=False) == []
    (tried,) = await by_hand.take()
    assert await by_hand.end(slow.pop(), failed=False) == []
    assert await gate.admit() == 0, "the job that is tried decides"
    assert await by_hand.end(tried, failed=True) == []
    assert await by_hand.end(slow.pop(), failed=True) == []
    (tried,) = await by_hand.take()
    assert await by_hand.end(tried, failed=False) == [False]


@pytest.mark.every_server
async def test_a_job_that_is_tried_and_ends_without_a_word_lets_the_next_be_tried(
    gate: ManualGate, lane: Lane
) -> None:
    """It was snoozed or cancelled, or its worker died before it could tell."""
    breaker = Breaker(failures=1, of=2, cooldown="100ms")
    by_hand = ByHand(gate, lane, breaker)
    await gate.queue.add_many(jobs_of("call", 20, breaker))
    await gate.want(2)
    await by_hand.end(*await by_hand.take(), failed=True)
    (tried,) = await by_hand.take()
    await gate.settle([tried])
    (tried,) = await by_hand.take()
    assert await by_hand.end(tried, failed=False) == [False]


@pytest.mark.every_server
async def test_a_share_of_the_last_attempts_stops_a_task(gate: ManualGate, lane: Lane) -> None:
    breaker = Breaker(failures=0.5, of=4, cooldown="1h")
    by_hand = ByHand(gate, lane, breaker)
    await gate.queue.add_many(jobs_of("call", 20, breaker))
    await gate.want(20)
    jobs = await by_hand.take()
    for failed in (True, False, False, False, True, False, False):  # at most one of the last four
        assert await by_hand.end(jobs.pop(), failed=failed) == []
    assert await by_hand.end(jobs.pop(), failed=True) == [True]
