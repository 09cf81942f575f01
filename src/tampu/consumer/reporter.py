"""What a worker tells of its runs: events for listeners, facts for whoever measures, and the log.

The log never holds what a handler was given or what it said: both may be secret.
"""

import logging
from typing import Any, Final

from tampu.consumer.intake import Delivery
from tampu.consumer.settle import RetryEntry
from tampu.events import EventWriter
from tampu.job import Job
from tampu.metrics.facts import JobBuried, JobEnded, RetryScheduled, RunEnd
from tampu.metrics.sinks import Teller
from tampu.outcome import Done, Failed, Outcome, Released, Snoozed, UnrecoverableFailure
from tampu.util.clock import now_ms
from tampu.wire.dead import BuryReason, Failure
from tampu.wire.event import EventKind, encode_active, encode_completed, encode_event

logger = logging.getLogger(__name__)
_ENDS: Final = {
    Done: RunEnd.DONE,
    Failed: RunEnd.FAILED,
    Snoozed: RunEnd.PUT_OFF,
    UnrecoverableFailure: RunEnd.HOPELESS,
    Released: RunEnd.ABANDONED,
}


class Reporter:
    """Tells both, or one, or nobody; never fails and never waits."""

    def __init__(self, writer: EventWriter | None, teller: Teller) -> None:
        self._writer = writer
        self._tell = None if writer is None else writer.tell
        self.teller = teller
        self._stamped, self._text = 0, ""
        self.silent = writer is None and teller.sink is None

    @property
    def wants_starts(self) -> bool:
        """Whether somebody is told when a run begins."""
        return self._writer is not None

    @property
    def backlog(self) -> int:
        """Events that wait to be written."""
        return 0 if self._writer is None else len(self._writer)

    def started(self, delivery: Delivery) -> None:
        """A run begins."""
        if self._tell is not None:
            job = delivery.job
            self._tell(encode_active(job.id, self._stamp(), job.name, job.attempt))

    def ended(self, delivery: Delivery, outcome: Outcome, duration_ns: int) -> None:
        """A run ended."""
        job, duration_us = delivery.job, duration_ns // 1000
        if self._tell is not None:
            if type(outcome) is Done:
                self._tell(
                    encode_completed(job.id, self._stamp(), job.name, job.attempt, duration_us)
                )
            elif isinstance(outcome, Failed | UnrecoverableFailure):
                reason = outcome.failure.message
                self._event(EventKind.FAILED, job, reason=reason, duration_us=duration_us)
        if self.teller.sink is not None:
            end = _ENDS[type(outcome)]
            self.teller.tell(JobEnded(job.name, job.attempt, end, duration_us))

    def failed(self, job: Job[Any], failure: Failure) -> None:
        """An attempt failed; what becomes of the job is told when it is settled."""
        logger.info(
            "an attempt failed",
            extra=_facts(job.id, job.name, attempt=job.attempt)
            | {"error_type": failure.error_type},
        )

    def rescheduled(self, each: RetryEntry) -> None:
        """A failed job will run again."""
        job, wait_ms = each.delivery.job, each.wait_ms or 0
        attempt = job.attempt + 1
        if self._tell is not None:
            self._tell(
                encode_event(
                    EventKind.RETRY_SCHEDULED,
                    job_id=job.id,
                    ts_ms=now_ms(),
                    name=job.name,
                    attempt=attempt,
                    backoff_ms=wait_ms,
                )
            )
        self.teller.tell(RetryScheduled(job.name, attempt, wait_ms))

    def buried(self, job_id: str, *, name: str, reason: BuryReason, attempt: int) -> None:
        """A job, or what should have been one, became a dead letter."""
        logger.warning(
            "a job was buried",
            extra=_facts(job_id, name, attempt=attempt) | {"reason": reason.value},
        )
        if self._tell is not None:
            self._tell(
                encode_event(
                    EventKind.DEAD,
                    job_id=job_id,
                    ts_ms=now_ms(),
                    name=name,
                    attempt=attempt,
                    reason=reason.value,
                )
            )
        self.teller.tell(JobBuried(name, reason, attempt))

    def progress(self, job: Job[Any], percent: int) -> None:
        """A running job says how far it is."""
        if self._tell is not None:
            self._event(EventKind.PROGRESS, job, progress=percent)

    def drained(self) -> None:
        """The queue ran empty."""
        if self._tell is not None:
            self._tell(encode_event(EventKind.DRAINED, job_id="", ts_ms=now_ms()))

    def _stamp(self) -> str:
        """The time as events have it; made once a millisecond."""
        stamp = now_ms()
        if stamp != self._stamped:
            self._stamped, self._text = stamp, str(stamp)
        return self._text

    def _event(self, kind: EventKind, job: Job[Any], **fields: int | str) -> None:
        if self._tell is not None:
            self._tell(
                encode_event(
                    kind,
                    job_id=job.id,
                    ts_ms=now_ms(),
                    name=job.name,
                    attempt=job.attempt,
                    **fields,
                )
            )


def _facts(job_id: str, name: str, *, attempt: int) -> dict[str, object]:
    return {"job_id": job_id, "job_name": name, "attempt": attempt}
