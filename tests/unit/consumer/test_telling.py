"""What a worker tells of its runs."""

import pytest

from tampu.consumer.reporter import Reporter
from tampu.consumer.settle import RetryEntry
from tampu.metrics import JobBuried, JobEnded, MemorySink, RetryScheduled, RunEnd
from tampu.metrics.sinks import Teller
from tampu.outcome import Done, Failed, Outcome, Released, Snoozed, UnrecoverableFailure
from tampu.wire.dead import BuryReason, Failure
from tests.unit.consumer.deliveries import delivery

FAILURE = Failure("ValueError", "secret text", "secret traceback")


@pytest.fixture
def sink() -> MemorySink:
    return MemorySink()


class TestFacts:
    @pytest.mark.parametrize(
        ("outcome", "end"),
        [
            (Done(1), RunEnd.DONE),
            (Failed(FAILURE), RunEnd.FAILED),
            (Snoozed(1), RunEnd.PUT_OFF),
            (UnrecoverableFailure(FAILURE), RunEnd.HOPELESS),
            (Released(), RunEnd.ABANDONED),
        ],
    )
    def test_each_end_of_a_run_has_its_own(
        self, sink: MemorySink, outcome: Outcome, end: RunEnd
    ) -> None:
        Reporter(None, Teller(sink)).ended(delivery(attempt=2), outcome, 5_999)
        assert sink.of(JobEnded) == [JobEnded("greet", 2, end, 5)]

    @pytest.mark.parametrize(("wait_ms", "told_ms"), [(40, 40), (None, 0)])
    def test_a_retry_is_told_by_the_number_of_the_run_to_come(
        self, sink: MemorySink, wait_ms: int | None, told_ms: int
    ) -> None:
        again = RetryEntry(delivery(attempt=2), b"", wait_ms, counted=True)
        Reporter(None, Teller(sink)).rescheduled(again)
        assert sink.of(RetryScheduled) == [RetryScheduled("greet", 3, told_ms)]

    def test_a_burial_is_told_with_its_reason(self, sink: MemorySink) -> None:
        telling = Reporter(None, Teller(sink))
        telling.buried("j", name="greet", reason=BuryReason.EXPIRED, attempt=0)
        assert sink.of(JobBuried) == [JobBuried("greet", BuryReason.EXPIRED, 0)]


class TestSilence:
    def test_with_nobody_to_tell_it_is_silent_and_everything_may_be_said(
        self, sink: MemorySink
    ) -> None:
        telling = Reporter(None, Teller(None))
        assert telling.silent
        assert not Reporter(None, Teller(sink)).silent
        one = delivery()
        telling.started(one)
        telling.ended(one, Failed(FAILURE), 1)
        telling.rescheduled(RetryEntry(one, b"", 1, counted=True))
        telling.progress(one.job, 50)
        telling.drained()
        assert telling.backlog == 0


class TestLog:
    def test_failures_are_logged_without_what_they_say(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("INFO")
        telling = Reporter(None, Teller(None))
        telling.failed(delivery("secret data", attempt=2).job, FAILURE)
        telling.buried("j", name="greet", reason=BuryReason.UNRECOVERABLE, attempt=2)
        failed, buried = caplog.records
        assert (failed.message, failed.levelname) == ("an attempt failed", "INFO")
        assert failed.__dict__["error_type"] == "ValueError"
        assert (buried.message, buried.levelname) == ("a job was buried", "WARNING")
        assert buried.__dict__["reason"] == "unrecoverable"
        for record in (failed, buried):
            told = record.__dict__
            assert (told["job_id"], told["job_name"], told["attempt"]) == ("j", "greet", 2)
            assert "secret" not in str(told)
