"""Facts: one small value for each thing worth counting."""

from enum import Enum, auto
from typing import TypeAlias

from msgspec import Struct

from tampu.wire.dead import BuryReason


class OutcomeKind(Enum):
    """How an attempt ended."""

    DONE = auto()
    FAILED = auto()
    SNOOZED = auto()
    UNRECOVERABLE = auto()
    RELEASED = auto()  # the worker stopped before the handler had finished


class BatchRead(Struct, frozen=True):
    """Entries arrived; `taken_over` of them came from a dead worker."""

    size: int
    taken_over: int = 0


class JobEnded(Struct, frozen=True):
    """An attempt ended; `attempt` counts from 1."""

    name: str
    attempt: int
    outcome: OutcomeKind
    duration_us: int


class RetryScheduled(Struct, frozen=True):
    """A failed job will run again; `attempt` is the number of the next attempt."""

    name: str
    attempt: int
    backoff_ms: int


class JobBuried(Struct, frozen=True):
    """A job became a dead letter; `attempt` is 0 if it could not be decoded."""

    name: str
    reason: BuryReason
    attempt: int


class Promotion(Struct, frozen=True):
    """One call of the promoter: how many jobs it moved, and how many are still delayed."""

    moved: int
    remaining: int


class Firings(Struct, frozen=True):
    """One round of firing schedules: how many instants fired, and why others did not."""

    fired: int
    missed: int = 0
    overlapped: int = 0
    outside: int = 0
    limited: int = 0


class LeadChanged(Struct, frozen=True):
    """A service became the leader of its queue, or stopped being it."""

    service: str
    leads: bool


Fact: TypeAlias = (
    BatchRead | JobEnded | RetryScheduled | JobBuried | Promotion | Firings | LeadChanged
)
