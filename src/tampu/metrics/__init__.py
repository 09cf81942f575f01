"""What happens inside, told to whoever measures."""

from tampu.metrics.facts import (
    BatchRead,
    Fact,
    Firings,
    JobBuried,
    JobEnded,
    LeadChanged,
    Promotion,
    RetryScheduled,
    RunEnd,
)
from tampu.metrics.sinks import MemorySink, MetricsSink

__all__ = [
    "BatchRead",
    "Fact",
    "Firings",
    "JobBuried",
    "JobEnded",
    "LeadChanged",
    "MemorySink",
    "MetricsSink",
    "Promotion",
    "RetryScheduled",
    "RunEnd",
]
