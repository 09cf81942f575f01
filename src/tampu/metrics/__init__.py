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
from tampu.metrics.memory import MemorySink
from tampu.metrics.sink import MetricsSink

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
