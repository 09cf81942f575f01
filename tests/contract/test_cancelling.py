"""A job is cancelled wherever it is: delayed, waiting, held by a worker, running."""

import asyncio
import random
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from tampu import (
    Backoff,
    CancelState,
    EventKind,
    Job,
    JobCancelled,
    JobState,
    NewJob,
    OptionError,
    Queue,
)
from tampu.services import reaper
from tampu.wire.control import CancelRequest
from tests.contract.workers import KEYS, QUEUE, SOON, Boom, Calls, Gate, Harness
from tests.waiting import wait_until

CANCELLED, CANCELLING, TOO_LATE = CancelState


def requests(harness: Harness) -> list[bytes]:
    """The requests that are still open."""
    return list(harness.admin.zrange(KEYS.cancelled, 0, -1))


def blocked_reads(harness: Harness) -> int:
    """How many connections wait for streams that are followed."""
    clients = harness.admin.client_list()
    return sum(each["cmd"] == "xread" and "b" in each["flags"] for each in clients)


async def until_told(harness: Harness, kind: EventKind, job_id: str) -> None:
    await wait_until(
        lambda: kind in {event.kind for event in harness.events(job_id)},
        within=SOON,
        sentence=f"it is told that {job_id} is {kind.value}",
    )


@pytest.mark.every_server
class TestWaiting:
    @pytest.mark.parametrize("job_id", [None, "order:17"])
    async def test_a_waiting_job_is_removed_and_never_runs(
        self, harness: Harness, job_id: str | None
    ) -> None:
        calls = Calls()
        await harness.queue.add_each("x", range(5))
        job = await harness.queue.add("x", "cancelled", job_id=job_id)
        assert await job.cancel() is CANCELLED
        assert (await harness.queue.counts()).waiting == 5
        assert await job.cancel() is TOO_LATE
        await harness.start_worker(calls)
        await harness.until_settled()
        assert sorted(calls.data) == list(range(5))
        assert requests(harness) == []

    async def test_its_id_is_free_again_and_the_new_job_runs(self, harness: Harness) -> None:
        calls = Calls()
        for number in range(3):
            job = await harness.queue.add("x", number, job_id="order:17")
            assert job.duplicate is False
            assert await job.cancel() is CANCELLED
        await harness.queue.add("x", "last", job_id="order:17")
        await harness.start_worker(calls, store_results=True)
        assert await harness.queue.job("order:17").result() == "last"
        assert calls.data == ["last"]

    async def test_of_many_at_once_one_cancels_it(self, harness: Harness) -> None:
        job = await harness.queue.add("x")
        states = await asyncio.gather(*(job.cancel() for _ in range(10)))
        assert Counter(states) == {CANCELLED: 1, TOO_LATE: 9}

    async def test_a_job_between_attempts_is_cancelled(self, harness: Harness) -> None:
        boom = Boom()
        await harness.start_worker(boom, attempts=5, backoff=Backoff.fixed(3600))
        jobs = [await harness.queue.add("x"), await harness.queue.add("x", job_id="order:17")]
        await wait_until(
            lambda: harness.admin.zcard(KEYS.delayed) == 2, within=SOON, sentence="both failed"
        )
        for job in jobs:
            assert await job.cancel() is CANCELLED
            assert (await job.info()).state is JobState.CANCELLED
        assert harness.is_settled()
        assert len(boom) == 2

    async def test_an_id_that_nobody_added_is_too_late(self, harness: Harness) -> None:
        assert await harness.queue.job("nope").cancel() is TOO_LATE
        assert harness.admin.keys(KEYS.cancelled) == []

    @pytest.mark.parametrize("ids", ["abc", [""], ["a", None], ["x" * 513]])
    async def test_an_invalid_id_is_named_and_nothing_is_cancelled(
        self,
        harness: Harness,
        ids: Any,  # noqa: ANN401 - wrong on purpose
    ) -> None:
        await harness.queue.add("x", job_id="a")
        with pytest.raises(OptionError, match="job_id"):
            await harness.queue.cancel_many(ids)
        assert (await harness.queue.counts()).waiting == 1

    async def test_a_handler_can_cancel_other_jobs(self, harness: Harness) -> None:
        told: list[CancelState] = []

        async def handle(job: Job[Any]) -> None:
            if job.name == "first":
                told.append(await harness.queue.job("victim").cancel())

        await harness.queue.add("victim", job_id="victim", delay=60)
        await harness.queue.add("first")
        await harness.start_worker(handle)
        await harness.until_settled()
        assert told == [CANCELLED]


class TestHeld:
    async def test_a_job_that_waits_inside_a_worker_never_starts(
        self, harness: Harness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A worker that was quick has read ahead when it gets stuck."""
        monkeypatch.setattr(reaper, "_STALE_S", 60.0)  # it keeps what it has read
        gate = Gate()

        async def handle(job: Job[Any]) -> object:
            return await gate(job) if job.data >= 2000 else None

        worker = await harness.start_worker(handle, concurrency=1)
        jobs = await harness.queue.add_each("x", range(2300))
        await gate.until(1)
        later = {job.id for job in jobs if job.data >= 2000}  # others may be about to be settled
        waiting = later - {gate.jobs[0].id}
        active = [info.id async for info in harness.queue.jobs(state="active")]
        held = [job_id for job_id in active if job_id in waiting]
        assert held, "it has read ahead"
        victims = set(held[::2])
        states = await harness.queue.cancel_many(sorted(victims))
        assert set(states) <= {CANCELLING, CANCELLED}
        await wait_until(
            lambda: requests(harness) == [], within=SOON, sentence="the requests are carried out"
        )
        for victim in victims:
            assert (await harness.queue.job(victim).info()).state is JobState.CANCELLED
        gate.open.set()
        await harness.until_settled()
        assert worker.id in harness.consumers()
        assert {job.id for job in gate.jobs} == later - victims

    @pytest.mark.every_server
    async def test_a_running_handler_is_cancelled(self, harness: Harness) -> None:
        seen: list[str] = []
        started = asyncio.Event()

        async def handle(job: Job[Any]) -> None:
            started.set()
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                seen.append(job.id)
                raise

        await harness.start_worker(handle, attempts=3)
        job = await harness.queue.add("x", job_id="order:17")
        await asyncio.wait_for(started.wait(), SOON)
        assert await job.cancel() is CANCELLING
        await harness.until_settled()
        assert seen == ["order:17"]
        assert (await job.info()).state is JobState.CANCELLED
        assert await job.cancel() is TOO_LATE
        assert requests(harness) == []
        await until_told(harness, EventKind.CANCELLED, "order:17")
        kinds = [event.kind for event in harness.events("order:17")]
        assert kinds[-1] is EventKind.CANCELLED
        assert EventKind.RETRY_SCHEDULED not in kinds

    @pytest.mark.every_server
    async def test_a_handler_that_finishes_all_the_same_is_done(self, harness: Harness) -> None:
        started = asyncio.Event()

        async def handle(job: Job[Any]) -> object:
            started.set()
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(3600)
            return "saved"

        await harness.start_worker(handle, store_results=True)
        job = await harness.queue.add("x")
        await asyncio.wait_for(started.wait(), SOON)
        assert await job.cancel() is CANCELLING
        assert await job.result() == "saved"
        assert (await job.info()).state is JobState.DONE

    @pytest.mark.parametrize("error", [ValueError("late"), TimeoutError()])
    async def test_a_handler_that_fails_when_it_is_cancelled_is_not_retried(
        self, harness: Harness, error: Exception
    ) -> None:
        calls, started = Calls(), asyncio.Event()

        async def handle(job: Job[Any]) -> None:
            await calls(job)
            started.set()
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                raise error from None

        await harness.start_worker(handle, attempts=3, backoff=Backoff.fixed(0))
        job = await harness.queue.add("x")
        await asyncio.wait_for(started.wait(), SOON)
        assert await job.cancel() is CANCELLING
        await harness.until_settled()
        assert len(calls) == 1
        assert (await job.info()).state is JobState.CANCELLED
        assert (await harness.queue.counts()).dead == 0

    async def test_the_slot_of_a_cancelled_job_runs_the_next_one(self, harness: Harness) -> None:
        gate = Gate()
        await harness.start_worker(gate, concurrency=1)
        first = await harness.queue.add("x", 1)
        await gate.until(1)
        await harness.queue.add("x", 2)
        assert await first.cancel() is CANCELLING
        await gate.until(2)
        gate.open.set()
        await harness.until_settled()
        assert (gate.data, gate.ended) == ([1, 2], 1)

    @pytest.mark.every_server
    async def test_a_job_that_was_added_again_is_not_hit_by_the_old_request(
        self, harness: Harness
    ) -> None:
        """Neither in the worker that carried it out nor in one that starts later."""
        gate = Gate()
        await harness.start_worker(gate)
        job = await harness.queue.add("x", "old", job_id="order:17")
        await gate.until(1)
        assert await job.cancel() is CANCELLING
        await harness.until_settled()
        # As if the worker had died before it could tell that it did what was asked.
        old = CancelRequest("order:17", job.created_at_ms)
        harness.admin.zadd(KEYS.cancelled, {old.member: 1e15})
        gate.open.set()
        await harness.start_worker(gate, store_results=True)
        await harness.workers[0].stop()
        again = await harness.queue.add("x", "new", job_id="order:17")
        assert again.duplicate is False
        assert await again.result() == "new"
        assert gate.data == ["old", "new"]

    @pytest.mark.every_server
    async def test_a_worker_that_starts_later_knows_the_request(self, harness: Harness) -> None:
        """A consumer that does not listen holds the job, and is gone when the worker starts."""
        entry = await harness.queue.add("x", "victim", job_id="order:17")
        await harness.queue.add("x", "other")
        info = await entry.info()
        assert info.entry_id is not None
        harness.hold_as_peer(info.entry_id.encode(), deliveries=1)
        assert await entry.cancel() is CANCELLING
        assert requests(harness) == [CancelRequest("order:17", entry.created_at_ms).member]
        harness.admin.delete(KEYS.control)
        calls = Calls()
        await harness.start_worker(calls, lease=1)
        await harness.until_settled()
        assert calls.data == ["other"]
        assert requests(harness) == []
        with pytest.raises(JobCancelled):
            await entry.result()


@pytest.mark.every_server
class TestWaitingCallers:
    @pytest.mark.parametrize("when", ["before", "after"])
    @pytest.mark.parametrize("where", ["waiting", "delayed", "running"])
    async def test_they_get_job_cancelled(self, harness: Harness, when: str, where: str) -> None:
        gate = Gate()
        if where == "running":
            await harness.start_worker(gate)  # one that stores no results, too
        job = await harness.queue.add("x", delay=60 if where == "delayed" else None)
        if where == "running":
            await gate.until(1)
        if when == "before":
            waiting = asyncio.create_task(job.result(3600))  # only a notice ends it in time
            workers = len(harness.workers)  # each follows the control stream in the same way
            await wait_until(
                lambda: blocked_reads(harness) == workers + 1, within=SOON, sentence="it waits"
            )
        assert await job.cancel() is (CANCELLING if where == "running" else CANCELLED)
        if when == "after":
            waiting = asyncio.create_task(job.result(SOON))
        with pytest.raises(JobCancelled, match=f"Job {job.id} was cancelled") as raised:
            await asyncio.wait_for(waiting, SOON)
        assert raised.value.job_id == job.id
        found = await harness.queue.results([job.id])
        assert isinstance(found[job.id], JobCancelled)

    async def test_events_of_a_queue_tell_it(self, harness: Harness) -> None:
        async with Queue(QUEUE, harness.running.url, events=True) as queue:
            await queue.add_many([NewJob("x", job_id="a"), NewJob("x", job_id="b", delay=60)])
            assert await queue.cancel_many(["a", "b", "none"]) == [CANCELLED, CANCELLED, TOO_LATE]
        told = [each for each in harness.events() if each.kind is EventKind.CANCELLED]
        assert sorted((each.job_id, each.name) for each in told) == [("a", "x"), ("b", "x")]


class TestMany:
    async def test_a_thousand_of_ten_thousand_while_four_workers_run(
        self, harness: Harness
    ) -> None:
        """What is said to be cancelled does not run; everything else runs once."""
        ran: Counter[str] = Counter()
        halted: set[str] = set()

        async def handle(job: Job[Any]) -> None:
            ran[job.id] += 1
            try:
                await asyncio.sleep(0.002)
            except asyncio.CancelledError:
                halted.add(job.id)
                raise

        jobs = await harness.queue.add_each("x", range(8000))
        chosen = [NewJob("y", n, job_id=f"order:{n}") for n in range(2000)]
        jobs += await harness.queue.add_many(chosen)
        every = {job.id for job in jobs}
        victims = random.Random(5).sample(sorted(every), 1000)  # noqa: S311
        for _ in range(4):
            await harness.start_worker(handle, concurrency=20, events=False)
        states: dict[str, CancelState] = {}
        for start in range(0, len(victims), 50):
            part = victims[start : start + 50]
            told = await harness.queue.cancel_many(part)
            states.update(zip(part, told, strict=True))
        await harness.until_settled(within=60)
        cancelled, asked, late = (
            {each for each, state in states.items() if state is wanted} for wanted in CancelState
        )
        assert cancelled, "at least some were still waiting"
        assert not cancelled & ran.keys()
        assert late <= ran.keys()
        assert halted <= asked
        # One that a worker was asked to stop ran, was stopped, or never started; never twice.
        assert ran.keys() == every - cancelled - (asked - ran.keys())
        assert set(ran.values()) == {1}
        for each in asked - ran.keys():
            assert (await harness.queue.job(each).info()).state is JobState.CANCELLED
