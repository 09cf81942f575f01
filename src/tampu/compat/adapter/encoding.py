"""A user's value as bytes, and back."""

from tampu.compat.adapter.errors import as_theirs
from tampu.producer.options import MAX_PAYLOAD_CAP
from tampu.wire import payload


def encode_payload(data: object) -> bytes:
    """The MessagePack of a value."""
    with as_theirs():
        return payload.encode_payload(data, max_bytes=MAX_PAYLOAD_CAP)


def decode_payload(buf: bytes) -> object:
    """The value in MessagePack bytes."""
    with as_theirs():
        return payload.decode_payload(buf)
