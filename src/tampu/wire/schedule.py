"""The spec of a schedule as it is stored, and our own settings next to it.

A spec is an array of 8 elements, or 9 if the missed policy is not "skip". Peers call it a repeat.
"""

from enum import Enum
from hashlib import blake2b
from typing import Final

from msgspec import Struct
from msgspec.msgpack import Decoder, Encoder

from tampu.errors import DecodeError, EncodeError
from tampu.wire.envelope import RetryOverride, Uint32, Uint64, payload_of_slot
from tampu.wire.fields import decode_number
from tampu.wire.msgpack import decode_as, end_of_value


class CronPattern(Struct, frozen=True):
    """Fires when the expression matches. A `tz` of None means UTC. Both stay as written."""

    expression: str
    tz: str | None


class EveryPattern(Struct, frozen=True):
    """Fires every `interval_ms` milliseconds."""

    interval_ms: int


Pattern = CronPattern | EveryPattern


class MissedRule(Enum):
    """Policies for missed fires that have no parameter."""

    SKIP = "Skip"
    FIRE_ONCE = "FireOnce"


class FireAll(Struct, frozen=True):
    """Catch up on missed fires, oldest first, at most `max_catchup` at a time."""

    max_catchup: int


MissedPolicy = MissedRule | FireAll


class ScheduleSpec(Struct, frozen=True, kw_only=True):
    """A schedule as it is stored in its hash.

    `slot` is the payload element of a fired envelope: bin with the user's MessagePack if a Node or
    Python client wrote it, plain MessagePack if a typed Rust program did. `fired` is always written
    as 0; the real counter is a hash field. `retry` is only read, from later peers.
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
        """The payload for the envelope of a fired job, or `DecodeError`."""
        if end_of_value(self.slot, what="payload") != len(self.slot):
            raise DecodeError("payload", "it is not exactly one MessagePack value")
        return payload_of_slot(self.slot)


_encode: Final = Encoder().encode


def slot_of_payload(payload: bytes) -> bytes:
    """The payload element that the Node and Python clients write: the bytes as bin."""
    return _encode(payload)


def spec_key(job_name: str, pattern: Pattern, *, explicit: str = "") -> str:
    """The key of a schedule: the explicit one, or one derived from name and rule."""
    return explicit or f"{job_name}::{_signature(pattern)}"


def encode_spec(spec: ScheduleSpec) -> bytes:
    """The bytes that a peer would write."""
    elements: list[object] = [
        spec.key,
        spec.job_name,
        _encode_pattern(spec.pattern),
        spec.slot,
        spec.limit,
        spec.start_after_ms,
        spec.end_before_ms,
        spec.fired,
    ]
    if spec.missed is not MissedRule.SKIP:
        elements.append(_encode_missed(spec.missed))
    # `retry` is never written as a tenth element: ChasquiMQ 1.3 deletes a spec that has one.
    try:
        return _encode(elements)
    except (OverflowError, UnicodeEncodeError):
        problem = "a text is not valid UTF-8 or a number does not fit into 64 bits"
        raise EncodeError("schedule spec", problem) from None


def _signature(pattern: Pattern) -> str:
    match pattern:
        case CronPattern(expression, tz):
            return f"cron:{expression}:{tz or 'UTC'}"
        case EveryPattern(interval_ms):
            return f"every:{interval_ms}"


def _encode_pattern(pattern: Pattern) -> dict[str, list[object]]:
    match pattern:
        case CronPattern(expression, tz):
            return {"Cron": [expression, tz]}
        case EveryPattern(interval_ms):
            return {"Every": [interval_ms]}


def _encode_missed(missed: MissedPolicy) -> object:
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
LAST: Final = b"last"  # the entry of its last job, "" if that was delayed
_DIGEST_BYTES: Final = 8


class OverlapRule(Enum):
    """What to do with a fire while the job of the previous one is not done."""

    ALLOW = "allow"
    SKIP = "skip"
    QUEUE_ONE = "queue_one"


class WireWindow(Struct, frozen=True, omit_defaults=True):
    """A `TimeWindow` as the user gave it."""

    tz: str
    days: tuple[str, ...] | None = None
    segments: tuple[tuple[str, str], ...] | None = None


class ScheduleExtras(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings of a schedule that its spec has no room for; unknown ones are ignored.

    `of` is the digest of the spec that they belong to.
    """

    of: bytes = b""
    anchor_ms: Uint64 | None = None
    window: WireWindow | None = None
    overlap: OverlapRule = OverlapRule.ALLOW
    jitter_ms: Uint64 = 0
    retry: RetryOverride | None = None
    timeout_ms: Uint64 | None = None
    expires_ms: Uint64 | None = None
    line: str | None = None  # where its jobs wait, if flow control applies to them
    cost: Uint32 | None = None
    rule: str | None = None
    grace_ms: Uint64 | None = None
    catch_up_ms: Uint64 | None = None
    declared_by: str = ""  # the task of an app that declares it; empty: stored by hand
    headers: dict[str, str] = {}  # of the jobs that it fires


NO_SCHEDULE_EXTRAS: Final = ScheduleExtras()
_decoder: Final = Decoder(ScheduleExtras)


def digest_of_spec(spec: bytes) -> bytes:
    """The value of `of` for a spec."""
    return blake2b(spec, digest_size=_DIGEST_BYTES).digest()


def encode_schedule_extras(extras: ScheduleExtras) -> bytes:
    """The bytes of the hash field `tampu`."""
    try:
        return _encode(extras)
    except (OverflowError, UnicodeEncodeError):
        problem = "a text is not valid UTF-8 or a number does not fit into 64 bits"
        raise EncodeError("schedule settings", problem) from None


def decode_schedule_extras(data: bytes | None, spec: bytes) -> ScheduleExtras:
    """The settings that belong to a spec; defaults if they are absent or belong to another spec."""
    if data is None:
        return NO_SCHEDULE_EXTRAS
    what = "schedule settings"
    extras = decode_as(_decoder, data, what=what, expected="a map of known settings")
    return extras if extras.of == digest_of_spec(spec) else NO_SCHEDULE_EXTRAS


def decode_count(value: bytes | None) -> int:
    """The value of a counter; 0 if it is absent or not a number."""
    number = 0 if value is None else decode_number(value)
    return number if isinstance(number, int) else 0
