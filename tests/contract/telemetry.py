"""OpenTelemetry's own in-memory exporters, and telemetry that breaks."""

from collections.abc import Callable, Mapping
from typing import Any, Never

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, format_span_id, format_trace_id

from tampu.metrics import JobRun, OutcomeKind, RunEnd, RunSpan, Sending, SendSpan, otel
from tampu.metrics.otel import OpenTelemetry
from tests.contract.workers import SOON
from tests.waiting import wait_until


class Recording:
    """Telemetry whose spans and metrics stay in memory."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        meters = MeterProvider([self.reader])
        self.telemetry = OpenTelemetry(tracer_provider=self.provider, meter_provider=meters)
        self.tracer = self.provider.get_tracer("tests")

    def spans(self, kind: SpanKind) -> list[ReadableSpan]:
        """The spans that have ended, oldest first."""
        return [each for each in self.exporter.get_finished_spans() if each.kind is kind]

    async def runs(self, count: int) -> list[ReadableSpan]:
        """The spans of runs, as soon as there are so many; fails if there are more."""
        await wait_until(
            lambda: len(self.spans(SpanKind.CONSUMER)) >= count,
            within=SOON,
            sentence=f"{count} runs have ended",
        )
        found = self.spans(SpanKind.CONSUMER)
        assert len(found) == count
        return found

    @property
    def send(self) -> ReadableSpan:
        (span,) = self.spans(SpanKind.PRODUCER)
        return span

    def points(self, name: str) -> list[Any]:
        """The data points of a metric."""
        data: Any = self.reader.get_metrics_data()
        metrics = [
            metric
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        ]
        return [point for each in metrics if each.name == name for point in each.data.data_points]


def ids(span: ReadableSpan) -> tuple[str, str]:
    """The trace and the span, as headers write them."""
    context = span.get_span_context()
    assert context is not None
    return format_trace_id(context.trace_id), format_span_id(context.span_id)


def parent_of(span: ReadableSpan) -> tuple[str, str] | None:
    found = span.parent
    return (
        None if found is None else (format_trace_id(found.trace_id), format_span_id(found.span_id))
    )


def links_of(span: ReadableSpan) -> list[tuple[str, str]]:
    contexts = [link.context for link in span.links]
    return [(format_trace_id(each.trace_id), format_span_id(each.span_id)) for each in contexts]


def by_name(spans: list[ReadableSpan]) -> dict[str, ReadableSpan]:
    """The spans by the names of their jobs."""
    return {attributes(span)[otel.JOB_NAME]: span for span in spans}


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


class KeptEnds:
    """Telemetry that keeps how runs ended, and traces nothing."""

    trace_id = None

    def __init__(self) -> None:
        self.ends: list[RunEnd] = []

    def start_send(self, sending: Sending) -> SendSpan:
        raise NotImplementedError

    def start_run(self, run: JobRun) -> RunSpan:
        return self

    def end(self, end: RunEnd) -> None:
        self.ends.append(end)

    def headers(self) -> Mapping[str, str]:
        return {}

    async def outcomes(self, count: int) -> list[OutcomeKind]:
        """The outcomes so far, as soon as there are so many."""
        await wait_until(
            lambda: len(self.ends) >= count, within=SOON, sentence=f"{count} runs have ended"
        )
        return [end.outcome for end in self.ends]


class BrokenSpan:
    """A span of which nothing works."""

    @property
    def headers(self) -> Mapping[str, str]:
        raise LookupError("no headers")

    @property
    def trace_id(self) -> str | None:
        raise LookupError("no trace")

    def end(self, *facts: object) -> Never:
        raise LookupError("no end")


class BrokenTelemetry:
    """Telemetry that raises at once, or as late as possible."""

    def __init__(self, make_span: Callable[[], Any]) -> None:
        self._make_span = make_span

    def start_send(self, sending: Sending) -> SendSpan:
        span: SendSpan = self._make_span()
        return span

    def start_run(self, run: JobRun) -> RunSpan:
        span: RunSpan = self._make_span()
        return span

    def headers(self) -> Mapping[str, str]:
        raise LookupError("no headers")
