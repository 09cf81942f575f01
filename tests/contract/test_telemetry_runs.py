"""The spans of attempts, and what handlers see of them."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from tampu import (
    App,
    AppWorker,
    Backoff,
    Handler,
    Job,
    Queue,
    current_job,
)
from tampu.metrics import OutcomeKind, otel
from tampu.outcome import Snooze
from tampu.util.clock import now_ms
from tampu.wire.envelope import Envelope, encode_envelope
from tampu.wire.extras import Extras, encode_extras
from tests.contract.telemetry import (
    KeptEnds,
    Recording,
    attributes,
    by_name,
    ids,
    links_of,
    parent_of,
)
from tests.contract.workers import QUEUE, SOON, Boom, Calls, Gate, Harness
from tests.unit.consumer.runners import child_handlers
from tests.waiting import block_until

if TYPE_CHECKING:
    from tampu.consumer.handler import Function

AT_ONCE = Backoff.fixed(0)
HOUR_MS = 3_600_000


@pytest.fixture
def recording() -> Recording:
    return Recording()


@pytest.fixture
async def queue(harness: Harness, recording: Recording) -> AsyncIterator[Queue]:
    async with Queue(QUEUE, harness.running.url, telemetry=recording.telemetry) as queue:
        yield queue


class SeenSpan:
    """A handler that keeps the span that is current inside of it."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []
        self.tasks: set[int] = set()
        self.threads: set[int] = set()

    def note(self, job: Job[Any]) -> None:
        found = trace.get_current_span()
        assert isinstance(found, ReadableSpan)
        self.seen.append(ids(found))
        self.threads.add(threading.get_ident())

    async def run(self, job: Job[Any]) -> None:
        self.tasks.add(id(asyncio.current_task()))
        self.note(job)


class TestAttempts:
    async def test_each_attempt_has_its_own_span_in_the_same_trace(
        self, harness: Harness, queue: Queue, recording: Recording
    ) -> None:
        await harness.start_worker(
            Boom(times=2), telemetry=recording.telemetry, attempts=5, backoff=AT_ONCE
        )
        await queue.add("greet")
        runs = await recording.runs(3)
        assert [attributes(run)["messaging.tampu.job.attempt"] for run in runs] == [1, 2, 3]
        assert {parent_of(run) for run in runs} == {ids(recording.send)}
        assert len({ids(run) for run in runs}) == 3
        codes = [run.status.status_code for run in runs]
        assert codes == [StatusCode.ERROR, StatusCode.ERROR, StatusCode.UNSET]
        kinds = [attributes(run).get("error.type") for run in runs]
        assert kinds == ["ValueError", "ValueError", None]
        (event,) = runs[0].events
        assert dict(event.attributes or {})["exception.message"] == "boom"
        assert not runs[2].events

    async def test_an_attempt_that_is_too_slow_fails_with_its_limit(
        self, harness: Harness, queue: Queue, recording: Recording
    ) -> None:
        await harness.start_worker(Gate(), telemetry=recording.telemetry, attempts=1, timeout=0.05)
        await queue.add("greet")
        (run,) = await recording.runs(1)
        assert attributes(run)["error.type"] == "JobTimeout"
        assert run.status.status_code is StatusCode.ERROR

    async def test_a_snooze_a_cancelled_job_and_a_stopped_worker_are_no_failures(
        self, harness: Harness, queue: Queue, recording: Recording
    ) -> None:
        gate = Gate()
        handlers: dict[str, Function | Handler] = {"wait": gate, "snooze": Boom(Snooze(3600))}
        worker = await harness.start_worker(handlers, telemetry=recording.telemetry)
        first, _ = await queue.add("wait", 1), await queue.add("wait", 2)
        await queue.add("snooze")
        await gate.until(2)
        await first.cancel()
        await recording.runs(2)
        await worker.stop(grace=0)
        runs = await recording.runs(3)
        assert [attributes(run).get("error.type") for run in runs] == [None] * 3
        assert [run.status.status_code for run in runs] == [StatusCode.UNSET] * 3

    async def test_telemetry_knows_a_cancelled_job_from_a_worker_that_stops(
        self, harness: Harness
    ) -> None:
        gate, kept, begun = Gate(), KeptEnds(), threading.Event()

        def until_cancelled(job: Job[Any]) -> None:
            begun.set()
            block_until(lambda: job.cancelled, within=SOON, sentence="it is cancelled")
            raise ValueError("cancelled")

        handlers: dict[str, Function | Handler] = {"wait": gate, "plain": until_cancelled}
        worker = await harness.start_worker(handlers, telemetry=kept)
        first = await harness.queue.add("wait", 1)
        await gate.until(1)
        await first.cancel()
        assert await kept.outcomes(1) == [OutcomeKind.CANCELLED]
        plain = await harness.queue.add("plain")
        await asyncio.to_thread(begun.wait, SOON)
        await plain.cancel()
        assert (await kept.outcomes(2))[1:] == [OutcomeKind.CANCELLED]
        await harness.queue.add("wait", 2)
        await gate.until(2)
        await worker.stop(grace=0)
        assert (await kept.outcomes(3))[2:] == [OutcomeKind.RELEASED]
        assert [end.failure for end in kept.ends] == [None] * 3

    async def test_a_run_long_after_its_job_was_added_has_a_new_trace_with_a_link(
        self, harness: Harness, recording: Recording
    ) -> None:
        producer = ("1" * 32, "2" * 16)
        headers = {"traceparent": f"00-{producer[0]}-{producer[1]}-01"}
        extras = encode_extras(Extras(headers=headers))
        assert extras is not None
        await harness.start_worker(Calls(), telemetry=recording.telemetry)
        for name, delay_ms in (("soon", HOUR_MS - 60_000), ("late", HOUR_MS + 60_000)):
            body = encode_envelope(Envelope(name, b"\x01", now_ms() - delay_ms, 0, None))
            harness.add_entry({"d": body, "n": name, "x": extras})
        runs = {
            run.attributes[otel.JOB_NAME]: run for run in await recording.runs(2) if run.attributes
        }
        assert parent_of(runs["soon"]) == producer
        assert parent_of(runs["late"]) is None
        assert ids(runs["late"])[0] != producer[0]
        assert links_of(runs["late"]) == [producer]


class TestHandlers:
    async def test_async_handlers_see_their_span_and_keep_their_slot(
        self, harness: Harness, queue: Queue, recording: Recording
    ) -> None:
        handler = SeenSpan()
        await harness.start_worker(handler.run, telemetry=recording.telemetry, concurrency=1)
        await queue.add_each("greet", range(20))
        runs = await recording.runs(20)
        assert handler.seen == [ids(run) for run in runs]
        assert len(handler.tasks) == 1, "the context of each job is as it was before"

    async def test_plain_handlers_see_their_span_in_their_thread(
        self, harness: Harness, queue: Queue, recording: Recording
    ) -> None:
        handler = SeenSpan()
        await harness.start_worker(handler.note, telemetry=recording.telemetry)
        await queue.add_each("greet", range(5))
        runs = await recording.runs(5)
        assert sorted(handler.seen) == sorted(ids(run) for run in runs)
        assert threading.get_ident() not in handler.threads

    async def test_jobs_that_a_handler_adds_belong_to_its_trace(
        self, harness: Harness, queue: Queue, recording: Recording
    ) -> None:
        async def greet(job: Job[Any]) -> None:
            await queue.add("follow")

        handlers: dict[str, Function | Handler] = {"greet": greet, "follow": Calls()}
        await harness.start_worker(handlers, telemetry=recording.telemetry)
        await queue.add("greet")
        runs = by_name(await recording.runs(2))
        sends = by_name(recording.spans(SpanKind.PRODUCER))
        assert parent_of(sends["follow"]) == ids(runs["greet"])
        assert parent_of(runs["follow"]) == ids(sends["follow"])

    async def test_the_span_of_a_child_process_is_made_by_its_parent(
        self, harness: Harness, queue: Queue, recording: Recording, tmp_path: Path
    ) -> None:
        handlers: dict[str, Function | Handler] = {
            "good": Handler(child_handlers.echo, isolation="process"),
            "slow": Handler(child_handlers.sleeps, isolation="process", attempts=1, timeout=0.2),
        }
        await harness.start_worker(handlers, telemetry=recording.telemetry)
        await queue.add("good")
        (good,) = await recording.runs(1)
        await queue.add("slow", [str(tmp_path / "pid"), 60])
        slow = (await recording.runs(2))[1]
        sends = recording.spans(SpanKind.PRODUCER)
        assert [parent_of(good), parent_of(slow)] == [ids(each) for each in sends]
        assert good.status.status_code is StatusCode.UNSET
        assert attributes(slow)["error.type"] == "JobTimeout"

    async def test_tasks_of_an_app_are_traced_with_one_option(
        self, harness: Harness, recording: Recording
    ) -> None:
        app = App(harness.running.url, telemetry=recording.telemetry)
        seen = SeenSpan()

        @app.task
        def plain() -> None:
            seen.note(current_job())

        async with app, AppWorker(app):
            await (await plain.enqueue()).result()
            (run,) = await recording.runs(1)
        assert parent_of(run) == ids(recording.send)
        assert seen.seen == [ids(run)]
