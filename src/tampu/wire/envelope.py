"""The job envelope: the field `d` of a stream entry, and the body of a delayed member.

`decode_envelope` accepts everything that the peer's decoder accepts, and inlined payloads.
"""

from enum import Enum
from typing import Annotated, Final

from msgspec import Meta, MsgspecError, Struct
from msgspec.msgpack import Decoder, Encoder
from msgspec.structs import force_setattr

from tampu.errors import DecodeError, EncodeError
from tampu.wire.msgpack import (
    NIL,
    RecordShape,
    decode_as,
    end_of_value,
    is_array,
    read_optional_uint,
    read_record,
    read_text,
    read_uint,
)

Uint32 = Annotated[int, Meta(ge=0, lt=2**32)]
Uint64 = Annotated[int, Meta(ge=0)]  # msgspec itself refuses what is above 2**64 - 1


class BackoffKind(Enum):
    """How the wait grows between attempts."""

    FIXED = "fixed"
    EXPONENTIAL = "exponential"


class WireBackoff(Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """The wait between attempts, in the five elements that peers always write.

    `kind` stays as it was read, so a kind that only a later peer knows survives our retry.
    """

    kind: str
    delay_ms: Uint64
    max_delay_ms: Uint64 | None
    multiplier: float | None
    jitter_ms: Uint64 | None

    def __post_init__(self) -> None:
        if isinstance(self.multiplier, int):
            force_setattr(self, "multiplier", float(self.multiplier))  # peers want a float64

    @property
    def effective_kind(self) -> BackoffKind:
        """The kind to apply: peers treat every kind but "fixed" as exponential."""
        return BackoffKind.FIXED if self.kind == "fixed" else BackoffKind.EXPONENTIAL


class RetryOverride(Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """A job's own retry settings. None leaves the setting to the worker."""

    max_attempts: Uint32 | None
    backoff: WireBackoff | None


EnvelopeFields = tuple[str, bytes, int, int, RetryOverride | None]
_ENVELOPE: Final = RecordShape(
    what="envelope",
    names=("id", "payload", "created_at_ms", "attempt", "retry"),
    least=3,
    needed=3,
)
_RETRY: Final = RecordShape(
    what="retry override", names=("max_attempts", "backoff"), least=2, needed=0
)
_BACKOFF: Final = RecordShape(
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
    """The fields of the envelope at the start of `data`, and the index after it."""
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
    """The MessagePack of the user's value, from the raw payload element of an envelope.

    The Node and Python clients write it as bin. A Rust program with a typed payload inlines it, and
    one with a plain byte vector writes an array of small integers. That array is ambiguous: it
    counts as bytes only if they are exactly one MessagePack value of at least two bytes.
    """
    head = slot[:1]
    if head in _BIN_HEADS:
        return decode_as(_bin, slot, what="payload", expected="bytes")
    if head in _EXT_HEADS:
        raise DecodeError("payload", "it has an extension type")
    if is_array(slot):
        return _bytes_of_small_ints(slot) or slot
    return slot


def read_byte_vector(raw: bytes, *, what: str) -> bytes:
    """Bytes, written as bin or as an array of small integers."""
    if is_array(raw):
        return bytes(decode_as(_small_ints, raw, what=what, expected="a list of bytes"))
    return decode_as(_bin, raw, what=what, expected="bytes")


def read_retry(raw: bytes) -> RetryOverride | None:
    """A retry override, written as an array or a map; None for nil."""
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
    """The bytes in an array of small integers, if they are one complete MessagePack value."""
    try:
        found = read_byte_vector(slot, what="payload")
        whole = len(found) >= 2 and end_of_value(found) == len(found)
    except DecodeError:
        return None
    return found if whole else None


class Envelope(Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """One job. `payload` is the MessagePack of the user's value; `attempt` counts earlier attempts.

    The job's name travels next to the envelope, not in it.
    """

    id: str
    payload: bytes
    created_at_ms: Uint64
    attempt: Uint32 = 0
    retry: RetryOverride | None = None


_encode: Final = Encoder().encode
_decode: Final = Decoder(Envelope).decode
REFUSED: Final = (MsgspecError, ValueError, RecursionError)
"""The errors that `decode_canonical` raises."""
decode_canonical: Final = _decode
"""The typed decoder itself: for the hot path, which handles `REFUSED` on its own."""


def encode_envelope(envelope: Envelope) -> bytes:
    """The bytes that a peer would write: 4 elements, or 5 with a retry override."""
    try:
        if envelope.retry is None:
            # A tuple, because a struct would write nil as the fifth element.
            return _encode(
                (envelope.id, envelope.payload, envelope.created_at_ms, envelope.attempt)
            )
        return _encode(envelope)
    except (OverflowError, UnicodeEncodeError):
        raise _not_encodable() from None


def encode_fresh(job_id: str, payload: bytes, created_at_ms: int) -> bytes:
    """The envelope of a new job without retry settings of its own.

    The same bytes as `encode_envelope(Envelope(...))`, without building the `Envelope`.
    """
    try:
        return _encode((job_id, payload, created_at_ms, 0))
    except (OverflowError, UnicodeEncodeError):
        raise _not_encodable() from None


def decode_envelope(data: bytes) -> Envelope:
    """The envelope at the start of `data`; bytes after it are ignored, as peers ignore them.

    What we and the peer's clients write takes one call of the typed decoder. Everything else takes
    the slower, tolerant path. Raises `DecodeError`.
    """
    try:
        return _decode(data)
    except REFUSED:
        return decode_envelope_prefix(data)[0]


def decode_envelope_prefix(data: bytes) -> tuple[Envelope, int]:
    """The envelope at the start of `data`, and the index after it. Always the tolerant path."""
    fields, end = read_envelope(data)
    return Envelope(*fields), end


def _not_encodable() -> EncodeError:
    return EncodeError(
        "envelope", "its id is not valid UTF-8 or a number does not fit into 64 bits"
    )
