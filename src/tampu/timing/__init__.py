"""Rules of time and policies: plain values that never read a clock.

Used by a queue's schedules and by the in-process scheduler.
"""

from tampu.timing.cron import Cron
from tampu.timing.every import At, Every, offset_ms
from tampu.timing.policies import (
    Missed,
    MissedDecision,
    MissedKind,
    Overlap,
    decide_missed,
    first_fire,
)
from tampu.timing.rule import Rule
from tampu.timing.window import Aligned, TimeWindow

__all__ = [
    "Aligned",
    "At",
    "Cron",
    "Every",
    "Missed",
    "MissedDecision",
    "MissedKind",
    "Overlap",
    "Rule",
    "TimeWindow",
    "decide_missed",
    "first_fire",
    "offset_ms",
]
