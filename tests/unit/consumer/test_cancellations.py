"""Which jobs a worker knows to be cancelled, and what that does to their outcomes."""

import pytest

from tampu.consumer.cancellations import Cancellations
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
from tampu.wire.control import KEPT_MS, CancelRequest
from tampu.wire.dead import Failure
from tests.unit.consumer.deliveries import ADDED_MS, delivery

FAILURE = Failure("ValueError", "boom")
UNFINISHED: list[Outcome] = [
    Failed(FAILURE),
    Snoozed(5),
    Throttled(5),
    UnrecoverableFailure(FAILURE),
    Released(),
]


def requested(latest_ms: int = ADDED_MS, job_id: str = "j") -> Cancellations:
    """A worker that knows of one request."""
    made = Cancellations()
    made.note(CancelRequest(job_id, latest_ms))
    return made


class TestOf:
    @pytest.mark.parametrize("latest_ms", [ADDED_MS, ADDED_MS + 1])
    def test_a_job_that_was_added_by_then_is_hit(self, latest_ms: int) -> None:
        assert requested(latest_ms).of(delivery()) == CancelRequest("j", latest_ms)

    def test_a_later_job_with_the_same_id_is_not(self) -> None:
        assert requested(ADDED_MS - 1).of(delivery()) is None

    def test_another_job_is_not(self) -> None:
        assert requested(job_id="other").of(delivery()) is None
        assert Cancellations().of(delivery()) is None

    def test_a_second_request_for_an_id_replaces_the_first(self) -> None:
        known = requested(ADDED_MS - 1)
        known.note(CancelRequest("j", ADDED_MS))
        assert len(known) == 1
        assert known.of(delivery()) == CancelRequest("j", ADDED_MS)

    def test_requests_are_forgotten_when_the_server_forgets_them(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = 5
        monkeypatch.setattr("tampu.consumer.cancellations.now_ms", lambda: now)
        known = requested()
        for number in range(999):
            known.note(CancelRequest(f"{number}", ADDED_MS))
        assert known.of(delivery()) is not None
        now += KEPT_MS
        known.note(CancelRequest("new", ADDED_MS))
        assert len(known) == 1
        assert known.of(delivery()) is None


class TestOverrule:
    @pytest.mark.parametrize("outcome", UNFINISHED, ids=lambda each: type(each).__name__)
    def test_an_attempt_that_did_not_finish_is_cancelled(self, outcome: Outcome) -> None:
        assert requested().overrule(delivery(), outcome) == Cancelled()

    def test_what_is_done_stays_done(self) -> None:
        done = Done(5)
        assert requested().overrule(delivery(), done) is done

    @pytest.mark.parametrize("outcome", UNFINISHED, ids=lambda each: type(each).__name__)
    def test_without_a_request_for_it_nothing_changes(self, outcome: Outcome) -> None:
        for known in (Cancellations(), requested(job_id="other"), requested(ADDED_MS - 1)):
            assert known.overrule(delivery(), outcome) is outcome
