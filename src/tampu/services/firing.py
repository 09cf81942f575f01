"""What becomes of a schedule that is due. Pure: the time is an argument."""

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from tampu.repeat import Repeat
from tampu.server.repeats import Armed, Firing, NewFire
from tampu.timing import Overlap, Rule, decide, offset_ms
from tampu.wire.delayed import encode_member
from tampu.wire.envelope import Envelope, encode_envelope
from tampu.wire.extras import encode_extras
from tampu.wire.fields import encode_name

BYTES_A_CALL: Final = 4 * 1024 * 1024
"""Of the jobs that one call adds: those of a large payload must not pile up."""

_BESIDE_PAYLOAD: Final = 256


class Ruling(Struct, frozen=True, kw_only=True):
    """Which instants of a schedule fire, how many others there were, and when the next comes.

    `next_ms` is past if there is more to fire than at once, and None when there is no more.
    """

    fires: Sequence[int] = ()
    missed: int = 0
    outside: int = 0
    overlapped: int = 0
    next_ms: int | None = None


class Standing(Struct, frozen=True):
    """A schedule that is due: what it is, its instant, and the one that has been waiting."""

    repeat: Repeat
    due_ms: int
    held_ms: int | None = None


def judge(standing: Standing, now_ms: int) -> Ruling:
    """What fires of all that was due up to now."""
    repeat, due_ms = standing.repeat, standing.due_ms
    end_ms = repeat.spec.end_before_ms
    if end_ms is not None and due_ms > end_ms:
        return Ruling()
    rule = repeat.instants(due_ms)
    if repeat.overlap is Overlap.QUEUE_ONE and standing.held_ms == due_ms:
        return _released(rule, due_ms, now_ms)
    decision = decide(rule, repeat.missed, due_ms=due_ms, now_ms=now_ms)
    most = max(1, BYTES_A_CALL // (len(repeat.payload) + _BESIDE_PAYLOAD))
    instants, (next_ms, *_) = decision.fires[:most], (*decision.fires[most:], decision.next_ms)
    inside = [at_ms for at_ms in instants if _is_inside(repeat, at_ms)]
    if repeat.overlap is Overlap.QUEUE_ONE and inside:
        # One at a time: whether the second one has to wait depends on the first.
        first_ms = inside[0]
        return Ruling(
            fires=(first_ms,),
            missed=decision.skipped,
            outside=instants.index(first_ms),
            next_ms=rule.next_ms(first_ms),
        )
    return Ruling(
        fires=inside,
        missed=decision.skipped,
        outside=len(instants) - len(inside),
        next_ms=next_ms,
    )


def firing_of(standing: Standing, armed: Armed, now_ms: int, *, ids: Iterator[str]) -> Firing:
    """The ruling on a schedule, with the jobs that it adds; they take their ids from `ids`."""
    repeat, ruling = standing.repeat, judge(standing, now_ms)
    return Firing(
        armed=armed,
        limit=repeat.spec.limit or 0,
        overlap=repeat.extras.overlap.value,
        missed=ruling.missed,
        outside=ruling.outside,
        overlapped=ruling.overlapped,
        next_ms=ruling.next_ms,
        fires=[_job(standing, at_ms, now_ms, job_id=next(ids)) for at_ms in ruling.fires],
    )


def _released(rule: Rule, held_ms: int, now_ms: int) -> Ruling:
    """The instant that waited fires, however late; those that passed meanwhile do not."""
    return Ruling(
        fires=(held_ms,),
        overlapped=rule.count_between(held_ms, now_ms),
        next_ms=rule.next_ms(now_ms),
    )


def _is_inside(repeat: Repeat, at_ms: int) -> bool:
    return repeat.window is None or repeat.window.contains_ms(at_ms)


def _job(standing: Standing, at_ms: int, now_ms: int, *, job_id: str) -> NewFire:
    repeat, spec = standing.repeat, standing.repeat.spec
    envelope = encode_envelope(Envelope(job_id, repeat.payload, now_ms, 0, repeat.retry))
    extras, due_ms = repeat.job_extras(at_ms), at_ms
    if spread_ms := repeat.extras.jitter_ms:
        rule = repeat.rule.anchored(standing.due_ms)
        due_ms += _offset_ms(rule, at_ms, key=spec.key, spread_ms=spread_ms)
    if due_ms > now_ms:
        member = encode_member(spec.job_name, envelope, extras)
        return NewFire(at_ms, member, b"", b"", job_id, due_ms)
    name, beside = encode_name(spec.job_name), encode_extras(extras) or b""
    return NewFire(at_ms, envelope, name, beside, job_id)


def _offset_ms(rule: Rule, at_ms: int, *, key: str, spread_ms: int) -> int:
    """How late a fire is on purpose; never as late as the next instant."""
    next_ms = rule.next_ms(at_ms)
    if next_ms is not None:
        spread_ms = min(spread_ms, next_ms - at_ms)
    return offset_ms(key, at_ms, spread_ms)
