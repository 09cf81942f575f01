"""Encoding of payloads; a module of its own because chasquimq has it under this name."""

from tampu.compat.chasquimq.errors import translate_errors
from tampu.producer.options import MAX_PAYLOAD_CAP
from tampu.wire import payload


def encode_payload(data: object) -> bytes:
    """Encode a value as MessagePack."""
    with translate_errors():
        return payload.encode_payload(data, max_bytes=MAX_PAYLOAD_CAP)


def decode_payload(buf: bytes) -> object:
    """Decode a value from MessagePack."""
    with translate_errors():
        return payload.decode_payload(buf)
