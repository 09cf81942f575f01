"""The one decision about an entry."""

from random import Random

import pytest
from msgspec import Raw
from msgspec.structs import replace

from tampu.backoff import Backoff
from tampu.consumer.intake import Delivery
from tampu.consumer.settle import (
    Ack,
    AckWithResult,
    BuryEntry,
    RetryEntry,
    Settlement,
    SettleRules,
    settle,
)
from tampu.outcome import NO_RESULT, Done, Failed, Outcome, Released, Snoozed, UnrecoverableFailure
from tampu.wire.dead import BuryReason, Failure
from tampu.wire.envelope import RetryOverride, WireBackoff, decode_envelope
from tests.unit.consumer.deliveries import delivery, plan

RULES = SettleRules(max_result=None, worker="t-1", rng=Random(1), clock=lambda: 77)  # noqa: S311
KEEPING = replace(RULES, max_result=10)
FAILURE = Failure("ValueError", "boom", "Traceback ...")


def settled(of: Delivery, outcome: Outcome, rules: SettleRules = RULES) -> Settlement:
    return settle(of, outcome, rules)


class TestDone:
    def test_without_results_it_is_acknowledged_whatever_it_returned(self) -> None:
        one = delivery()
        assert settled(one, Done(object())) == Ack(one)

    @pytest.mark.parametrize("value", [None, 0, "", b"x", [1]])
    def test_with_results_its_value_is_kept(self, value: object) -> None:
        kept = settled(delivery(), Done(value), KEEPING)
        assert isinstance(kept, AckWithResult)
        assert kept.result

    @pytest.mark.parametrize("rules", [RULES, KEEPING])
    def test_a_handler_may_say_that_nothing_is_to_be_kept(self, rules: SettleRules) -> None:
        one = delivery()
        assert settled(one, Done(NO_RESULT), rules) == Ack(one)

    def test_raw_bytes_are_kept_as_they_are(self) -> None:
        kept = settled(delivery(), Done(Raw(b"\xc1\x00")), KEEPING)
        assert isinstance(kept, AckWithResult)
        assert kept.result == b"\xc1\x00"

    @pytest.mark.parametrize("value", [object(), "x" * 11, 2**70])
    def test_a_value_that_cannot_be_kept_buries_it(self, value: object) -> None:
        buried = settled(delivery(), Done(value), KEEPING)
        assert isinstance(buried, BuryEntry)
        assert buried.reason is BuryReason.UNRECOVERABLE
        assert buried.letter.failure is not None
        assert buried.letter.failure.error_type == "tampu.EncodeError"


class TestFailed:
    @pytest.mark.parametrize(("attempt", "wait_ms"), [(1, 10), (2, 30), (3, 90), (4, 100)])
    def test_it_waits_by_its_plan_and_counts_the_attempt(self, attempt: int, wait_ms: int) -> None:
        growing = Backoff.exponential(0.01, multiplier=3, max=0.1)
        one = delivery(attempt=attempt, made=plan(attempts=9, backoff=growing))
        again = settled(one, Failed(FAILURE))
        assert isinstance(again, RetryEntry)
        assert (again.wait_ms, again.counted) == (wait_ms, True)
        envelope = decode_envelope(again.envelope)
        assert envelope == replace(one.envelope, attempt=attempt)

    @pytest.mark.parametrize(("asked_ms", "wait_ms"), [(0, None), (5, 5)])
    def test_a_wait_that_the_handler_asked_for_counts_first(
        self, asked_ms: int, wait_ms: int | None
    ) -> None:
        again = settled(delivery(), Failed(FAILURE, asked_ms))
        assert isinstance(again, RetryEntry)
        assert (again.wait_ms, again.counted) == (wait_ms, True)

    def test_no_wait_at_all_is_now(self) -> None:
        again = settled(delivery(made=plan(backoff=Backoff.fixed(0))), Failed(FAILURE))
        assert isinstance(again, RetryEntry)
        assert again.wait_ms is None

    def test_what_the_job_says_counts_before_its_plan(self) -> None:
        retry = RetryOverride(5, WireBackoff("fixed", 7, None, None, None))
        again = settled(delivery(attempt=4, retry=retry), Failed(FAILURE))
        assert isinstance(again, RetryEntry)
        assert again.wait_ms == 7
        assert decode_envelope(again.envelope).retry == retry
        assert isinstance(settled(delivery(attempt=5, retry=retry), Failed(FAILURE)), BuryEntry)

    @pytest.mark.parametrize("attempt", [3, 4])
    def test_behind_its_last_attempt_it_is_buried_with_all_that_is_known(
        self, attempt: int
    ) -> None:
        one = delivery(attempt=attempt, extras=b"\x80")
        buried = settled(one, Failed(FAILURE, after_ms=5))
        assert isinstance(buried, BuryEntry)
        letter = buried.letter
        assert buried.reason is letter.reason is BuryReason.RETRIES_EXHAUSTED
        assert decode_envelope(letter.envelope) == one.envelope
        assert (letter.raw_name, letter.extras, letter.source_id) == (b"greet", b"\x80", "1-1")
        assert (letter.failure, letter.attempt) == (FAILURE, attempt)
        assert (letter.worker, letter.buried_at_ms) == ("t-1", 77)


class TestOthers:
    def test_what_was_put_off_waits_and_is_not_counted(self) -> None:
        again = settled(delivery(attempt=3), Snoozed(40))
        assert isinstance(again, RetryEntry)
        assert (again.wait_ms, again.counted) == (40, False)
        assert decode_envelope(again.envelope).attempt == 2

    def test_what_is_hopeless_is_buried_in_its_first_attempt(self) -> None:
        buried = settled(delivery(), UnrecoverableFailure(FAILURE))
        assert isinstance(buried, BuryEntry)
        assert (buried.reason, buried.letter.attempt) == (BuryReason.UNRECOVERABLE, 1)

    def test_what_was_abandoned_runs_again_now_and_is_not_counted(self) -> None:
        again = settled(delivery(attempt=2), Released())
        assert isinstance(again, RetryEntry)
        assert (again.wait_ms, again.counted) == (None, False)
        assert decode_envelope(again.envelope).attempt == 1

    def test_runs_that_ended_with_a_worker_stay_counted_when_it_is_handed_back(self) -> None:
        """The envelope knows of one attempt, the delivery is the third."""
        one = delivery(attempt=2)
        third = Delivery(
            one.entry_id, one.envelope, delivery(attempt=4).job, one.plan, b"greet", b"", 0.0, None
        )
        again = settled(third, Released())
        assert isinstance(again, RetryEntry)
        assert decode_envelope(again.envelope).attempt == 3
