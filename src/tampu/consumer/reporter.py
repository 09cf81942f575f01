"""Reports what happens to jobs: events for listeners, facts for the metrics sink, log lines.

The log never holds a payload. It does hold what a handler raised, with its traceback.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from tampu.consumer.intake import BuryEntry
from tampu.consumer.settle import RetryEntry
from tampu.errors import duration_text
from tampu.metrics.facts import OUTCOME_KINDS, JobBuried, JobEnded, RetryScheduled
from tampu.outcome import Done, Failed, UnrecoverableFailure
from tampu.util.clock import now_ms
from tampu.wire.dead import BuryReason
from tampu.wire.event import EventKind, encode_active, encode_completed, encode_event

if TYPE_CHECKING:
    from tampu.consumer.intake import Delivery
    from tampu.consumer.settle import Settlement
    from tampu.events import EventWriter
    from tampu.job import Job
    from tampu.metrics.facts import SafeSink
    from tampu.outcome import Outcome
    from tampu.wire.dead import Failure

logger = logging.getLogger(__name__)


def wants_traceback(delivery: Delivery) -> bool:
    """Whether a traceback will be used if this attempt fails: in the log, or in a dead letter."""
    return logger.isEnabledFor(logging.WARNING) or delivery.job.attempt >= delivery.budget


class Reporter:
    """Reports to whoever listens; never fails and never waits."""

    def __init__(self, writer: EventWriter | None, sink: SafeSink, *, queue: str) -> None:
        self._writer = writer
        self._write = None if writer is None else writer.tell
        self.sink = sink
        self._queue = queue
        self._stamp_ms, self._stamp_text = 0, ""
        self.is_silent = writer is None and not sink.is_set

    @property
    def wants_starts(self) -> bool:
        """Whether the start of an attempt is reported at all."""
        return self._writer is not None

    @property
    def backlog(self) -> int:
        """How many events wait to be written."""
        return 0 if self._writer is None else len(self._writer)

    def report_start(self, delivery: Delivery) -> None:
        """An attempt begins."""
        if self._write is not None:
            job = delivery.job
            self._write(encode_active(job.id, self._stamp(), job.name, job.attempt))

    def report_end(self, delivery: Delivery, outcome: Outcome, duration_ns: int) -> None:
        """An attempt ended."""
        job, duration_us = delivery.job, duration_ns // 1000
        if self._write is not None:
            if type(outcome) is Done:
                self._write(
                    encode_completed(job.id, self._stamp(), job.name, job.attempt, duration_us)
                )
            elif isinstance(outcome, Failed | UnrecoverableFailure):
                self._write_event(
                    EventKind.FAILED,
                    job.id,
                    name=job.name,
                    attempt=job.attempt,
                    reason=outcome.failure.message,
                    duration_us=duration_us,
                )
        if self.sink.is_set:
            kind = OUTCOME_KINDS[type(outcome)]
            self.sink.record([JobEnded(job.name, job.attempt, kind, duration_us)])

    def log_failure(self, delivery: Delivery, failure: Failure, settlement: Settlement) -> None:
        """Log a failed attempt: what was raised, its traceback, and when the next attempt is."""
        if not logger.isEnabledFor(logging.WARNING):
            return
        job, budget = delivery.job, delivery.budget
        error_type, error = failure.error_type, failure.message
        facts = self._facts(job.id, job.name, job.attempt)
        record = logger.makeRecord(
            logger.name,
            logging.WARNING,
            *logger.findCaller()[:2],
            "job %s (%s) failed on attempt %d of %d, %s: %s: %s",
            (job.id, job.name, job.attempt, budget, _next_step(settlement), error_type, error),
            None,
            extra=facts | {"attempts": budget, "error_type": error_type, "error": error},
        )
        # As text: the exception itself may have been raised in a child process.
        record.exc_text = failure.traceback.rstrip() or None
        logger.handle(record)

    def log_lost_result(self, delivery: Delivery, failure: Failure) -> None:
        """Log that a job is done, but that its result could not be stored."""
        job, error_type, error = delivery.job, failure.error_type, failure.message
        logger.warning(
            "job %s (%s) is done, but its result cannot be stored: %s: %s",
            job.id,
            job.name,
            error_type,
            error,
            extra=self._facts(job.id, job.name, job.attempt)
            | {"error_type": error_type, "error": error},
        )

    def report_retry(self, delivery: Delivery, wait_ms: int) -> None:
        """A failed job will run again."""
        job = delivery.job
        attempt, kind = job.attempt + 1, EventKind.RETRY_SCHEDULED
        self._write_event(kind, job.id, name=job.name, attempt=attempt, backoff_ms=wait_ms)
        self.sink.record([RetryScheduled(job.name, attempt, wait_ms)])

    def report_burial(self, burial: BuryEntry) -> None:
        """A job, or an entry that could not be decoded, became a dead letter."""
        name, reason, attempt = burial.dead.name, burial.reason, burial.dead.attempt or 0
        self._log_burial(burial, name=name, attempt=attempt)
        self._write_event(
            EventKind.DEAD, burial.job_id, name=name, attempt=attempt, reason=reason.value
        )
        self.sink.record([JobBuried(name, reason, attempt)])

    def report_cancelled(self, delivery: Delivery) -> None:
        """A job was cancelled, before its attempt or during it."""
        job = delivery.job
        self._write_event(EventKind.CANCELLED, job.id, name=job.name, attempt=job.attempt)
        facts = self._facts(job.id, job.name, job.attempt)
        logger.info("job %s (%s) was cancelled", job.id, job.name, extra=facts)

    def report_progress(self, job: Job[Any], percent: int) -> None:
        """A running job reports its progress."""
        self._write_event(
            EventKind.PROGRESS, job.id, name=job.name, attempt=job.attempt, progress=percent
        )

    def report_drained(self) -> None:
        """The queue became empty."""
        if self._write is not None:
            self._write(encode_event(EventKind.DRAINED, job_id="", ts_ms=now_ms()))

    def _log_burial(self, burial: BuryEntry, *, name: str, attempt: int) -> None:
        entry_id, failure, reason = burial.dead.source_id, burial.failure, burial.reason.value
        what = f"job {burial.job_id} ({name})" if burial.job_id else f"entry {entry_id}"
        error = "" if failure is None else f"{failure.error_type}: {failure.message}".lstrip(": ")
        facts = self._facts(burial.job_id, name, attempt)
        logger.warning(
            "%s buried (%s, attempt %d)%s",
            what,
            reason,
            attempt,
            error and f": {error}",
            extra=facts | {"entry_id": entry_id, "reason": reason, "error": error},
        )

    def _facts(self, job_id: str, name: str, attempt: int) -> dict[str, object]:
        return {"queue": self._queue, "job_id": job_id, "job_name": name, "attempt": attempt}

    def _stamp(self) -> str:
        """The time as text, for events; made once a millisecond."""
        stamp_ms = now_ms()
        if stamp_ms != self._stamp_ms:
            self._stamp_ms, self._stamp_text = stamp_ms, str(stamp_ms)
        return self._stamp_text

    def _write_event(
        self, kind: EventKind, job_id: str, *, name: str, attempt: int, **fields: int | str
    ) -> None:
        if self._write is not None:
            stamp_ms = now_ms()
            self._write(
                encode_event(
                    kind, job_id=job_id, ts_ms=stamp_ms, name=name, attempt=attempt, **fields
                )
            )


def _next_step(settlement: Settlement) -> str:
    if isinstance(settlement, RetryEntry):
        return f"next in {duration_text((settlement.wait_ms or 0) / 1000)}"
    if isinstance(settlement, BuryEntry) and settlement.reason is BuryReason.RETRIES_EXHAUSTED:
        return "no attempts left"
    return "not retried"
