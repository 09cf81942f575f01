"""A job at rest: the stream entry of a waiting job, the member of a delayed one."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.msgpack import Encoder
from msgspec.structs import replace

from tampu.errors import DecodeError
from tampu.wire.envelope import decode_envelope
from tampu.wire.extras import NO_EXTRAS, Extras, append_extras, decode_extras, split_extras
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


_PREFIX_BYTES: Final = 4


class DelayedMember(Struct, frozen=True, gc=False):
    """A delayed job as it lies in the sorted set, taken apart but not decoded."""

    name: str
    envelope: bytes
    extras: bytes | None = None


def encode_member(name: str, envelope: bytes, extras: Extras = NO_EXTRAS) -> bytes:
    """The member for an envelope that is already bytes."""
    return join_member(encode_name(name), append_extras(envelope, extras))


def join_member(raw_name: bytes, body: bytes) -> bytes:
    """The member of parts that are bytes already; a body is an envelope and its extras, if any."""
    return len(raw_name).to_bytes(_PREFIX_BYTES, "little") + raw_name + body


def decode_member(data: bytes) -> DelayedMember:
    """The parts of a member; `DecodeError` for one that no job can be made of."""
    if len(data) < _PREFIX_BYTES:
        raise DecodeError("delayed member", "it is too short to hold the length of a name")
    start = _PREFIX_BYTES + int.from_bytes(data[:_PREFIX_BYTES], "little")
    if start >= len(data):
        raise DecodeError("delayed member", "nothing follows its name")
    try:
        name = data[_PREFIX_BYTES:start].decode()
    except UnicodeDecodeError:
        raise DecodeError("delayed member", "its name is not UTF-8") from None
    envelope, extras = split_extras(data[start:])
    return DelayedMember(name, envelope, extras)


def id_of_member(data: bytes) -> str | None:
    """The id of the job in a member; None if no job can be made of it."""
    try:
        return decode_envelope(decode_member(data).envelope).id
    except DecodeError:
        return None


def deadline_of(data: bytes) -> int | None:
    """When the job in a member expires, if it does."""
    try:
        return decode_extras(decode_member(data).extras).deadline_ms
    except DecodeError:
        return None


def postpone(data: bytes, by_ms: int) -> bytes:
    """The member of the same job with its deadline so much later, or earlier."""
    member = decode_member(data)
    extras = decode_extras(member.extras)
    if extras.deadline_ms is None:
        return data
    later = replace(extras, deadline_ms=max(0, extras.deadline_ms + by_ms))
    return encode_member(member.name, member.envelope, later)
