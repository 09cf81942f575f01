"""Rules of time: pure values that are asked for instants and never read a clock.

Shared by the schedules of a queue and by the scheduler in a process.
"""

from tampu.timing.aligned import Aligned
from tampu.timing.at import At
from tampu.timing.cron import Cron
from tampu.timing.every import Every
from tampu.timing.jitter import offset_ms
from tampu.timing.missed import Decision, Missed, MissedKind, decide, first_fire
from tampu.timing.overlap import Overlap
from tampu.timing.rule import Around, Rule
from tampu.timing.window import TimeWindow

__all__ = [
    "Aligned",
    "Around",
    "At",
    "Cron",
    "Decision",
    "Every",
    "Missed",
    "MissedKind",
    "Overlap",
    "Rule",
    "TimeWindow",
    "decide",
    "first_fire",
    "offset_ms",
]
