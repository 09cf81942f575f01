"""What a queue and its workers tell: facts for a sink, history, runs for telemetry, jobs for logs.

`tampu.metrics.otel` and `tampu.metrics.sentry` have the telemetry for OpenTelemetry and Sentry.
"""

from tampu.metrics.facts import (
    BatchRead,
    Fact,
    Firings,
    JobBuried,
    JobEnded,
    LeadChanged,
    MemorySink,
    MetricsSink,
    OutboxCounted,
    OutboxMoved,
    OutcomeKind,
    Promotion,
    RetryScheduled,
)
from tampu.metrics.history import Bucket, FailureGroup, Figures, Histogram, History, Span
from tampu.metrics.logs import JOB_FIELDS, JobLogFilter, job_fields
from tampu.metrics.telemetry import (
    Endpoint,
    JobRun,
    RunEnd,
    RunSpan,
    Sending,
    SendSpan,
    Telemetry,
)
from tampu.wire.history import Gauges

__all__ = [
    "JOB_FIELDS",
    "BatchRead",
    "Bucket",
    "Endpoint",
    "Fact",
    "FailureGroup",
    "Figures",
    "Firings",
    "Gauges",
    "Histogram",
    "History",
    "JobBuried",
    "JobEnded",
    "JobLogFilter",
    "JobRun",
    "LeadChanged",
    "MemorySink",
    "MetricsSink",
    "OutboxCounted",
    "OutboxMoved",
    "OutcomeKind",
    "Promotion",
    "RetryScheduled",
    "RunEnd",
    "RunSpan",
    "SendSpan",
    "Sending",
    "Span",
    "Telemetry",
    "job_fields",
]
