"""What follows the end of a worker process. Pure."""

import signal
from dataclasses import dataclass
from typing import Final

from tampu.cli.working.words import Reason

FIRST_PAUSE_S: Final = 0.25
LONGEST_PAUSE_S: Final = 30.0
HEALTHY_S: Final = 60.0
"""Whoever worked for so long has done well: what failed before is forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How a process ended."""

    code: int  # below 0: the signal that killed it
    reason: Reason | None  # what it said itself
    worked_s: float  # 0: it never did


@dataclass(frozen=True, slots=True)
class Again:
    """Start another, after a pause."""

    pause_s: float
    failures: int = 0  # in a row


@dataclass(frozen=True, slots=True)
class NotAgain:
    """It was to end."""


@dataclass(frozen=True, slots=True)
class WhenChanged:
    """It fails with the code as it is: start another when that is another."""


Step = Again | NotAgain | WhenChanged


def next_step(end: End, *, failures: int, reload: bool) -> Step:
    """What to do, after so many failures in a row."""
    if end.code == 0 and end.reason is Reason.EMPTY:
        return NotAgain()
    if end.code == 0 and end.reason is Reason.RECYCLED:
        return Again(0.0)
    if reload:
        return WhenChanged()
    failed = 1 if end.worked_s >= HEALTHY_S else failures + 1
    return Again(min(FIRST_PAUSE_S * 2 ** (failed - 1), LONGEST_PAUSE_S), failed)


def in_words(code: int) -> str:
    """How a process ended, as people say it."""
    if code < 0:
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"
    return f"exit code {code}"
