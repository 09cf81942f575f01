"""Facts about jobs and services, and the sinks that they go to."""

import logging
from collections import deque
from collections.abc import Sequence
from enum import auto
from typing import Final, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from tampu import outcome
from tampu.errors import OptionError
from tampu.util.options import Word
from tampu.wire.dead import BuryReason


class OutcomeKind(Word):
    """How an attempt ended."""

    DONE = auto()
    FAILED = auto()
    SNOOZED = auto()
    THROTTLED = auto()  # the handler met a rate limit
    UNRECOVERABLE = auto()
    CANCELLED = auto()  # the job was cancelled before the handler had finished
    RELEASED = auto()  # the worker stopped before the handler had finished


OUTCOME_KINDS: Final = {
    outcome.Done: OutcomeKind.DONE,
    outcome.Failed: OutcomeKind.FAILED,
    outcome.Snoozed: OutcomeKind.SNOOZED,
    outcome.Throttled: OutcomeKind.THROTTLED,
    outcome.UnrecoverableFailure: OutcomeKind.UNRECOVERABLE,
    outcome.Cancelled: OutcomeKind.CANCELLED,
    outcome.Released: OutcomeKind.RELEASED,
}


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


class OutboxMoved(Struct, frozen=True):
    """A relay moved rows of an outbox to queues; duplicates were there already."""

    outbox: str
    moved: int
    duplicates: int
    refused: int  # rows that it has set aside


class OutboxCounted(Struct, frozen=True):
    """The rows of an outbox: how many wait and were refused, and how long the oldest has waited."""

    outbox: str
    waiting: int
    refused: int
    oldest_s: float


Fact: TypeAlias = (
    BatchRead
    | JobEnded
    | RetryScheduled
    | JobBuried
    | Promotion
    | Firings
    | LeadChanged
    | OutboxMoved
    | OutboxCounted
)


logger = logging.getLogger(__name__)
F = TypeVar("F", bound=Fact)


class MetricsSink(Protocol):
    """Takes facts in batches, in the order in which they happened, on the worker's loop."""

    def record(self, facts: Sequence[Fact]) -> None:
        """Count the facts. Must be quick and must not wait."""


def check_sink(option: str, given: object) -> None:
    """Raise `OptionError` for something that is neither None nor a sink."""
    if given is not None and not callable(getattr(given, "record", None)):
        raise OptionError(option, given, "expected a sink: an object with record(facts)")


class SafeSink:
    """Passes facts to a sink, if there is one. A sink that raises never fails a job."""

    def __init__(self, sink: MetricsSink | None) -> None:
        self._sink = sink
        self._failed = False
        self.is_set = sink is not None

    def record(self, facts: Sequence[Fact]) -> None:
        """Pass the facts on; the first error of a sink is logged."""
        if self._sink is None:
            return
        try:
            self._sink.record(facts)
        except Exception:  # border: a sink is the user's code
            if not self._failed:
                logger.warning("metrics sink %r failed", self._sink, exc_info=True)
            self._failed = True


class MemorySink:
    """Keeps the last facts, at most `most` of them, oldest first."""

    def __init__(self, most: int = 100_000) -> None:
        self._facts: deque[Fact] = deque(maxlen=most)

    def record(self, facts: Sequence[Fact]) -> None:
        """Keep the facts."""
        self._facts.extend(facts)

    def of(self, kind: type[F]) -> list[F]:
        """The facts of one kind."""
        return [fact for fact in self._facts if isinstance(fact, kind)]
