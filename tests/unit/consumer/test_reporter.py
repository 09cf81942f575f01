"""What a worker reports about its jobs."""

import logging

import pytest

from tampu.consumer.intake import BuryEntry
from tampu.consumer.reporter import Reporter
from tampu.consumer.settle import RetryEntry, Settlement
from tampu.metrics import JobBuried, JobEnded, MemorySink, OutcomeKind, RetryScheduled
from tampu.metrics.facts import SafeSink
from tampu.outcome import (
    Cancelled,
    Done,
    Failed,
    Outcome,
    Released,
    Snoozed,
    Throttled,
    UnrecoverableFailure,
)
from tampu.wire.dead import BuryReason, DeadEntry, Failure
from tests.unit.consumer.deliveries import delivery

TRACEBACK = "Traceback (most recent call last):\n  ...\nValueError: boom\n"
FAILURE = Failure("ValueError", "boom", TRACEBACK)


@pytest.fixture
def sink() -> MemorySink:
    return MemorySink()


def reporter(sink: MemorySink | None = None) -> Reporter:
    return Reporter(None, SafeSink(sink), queue="emails")


def burial(
    reason: BuryReason,
    *,
    job_id: str = "j",
    attempt: int = 2,
    failure: Failure | None = None,
    detail: str | None = None,
) -> BuryEntry:
    dead = DeadEntry(
        envelope=b"secret",
        source_id="1-1",
        reason=reason,
        raw_name=b"greet" if job_id else b"",
        failure=failure,
        detail=detail,
        attempt=attempt,
    )
    return BuryEntry(b"1-1", job_id, reason, dead, 0.0)


class TestFacts:
    @pytest.mark.parametrize(
        ("outcome", "kind"),
        [
            (Done(1), OutcomeKind.DONE),
            (Failed(FAILURE), OutcomeKind.FAILED),
            (Snoozed(1), OutcomeKind.SNOOZED),
            (Throttled(1), OutcomeKind.THROTTLED),
            (UnrecoverableFailure(FAILURE), OutcomeKind.UNRECOVERABLE),
            (Cancelled(), OutcomeKind.CANCELLED),
            (Released(), OutcomeKind.RELEASED),
            (Cancelled(), OutcomeKind.CANCELLED),
        ],
    )
    def test_each_outcome_has_a_kind(
        self, sink: MemorySink, outcome: Outcome, kind: OutcomeKind
    ) -> None:
        reporter(sink).report_end(delivery(attempt=2), outcome, 5_999)
        assert sink.of(JobEnded) == [JobEnded("greet", 2, kind, 5)]

    @pytest.mark.parametrize("wait_ms", [40, 0])
    def test_a_retry_has_the_number_of_the_next_attempt(
        self, sink: MemorySink, wait_ms: int
    ) -> None:
        reporter(sink).report_retry(delivery(attempt=2), wait_ms)
        assert sink.of(RetryScheduled) == [RetryScheduled("greet", 3, wait_ms)]

    def test_a_burial_has_its_reason(self, sink: MemorySink) -> None:
        reporter(sink).report_burial(burial(BuryReason.EXPIRED, attempt=0))
        assert sink.of(JobBuried) == [JobBuried("greet", BuryReason.EXPIRED, 0)]


class TestSilence:
    def test_without_listeners_it_is_silent_and_every_call_is_allowed(
        self, sink: MemorySink
    ) -> None:
        silent = reporter()
        assert silent.is_silent
        assert not reporter(sink).is_silent
        one = delivery()
        silent.report_start(one)
        silent.report_end(one, Failed(FAILURE), 1)
        silent.report_retry(one, 1)
        silent.report_cancelled(one)
        silent.report_progress(one.job, 50)
        silent.report_drained()
        assert silent.backlog == 0


class TestLog:
    @pytest.mark.parametrize(
        ("settlement", "follows"),
        [
            (RetryEntry(delivery(), b"", b"", 1500, counted=True), "next in 1.5 s"),
            (RetryEntry(delivery(), b"", b"", None, counted=True), "next in 0 s"),
            (burial(BuryReason.RETRIES_EXHAUSTED), "no attempts left"),
            (burial(BuryReason.UNRECOVERABLE), "not retried"),
        ],
    )
    def test_a_failed_attempt_is_logged_with_its_traceback_and_what_follows(
        self, caplog: pytest.LogCaptureFixture, settlement: Settlement, follows: str
    ) -> None:
        reporter().log_failure(delivery("secret", attempt=2), FAILURE, settlement)
        (record,) = caplog.records
        assert record.levelname == "WARNING"
        assert record.message == (
            f"job j (greet) failed on attempt 2 of 3, {follows}: ValueError: boom"
        )
        facts = record.__dict__
        assert (facts["queue"], facts["job_id"], facts["job_name"]) == ("emails", "j", "greet")
        assert (facts["attempt"], facts["attempts"]) == (2, 3)
        assert (facts["error_type"], facts["error"]) == ("ValueError", "boom")
        text = logging.Formatter("%(message)s").format(record)
        assert text.endswith(": ValueError: boom\n" + TRACEBACK.rstrip())
        assert "secret" not in str(facts)

    def test_a_burial_is_logged_with_its_reason_and_error(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        reporter().report_burial(burial(BuryReason.UNRECOVERABLE, failure=FAILURE))
        (record,) = caplog.records
        assert record.levelname == "WARNING"
        assert record.message == (
            "job j (greet) buried (unrecoverable, attempt 2): ValueError: boom"
        )
        facts = record.__dict__
        assert (facts["queue"], facts["job_id"], facts["job_name"]) == ("emails", "j", "greet")
        assert (facts["attempt"], facts["reason"]) == (2, "unrecoverable")
        assert "secret" not in str(facts)

    def test_an_entry_that_could_not_be_decoded_is_named_by_its_id(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        broken = burial(
            BuryReason.MALFORMED, job_id="", attempt=0, detail="the entry has no envelope"
        )
        reporter().report_burial(broken)
        assert caplog.messages == [
            "entry 1-1 buried (malformed, attempt 0): the entry has no envelope"
        ]
