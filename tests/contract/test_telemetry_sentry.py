"""Spans and errors of jobs as Sentry gets them, with a transport that records."""

import json
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import pytest
import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from tampu import Backoff, Handler, Job, Queue, Retry
from tampu.metrics.sentry import Sentry
from tests.contract.telemetry import Recording, ids
from tests.contract.workers import QUEUE, SOON, Calls, Harness
from tests.unit.consumer.runners import child_handlers
from tests.waiting import wait_until

if TYPE_CHECKING:
    from tampu.metrics import Telemetry

SECRET = "s3cr3t"  # noqa: S105 - must not be found in what is sent
AT_ONCE = Backoff.fixed(0)


class RecordingTransport(Transport):
    """Keeps what would be sent to Sentry."""

    def __init__(self, options: dict[str, Any] | None = None) -> None:
        super().__init__(options)
        self.sent: list[dict[str, Any]] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        for item in envelope.items:
            if item.type in {"event", "transaction"}:
                self.sent.append(json.loads(item.get_bytes()))

    def transactions(self, op: str) -> list[dict[str, Any]]:
        return [each for each in self.sent if each.get("contexts", {})["trace"].get("op") == op]

    def errors(self) -> list[dict[str, Any]]:
        return [each for each in self.sent if "exception" in each]


@pytest.fixture
def transport() -> Iterator[RecordingTransport]:
    made = RecordingTransport()
    client = sentry_sdk.Client(
        dsn="https://key@sentry.invalid/1",
        transport=made,
        traces_sample_rate=1.0,
        default_integrations=False,
    )
    scope = sentry_sdk.get_global_scope()
    before = scope.client
    scope.set_client(client)
    yield made
    scope.set_client(before)


@pytest.fixture
async def queue(harness: Harness) -> AsyncIterator[Queue]:
    async with Queue(QUEUE, harness.running.url, telemetry=Sentry()) as queue:
        yield queue


async def runs(transport: RecordingTransport, count: int = 1) -> list[dict[str, Any]]:
    """The transactions of runs, as soon as there are so many."""
    await wait_until(
        lambda: len(transport.transactions("queue.task.tampu")) >= count,
        within=SOON,
        sentence=f"{count} runs were sent",
    )
    return transport.transactions("queue.task.tampu")


async def test_a_job_is_published_and_processed_in_one_trace(
    harness: Harness, queue: Queue, transport: RecordingTransport
) -> None:
    await harness.start_worker(Calls(), telemetry=Sentry())
    with sentry_sdk.start_transaction(op="http.server", name="order"):
        job = await queue.add("greet", {"to": "ada"})
    (run,) = await runs(transport)
    (request,) = transport.transactions("http.server")
    (publish,), (process,) = request["spans"], run["spans"]
    common = {"messaging.message.id": job.id, "messaging.destination.name": QUEUE}
    assert publish["op"] == "queue.publish"
    assert publish["data"].items() >= common.items()
    assert publish["data"]["messaging.message.body.size"] > 0
    assert process["op"] == "queue.process"
    assert process["data"].items() >= (common | {"messaging.message.retry.count": 0}).items()
    assert process["data"]["messaging.message.receive.latency"] >= 0
    assert process["data"]["messaging.message.body.size"] > 0
    assert run["transaction"] == "greet"
    told = run["contexts"]["trace"]
    assert told["trace_id"] == request["contexts"]["trace"]["trace_id"]
    assert told["parent_span_id"] == publish["span_id"]
    assert told["status"] == "ok"


async def test_an_error_says_which_job_and_never_what_was_in_it(
    harness: Harness, queue: Queue, transport: RecordingTransport
) -> None:
    async def charge(job: Job[Any]) -> None:
        card = job.data["card"]
        raise ValueError(f"refused after {len(card)} digits")

    await harness.start_worker(charge, telemetry=Sentry(), attempts=2, backoff=AT_ONCE)
    job = await queue.add("charge", {"card": SECRET})
    found = await runs(transport, 2)
    first, second = transport.errors()
    assert (
        first["tags"].items()
        >= {
            "job.id": job.id,
            "job.name": "charge",
            "job.attempt": "1",
            "queue": QUEUE,
        }.items()
    )
    assert (
        first["contexts"]["job"].items()
        >= {
            "id": job.id,
            "task": "charge",
            "attempt": 1,
            "attempts": 2,
        }.items()
    )
    assert second["tags"]["job.attempt"] == "2"
    (raised,) = first["exception"]["values"]
    assert (raised["type"], raised["value"]) == ("ValueError", "refused after 6 digits")
    assert [frame["function"] for frame in raised["stacktrace"]["frames"]] == ["charge"]
    assert SECRET not in json.dumps(transport.sent)
    assert [each["contexts"]["trace"]["status"] for each in found] == ["internal_error"] * 2
    retries = [each["spans"][0]["data"]["messaging.message.retry.count"] for each in found]
    assert retries == [0, 1]


async def test_what_a_plain_handler_raises_is_sent_with_its_frames(
    harness: Harness, queue: Queue, transport: RecordingTransport
) -> None:
    def charge(job: Job[Any]) -> None:
        raise LookupError("no such card")

    await harness.start_worker(charge, telemetry=Sentry(), attempts=1)
    await queue.add("charge")
    await runs(transport)
    (error,) = transport.errors()
    (raised,) = error["exception"]["values"]
    assert [frame["function"] for frame in raised["stacktrace"]["frames"]] == ["charge"]


async def test_what_a_child_process_raises_is_sent_as_text(
    harness: Harness, queue: Queue, transport: RecordingTransport
) -> None:
    handler = Handler(child_handlers.sleeps, isolation="process", attempts=1)
    await harness.start_worker(handler, telemetry=Sentry())
    await queue.add("nap", None)
    await runs(transport)
    (error,) = transport.errors()
    assert error["exception"]["values"][0]["type"] == "TypeError"
    assert "in sleeps" in error["extra"]["traceback"]


async def test_a_handler_that_asks_for_another_attempt_is_an_error_only_at_the_last(
    harness: Harness, queue: Queue, transport: RecordingTransport
) -> None:
    async def wait(job: Job[Any]) -> None:
        raise Retry("not ready", after=0)

    await harness.start_worker(wait, telemetry=Sentry(), attempts=3)
    await queue.add("wait")
    await runs(transport, 3)
    (error,) = transport.errors()
    assert error["tags"]["job.attempt"] == "3"


async def test_jobs_do_not_see_each_others_scopes(
    harness: Harness, queue: Queue, transport: RecordingTransport
) -> None:
    async def mark(job: Job[Any]) -> None:
        sentry_sdk.set_tag(f"mark-{job.data}", "set")

    await harness.start_worker(mark, telemetry=Sentry(), concurrency=1)
    await queue.add_each("mark", [1, 2])
    found = await runs(transport, 2)
    marks = [{tag for tag in each["tags"] if tag.startswith("mark")} for each in found]
    assert marks == [{"mark-1"}, {"mark-2"}]


async def test_without_init_jobs_run_as_ever(harness: Harness, queue: Queue) -> None:
    calls = Calls()
    await harness.start_worker(calls, telemetry=Sentry())
    await queue.add("greet")
    await harness.until_settled()
    assert len(calls) == 1


async def test_sentry_and_opentelemetry_work_side_by_side(
    harness: Harness, transport: RecordingTransport
) -> None:
    recording, calls = Recording(), Calls()
    both: list[Telemetry] = [recording.telemetry, Sentry()]
    await harness.start_worker(calls, telemetry=both)
    async with Queue(QUEUE, harness.running.url, telemetry=both) as queue:
        with sentry_sdk.start_transaction(op="http.server", name="order"):
            await queue.add("greet")
    (run,), (span,) = await runs(transport), await recording.runs(1)
    (request,) = transport.transactions("http.server")
    assert ids(span)[0] == ids(recording.send)[0]
    assert run["contexts"]["trace"]["trace_id"] == request["contexts"]["trace"]["trace_id"]
    assert calls.jobs[0].headers.keys() >= {"traceparent", "sentry-trace", "baggage"}
