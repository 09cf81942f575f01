"""The decision about an entry, given the outcome of its attempt."""

from random import Random

import pytest
from msgspec import Raw
from msgspec.structs import replace

from tampu.backoff import Backoff
from tampu.consumer.handler import KeptResults
from tampu.consumer.intake import BuryEntry, Delivery
from tampu.consumer.settle import (
    Ack,
    AckWithResult,
    CloseEntry,
    ReleaseEntry,
    RetryEntry,
    SettleRules,
    plain_ack_outcome,
    settle,
)
from tampu.outcome import (
    NO_RESULT,
    Cancelled,
    Done,
    Failed,
    Outcome,
    Released,
    Snoozed,
    Throttled,
    UnrecoverableFailure,
)
from tampu.wire.dead import BuryReason, Failure
from tampu.wire.envelope import RetryOverride, WireBackoff, decode_envelope
from tampu.wire.extras import Extras, LastError, decode_extras
from tampu.wire.keys import HeldKey, UniqueUntil
from tampu.wire.result import decode_failure
from tests.unit.consumer.deliveries import delivery, plan

RULES = SettleRules(max_result=None, worker="t-1", rng=Random(1), clock=lambda: 77)  # noqa: S311
STORING = replace(RULES, max_result=10)
FAILURE = Failure("ValueError", "boom", "Traceback ...")
KEPT = plan(results=KeptResults(30, 30))
TASK = plan(results=KeptResults(30, 5, optional=True))


class TestDone:
    def test_without_results_the_entry_is_acknowledged_whatever_the_value(self) -> None:
        one = delivery()
        assert settle(one, Done(object()), RULES) == Ack(one)

    @pytest.mark.parametrize("value", [None, 0, "", b"x", [1]])
    def test_with_results_the_value_is_stored(self, value: object) -> None:
        stored = settle(delivery(made=KEPT), Done(value), STORING)
        assert isinstance(stored, AckWithResult)
        assert stored.result
        assert stored.ttl_s == 30

    def test_a_handler_whose_results_are_not_kept_is_acknowledged(self) -> None:
        one = delivery()
        assert settle(one, Done(7), STORING) == Ack(one)

    @pytest.mark.parametrize(("value", "ttl_s"), [(None, 5), (0, 30), (False, 30), ("", 30)])
    def test_none_has_a_time_of_its_own(self, value: object, ttl_s: int) -> None:
        stored = settle(delivery(made=TASK), Done(value), STORING)
        assert isinstance(stored, AckWithResult)
        assert (stored.ttl_s, stored.lost) == (ttl_s, None)

    @pytest.mark.parametrize("value", [object(), "x" * 11, 2**70])
    def test_an_optional_result_that_cannot_be_stored_leaves_the_job_done(
        self, value: object
    ) -> None:
        done = settle(delivery(made=TASK), Done(value), STORING)
        assert isinstance(done, AckWithResult)
        assert done.lost is not None
        assert decode_failure(done.result).error_type == "tampu.EncodeError"

    @pytest.mark.parametrize("rules", [RULES, STORING])
    def test_a_handler_can_ask_that_no_result_is_stored(self, rules: SettleRules) -> None:
        one = delivery()
        assert settle(one, Done(NO_RESULT), rules) == Ack(one)

    def test_raw_bytes_are_stored_as_they_are(self) -> None:
        stored = settle(delivery(made=KEPT), Done(Raw(b"\xc1\x00")), STORING)
        assert isinstance(stored, AckWithResult)
        assert stored.result == b"\xc1\x00"

    @pytest.mark.parametrize("value", [object(), "x" * 11, 2**70])
    def test_a_value_that_cannot_be_stored_buries_the_job(self, value: object) -> None:
        buried = settle(delivery(made=KEPT), Done(value), STORING)
        assert isinstance(buried, BuryEntry)
        assert buried.reason is BuryReason.UNRECOVERABLE
        assert buried.dead.failure is not None
        assert buried.dead.failure.error_type == "tampu.EncodeError"


class TestFailed:
    @pytest.mark.parametrize(("attempt", "wait_ms"), [(1, 10), (2, 30), (3, 90), (4, 100)])
    def test_the_job_waits_for_its_backoff_and_the_attempt_counts(
        self, attempt: int, wait_ms: int
    ) -> None:
        growing = Backoff.exponential(0.01, multiplier=3, max=0.1)
        one = delivery(attempt=attempt, made=plan(attempts=9, backoff=growing))
        retry = settle(one, Failed(FAILURE), RULES)
        assert isinstance(retry, RetryEntry)
        assert (retry.wait_ms, retry.counted) == (wait_ms, True)
        envelope = decode_envelope(retry.envelope)
        assert envelope == replace(one.envelope, attempt=attempt)

    @pytest.mark.parametrize(("asked_ms", "wait_ms"), [(0, None), (5, 5)])
    def test_a_wait_that_the_handler_asked_for_replaces_the_backoff(
        self, asked_ms: int, wait_ms: int | None
    ) -> None:
        retry = settle(delivery(), Failed(FAILURE, asked_ms), RULES)
        assert isinstance(retry, RetryEntry)
        assert (retry.wait_ms, retry.counted) == (wait_ms, True)

    def test_a_backoff_of_zero_means_now(self) -> None:
        retry = settle(delivery(made=plan(backoff=Backoff.fixed(0))), Failed(FAILURE), RULES)
        assert isinstance(retry, RetryEntry)
        assert retry.wait_ms is None

    def test_the_options_of_the_job_count_before_those_of_its_handler(self) -> None:
        own = RetryOverride(5, WireBackoff("fixed", 7, None, None, None))
        retry = settle(delivery(attempt=4, retry=own), Failed(FAILURE), RULES)
        assert isinstance(retry, RetryEntry)
        assert retry.wait_ms == 7
        assert decode_envelope(retry.envelope).retry == own
        buried = settle(delivery(attempt=5, retry=own), Failed(FAILURE), RULES)
        assert isinstance(buried, BuryEntry)

    @pytest.mark.parametrize("attempt", [3, 4])
    def test_after_its_last_attempt_the_job_is_buried_with_all_that_is_known(
        self, attempt: int
    ) -> None:
        one = delivery(attempt=attempt, extras=b"\x80")
        buried = settle(one, Failed(FAILURE, after_ms=5), RULES)
        assert isinstance(buried, BuryEntry)
        dead = buried.dead
        assert buried.reason is dead.reason is BuryReason.RETRIES_EXHAUSTED
        assert decode_envelope(dead.envelope) == one.envelope
        assert (dead.raw_name, dead.extras, dead.source_id) == (b"greet", b"\x80", "1-1")
        assert (dead.failure, dead.attempt) == (FAILURE, attempt)
        assert (dead.worker, dead.buried_at_ms) == ("t-1", 77)

    def test_the_next_attempt_knows_what_the_last_ones_raised_and_when(self) -> None:
        before = Extras(tenant="acme", failed_at_ms=(5,), error=LastError("KeyError", "k", "tb"))
        retry = settle(delivery(attempt=2, known=before), Failed(FAILURE), RULES)
        assert isinstance(retry, RetryEntry)
        told = LastError("ValueError", "boom", "Traceback ...")
        assert decode_extras(retry.extras) == replace(before, failed_at_ms=(5, 77), error=told)

    def test_without_room_for_the_error_the_job_keeps_the_extras_that_it_has(self) -> None:
        full = Extras(tenant="x" * 65_000)
        one = delivery(known=full)
        retry = settle(one, Failed(replace(FAILURE, message="m" * 900)), RULES)
        assert isinstance(retry, RetryEntry)
        assert retry.extras == one.extras


class TestUnique:
    DONE = Extras(unique=HeldKey("k", UniqueUntil.DONE))

    def test_a_key_that_is_held_until_the_job_is_done_is_freed(self) -> None:
        one = delivery(known=self.DONE, made=KEPT)
        assert settle(one, Done(5), RULES) == CloseEntry(one, ttl_s=30)
        assert settle(one, Done(NO_RESULT), STORING) == CloseEntry(one, ttl_s=30)
        assert settle(one, Done(5), STORING) == CloseEntry(one, b"\x05", 30)

    @pytest.mark.parametrize("until", [UniqueUntil.STARTED, UniqueUntil.TIME])
    def test_another_key_is_left_alone(self, until: UniqueUntil) -> None:
        one = delivery(known=Extras(unique=HeldKey("k", until)), made=KEPT)
        assert settle(one, Done(5), RULES) == Ack(one)
        assert settle(one, Done(5), STORING) == AckWithResult(one, b"\x05", 30)

    def test_a_job_that_fails_keeps_its_key_for_the_next_attempt(self) -> None:
        retry = settle(delivery(known=self.DONE), Failed(FAILURE), RULES)
        assert isinstance(retry, RetryEntry)
        assert decode_extras(retry.extras).unique == self.DONE.unique


class TestOthers:
    @pytest.mark.parametrize("rules", [RULES, STORING])
    def test_a_cancelled_job_ends_without_a_result(self, rules: SettleRules) -> None:
        one = delivery(attempt=2)
        assert settle(one, Cancelled(), rules) == CloseEntry(one, b"", cancelled=True)

    @pytest.mark.parametrize("outcome", [Snoozed(5), Released()])
    def test_a_job_that_runs_again_uncounted_keeps_its_extras(self, outcome: Outcome) -> None:
        one = delivery(attempt=3, known=Extras(failed_at_ms=(5,), error=LastError("E", "m")))
        again = settle(one, outcome, RULES)
        assert isinstance(again, RetryEntry | ReleaseEntry)
        assert again.extras == one.extras

    def test_a_snoozed_job_waits_and_the_attempt_does_not_count(self) -> None:
        retry = settle(delivery(attempt=3), Snoozed(40), RULES)
        assert isinstance(retry, RetryEntry)
        assert (retry.wait_ms, retry.counted) == (40, False)
        assert decode_envelope(retry.envelope).attempt == 2

    @pytest.mark.parametrize(
        ("outcome", "closes"),
        [
            (Snoozed(40), (">:k",)),
            (Failed(FAILURE, after_ms=40), (">:k",)),
            (Throttled(40), ("api:7", "j()", ">:k")),
            (Throttled(40, "api"), ("api:7", ">:k")),
            (Throttled(40, "other"), (">:k",)),
        ],
    )
    def test_an_ordered_job_that_waits_closes_its_key(
        self, outcome: Outcome, closes: tuple[str, ...]
    ) -> None:
        retry = settle(delivery(known=Extras(line="5/k|api:7|j()|>:k")), outcome, RULES)
        assert isinstance(retry, RetryEntry)
        assert (retry.wait_ms, retry.closes) == (40, closes)

    def test_other_jobs_close_what_they_were_told_to(self) -> None:
        known = Extras(line="5|api:7|j()")
        limited = settle(delivery(attempt=3, known=known), Throttled(40), RULES)
        assert isinstance(limited, RetryEntry)
        assert (limited.closes, limited.counted) == (("api:7", "j()"), False)
        assert decode_envelope(limited.envelope).attempt == 2
        snoozed = settle(delivery(known=known), Snoozed(40), RULES)
        assert isinstance(snoozed, RetryEntry)
        assert snoozed.closes == ()

    def test_an_unrecoverable_failure_buries_the_job_on_its_first_attempt(self) -> None:
        buried = settle(delivery(), UnrecoverableFailure(FAILURE), RULES)
        assert isinstance(buried, BuryEntry)
        assert (buried.reason, buried.dead.attempt) == (BuryReason.UNRECOVERABLE, 1)

    def test_a_released_job_runs_again_and_the_attempt_does_not_count(self) -> None:
        released = settle(delivery(attempt=2), Released(), RULES)
        assert isinstance(released, ReleaseEntry)
        assert decode_envelope(released.envelope).attempt == 1

    def test_attempts_that_crashed_their_worker_still_count_when_the_job_is_released(self) -> None:
        """The envelope knows of one attempt; this delivery is the third."""
        one = delivery(attempt=2)
        third = Delivery(
            one.entry_id, one.envelope, delivery(attempt=4).job, one.plan, b"greet", b"", 0.0, None
        )
        released = settle(third, Released(), RULES)
        assert isinstance(released, ReleaseEntry)
        assert decode_envelope(released.envelope).attempt == 3

    @pytest.mark.parametrize("rules", [RULES, STORING], ids=["no results", "results"])
    def test_a_cancelled_job_does_not_run_again(self, rules: SettleRules) -> None:
        one = delivery()
        assert settle(one, Cancelled(), rules) == CloseEntry(one, cancelled=True)


OUTCOMES: list[Outcome] = [
    *(Done(value) for value in (None, 0, "x", object(), NO_RESULT)),
    Failed(FAILURE),
    Failed(FAILURE, after_ms=0),
    Snoozed(1),
    Throttled(1),
    UnrecoverableFailure(FAILURE),
    Cancelled(),
    Released(),
]


class TestPlainAck:
    @pytest.mark.parametrize("rules", [RULES, STORING], ids=["no results", "results"])
    @pytest.mark.parametrize("attempt", [1, 3])
    @pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda each: type(each).__name__)
    def test_it_agrees_with_settle_wherever_it_applies(
        self, outcome: Outcome, attempt: int, rules: SettleRules
    ) -> None:
        one = delivery(attempt=attempt)
        if type(outcome) is plain_ack_outcome(rules):
            assert settle(one, outcome, rules) == Ack(one)

    def test_it_applies_to_every_done_job_without_results_and_to_none_with_results(self) -> None:
        assert plain_ack_outcome(RULES) is Done
        assert plain_ack_outcome(STORING) is None
