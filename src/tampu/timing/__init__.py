"""Rules of time: pure values that are asked for instants and never read a clock.

Shared by the schedules of a queue and by the scheduler in a process.
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
from tampu.timing.rule import Around, Rule
from tampu.timing.window import Aligned, TimeWindow

__all__ = [
    "Aligned",
    "Around",
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
