"""Reads schedule specs: everything that the peer accepts, and a later peer's tenth element."""

from typing import Final

from msgspec import MsgspecError, Struct
from msgspec.msgpack import Decoder

from tampu.errors import DecodeError
from tampu.wire.envelope import RetryOverride, Uint32, Uint64, read_byte_vector, read_retry
from tampu.wire.msgpack import (
    NIL,
    RecordShape,
    is_map,
    read_map,
    read_name,
    read_optional_uint,
    read_record,
    read_text,
    read_uint,
)
from tampu.wire.schedule import (
    CronPattern,
    EveryPattern,
    FireAll,
    MissedPolicy,
    MissedRule,
    Pattern,
    ScheduleSpec,
)

_SPEC: Final = RecordShape(
    what="schedule spec",
    names=(
        "key",
        "job_name",
        "pattern",
        "payload",
        "limit",
        "start_after_ms",
        "end_before_ms",
        "fired",
        "missed_fires",
        "retry",
    ),
    least=7,
    needed=4,
)
_CRON: Final = RecordShape(what="cron pattern", names=("expression", "tz"), least=2, needed=1)
_EVERY: Final = RecordShape(what="every pattern", names=("interval_ms",), least=1, needed=1)
_FIRE_ALL: Final = RecordShape(what="missed policy", names=("max_catchup",), least=1, needed=1)
_SKIP: Final = b"\xa4Skip"
# serde accepts the name of a variant or its number in declaration order.
_CRON_NAMES: Final = ("Cron", 0)
_EVERY_NAMES: Final = ("Every", 1)
_UNIT_RULES: Final[dict[str | int, MissedRule]] = {
    "Skip": MissedRule.SKIP,
    0: MissedRule.SKIP,
    "FireOnce": MissedRule.FIRE_ONCE,
    1: MissedRule.FIRE_ONCE,
}
_FIRE_ALL_NAMES: Final = ("FireAll", 2)


class _CanonicalSpec(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A spec exactly as we and the peer write it. Others take the tolerant path."""

    key: str
    job_name: str
    pattern: dict[str, list[str | int | None]]
    slot: bytes
    limit: Uint64 | None
    start_after_ms: Uint64 | None
    end_before_ms: Uint64 | None
    fired: Uint64
    missed: str | dict[str, list[Uint32]] = "Skip"
    retry: RetryOverride | None = None


_canonical: Final = Decoder(_CanonicalSpec)


def decode_spec(data: bytes) -> ScheduleSpec:
    """The spec in `data`; `DecodeError` if it cannot be read or can never fire."""
    return _decode_canonical(data) or _decode_tolerantly(data)


def _decode_canonical(data: bytes) -> ScheduleSpec | None:
    """The fast path, a tenth of the time; None if the bytes are not exactly what we would write."""
    try:
        raw = _canonical.decode(data)
    except (MsgspecError, ValueError, RecursionError):
        return None
    pattern, missed = _canonical_pattern(raw.pattern), _canonical_missed(raw.missed)
    if pattern is None or missed is None:
        return None
    return ScheduleSpec(
        key=raw.key,
        job_name=raw.job_name,
        pattern=pattern,
        slot=raw.slot,
        limit=raw.limit,
        start_after_ms=raw.start_after_ms,
        end_before_ms=raw.end_before_ms,
        fired=raw.fired,
        missed=missed,
        retry=raw.retry,
    )


def _canonical_pattern(raw: dict[str, list[str | int | None]]) -> Pattern | None:
    ((variant, content),) = raw.items() if len(raw) == 1 else (("", []),)
    match variant, content:
        case "Cron", [str() as expression, str() | None as tz]:
            return CronPattern(expression, tz)
        case "Every", [int() as interval_ms] if interval_ms > 0:
            return EveryPattern(interval_ms)
    return None


def _canonical_missed(raw: str | dict[str, list[int]]) -> MissedPolicy | None:
    match raw:
        case "Skip":
            return MissedRule.SKIP
        case "FireOnce":
            return MissedRule.FIRE_ONCE
        case {"FireAll": [max_catchup]} if len(raw) == 1:
            return FireAll(max_catchup)
    return None


def _decode_tolerantly(data: bytes) -> ScheduleSpec:
    raw, _ = read_record(data, 0, _SPEC)
    return ScheduleSpec(
        key=read_text(raw["key"], what="key of schedule spec"),
        job_name=read_text(raw["job_name"], what="job_name of schedule spec"),
        pattern=_read_pattern(raw["pattern"]),
        slot=read_byte_vector(raw["payload"], what="payload of schedule spec"),
        limit=_read_optional(raw, "limit"),
        start_after_ms=_read_optional(raw, "start_after_ms"),
        end_before_ms=_read_optional(raw, "end_before_ms"),
        fired=read_uint(raw.get("fired", b"\x00"), what="fired of schedule spec"),
        missed=_read_missed(raw.get("missed_fires", _SKIP)),
        retry=read_retry(raw.get("retry", NIL)),
    )


def _read_optional(raw: dict[str, bytes], name: str) -> int | None:
    return read_optional_uint(raw.get(name, NIL), what=f"{name} of schedule spec")


def _read_pattern(raw: bytes) -> Pattern:
    variant, content = _read_variant(raw, what="pattern")
    if variant in _CRON_NAMES:
        return _read_cron(content)
    if variant in _EVERY_NAMES:
        return _read_every(content)
    raise DecodeError("pattern", "it is neither Cron nor Every")


def _read_cron(content: bytes) -> CronPattern:
    fields, _ = read_record(content, 0, _CRON)
    tz = fields.get("tz", NIL)
    return CronPattern(
        expression=read_text(fields["expression"], what="expression of cron pattern"),
        tz=None if tz == NIL else read_text(tz, what="tz of cron pattern"),
    )


def _read_every(content: bytes) -> EveryPattern:
    fields, _ = read_record(content, 0, _EVERY)
    interval_ms = read_uint(fields["interval_ms"], what="interval_ms of every pattern")
    if not interval_ms:
        raise DecodeError("every pattern", "its interval is 0")  # it would fire endlessly
    return EveryPattern(interval_ms)


def _read_missed(raw: bytes) -> MissedPolicy:
    if is_map(raw):
        variant, content = _read_variant(raw, what="missed policy")
    else:
        variant, content = read_name(raw, what="missed policy"), NIL
    if variant in _FIRE_ALL_NAMES:
        fields, _ = read_record(content, 0, _FIRE_ALL)
        return FireAll(read_uint(fields["max_catchup"], what="max_catchup", bits=32))
    if variant in _UNIT_RULES and content == NIL:
        return _UNIT_RULES[variant]
    raise DecodeError("missed policy", "it is not Skip, FireOnce or FireAll")


def _read_variant(raw: bytes, *, what: str) -> tuple[str | int, bytes]:
    """The name or number of a variant, and the raw bytes of its content."""
    if not is_map(raw):
        raise DecodeError(what, "it is not a map of one entry")
    pairs, _ = read_map(raw, 0, what=what)
    if len(pairs) != 1:
        raise DecodeError(what, "it is not a map of one entry")
    ((name, content),) = pairs
    return read_name(name, what=what), content
