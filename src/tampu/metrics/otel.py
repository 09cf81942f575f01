"""OpenTelemetry: spans and metrics by the semantic conventions for messaging, version 1.44.

Needs `pip install 'tampu[otel]'`, which brings the API only. What becomes of spans and metrics is
decided by the SDK that the program sets up.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from tampu._version import __version__
from tampu.errors import MissingExtra
from tampu.job import Job
from tampu.metrics.telemetry import Endpoint, JobRun, RunEnd, Sending
from tampu.wire.dead import Failure

try:
    from opentelemetry import context, metrics, propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Link, Span, SpanKind, StatusCode, TracerProvider
except ModuleNotFoundError as missing:
    raise MissingExtra(extra="otel", package="opentelemetry-api") from missing

Attributes: TypeAlias = dict[str, str | int]

# The names are spelled here: in OpenTelemetry's package of conventions they are not stable yet. A
# test compares them with that package.
SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.44.0"
SYSTEM: Final = "messaging.system"
OPERATION_NAME: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
DESTINATION: Final = "messaging.destination.name"
MESSAGE_ID: Final = "messaging.message.id"
CLIENT_ID: Final = "messaging.client.id"
GROUP: Final = "messaging.consumer.group.name"
BATCH_COUNT: Final = "messaging.batch.message_count"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
ERROR_TYPE: Final = "error.type"
EXCEPTION_TYPE: Final = "exception.type"
EXCEPTION_MESSAGE: Final = "exception.message"
EXCEPTION_STACKTRACE: Final = "exception.stacktrace"
JOB_NAME: Final = "messaging.tampu.job.name"
JOB_ATTEMPT: Final = "messaging.tampu.job.attempt"
JOB_WAIT_MS: Final = "messaging.tampu.job.wait_ms"
SCHEDULE_KEY: Final = "messaging.tampu.schedule.key"
SENT: Final = "messaging.client.sent.messages"
CONSUMED: Final = "messaging.client.consumed.messages"
DURATION: Final = "messaging.process.duration"
DURATION_BOUNDS: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.075),
    *(0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0),
)
SEND: Final = "send"
PROCESS: Final = "process"


class OpenTelemetry:
    """Telemetry for OpenTelemetry: `App(telemetry=OpenTelemetry())`.

    Uses the program's own providers, also those that are set later, unless others are given.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        self._tracer = trace.get_tracer("tampu", __version__, tracer_provider, SCHEMA_URL)
        meter = metrics.get_meter("tampu", __version__, meter_provider, SCHEMA_URL)
        self.sent = meter.create_counter(
            SENT, "{message}", "Number of messages producer attempted to send to the broker."
        )
        self.consumed = meter.create_counter(
            CONSUMED, "{message}", "Number of messages that were delivered to the application."
        )
        self.duration = meter.create_histogram(
            DURATION,
            "s",
            "Duration of processing operation.",
            explicit_bucket_boundaries_advisory=DURATION_BOUNDS,
        )

    def start_send(self, sending: Sending) -> "OtelSend":
        """Start a span `send {queue}`."""
        endpoint = sending.endpoint
        facts = _facts(endpoint, SEND)
        attributes = facts | {OPERATION_TYPE: SEND, CLIENT_ID: endpoint.client_id}
        if sending.is_batch:
            attributes[BATCH_COUNT] = sending.count
        if sending.name is not None:
            attributes[JOB_NAME] = sending.name
        span = self._tracer.start_span(
            f"{SEND} {endpoint.queue}", kind=SpanKind.PRODUCER, attributes=attributes
        )
        return OtelSend(self, span, facts=facts, sending=sending)

    def start_run(self, run: JobRun) -> "OtelRun":
        """Start a span `process {queue}` and make it the current one."""
        endpoint, job = run.endpoint, run.job
        facts = _facts(endpoint, PROCESS)
        attributes = facts | {
            OPERATION_TYPE: PROCESS,
            CLIENT_ID: endpoint.client_id,
            JOB_NAME: job.name,
            JOB_ATTEMPT: job.attempt,
            JOB_WAIT_MS: run.wait_ms,
        }
        attributes |= {BATCH_COUNT: len(run.jobs)} if run.jobs else {MESSAGE_ID: job.id}
        if job.schedule_key is not None:
            attributes[SCHEDULE_KEY] = job.schedule_key
        # An empty context: what is current where a worker runs is not what the job comes from.
        origin = propagate.extract(job.headers, Context()) if job.headers else Context()
        parent = trace.set_span_in_context(trace.INVALID_SPAN, origin) if run.is_apart else origin
        span = self._tracer.start_span(
            f"{PROCESS} {endpoint.queue}",
            parent,
            SpanKind.CONSUMER,
            attributes,
            _links_of(run),
        )
        inside = trace.set_span_in_context(span, origin)
        return OtelRun(self, span, facts=facts, inside=inside, count=len(run.jobs) or 1)

    def headers(self) -> dict[str, str]:
        """The current context, as a schedule keeps it for its jobs."""
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
        return carrier


class OtelSend:
    """The span of an add."""

    def __init__(
        self, telemetry: OpenTelemetry, span: Span, *, facts: Attributes, sending: Sending
    ) -> None:
        self._telemetry, self._span = telemetry, span
        self._facts, self._sending = facts, sending

    @property
    def headers(self) -> Mapping[str, str]:
        """The context of the span, as the program's propagators write it."""
        carrier: dict[str, str] = {}
        propagate.inject(carrier, trace.set_span_in_context(self._span))
        return carrier

    def end(self, jobs: Sequence[Job[Any]], error: BaseException | None) -> None:
        """End the span; the id of a single job is known now."""
        span, facts = self._span, self._facts
        if error is not None:
            kind = type(error).__qualname__
            facts[ERROR_TYPE] = kind
            span.set_attribute(ERROR_TYPE, kind)
            span.set_status(StatusCode.ERROR, kind)
        elif not self._sending.is_batch:
            span.set_attribute(MESSAGE_ID, jobs[0].id)
        span.end()
        self._telemetry.sent.add(self._sending.count, facts)


class OtelRun:
    """The span of an attempt, current from its creation to its end."""

    def __init__(
        self,
        telemetry: OpenTelemetry,
        span: Span,
        *,
        facts: Attributes,
        inside: Context,
        count: int,
    ) -> None:
        self._telemetry, self._span, self._facts = telemetry, span, facts
        self._count = count  # of jobs
        found = span.get_span_context()
        self.trace_id = trace.format_trace_id(found.trace_id) if found.is_valid else None
        self._token = context.attach(inside)

    def end(self, end: RunEnd) -> None:
        """End the span, with an error if the attempt failed."""
        context.detach(self._token)
        telemetry, facts = self._telemetry, self._facts
        if end.failure is not None:
            _set_failure(self._span, end.failure)
            facts[ERROR_TYPE] = end.failure.error_type
        self._span.end()
        telemetry.consumed.add(self._count, facts)
        telemetry.duration.record(end.duration_s, facts)


def _links_of(run: JobRun) -> list[Link]:
    """Links to where the job, or each job of a batch, was added."""
    origins = [propagate.extract(each.headers, Context()) for each in run.jobs or (run.job,)]
    producers = [trace.get_current_span(each).get_span_context() for each in origins]
    return [Link(each) for each in producers if each.is_valid]


def _facts(endpoint: Endpoint, operation: str) -> Attributes:
    """What spans and metrics have in common."""
    facts: Attributes = {
        SYSTEM: "tampu",
        OPERATION_NAME: operation,
        DESTINATION: endpoint.queue,
        SERVER_ADDRESS: endpoint.address,
    }
    if endpoint.port is not None:
        facts[SERVER_PORT] = endpoint.port
    if endpoint.group is not None:
        facts[GROUP] = endpoint.group
    return facts


def _set_failure(span: Span, failure: Failure) -> None:
    span.set_attribute(ERROR_TYPE, failure.error_type)
    span.set_status(StatusCode.ERROR, failure.message)
    event = {EXCEPTION_TYPE: failure.error_type, EXCEPTION_MESSAGE: failure.message}
    if failure.traceback:
        event[EXCEPTION_STACKTRACE] = failure.traceback
    span.add_event("exception", event)
