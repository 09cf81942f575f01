"""What travels beside an envelope: settings of ours that peers neither read nor mind.

On a stream entry they are the field `x`. In a delayed member they follow the envelope, because
peers ignore bytes after it:

    envelope ‖ map ‖ u32 little-endian length of the map ‖ magic

A peer's retry drops them, so nothing that correctness needs may live only here.
"""

from typing import Final

from msgspec import Struct
from msgspec.msgpack import Decoder, Encoder

from tampu.errors import DecodeError, EncodeError
from tampu.wire.envelope import Uint64
from tampu.wire.msgpack import decode_as, end_of_value, is_map

MAX_EXTRAS_BYTES: Final = 65_536

MAGIC: Final = b"\xc1TX\x01"
"""Ends a delayed member that has extras; MessagePack reserves the first byte, ours the last."""

_FOOTER_BYTES: Final = 4 + len(MAGIC)


class Extras(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings of one job; what is None or empty is not written. Unknown ones are ignored."""

    timeout_ms: Uint64 | None = None
    deadline_ms: Uint64 | None = None
    scheduled_at_ms: Uint64 | None = None
    schedule_key: str | None = None
    tenant: str | None = None
    headers: dict[str, str] = {}


NO_EXTRAS: Final = Extras()

_encode: Final = Encoder().encode
_decoder: Final = Decoder(Extras)


def encode_extras(extras: Extras) -> bytes | None:
    """The map for the field `x`; None if there is nothing to write."""
    if extras == NO_EXTRAS:
        return None
    try:
        data = _encode(extras)
    except (OverflowError, UnicodeEncodeError):
        raise EncodeError("extras", "a text is no UTF-8 or a number is beyond 64 bits") from None
    if len(data) > MAX_EXTRAS_BYTES:
        problem = f"they take {len(data)} bytes, and {MAX_EXTRAS_BYTES} are allowed"
        raise EncodeError("extras", problem)
    return data


def decode_extras(data: bytes | None) -> Extras:
    """The extras in a field `x` or behind an envelope; none for None."""
    if data is None:
        return NO_EXTRAS
    if len(data) > MAX_EXTRAS_BYTES:
        raise DecodeError("extras", f"they take more than {MAX_EXTRAS_BYTES} bytes")
    return decode_as(_decoder, data, what="extras", expected="a map of known settings")


def append_extras(envelope: bytes, extras: Extras) -> bytes:
    """The envelope with its extras behind it; the envelope alone if there are none."""
    return append_raw_extras(envelope, encode_extras(extras) or b"")


def append_raw_extras(envelope: bytes, data: bytes) -> bytes:
    """As `append_extras`, of extras that are bytes already; b"" for none."""
    if not data:
        return envelope
    return b"".join((envelope, data, len(data).to_bytes(4, "little"), MAGIC))


def split_extras(data: bytes) -> tuple[bytes, bytes | None]:
    """The envelope and the bytes of its extras, if any are behind it.

    Cheap where there are none. An envelope that merely ends like a footer stays whole: the split
    is made only where the envelope really ends and one map fills the rest.
    """
    if not data.endswith(MAGIC):
        return data, None
    end = len(data) - _FOOTER_BYTES
    start = end - int.from_bytes(data[end : end + 4], "little") if end > 0 else 0
    if start <= 0 or not is_map(data, start) or not _ends_at(data, 0, start):
        return data, None
    if not _ends_at(data, start, end):
        return data, None
    return data[:start], data[start:end]


def _ends_at(data: bytes, start: int, end: int) -> bool:
    try:
        return end_of_value(data, start) == end
    except DecodeError:
        return False
