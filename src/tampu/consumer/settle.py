"""Decides what is done to an entry, given the outcome of its attempt. Pure; `settler.py` acts."""

from collections.abc import Callable
from enum import Enum
from random import Random
from typing import NamedTuple, TypeAlias, assert_never

from msgspec import Struct
from msgspec.structs import replace

from tampu.consumer.intake import BuryEntry, Delivery
from tampu.errors import EncodeError
from tampu.outcome import (
    MAX_RESULT_BYTES,
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
from tampu.util.clock import now_ms
from tampu.wire.control import CancelRequest
from tampu.wire.dead import BuryReason, DeadEntry, Failure
from tampu.wire.entry import join_member
from tampu.wire.envelope import encode_envelope
from tampu.wire.extras import append_raw_extras, encode_extras
from tampu.wire.flow import is_of_flow, parse_member, parse_step
from tampu.wire.keys import UniqueUntil
from tampu.wire.lines import ORDERED, limit_of, parse_breaker, parse_line
from tampu.wire.placeholders import StepEntry, StepPayload, next_step, read_own_payload
from tampu.wire.result import encode_cancelled, encode_failure, encode_result


class EndedAttempt(NamedTuple):
    """An attempt, its outcome, and how long it took."""

    delivery: Delivery
    outcome: Outcome
    duration_ns: int


class Ack(Struct, frozen=True, gc=False):
    """Acknowledge and delete the entry: the job is done."""

    delivery: Delivery


class AckWithResult(Struct, frozen=True, gc=False):
    """Acknowledge and delete the entry, and store the result of its job.

    With a `lost` result, `result` says for waiting callers why it could not be stored.
    """

    delivery: Delivery
    result: bytes
    ttl_s: int
    lost: Failure | None = None


class RetryEntry(Struct, frozen=True, gc=False):
    """Run the job again after `wait_ms`, or now if that is None.

    `counted` says whether the attempt counts: not if the job was snoozed.
    """

    delivery: Delivery
    envelope: bytes
    extras: bytes
    wait_ms: int | None
    counted: bool
    closes: tuple[str, ...] = ()  # resources that wait with it, at the head of its line


class CloseEntry(Struct, frozen=True, gc=False):
    """Acknowledge and delete the entry of a job that holds a unique key, and free the key.

    With `cancelled`, whoever waits for the job learns that, and its id becomes free too. Also the
    settlement of every job with a stream that is done or cancelled: it ends the stream.
    """

    delivery: Delivery
    result: bytes = b""  # b"": none is stored
    ttl_s: int = 0  # of the result, and of the stream
    cancelled: bool = False


class ReleaseEntry(Struct, frozen=True, gc=False):
    """Let another worker run the job now; this delivery does not count as an attempt.

    `refunds` says that it passed the gate and did not start: its tokens of rates go back.
    """

    delivery: Delivery
    envelope: bytes
    extras: bytes
    refunds: bool
    wait_ms: None = None
    counted: bool = False
    closes: tuple[str, ...] = ()


class MemberEnd(Enum):
    """How a job of a flow ends, as the scripts name it."""

    DONE = b"s"
    DEAD = b"d"
    CANCELLED = b"c"
    PARKED = b"p"


class EndMember(Struct, frozen=True, gc=False):
    """Settle the entry of a flow's job, and count it there; `value` is what is stored for it."""

    delivery: Delivery
    end: MemberEnd
    value: bytes


class AdvanceEntry(Struct, frozen=True, gc=False):
    """Settle the entry of a step of a chain, and add the step that follows."""

    delivery: Delivery
    step: StepEntry


Settlement: TypeAlias = (
    Ack
    | AckWithResult
    | CloseEntry
    | RetryEntry
    | BuryEntry
    | ReleaseEntry
    | EndMember
    | AdvanceEntry
)


class SettleRules(Struct, frozen=True, kw_only=True):
    """What decides besides the outcome. With a `max_result` of None, no result is stored."""

    max_result: int | None
    streams: bool = False  # some jobs have streams
    worker: str
    rng: Random
    clock: Callable[[], int] = now_ms  # ms since 1970, for dead letters


def plain_ack_outcome(rules: SettleRules) -> type[Outcome] | None:
    """The type of outcome that a plain `Ack` settles whatever its value is; None if there is none.

    `settle` gives the same answer for a job without a unique key, if no job has a stream. A caller
    on the hot path can compare the type instead: that saves two calls and one object for each job
    that succeeds.
    """
    return Done if rules.max_result is None and not rules.streams else None


def settle(delivery: Delivery, outcome: Outcome, rules: SettleRules) -> Settlement:
    """The one decision. Pure, except for the jitter drawn from `rules.rng`."""
    match outcome:
        case Done(value):
            return _settle_done(delivery, value, rules)
        case Failed():
            return _settle_failed(delivery, outcome, rules)
        case Snoozed() | Throttled():
            return _run_later(delivery, outcome)
        case UnrecoverableFailure(failure, reason):
            return _bury(delivery, reason, failure, rules=rules)
        case Cancelled():
            return cancel(delivery)
        case Released():
            return release(delivery)
        case _:
            assert_never(outcome)


def _run_later(delivery: Delivery, outcome: Snoozed | Throttled) -> RetryEntry:
    closes = _resources_in_order(delivery)
    if isinstance(outcome, Throttled):
        closes = tuple(dict.fromkeys((*_resources_to_close(delivery, outcome.limit), *closes)))
    envelope, extras, after_ms = _envelope_before(delivery), delivery.extras, outcome.after_ms
    return RetryEntry(delivery, envelope, extras, after_ms, counted=False, closes=closes)


def _resources_in_order(delivery: Delivery) -> tuple[str, ...]:
    """What keeps the jobs of its key in order: they wait while this one waits."""
    line = delivery.job.extras.line
    if line is None or f"|{ORDERED}:" not in line:
        return ()
    return tuple(each for each in parse_line(line).resources if limit_of(each)[0] == ORDERED)


def _resources_to_close(delivery: Delivery, limit: str | None) -> tuple[str, ...]:
    """The resources that a rate limit closes: those of one limit, or of all."""
    line = delivery.job.extras.line
    resources = () if line is None else parse_line(line).resources
    if limit is None:
        return tuple(each for each in resources if parse_breaker(each) is None)
    return tuple(each for each in resources if limit_of(each)[0] == limit)


def throttled_by(settlement: Settlement) -> list[str]:
    """The resources that a job closes for others too, not only for those that come after it."""
    closes = settlement.closes if isinstance(settlement, RetryEntry) else ()
    return [each for each in closes if limit_of(each)[0] != ORDERED]


def release(delivery: Delivery, *, refunds: bool = False) -> ReleaseEntry:
    """The settlement of a job that did not run, or whose attempt was cancelled by the worker."""
    return ReleaseEntry(delivery, _envelope_before(delivery), delivery.extras, refunds)


def cancel(delivery: Delivery) -> CloseEntry | EndMember:
    """The settlement of a job that was cancelled, before its attempt or during it."""
    if parse_member(delivery.job.id) is not None:
        return EndMember(delivery, MemberEnd.CANCELLED, encode_cancelled())
    return CloseEntry(delivery, cancelled=True)


def park(delivery: Delivery, request: CancelRequest, *, now_ms: int) -> EndMember:
    """The settlement of a flow's job that is taken out, and added again when the flow goes on.

    It is then younger than the request, and so not taken out again.
    """
    member = parse_member(delivery.job.id)
    assert member is not None  # noqa: S101 - only jobs of flows are taken out
    again = member.next_run
    envelope = replace(
        delivery.envelope, id=str(again), created_at_ms=max(now_ms, request.latest_ms + 1)
    )
    body = append_raw_extras(encode_envelope(envelope), delivery.extras)
    value = b"%d %b" % (again.generation, join_member(delivery.raw_name, body))
    return EndMember(delivery, MemberEnd.PARKED, value)


def _settle_done(delivery: Delivery, value: object, rules: SettleRules) -> Settlement:
    if is_of_flow(delivery.job.id):
        found = _settle_part(delivery, value, rules)
        if found is not None:
            return found
    kept, is_freed = delivery.plan.results, _must_close(delivery)
    ttl_s = kept.none_ttl_s if value is None else kept.ttl_s
    if rules.max_result is None or not ttl_s or value is NO_RESULT:
        return CloseEntry(delivery, ttl_s=ttl_s) if is_freed else Ack(delivery)
    try:
        result = encode_result(value, max_bytes=rules.max_result)
        if is_freed:
            return CloseEntry(delivery, result, ttl_s)
        return AckWithResult(delivery, result, ttl_s)
    except EncodeError as error:
        # The work is done, and doing it again would give the same value.
        return settle_lost_result(delivery, Failure("tampu.EncodeError", str(error)), rules)


def _settle_part(delivery: Delivery, value: object, rules: SettleRules) -> Settlement | None:
    """The settlement of a job that others wait for; None for the last step of a chain."""
    step = parse_step(delivery.job.id)
    if step is None and parse_member(delivery.job.id) is None:
        return None
    payload = None if step is None else read_own_payload(delivery.envelope.payload)
    if step is not None and not isinstance(payload, StepPayload):
        return None
    try:
        result = encode_result(None if value is NO_RESULT else value, max_bytes=MAX_RESULT_BYTES)
        if step is not None and isinstance(payload, StepPayload):
            entry = next_step(step, payload, result, created_at_ms=rules.clock())
            return AdvanceEntry(delivery, entry)
        return EndMember(delivery, MemberEnd.DONE, result)
    except EncodeError as error:
        failure = Failure("tampu.EncodeError", str(error))
        return _bury(delivery, BuryReason.UNRECOVERABLE, failure, rules=rules)


def settle_lost_result(delivery: Delivery, failure: Failure, rules: SettleRules) -> Settlement:
    """The settlement of a job that is done, but whose result cannot be stored."""
    kept = delivery.plan.results
    if not kept.optional or is_of_flow(delivery.job.id):
        return _bury(delivery, BuryReason.UNRECOVERABLE, failure, rules=rules)
    if _must_close(delivery):
        return CloseEntry(delivery, ttl_s=kept.ttl_s)
    why = encode_failure(BuryReason.UNRECOVERABLE, failure)
    return AckWithResult(delivery, why, kept.ttl_s, failure)


def _must_close(delivery: Delivery) -> bool:
    """Whether the end of its job frees a unique key, or ends a stream."""
    if delivery.plan.streams:
        return True
    held = delivery.job.extras.unique
    return held is not None and held.until is UniqueUntil.DONE


def _settle_failed(delivery: Delivery, outcome: Failed, rules: SettleRules) -> Settlement:
    attempt, after_ms = delivery.job.attempt, outcome.after_ms
    if attempt >= delivery.budget:
        return _bury(delivery, BuryReason.RETRIES_EXHAUSTED, outcome.failure, rules=rules)
    if after_ms is None:
        backoff, override = delivery.plan.backoff, delivery.envelope.retry
        if override is not None and override.backoff is not None:
            backoff = backoff.with_override(override.backoff)
        after_ms = backoff.wait_ms(attempt, rules.rng)
    extras = _extras_after(delivery, outcome.failure, rules)
    envelope = _envelope(delivery, attempt)
    closes = _resources_in_order(delivery) if after_ms else ()
    return RetryEntry(delivery, envelope, extras, after_ms or None, counted=True, closes=closes)


def _extras_after(delivery: Delivery, failure: Failure, rules: SettleRules) -> bytes:
    """The job's extras with its failure, as long as there is room for that."""
    try:
        return encode_extras(delivery.job.extras.with_failure(failure, rules.clock())) or b""
    except EncodeError:
        return delivery.extras


def _bury(
    delivery: Delivery, reason: BuryReason, failure: Failure, *, rules: SettleRules
) -> BuryEntry:
    dead = DeadEntry(
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
    ttl_s = delivery.plan.results.ttl_s
    return BuryEntry(delivery.entry_id, delivery.job.id, reason, dead, delivery.read_at, ttl_s)


def _envelope_before(delivery: Delivery) -> bytes:
    return _envelope(delivery, delivery.job.attempt - 1)


def _envelope(delivery: Delivery, attempts: int) -> bytes:
    """The job's envelope after so many attempts."""
    envelope = delivery.envelope
    if envelope.attempt != attempts:
        envelope = replace(envelope, attempt=attempts)
    return encode_envelope(envelope)
