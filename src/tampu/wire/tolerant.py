"""Envelopes as others write them: all that the peer's decoder accepts, and inlined payloads.

Slow next to the typed decoder, so it only runs when that one has refused.
"""

from typing import Annotated, Final

from msgspec import Meta
from msgspec.msgpack import Decoder

from tampu.errors import DecodeError
from tampu.wire.record import (
    NIL,
    Shape,
    decode_as,
    is_array,
    read_optional_uint,
    read_record,
    read_text,
    read_uint,
)
from tampu.wire.retry import RetryOverride, WireBackoff
from tampu.wire.scan import end_of_value

EnvelopeFields = tuple[str, bytes, int, int, RetryOverride | None]

_ENVELOPE: Final = Shape(
    what="envelope",
    names=("id", "payload", "created_at_ms", "attempt", "retry"),
    least=3,
    needed=3,
)
_RETRY: Final = Shape(what="retry override", names=("max_attempts", "backoff"), least=2, needed=0)
_BACKOFF: Final = Shape(
    what="backoff",
    names=("kind", "delay_ms", "max_delay_ms", "multiplier", "jitter_ms"),
    least=5,
    needed=2,
)

_BIN_HEADS: Final = (b"\xc4", b"\xc5", b"\xc6")
_EXT_HEADS: Final = tuple(bytes([head]) for head in (0xC7, 0xC8, 0xC9, *range(0xD4, 0xD9)))
_bin: Final = Decoder(bytes)
_float: Final = Decoder(float)
_small_ints: Final = Decoder(list[Annotated[int, Meta(ge=0, le=255)]])


def read_envelope(data: bytes) -> tuple[EnvelopeFields, int]:
    """The fields of the envelope that `data` begins with, and the index where it ends."""
    raw, end = read_record(data, 0, _ENVELOPE)
    fields = (
        read_text(raw["id"], what="id of envelope"),
        payload_of_slot(raw["payload"]),
        read_uint(raw["created_at_ms"], what="created_at_ms of envelope"),
        read_uint(raw.get("attempt", b"\x00"), what="attempt of envelope", bits=32),
        read_retry(raw.get("retry", NIL)),
    )
    return fields, end


def payload_of_slot(slot: bytes) -> bytes:
    """The MessagePack of the user's value, from the raw bytes of an envelope's payload slot.

    The shims put it there as bin; a Rust program with a typed payload inlines it, and one with a
    plain byte vector writes an array of small ints. That array is ambiguous: it counts as bytes
    only if those are exactly one MessagePack value of two bytes or more.
    """
    head = slot[:1]
    if head in _BIN_HEADS:
        return decode_as(_bin, slot, what="payload", expected="bytes")
    if head in _EXT_HEADS:
        raise DecodeError("payload", "it is of an extension type")
    if is_array(slot):
        return _bytes_of_small_ints(slot) or slot
    return slot


def read_byte_vector(raw: bytes, *, what: str) -> bytes:
    """Bytes, written as bin or as an array of small ints."""
    if is_array(raw):
        return bytes(decode_as(_small_ints, raw, what=what, expected="a list of bytes"))
    return decode_as(_bin, raw, what=what, expected="bytes")


def read_retry(raw: bytes) -> RetryOverride | None:
    """A retry override as array or map; None for nil."""
    if raw == NIL:
        return None
    fields, _ = read_record(raw, 0, _RETRY)
    return RetryOverride(
        max_attempts=read_optional_uint(
            fields.get("max_attempts", NIL), what="max_attempts of retry override", bits=32
        ),
        backoff=_read_backoff(fields.get("backoff", NIL)),
    )


def _read_backoff(raw: bytes) -> WireBackoff | None:
    if raw == NIL:
        return None
    fields, _ = read_record(raw, 0, _BACKOFF)
    multiplier = fields.get("multiplier", NIL)
    return WireBackoff(
        kind=read_text(fields["kind"], what="kind of backoff"),
        delay_ms=read_uint(fields["delay_ms"], what="delay_ms of backoff"),
        max_delay_ms=read_optional_uint(
            fields.get("max_delay_ms", NIL), what="max_delay_ms of backoff"
        ),
        multiplier=None
        if multiplier == NIL
        else decode_as(_float, multiplier, what="multiplier of backoff", expected="a number"),
        jitter_ms=read_optional_uint(fields.get("jitter_ms", NIL), what="jitter_ms of backoff"),
    )


def _bytes_of_small_ints(slot: bytes) -> bytes | None:
    """The bytes that an array of small ints spells, if they are one whole MessagePack value."""
    try:
        spelled = read_byte_vector(slot, what="payload")
        whole = len(spelled) >= 2 and end_of_value(spelled) == len(spelled)
    except DecodeError:
        return None
    return spelled if whole else None
