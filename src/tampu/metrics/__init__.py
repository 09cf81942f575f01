"""Facts about what workers do, passed to a sink that you choose."""

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

__all__ = [
    "BatchRead",
    "Fact",
    "Firings",
    "JobBuried",
    "JobEnded",
    "LeadChanged",
    "MemorySink",
    "MetricsSink",
    "OutcomeKind",
    "Promotion",
    "RetryScheduled",
]
