"""Handlers that get many jobs at once: cancelling, stopping, unique keys, what they see."""

import threading
from typing import Any

import pytest

from tampu import (
    Batch,
    CancelState,
    EventKind,
    Handler,
    Job,
    JobBatch,
    JobState,
    OptionError,
    Unique,
    WrongContext,
    current_job,
)
from tampu.metrics import OutcomeKind
from tests.contract.batches import LONG, Batches, add, states
from tests.contract.telemetry import KeptEnds, Recording, attributes, ids, links_of, parent_of
from tests.contract.workers import KEYS, QUEUE, SOON, Gate, Harness
from tests.waiting import wait_until


@pytest.mark.every_server
async def test_a_paused_task_gives_back_batches_that_fill(harness: Harness) -> None:
    handler, other = Batches(), Gate()
    handlers = {
        "index": Handler(handler, batch=Batch(3, wait=LONG)),
        "other": Handler(other),
    }
    async with harness.make_worker(handlers, concurrency=1):
        await add(harness, 1, 2)
        await wait_until(lambda: harness.pending() == 2, within=SOON, sentence="both are read")
        await add(harness, "x", name="other")
        await other.until(1)
        await harness.queue.pause(task="index")
        await wait_until(lambda: harness.pending() == 1, within=SOON, sentence="both are back")
        other.open.set()
        await harness.queue.resume(task="index")
        await add(harness, 3)
        await harness.until_settled()
    assert [sorted(data) for data in handler.data] == [[1, 2, 3]]


@pytest.mark.every_server
class TestCancelling:
    async def test_a_cancelled_job_leaves_a_batch_that_fills(self, harness: Harness) -> None:
        handler = Batches()
        async with harness.make_worker(Handler(handler, batch=Batch(3, wait=LONG))):
            jobs = await add(harness, 1, 2)
            await wait_until(lambda: harness.pending() == 2, within=SOON, sentence="both are read")
            await jobs[0].cancel()
            await wait_until(lambda: harness.pending() == 1, within=SOON, sentence="one has left")
            await add(harness, 3, 4)
            await harness.until_settled()
        assert handler.data == [[2, 3, 4]]
        assert await states(jobs[:1]) == [JobState.CANCELLED]

    async def test_cancelled_jobs_leave_a_batch_that_waits_for_a_slot(
        self, harness: Harness
    ) -> None:
        handler = Batches(gated=True)
        async with harness.make_worker(
            Handler(handler, batch=Batch(2, wait=0)), concurrency=1, cancel_grace=SOON
        ):
            first = await add(harness, 1, 2)
            await handler.until(1)
            jobs = await add(harness, 3, 4, 5)
            for job in jobs[1:]:
                await job.cancel()
            handler.open.set()
            await harness.until_settled()
        assert [each for data in handler.data for each in data] == [1, 2, 3]
        assert await states(jobs[1:]) == [JobState.CANCELLED] * 2
        assert JobState.CANCELLED not in await states(first)

    async def test_a_running_batch_goes_on_without_a_job_that_was_cancelled(
        self, harness: Harness
    ) -> None:
        def fail(batch: JobBatch[Any]) -> None:
            assert not batch.cancelled
            assert [job.data for job in batch if job.cancelled] == [1]
            raise ValueError("no")

        handler = Batches(fail, gated=True)
        async with harness.make_worker(
            Handler(handler, batch=Batch(2, wait=LONG), attempts=1), store_results=True
        ):
            jobs = await add(harness, 1, 2)
            await handler.until(1)
            assert await jobs[0].cancel() is CancelState.CANCELLING
            (batch,) = handler.batches
            await wait_until(
                lambda: batch[0].cancelled, within=SOON, sentence="the handler can see it"
            )
            handler.open.set()
            (letter,) = await harness.dead_letters()
            await harness.until_settled()
        assert letter.data == 2
        assert await states(jobs) == [JobState.CANCELLED, JobState.DEAD]

    async def test_when_all_jobs_of_a_batch_are_cancelled_so_is_its_handler(
        self, harness: Harness
    ) -> None:
        handler = Batches(gated=True)  # never opened
        async with harness.make_worker(
            Handler(handler, batch=Batch(2, wait=LONG)), store_results=True
        ):
            jobs = await add(harness, 1, 2)
            await handler.until(1)
            for job in jobs:
                await job.cancel()
            await harness.until_settled()
        assert await states(jobs) == [JobState.CANCELLED] * 2

    async def test_a_plain_function_that_ignores_its_cancellation_is_abandoned(
        self, harness: Harness
    ) -> None:
        begun, end = threading.Event(), threading.Event()

        def index(batch: JobBatch[Any]) -> None:
            begun.set()
            end.wait(SOON)

        async with harness.make_worker(
            Handler(index, batch=Batch(2, wait=LONG)), cancel_grace=0.05, concurrency=1
        ):
            jobs = await add(harness, 1, 2)
            await wait_until(begun.is_set, within=SOON, sentence="it runs")
            for job in jobs:
                await job.cancel()
            await harness.until_settled()
            end.set()


@pytest.mark.every_server
class TestStopping:
    async def test_jobs_of_a_batch_that_has_not_started_are_released_uncounted(
        self, harness: Harness
    ) -> None:
        handler = Batches()
        batch = Handler(handler, batch=Batch(3, wait=LONG))
        worker = await harness.start_worker(batch)
        await add(harness, 1, 2)
        await wait_until(lambda: harness.pending() == 2, within=SOON, sentence="both are read")
        await worker.stop(grace=SOON)
        assert handler.data == []
        async with harness.make_worker(batch):
            await add(harness, 3)
            await harness.until_settled()
        assert sorted(handler.data[0]) == [1, 2, 3]
        assert [job.attempt for job in handler.batches[0]] == [1, 1, 1]

    async def test_a_batch_that_is_cut_off_is_run_again_uncounted(self, harness: Harness) -> None:
        handler = Batches(gated=True)

        async def index(batch: JobBatch[Any]) -> None:
            batch.done(batch[0])
            await handler(batch)

        batch = Handler(index, batch=Batch(2, wait="30ms"))
        worker = await harness.start_worker(batch)
        await add(harness, 1, 2)
        await handler.until(1)
        await worker.stop(grace=0)
        handler.open.set()
        async with harness.make_worker(batch):
            await harness.until_settled()
        assert [[job.data for job in each] for each in handler.batches] == [[1, 2], [2]]
        assert [job.attempt for job in handler.batches[1]] == [1]

    async def test_a_paused_queue_releases_batches_that_fill(self, harness: Harness) -> None:
        handler = Batches()
        async with harness.make_worker(Handler(handler, batch=Batch(3, wait=LONG))):
            await add(harness, 1, 2)
            await wait_until(lambda: harness.pending() == 2, within=SOON, sentence="both are read")
            await harness.queue.pause()
            await wait_until(lambda: harness.pending() == 0, within=SOON, sentence="both are back")
            await add(harness, 3)
            await harness.queue.resume()
            await harness.until_settled()
        assert [sorted(data) for data in handler.data] == [[1, 2, 3]]


class TestUniqueKeys:
    async def test_a_key_that_is_held_until_the_start_is_held_while_the_batch_fills(
        self, harness: Harness
    ) -> None:
        handler = Batches(gated=True)
        unique = Unique(key="ada", until="started")
        async with harness.make_worker(Handler(handler, batch=Batch(2, wait=LONG))):
            await harness.queue.add("index", 1, unique=unique)
            await wait_until(lambda: harness.pending() == 1, within=SOON, sentence="it is read")
            second = await harness.queue.add("index", 2, unique=unique)
            assert second.duplicate
            await harness.queue.add("index", 3)
            await handler.until(1)
            third = await harness.queue.add("index", 4, unique=unique)
            assert not third.duplicate
            handler.open.set()
            await harness.queue.add("index", 5)
            await harness.until_settled()
        assert handler.data == [[1, 3], [4, 5]]

    async def test_a_key_that_is_held_until_the_end_is_freed_then(self, harness: Harness) -> None:
        handler = Batches()
        async with harness.make_worker(Handler(handler, batch=Batch(2, wait=LONG))):
            await harness.queue.add("index", 1, unique=Unique(key="ada"))
            await harness.queue.add("index", 2, unique=Unique(key="ada"))
            await harness.queue.add("index", 3)
            await harness.until_settled()
        assert not harness.admin.keys(KEYS.tag + b":tampu:unique:*")
        assert handler.data == [[1, 3]]


class TestHandlers:
    async def test_current_job_says_what_to_use_instead(self, harness: Harness) -> None:
        def look(batch: JobBatch[Any]) -> None:
            with pytest.raises(WrongContext, match="use the JobBatch that its handler gets"):
                current_job()
            batch.done(batch[0], "looked")

        async with harness.make_worker(Handler(Batches(look), batch=Batch(1)), store_results=True):
            (job,) = await add(harness, 1)
            assert await job.result(SOON) == "looked"

    async def test_jobs_report_their_progress_together_or_alone(self, harness: Harness) -> None:
        def report(batch: JobBatch[Any]) -> None:
            batch[0].progress(10)
            batch.progress(50)

        async with harness.make_worker(Handler(Batches(report), batch=Batch(2, wait=LONG))):
            jobs = await add(harness, 1, 2)
            await harness.until_settled()

        def progress(job: Job) -> list[object]:
            told = [each for each in harness.events(job.id) if each.kind is EventKind.PROGRESS]
            return [each.fields["progress"] for each in told]

        assert [progress(job) for job in jobs] == [[10, 50], [50]]

    async def test_a_batch_cannot_run_in_a_child_process(self, harness: Harness) -> None:
        with pytest.raises(OptionError, match="not supported with batch"):
            Handler(Batches(), batch=Batch(2), isolation="process")
        with pytest.raises(OptionError, match="not supported with batch"):
            harness.make_worker(Handler(Batches(), batch=Batch(2)), isolation="process")
        harness.workers.clear()

    async def test_one_span_for_a_batch_is_linked_to_where_its_jobs_come_from(
        self, harness: Harness
    ) -> None:
        recording = Recording()
        handler = Batches()
        worker = harness.make_worker(
            Handler(handler, batch=Batch(2, wait=LONG)), telemetry=recording.telemetry
        )
        header = "00-{:032x}-{:016x}-01"
        async with worker:
            for number in (1, 2):
                traced = {"traceparent": header.format(number, number)}
                await harness.queue.add("index", number, headers=traced)
            (span,) = await recording.runs(1)
        assert span.name == f"process {QUEUE}"
        assert attributes(span)["messaging.batch.message_count"] == 2
        assert "messaging.message.id" not in attributes(span)
        assert parent_of(span) is None
        assert [trace_id for trace_id, _ in links_of(span)] == [f"{n:032x}" for n in (1, 2)]
        assert ids(span)[0] not in {f"{n:032x}" for n in (1, 2)}
        (point,) = recording.points("messaging.client.consumed.messages")
        assert point.value == 2

    async def test_telemetry_is_told_how_a_batch_ended(self, harness: Harness) -> None:
        ends = KeptEnds()

        def fail(batch: JobBatch[Any]) -> None:
            raise ValueError("no")

        async with harness.make_worker(
            Handler(fail, batch=Batch(2, wait=LONG), attempts=1), telemetry=ends
        ):
            await add(harness, 1, 2)
            assert await ends.outcomes(1) == [OutcomeKind.FAILED]
            await harness.dead_letters(2)


def test_options_of_a_batch_are_checked() -> None:
    for size in (0, 10_001, "3", True):
        with pytest.raises(OptionError, match="size"):
            Batch(size)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="wait"):
        Batch(2, wait=-1)
    with pytest.raises(OptionError, match="by"):
        Batch(2, by="")
    with pytest.raises(OptionError, match="expected Batch"):
        Handler(Batches(), batch=100)  # type: ignore[arg-type]
