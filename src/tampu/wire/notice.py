"""Ours: what those who wait for results are told, and why a job has none."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.msgpack import Decoder, Encoder

from tampu.errors import DecodeError
from tampu.wire.dead import BuryReason, Failure
from tampu.wire.fields import pair_fields
from tampu.wire.record import decode_as

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
