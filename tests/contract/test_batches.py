"""Handlers that get many jobs at once: how batches fill, and how their jobs end."""

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tampu import (
    Backoff,
    Batch,
    Bury,
    BuryReason,
    EventKind,
    Handler,
    JobBatch,
    JobFailed,
    NewJob,
    OptionError,
    Retry,
    WrongContext,
)
from tampu.metrics import JobEnded, MemorySink, OutcomeKind
from tests.contract.batches import LONG, Batches, add
from tests.contract.workers import KEYS, SOON, Calls, Gate, Harness
from tests.waiting import wait_until

AT_ONCE = Backoff.fixed(0)


@pytest.mark.every_server
class TestFilling:
    async def test_a_full_batch_starts_at_once_with_its_jobs_in_order(
        self, harness: Harness
    ) -> None:
        handler = Batches()
        async with harness.make_worker(Handler(handler, batch=Batch(3, wait=LONG))):
            await add(harness, 1, 2, 3)
            await harness.until_settled()
        assert handler.data == [[1, 2, 3]]
        assert handler.batches[0].name == "index"

    async def test_a_batch_that_is_not_full_starts_after_its_wait(self, harness: Harness) -> None:
        handler = Batches()
        async with harness.make_worker(Handler(handler, batch=Batch(1000, wait="30ms"))):
            await add(harness, 1, 2)
            await harness.until_settled()
        assert [each for batch in handler.data for each in batch] == [1, 2]

    async def test_jobs_that_come_one_by_one_fill_a_batch(self, harness: Harness) -> None:
        handler = Batches()
        async with harness.make_worker(Handler(handler, batch=Batch(5, wait=LONG)), concurrency=1):
            for number in range(10):
                await harness.queue.add("index", number)
            await harness.until_settled()
        assert handler.data == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]

    async def test_one_slot_fills_batches_that_are_larger_than_a_read(
        self, harness: Harness
    ) -> None:
        handler = Batches()
        async with harness.make_worker(
            Handler(handler, batch=Batch(700, wait=LONG)), concurrency=1
        ):
            await add(harness, *range(1400))
            await harness.until_settled()
        assert [len(batch) for batch in handler.batches] == [700, 700]

    async def test_without_a_wait_a_batch_takes_what_is_there(self, harness: Harness) -> None:
        handler = Batches()
        await add(harness, *range(5))
        async with harness.make_worker(Handler(handler, batch=Batch(100, wait=0))):
            await harness.until_settled()
        assert handler.data == [[0, 1, 2, 3, 4]]

    async def test_only_jobs_with_the_same_value_are_in_a_batch(self, harness: Harness) -> None:
        handler = Batches()
        batch = Batch(2, wait=LONG, by="tenant")
        async with harness.make_worker(Handler(handler, batch=batch), concurrency=3):
            await add(harness, *({"tenant": each} for each in ("a", "b", 1, True, "a")))
            await add(harness, *({"tenant": each} for each in (True, "b", 1)))
            await harness.until_settled()
        values = [[repr(each["tenant"]) for each in data] for data in handler.data]
        assert sorted(values) == [["'a'", "'a'"], ["'b'", "'b'"], ["1", "1"], ["True", "True"]]

    async def test_a_value_may_be_computed_and_may_be_missing(self, harness: Harness) -> None:
        handler = Batches()
        plain = Batches()
        handlers = {
            "odd": Handler(handler, batch=Batch(2, wait=LONG, by=lambda data: data % 2)),
            "plain": Handler(plain, batch=Batch(2, wait=LONG, by="tenant")),
        }
        async with harness.make_worker(handlers, concurrency=2):
            await add(harness, 1, 2, 3, 4, name="odd")
            await add(harness, 7, {"to": 1}, name="plain")
            await harness.until_settled()
        assert sorted(handler.data) == [[1, 3], [2, 4]]
        assert plain.data == [[7, {"to": 1}]]

    async def test_a_value_that_cannot_be_computed_fails_its_job_only(
        self, harness: Harness
    ) -> None:
        handler = Batches()
        batch = Batch(2, wait=LONG, by=lambda data: data["tenant"])
        async with harness.make_worker(Handler(handler, batch=batch, attempts=1)):
            await add(harness, {"tenant": "a"}, {}, {"tenant": "a"})
            (letter,) = await harness.dead_letters()
            await harness.until_settled()
        assert (letter.data, letter.failure.error_type) == ({}, "KeyError")
        assert handler.data == [[{"tenant": "a"}, {"tenant": "a"}]]

    async def test_jobs_of_several_names_have_batches_of_their_own(self, harness: Harness) -> None:
        one, two, alone = Batches(), Batches(), Calls()
        batch = Batch(2, wait=LONG)
        handlers = {"one": Handler(one, batch=batch), "two": Handler(two, batch=batch)}
        async with harness.make_worker({**handlers, "alone": alone}):
            for number in range(4):
                await add(harness, number, name="one" if number % 2 else "two")
                await add(harness, number, name="alone")
            await harness.until_settled()
        assert (one.data, two.data, sorted(alone.data)) == ([[1, 3]], [[0, 2]], [0, 1, 2, 3])

    async def test_single_jobs_are_not_hoarded_because_others_have_batches(
        self, harness: Harness
    ) -> None:
        gate = Gate()
        handlers = {
            "index": Handler(Batches(), batch=Batch(100, wait=LONG)),
            "alone": Handler(gate),
        }
        async with harness.make_worker(handlers, concurrency=2):
            await add(harness, *range(200), name="alone")
            await gate.until(2)
            assert harness.pending() == 2
            gate.open.set()
            await harness.until_settled()

    async def test_batches_use_one_slot_each_and_while_they_fill_none(
        self, harness: Harness
    ) -> None:
        handler, alone = Batches(gated=True), Calls()
        handlers = {
            "index": Handler(handler, batch=Batch(3, wait=LONG)),
            "alone": Handler(alone),
        }
        worker = harness.make_worker(handlers, concurrency=2)
        async with worker:
            await add(harness, 1, 2, 3)
            await handler.until(1)
            await add(harness, 4, 5)  # fill a batch, so the second slot is free
            await add(harness, "x", name="alone")
            await alone.until(1)
            assert worker.health is not None
            await wait_until(
                lambda: worker.health is not None and worker.health.running == 1,
                within=SOON,
                sentence="the batch runs in one slot",
            )
            handler.open.set()
            await add(harness, 6)
            await harness.until_settled()
        assert handler.data == [[1, 2, 3], [4, 5, 6]]


class TestOutcomes:
    @pytest.mark.every_server
    async def test_when_the_handler_returns_all_jobs_are_done(self, harness: Harness) -> None:
        handler, sink = Batches(len), MemorySink()
        async with harness.make_worker(
            Handler(handler, batch=Batch(3, wait=LONG)), store_results=True, metrics=sink
        ):
            jobs = await add(harness, 1, 2, 3)
            assert [await job.result(SOON) for job in jobs] == [3, 3, 3]
            await harness.until_settled()
        assert [each.outcome for each in sink.of(JobEnded)] == [OutcomeKind.DONE] * 3
        for job in jobs:
            kinds = [event.kind for event in harness.events(job.id)]
            assert kinds == [EventKind.ACTIVE, EventKind.COMPLETED]

    @pytest.mark.every_server
    async def test_when_it_raises_each_job_is_retried_as_its_attempts_allow(
        self, harness: Harness, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.WARNING)

        def fail(batch: JobBatch[Any]) -> None:
            raise ValueError("no")

        handler = Batches(fail)
        async with harness.make_worker(
            Handler(handler, batch=Batch(2, wait="30ms"), attempts=3, backoff=AT_ONCE)
        ):
            await harness.queue.add_many([NewJob("index", 1, attempts=1), NewJob("index", 2)])
            letters = await harness.dead_letters(2)
            await harness.until_settled()
        assert sorted((letter.data, letter.attempt) for letter in letters) == [(1, 1), (2, 3)]
        assert {letter.reason for letter in letters} == {BuryReason.RETRIES_EXHAUSTED}
        assert max(batch.attempt for batch in handler.batches) == 3
        assert sum("failed on attempt 1" in each.getMessage() for each in caplog.records) == 2

    async def test_jobs_can_be_settled_alone_while_the_batch_runs(self, harness: Harness) -> None:
        handler = Batches(gated=True)

        async def index(batch: JobBatch[Any]) -> None:
            done, failed, buried, snoozed, _ = batch
            batch.done(done, "value")
            batch.fail(failed, "no", after=0)
            batch.fail(buried, Bury("never"))
            batch.snooze(snoozed, "1h")
            assert [job.data for job in batch.left] == [5]
            await handler(batch)

        async with harness.make_worker(
            Handler(index, batch=Batch(5, wait=LONG), attempts=1), store_results=True
        ):
            jobs = await add(harness, 1, 2, 3, 4, 5)
            await handler.until(1)
            assert await jobs[0].result(SOON) == "value"
            with pytest.raises(JobFailed, match="no"):
                await jobs[1].result(SOON)
            with pytest.raises(JobFailed, match="never"):
                await jobs[2].result(SOON)
            await wait_until(
                lambda: harness.admin.zcard(KEYS.delayed) == 1, within=SOON, sentence="snoozed"
            )
            assert harness.pending() == 1  # the fifth
            handler.open.set()
            assert await jobs[4].result(SOON) is None

    async def test_what_was_settled_alone_stays_so_if_the_handler_raises(
        self, harness: Harness
    ) -> None:
        def index(batch: JobBatch[Any]) -> None:
            batch.done(batch[0])
            raise Bury("the others")

        async with harness.make_worker(
            Handler(Batches(index), batch=Batch(2, wait=LONG)), store_results=True
        ):
            jobs = await add(harness, 1, 2)
            assert await jobs[0].result(SOON) is None
            (letter,) = await harness.dead_letters()
        assert letter.data == 2

    async def test_a_job_is_settled_once_and_only_by_its_own_running_batch(
        self, harness: Harness
    ) -> None:
        problems: list[Exception] = []

        def attempt(call: Callable[[], None]) -> None:
            with pytest.raises((WrongContext, OptionError)) as raised:
                call()
            problems.append(raised.value)

        def index(batch: JobBatch[Any]) -> None:
            batch.done(batch[0])
            attempt(lambda: batch.fail(batch[0], "no"))
            attempt(lambda: batch.done(batch[0].source))  # type: ignore[arg-type]

        handler = Batches(index)
        async with harness.make_worker(Handler(handler, batch=Batch(2, wait=LONG))):
            await add(harness, 1, 2)
            await harness.until_settled()
        (batch,) = handler.batches
        attempt(lambda: batch.done(batch[1]))
        assert "it is settled already" in str(problems[0])
        assert "expected a job of this batch" in str(problems[1])
        assert "the batch has ended" in str(problems[2])

    async def test_a_time_limit_fails_the_jobs_that_are_left(self, harness: Harness) -> None:
        async def hang(batch: JobBatch[Any]) -> None:
            batch.done(batch[0])
            await asyncio.Event().wait()

        async with harness.make_worker(
            Handler(hang, batch=Batch(3, wait=LONG), attempts=1), store_results=True
        ):
            short = NewJob("index", 2, timeout=0.05)  # the shortest limit of a job counts
            await harness.queue.add_many([NewJob("index", 1), short, NewJob("index", 3)])
            letters = await harness.dead_letters(2)
            await harness.until_settled()
        assert sorted(letter.data for letter in letters) == [2, 3]
        assert {letter.failure.error_type for letter in letters} == {"JobTimeout"}

    async def test_a_plain_function_settles_jobs_from_its_thread(self, harness: Harness) -> None:
        threads: list[int] = []

        def index(batch: JobBatch[Any]) -> str:
            threads.append(threading.get_ident())
            batch.done(batch[0], "first")
            batch.fail(batch[1], Retry("again", after=0))
            return "rest"

        async with harness.make_worker(
            Handler(index, batch=Batch(3, wait=LONG), attempts=1), store_results=True
        ):
            jobs = await add(harness, 1, 2, 3)
            assert await jobs[0].result(SOON) == "first"
            with pytest.raises(JobFailed, match="again"):
                await jobs[1].result(SOON)
            assert await jobs[2].result(SOON) == "rest"
        assert threads != [threading.get_ident()]
