"""What is measured: facts that a sink of your choice gets, and the history of a queue."""

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
from tampu.metrics.history import Bucket, FailureGroup, Figures, Histogram, History, Span
from tampu.wire.history import Gauges

__all__ = [
    "BatchRead",
    "Bucket",
    "Fact",
    "FailureGroup",
    "Figures",
    "Firings",
    "Gauges",
    "Histogram",
    "History",
    "JobBuried",
    "JobEnded",
    "LeadChanged",
    "MemorySink",
    "MetricsSink",
    "OutcomeKind",
    "Promotion",
    "RetryScheduled",
    "Span",
]
