"""An entry handed to this worker, decoded."""

from typing import Any

from msgspec import Struct

from tampu.consumer.handler import Plan
from tampu.job import Job
from tampu.wire.dead import DeadLetter
from tampu.wire.envelope import Envelope


class Delivery(Struct, frozen=True, gc=False):
    """A job to run, and what is needed to settle its entry.

    Not tracked by the garbage collector: it lives as long as its run and is part of no cycle.
    """

    entry_id: bytes
    envelope: Envelope
    job: Job[Any]
    plan: Plan
    raw_name: bytes
    extras: bytes  # as they arrived, b"" for none
    read_at: float  # by the loop's monotonic clock
    timeout_s: float | None

    @property
    def budget(self) -> int:
        """How many attempts it has: the job's own number first."""
        override = self.envelope.retry
        if override is None or override.max_attempts is None:
            return self.plan.attempts
        return override.max_attempts


class Rejected(Struct, frozen=True):
    """An entry that cannot be run, and the dead letter it becomes."""

    entry_id: bytes
    letter: DeadLetter
    job_id: str
    attempt: int
