"""Traces and metrics of jobs, seen with OpenTelemetry's in-memory exporters."""

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import baggage, context
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from tampu import (
    Every,
    Handler,
    Job,
    NewJob,
    Queue,
    SyncQueue,
)
from tampu.metrics import otel
from tampu.util.clock import now_ms
from tests.contract.schedules import arm
from tests.contract.telemetry import (
    BrokenSpan,
    BrokenTelemetry,
    Recording,
    attributes,
    ids,
    links_of,
    parent_of,
)
from tests.contract.workers import QUEUE, SOON, Boom, Calls, Harness, envelope
from tests.servers import ROOT
from tests.waiting import wait_until

if TYPE_CHECKING:
    from tampu.consumer.handler import Function


@pytest.fixture
def recording() -> Recording:
    return Recording()


@pytest.fixture
async def queue(harness: Harness, recording: Recording) -> AsyncIterator[Queue]:
    async with Queue(QUEUE, harness.running.url, telemetry=recording.telemetry) as queue:
        yield queue


class TestOneJob:
    async def test_the_producers_span_is_parent_and_link_of_the_run(
        self, harness: Harness, queue: Queue, recording: Recording
    ) -> None:
        await harness.start_worker(Calls(), telemetry=recording.telemetry)
        with recording.tracer.start_as_current_span("request") as request:
            await queue.add("greet", {"to": "ada"})
        (run,) = await recording.runs(1)
        assert isinstance(request, ReadableSpan)
        assert (recording.send.name, run.name) == (f"send {QUEUE}", f"process {QUEUE}")
        assert recording.send.kind is SpanKind.PRODUCER
        assert parent_of(recording.send) == ids(request)
        assert parent_of(run) == ids(recording.send)
        assert links_of(run) == [ids(recording.send)]
        assert run.status.status_code is StatusCode.UNSET

    async def test_the_attributes_are_those_of_the_conventions(
        self, harness: Harness, queue: Queue, recording: Recording
    ) -> None:
        worker = await harness.start_worker(Calls(), telemetry=recording.telemetry)
        job = await queue.add("greet", {"to": "ada"})
        (run,) = await recording.runs(1)
        sent, got = attributes(recording.send), attributes(run)
        common = {
            "messaging.system": "tampu",
            "messaging.destination.name": QUEUE,
            "messaging.message.id": job.id,
            "messaging.tampu.job.name": "greet",
            "server.address": "127.0.0.1",
            "server.port": harness.running.port,
        }
        assert sent.pop("messaging.client.id")
        assert sent == common | {
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
        }
        assert got.pop("messaging.tampu.job.wait_ms") >= 0
        assert got == common | {
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.client.id": worker.id,
            "messaging.consumer.group.name": "default",
            "messaging.tampu.job.attempt": 1,
        }

    async def test_the_metrics_count_and_measure(
        self, harness: Harness, queue: Queue, recording: Recording
    ) -> None:
        handlers: dict[str, Function | Handler] = {"greet": Calls(), "boom": Boom()}
        await harness.start_worker(handlers, telemetry=recording.telemetry, attempts=1)
        await queue.add_each("greet", range(3))
        await queue.add("boom")
        await recording.runs(4)
        await harness.dead_letters()
        assert sum(point.value for point in recording.points(otel.SENT)) == 4
        consumed = {
            point.attributes.get("error.type"): point.value
            for point in recording.points(otel.CONSUMED)
        }
        assert consumed == {None: 3, "ValueError": 1}
        (plain,) = (p for p in recording.points(otel.DURATION) if "error.type" not in p.attributes)
        assert plain.count == 3
        assert list(plain.explicit_bounds) == list(otel.DURATION_BOUNDS)
        assert plain.attributes["messaging.consumer.group.name"] == "default"

    async def test_baggage_travels_with_the_job(
        self, harness: Harness, queue: Queue, recording: Recording
    ) -> None:
        found: list[object] = []

        async def handle(job: Job[Any]) -> None:
            found.append(baggage.get_baggage("tenant"))

        await harness.start_worker(handle, telemetry=recording.telemetry)
        token = context.attach(baggage.set_baggage("tenant", "acme"))
        await queue.add("greet")
        context.detach(token)
        await recording.runs(1)
        assert found == ["acme"]

    async def test_headers_of_the_producers_own_are_kept(
        self, harness: Harness, queue: Queue, recording: Recording
    ) -> None:
        calls = Calls()
        await harness.start_worker(calls, telemetry=recording.telemetry)
        theirs = "00-" + "1" * 32 + "-" + "2" * 16 + "-01"
        await queue.add("greet", headers={"shop": "acme", "traceparent": theirs})
        (run,) = await recording.runs(1)
        assert calls.jobs[0].headers["shop"] == "acme"
        assert parent_of(run) == ("1" * 32, "2" * 16)

    async def test_a_job_of_chasquimq_without_headers_starts_a_trace(
        self, harness: Harness, recording: Recording
    ) -> None:
        await harness.start_worker(Calls(), telemetry=recording.telemetry)
        harness.add_entry({"d": envelope(), "n": "greet"})
        harness.add_entry({"d": envelope(job_id="k"), "n": "greet"})
        runs = await recording.runs(2)
        assert [parent_of(run) for run in runs] == [None, None]
        assert [links_of(run) for run in runs] == [[], []]
        assert len({ids(run)[0] for run in runs}) == 2

    async def test_a_producer_in_another_process_begins_the_trace(
        self, harness: Harness, recording: Recording
    ) -> None:
        await harness.start_worker(Calls(), telemetry=recording.telemetry)
        program = f"""
import json
from tampu import SyncQueue
from tests.contract.telemetry import Recording, ids
recording = Recording()
with SyncQueue({QUEUE!r}, {harness.running.url!r}, telemetry=recording.telemetry) as queue:
    with recording.tracer.start_as_current_span("request") as request:
        queue.add("greet")
print(json.dumps([ids(request), ids(recording.send)]))
"""
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", program],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        request, send = json.loads(done.stdout)
        (run,) = await recording.runs(1)
        assert parent_of(run) == tuple(send)
        assert ids(run)[0] == request[0] == send[0]

    async def test_threads_without_a_loop_pass_on_their_span(
        self, harness: Harness, recording: Recording
    ) -> None:
        def add() -> tuple[str, str]:
            url = harness.running.url
            with SyncQueue(QUEUE, url, telemetry=recording.telemetry) as queue:
                with recording.tracer.start_as_current_span("request") as request:
                    queue.add("greet")
            assert isinstance(request, ReadableSpan)
            return ids(request)

        request = await asyncio.to_thread(add)
        assert parent_of(recording.send) == request


class TestBatches:
    async def test_one_add_many_is_one_span_whatever_its_size(
        self, harness: Harness, queue: Queue, recording: Recording
    ) -> None:
        jobs = [NewJob("greet", number) for number in range(1000)]
        await queue.add_many([*jobs, NewJob("wave", attempts=2)])
        found = attributes(recording.send)
        assert found["messaging.batch.message_count"] == 1001
        assert "messaging.message.id" not in found
        assert "messaging.tampu.job.name" not in found
        await harness.start_worker(Calls(), telemetry=recording.telemetry)
        runs = await recording.runs(1001)
        assert {parent_of(run) for run in runs} == {ids(recording.send)}

    async def test_an_add_that_fails_is_an_error(
        self, harness: Harness, recording: Recording
    ) -> None:
        url, telemetry = harness.running.url, recording.telemetry
        async with Queue(QUEUE, url, telemetry=telemetry, max_len=1) as queue:
            await queue.add("greet")
            recording.exporter.clear()
            with pytest.raises(Exception, match="max_len"):
                await queue.add_each("greet", range(3))
        assert recording.send.status.status_code is StatusCode.ERROR
        assert attributes(recording.send)["error.type"] == "QueueFull"
        sent = {p.attributes.get("error.type"): p.value for p in recording.points(otel.SENT)}
        assert sent == {None: 1, "QueueFull": 3}


class TestSchedules:
    async def test_a_fired_job_has_a_new_trace_with_a_link_to_who_stored_its_schedule(
        self, harness: Harness, queue: Queue, recording: Recording
    ) -> None:
        with recording.tracer.start_as_current_span("request") as request:
            await queue.schedules.add("tick", Every("1h"), key="hourly")
        assert isinstance(request, ReadableSpan)
        arm(harness, "hourly", now_ms())
        await harness.start_worker(Calls(), telemetry=recording.telemetry)
        (run,) = await recording.runs(1)
        assert parent_of(run) is None
        assert links_of(run) == [ids(request)]
        assert ids(run)[0] != ids(request)[0]
        assert attributes(run)["messaging.tampu.schedule.key"] == "hourly"

    async def test_a_job_that_was_triggered_is_linked_to_who_triggered_it(
        self, harness: Harness, queue: Queue, recording: Recording
    ) -> None:
        with recording.tracer.start_as_current_span("storing"):
            await queue.schedules.add("tick", Every("1h"), key="hourly")
        await queue.schedules.trigger("hourly")
        await harness.start_worker(Calls(), telemetry=recording.telemetry, schedule=False)
        (run,) = await recording.runs(1)
        assert links_of(run) == [ids(recording.send)]

    async def test_a_schedule_that_was_stored_without_a_span_has_no_link(
        self, harness: Harness, queue: Queue, recording: Recording
    ) -> None:
        await queue.schedules.add("tick", Every("1h"), key="hourly")
        arm(harness, "hourly", now_ms())
        await harness.start_worker(Calls(), telemetry=recording.telemetry)
        (run,) = await recording.runs(1)
        assert (parent_of(run), links_of(run)) == (None, [])


@pytest.mark.parametrize("make_span", [BrokenSpan, lambda: int("no span"), lambda: None])
async def test_telemetry_that_raises_fails_no_add_and_no_job_and_is_logged_once(
    harness: Harness, caplog: pytest.LogCaptureFixture, make_span: Callable[[], Any]
) -> None:
    telemetry, calls = BrokenTelemetry(make_span), Calls()
    await harness.start_worker(calls, telemetry=telemetry)
    with caplog.at_level(logging.WARNING, logger="tampu.metrics"):
        async with Queue(QUEUE, harness.running.url, telemetry=telemetry) as queue:
            await queue.add("greet", 1)
            await queue.add_each("greet", [2, 3])
            await queue.schedules.add("tick", Every("1h"))
            await harness.until_settled()
    assert sorted(calls.data) == [1, 2, 3]
    assert len(caplog.records) == 2, "one for the queue, one for the worker"


async def test_headers_that_do_not_fit_are_left_out(
    harness: Harness, queue: Queue, recording: Recording
) -> None:
    calls = Calls()
    await harness.start_worker(calls, telemetry=recording.telemetry)
    own = {"large": "x" * 65_500}
    await queue.add("greet", headers=own)
    await calls.until(1)
    assert calls.jobs[0].headers == own


async def test_several_telemetries_are_all_told(harness: Harness) -> None:
    first, second = Recording(), Recording()
    both = [first.telemetry, second.telemetry]
    await harness.start_worker(Calls(), telemetry=both)
    async with Queue(QUEUE, harness.running.url, telemetry=both) as queue:
        await queue.add("greet")
    (one,), (other,) = await first.runs(1), await second.runs(1)
    assert parent_of(one) == ids(first.send)
    assert parent_of(other) == ids(first.send), "the headers of the first count"
    await wait_until(harness.is_settled, within=SOON, sentence="it is settled")
