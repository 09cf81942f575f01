"""Results: the stored value, the notice for those who wait, and why a job has none."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.msgpack import Decoder, Encoder

from tampu.errors import DecodeError, OptionError
from tampu.wire.dead import BuryReason, Failure
from tampu.wire.fields import pair_fields
from tampu.wire.msgpack import decode_as
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


NOTICE_FIELD: Final = b"ids"
_encode: Final = Encoder().encode
_ids: Final = Decoder(list[str])


class Burial(Struct, frozen=True, array_like=True):
    """Why a job was buried, as its producer is told."""

    reason: str
    error_type: str = ""
    message: str = ""
    traceback: str = ""


_burial: Final = Decoder(Burial)


def encode_notice(job_ids: Sequence[str]) -> bytes:
    """The ids of jobs that have just ended, in one value."""
    return _encode(job_ids)


def decode_notice(data: bytes) -> list[str]:
    """The ids that a notice tells of."""
    return decode_as(_ids, data, what="notice", expected="a list of job ids")


def ids_in_notice(flat: Sequence[bytes]) -> list[str]:
    """The ids that the fields of a notice's entry tell of."""
    fields = pair_fields(flat, what="notice")
    if NOTICE_FIELD not in fields:
        raise DecodeError("notice", "it names no ids")
    return decode_notice(fields[NOTICE_FIELD])


def encode_burial(reason: BuryReason, failure: Failure | None) -> bytes:
    """Why a job was buried, for those who wait for its result."""
    if failure is None:
        return _encode(Burial(reason.value))
    return _encode(Burial(reason.value, failure.error_type, failure.message, failure.traceback))


def decode_burial(data: bytes) -> Burial:
    """Why a job was buried."""
    return decode_as(_burial, data, what="failure", expected="a list of four texts")
