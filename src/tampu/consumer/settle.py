"""What becomes of an entry because of how its run ended; decided here, carried out elsewhere."""

from collections.abc import Callable
from random import Random
from typing import TypeAlias, assert_never

from msgspec import Struct
from msgspec.structs import replace

from tampu.consumer.intake import Delivery
from tampu.errors import EncodeError
from tampu.outcome import NO_RESULT, Done, Failed, Outcome, Released, Snoozed, UnrecoverableFailure
from tampu.util.clock import now_ms
from tampu.wire.dead import BuryReason, DeadEntry, Failure
from tampu.wire.envelope import Envelope, encode_envelope
from tampu.wire.result import encode_result


class Ack(Struct, frozen=True, gc=False):
    """The job is done, and nothing of it is kept."""

    delivery: Delivery


class AckWithResult(Struct, frozen=True, gc=False):
    """The job is done, and its result is kept."""

    delivery: Delivery
    result: bytes


class RetryEntry(Struct, frozen=True, gc=False):
    """The job runs again: at once if `wait_ms` is None. `counted` says whether it failed."""

    delivery: Delivery
    envelope: bytes
    wait_ms: int | None
    counted: bool


class BuryEntry(Struct, frozen=True, gc=False):
    """The job is buried."""

    delivery: Delivery
    letter: DeadEntry
    reason: BuryReason
    failure: Failure


Settlement: TypeAlias = Ack | AckWithResult | RetryEntry | BuryEntry


class SettleRules(Struct, frozen=True, kw_only=True):
    """What a worker settles by; a `max_result` of None means that results are not kept."""

    max_result: int | None
    worker: str
    rng: Random
    clock: Callable[[], int] = now_ms  # ms since 1970, for the dead letters


def settle(delivery: Delivery, outcome: Outcome, rules: SettleRules) -> Settlement:
    """The one decision; pure but for the jitter drawn from `rules.rng`."""
    match outcome:
        case Done(value):
            return _done(delivery, value, rules)
        case Failed():
            return _failed(delivery, outcome, rules)
        case Snoozed(after_ms):
            again = _envelope(delivery, delivery.job.attempt - 1)
            return RetryEntry(delivery, again, after_ms, counted=False)
        case UnrecoverableFailure(failure, reason):
            return _inter(delivery, reason, failure, rules=rules)
        case Released():
            again = _envelope(delivery, delivery.job.attempt - 1)
            return RetryEntry(delivery, again, None, counted=False)
        case _:
            assert_never(outcome)


def _done(delivery: Delivery, value: object, rules: SettleRules) -> Settlement:
    if rules.max_result is None or value is NO_RESULT:
        return Ack(delivery)
    try:
        return AckWithResult(delivery, encode_result(value, max_bytes=rules.max_result))
    except EncodeError as error:
        # What it did is done, and doing it again would not make the value any smaller.
        failure = Failure("tampu.EncodeError", str(error))
        return _inter(delivery, BuryReason.UNRECOVERABLE, failure, rules=rules)


def _failed(delivery: Delivery, outcome: Failed, rules: SettleRules) -> Settlement:
    failed, after_ms = delivery.job.attempt, outcome.after_ms
    if failed >= delivery.budget:
        return _inter(delivery, BuryReason.RETRIES_EXHAUSTED, outcome.failure, rules=rules)
    if after_ms is None:
        backoff, override = delivery.plan.backoff, delivery.envelope.retry
        if override is not None and override.backoff is not None:
            backoff = backoff.with_override(override.backoff)
        after_ms = backoff.wait_ms(failed, rules.rng)
    return RetryEntry(delivery, _envelope(delivery, failed), after_ms or None, counted=True)


def _inter(
    delivery: Delivery, reason: BuryReason, failure: Failure, *, rules: SettleRules
) -> BuryEntry:
    letter = DeadEntry(
        envelope=encode_envelope(delivery.envelope),
        source_id=delivery.entry_id.decode(),
        reason=reason,
        raw_name=delivery.raw_name,
        failure=failure,
        attempt=delivery.job.attempt,
        worker=rules.worker,
        buried_at_ms=rules.clock(),
        extras=delivery.extras or None,
    )
    return BuryEntry(delivery, letter, reason, failure)


def _envelope(delivery: Delivery, attempts_before: int) -> bytes:
    """The job's envelope with so many attempts behind it."""
    envelope: Envelope = delivery.envelope
    if envelope.attempt != attempts_before:
        envelope = replace(envelope, attempt=attempts_before)
    return encode_envelope(envelope)
