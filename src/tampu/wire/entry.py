"""The entry of a waiting job: `d` the envelope, `n` the name, `x` the extras."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.msgpack import Encoder

from tampu.wire.fields import encode_name, pair_fields

_encode: Final = Encoder().encode


class Entry(Struct, frozen=True, gc=False):
    """The three fields that count, as bytes; None where there is none."""

    envelope: bytes | None
    raw_name: bytes = b""
    extras: bytes | None = None

    @property
    def name(self) -> str:
        """The job's name; one that is absent or not UTF-8 counts as empty."""
        try:
            return self.raw_name.decode()
        except UnicodeDecodeError:
            return ""


def encode_entry(envelope: bytes, name: str = "", extras: bytes | None = None) -> list[bytes]:
    """The fields in the order in which peers write them; an empty name is not written."""
    fields = [b"d", envelope]
    if name:
        fields += b"n", encode_name(name)
    if extras is not None:
        fields += b"x", extras
    return fields


def decode_entry(flat: Sequence[bytes]) -> Entry:
    """The fields that count, wherever they stand; others are ignored."""
    fields = pair_fields(flat, what="stream entry")
    return Entry(fields.get(b"d"), fields.get(b"n", b""), fields.get(b"x"))


def pack_fields(flat: Sequence[bytes]) -> bytes:
    """All fields of an entry as one value, for a dead letter that must keep what it cannot read."""
    return _encode(list(flat))
