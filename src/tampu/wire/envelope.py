"""The job envelope: what a stream entry carries in `d` and a delayed member after its name.

Hot path. The value that the decoder builds is the one that moves on; there is no second object.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import MsgspecError, Struct
from msgspec.msgpack import Decoder, Encoder

from tampu.errors import DecodeError, EncodeError
from tampu.wire.retry import RetryOverride, Uint32, Uint64
from tampu.wire.tolerant import read_envelope


class Envelope(Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """One job: `payload` is the MessagePack of the user's value, `attempt` the runs before this.

    The job's name is never in here; it travels beside the envelope.
    """

    id: str
    payload: bytes
    created_at_ms: Uint64
    attempt: Uint32 = 0
    retry: RetryOverride | None = None


_encode: Final = Encoder().encode
_decode: Final = Decoder(Envelope).decode
REFUSED: Final = (MsgspecError, ValueError, RecursionError)
"""All that the typed decoder refuses with."""

decode_canonical: Final = _decode
"""The typed decoder itself, for who has his own way with what it refuses."""


def encode_envelope(envelope: Envelope) -> bytes:
    """The bytes a peer would write: 4 elements, or 5 when there is a retry override."""
    try:
        if envelope.retry is None:
            # A tuple, since a struct would write the fifth element as nil.
            return _encode(
                (envelope.id, envelope.payload, envelope.created_at_ms, envelope.attempt)
            )
        return _encode(envelope)
    except (OverflowError, UnicodeEncodeError):
        raise _unwritable() from None


def encode_fresh(job_id: str, payload: bytes, created_at_ms: int) -> bytes:
    """The envelope of a job that has not run and leaves its retries to the worker.

    The same bytes as `encode_envelope(Envelope(...))`, without the value in between.
    """
    try:
        return _encode((job_id, payload, created_at_ms, 0))
    except (OverflowError, UnicodeEncodeError):
        raise _unwritable() from None


def decode_envelope(data: bytes) -> Envelope:
    """The envelope that `data` begins with; bytes after it are ignored, as peers do.

    What we and the peer's shims write takes one call of the typed decoder; anything else that is
    accepted takes the tolerant way. Raises `DecodeError`.
    """
    try:
        return _decode(data)
    except REFUSED:
        return decode_envelope_prefix(data)[0]


def decode_envelope_prefix(data: bytes) -> tuple[Envelope, int]:
    """The envelope that `data` begins with, and the index where it ends.

    Always the tolerant way; for bytes in which something may follow the envelope.
    """
    fields, end = read_envelope(data)
    return Envelope(*fields), end


def decode_envelopes(batch: Sequence[bytes]) -> list[Envelope | DecodeError]:
    """Each envelope, or why it is none, in the order of the batch."""
    try:
        return list(map(_decode, batch))
    except REFUSED:
        return [_envelope_or_refusal(data) for data in batch]


def _envelope_or_refusal(data: bytes) -> Envelope | DecodeError:
    try:
        return decode_envelope(data)
    except DecodeError as refusal:
        return refusal


def _unwritable() -> EncodeError:
    return EncodeError("envelope", "its id is no UTF-8 or a number in it is beyond 64 bits")
