"""What a handler returned, as the value of a result key. None is a result, unlike at the peer."""

from tampu.errors import OptionError
from tampu.wire.payload import decode_payload, encode_payload


def encode_result(value: object, *, max_bytes: int) -> bytes:
    """The bytes to store; never empty, since peers take that for "nothing stored"."""
    return encode_payload(value, max_bytes=max_bytes, what="result")


def decode_result(data: bytes) -> object:
    """The value that a handler returned."""
    return decode_payload(data, what="result")


def result_ttl_s(ttl_ms: int) -> int:
    """Whole seconds for which a result is kept: rounded up, as the peer does."""
    if ttl_ms <= 0:
        raise OptionError("result_ttl", ttl_ms, "must be above 0 ms")
    return -(-ttl_ms // 1000)
