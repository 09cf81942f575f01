"""The spec of a repeat: what to add, and by which rule.

Written as an array of 8 elements, or 9 if the missed policy is not to skip.
"""

from enum import Enum
from hashlib import blake2b
from typing import Final

from msgspec import Struct
from msgspec.msgpack import Decoder, Encoder

from tampu.errors import DecodeError, EncodeError
from tampu.wire.envelope import RetryOverride, Uint64, payload_of_slot
from tampu.wire.fields import show_number
from tampu.wire.msgpack import decode_as, end_of_value


class CronPattern(Struct, frozen=True):
    """Fires when the expression matches; `tz` None means UTC. Both are kept as written."""

    expression: str
    tz: str | None


class EveryPattern(Struct, frozen=True):
    """Fires each time that so many milliseconds have passed."""

    interval_ms: int


Pattern = CronPattern | EveryPattern


class MissedRule(Enum):
    """What becomes of fires that were missed, if it takes no number to say."""

    SKIP = "Skip"
    FIRE_ONCE = "FireOnce"


class FireAll(Struct, frozen=True):
    """Make up for missed fires, the oldest first, so many at a time."""

    max_catchup: int


MissedPolicy = MissedRule | FireAll


class ScheduleSpec(Struct, frozen=True, kw_only=True):
    """A repeat as it lies in its hash.

    `slot` is what goes into a fired envelope's payload slot: bin around the user's MessagePack
    if a shim wrote it, bare MessagePack if a typed Rust program did. `fired` is written as 0; the
    count that lives is a hash field of its own. `retry` is only ever read, from later peers.
    """

    key: str
    job_name: str
    pattern: Pattern
    slot: bytes
    limit: int | None = None
    start_after_ms: int | None = None
    end_before_ms: int | None = None
    fired: int = 0
    missed: MissedPolicy = MissedRule.SKIP
    retry: RetryOverride | None = None

    def payload(self) -> bytes:
        """The payload for the envelope of a fired job; `DecodeError` if the slot has none."""
        if end_of_value(self.slot, what="payload") != len(self.slot):
            raise DecodeError("payload", "it is not one MessagePack value")
        return payload_of_slot(self.slot)


_encode: Final = Encoder().encode


def slot_of_payload(payload: bytes) -> bytes:
    """The slot that the shims write: the payload's bytes as bin."""
    return _encode(payload)


def spec_key(job_name: str, pattern: Pattern, *, explicit: str = "") -> str:
    """The key of a repeat: the given one, or one made of name and rule, text for text."""
    return explicit or f"{job_name}::{_signature(pattern)}"


def encode_spec(spec: ScheduleSpec) -> bytes:
    """The bytes a peer would write."""
    elements: list[object] = [
        spec.key,
        spec.job_name,
        _written_pattern(spec.pattern),
        spec.slot,
        spec.limit,
        spec.start_after_ms,
        spec.end_before_ms,
        spec.fired,
    ]
    if spec.missed is not MissedRule.SKIP:
        elements.append(_written_missed(spec.missed))
    # Never a tenth element for `retry`: a scheduler of 1.3 deletes a spec that has one.
    try:
        return _encode(elements)
    except (OverflowError, UnicodeEncodeError):
        problem = "a text in it is no UTF-8 or a number is beyond 64 bits"
        raise EncodeError("repeat spec", problem) from None


def _signature(pattern: Pattern) -> str:
    match pattern:
        case CronPattern(expression, tz):
            return f"cron:{expression}:{tz or 'UTC'}"
        case EveryPattern(interval_ms):
            return f"every:{interval_ms}"


def _written_pattern(pattern: Pattern) -> dict[str, list[object]]:
    match pattern:
        case CronPattern(expression, tz):
            return {"Cron": [expression, tz]}
        case EveryPattern(interval_ms):
            return {"Every": [interval_ms]}


def _written_missed(missed: MissedPolicy) -> object:
    match missed:
        case FireAll(max_catchup):
            return {"FireAll": [max_catchup]}
        case MissedRule():
            return missed.value


SPEC: Final = b"spec"
OWN: Final = b"tampu"
FIRED: Final = b"fired"
MISSED: Final = b"missed"
OVERLAPPED: Final = b"overlapped"
OUTSIDE: Final = b"outside"
PAUSED: Final = b"paused"
HELD: Final = b"held"
_DIGEST_BYTES: Final = 8


class OverlapRule(Enum):
    """What becomes of a fire whose predecessor is not done, spelled as on the wire."""

    ALLOW = "allow"
    SKIP = "skip"
    QUEUE_ONE = "queue_one"


class WireWindow(Struct, frozen=True, omit_defaults=True):
    """Hours of the week, as the user gave them."""

    tz: str
    days: tuple[str, ...] | None = None
    segments: tuple[tuple[str, str], ...] | None = None


class ScheduleExtras(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings of a repeat that its spec has no room for; unknown ones are ignored.

    `of` is the digest of the spec that they belong to.
    """

    of: bytes = b""
    anchor_ms: Uint64 | None = None
    window: WireWindow | None = None
    overlap: OverlapRule = OverlapRule.ALLOW
    jitter_ms: Uint64 = 0
    retry: RetryOverride | None = None
    timeout_ms: Uint64 | None = None
    grace_ms: Uint64 | None = None
    catch_up_ms: Uint64 | None = None


NO_SCHEDULE_EXTRAS: Final = ScheduleExtras()
_decoder: Final = Decoder(ScheduleExtras)


def digest_of_spec(spec: bytes) -> bytes:
    """What `of` holds for a spec."""
    return blake2b(spec, digest_size=_DIGEST_BYTES).digest()


def encode_schedule_extras(extras: ScheduleExtras) -> bytes:
    """The map for the field `tampu`."""
    try:
        return _encode(extras)
    except (OverflowError, UnicodeEncodeError):
        problem = "a text in them is no UTF-8 or a number is beyond 64 bits"
        raise EncodeError("settings of a repeat", problem) from None


def decode_schedule_extras(data: bytes | None, spec: bytes) -> ScheduleExtras:
    """The settings that belong to a spec: none if there are none, or those of another spec."""
    if data is None:
        return NO_SCHEDULE_EXTRAS
    what = "settings of a repeat"
    extras = decode_as(_decoder, data, what=what, expected="a map of known settings")
    return extras if extras.of == digest_of_spec(spec) else NO_SCHEDULE_EXTRAS


def decode_count(value: bytes | None) -> int:
    """A counter; one that is absent, or no number, counts as 0."""
    number = 0 if value is None else show_number(value)
    return number if isinstance(number, int) else 0
