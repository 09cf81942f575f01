"""One small value per thing worth counting."""

from enum import Enum, auto
from typing import TypeAlias

from msgspec import Struct

from tampu.wire.dead import BuryReason


class RunEnd(Enum):
    """How a run of a handler ended."""

    DONE = auto()
    FAILED = auto()
    PUT_OFF = auto()
    HOPELESS = auto()
    ABANDONED = auto()


class BatchRead(Struct, frozen=True):
    """Entries arrived; `taken_over` of them came from a worker that is gone."""

    size: int
    taken_over: int = 0


class JobEnded(Struct, frozen=True):
    """A handler ran; `attempt` counts from 1."""

    name: str
    attempt: int
    end: RunEnd
    duration_us: int


class RetryScheduled(Struct, frozen=True):
    """A job will run again; `attempt` is the number of that run."""

    name: str
    attempt: int
    backoff_ms: int


class JobBuried(Struct, frozen=True):
    """A job became a dead letter; `attempt` is 0 for one that was never read."""

    name: str
    reason: BuryReason
    attempt: int


class Promotion(Struct, frozen=True):
    """The promoter looked: how many jobs it moved and how many stay delayed."""

    moved: int
    remaining: int


class Firings(Struct, frozen=True):
    """The repeater looked: how many instants of schedules fired, and why others did not."""

    fired: int
    missed: int = 0
    overlapped: int = 0
    outside: int = 0
    limited: int = 0


class LeadChanged(Struct, frozen=True):
    """A service took the lead on its queue, or lost it."""

    service: str
    leads: bool


Fact: TypeAlias = (
    BatchRead | JobEnded | RetryScheduled | JobBuried | Promotion | Firings | LeadChanged
)
