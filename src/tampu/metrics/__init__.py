"""What a queue and its workers tell: facts for a sink, runs for telemetry, jobs for the log.

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
    OutcomeKind,
    Promotion,
    RetryScheduled,
)
from tampu.metrics.logs import JobLogFilter
from tampu.metrics.telemetry import (
    Endpoint,
    JobRun,
    RunEnd,
    RunSpan,
    Sending,
    SendSpan,
    Telemetry,
)

__all__ = [
    "BatchRead",
    "Endpoint",
    "Fact",
    "Firings",
    "JobBuried",
    "JobEnded",
    "JobLogFilter",
    "JobRun",
    "LeadChanged",
    "MemorySink",
    "MetricsSink",
    "OutcomeKind",
    "Promotion",
    "RetryScheduled",
    "RunEnd",
    "RunSpan",
    "SendSpan",
    "Sending",
    "Telemetry",
]
