"""Results of jobs, notices that a job has ended, and why a job has no result."""

from collections.abc import Sequence
from typing import Final, Protocol

from msgspec import Struct
from msgspec.msgpack import Decoder, Encoder

from tampu.errors import DecodeError, JobCancelled, JobFailed, OptionError
from tampu.wire.dead import BuryReason, Failure
from tampu.wire.fields import pair_fields
from tampu.wire.msgpack import decode_as
from tampu.wire.payload import decode_payload, encode_payload


def encode_result(value: object, *, max_bytes: int) -> bytes:
    """The bytes to store. Never empty, because peers read that as "nothing stored"."""
    return encode_payload(value, max_bytes=max_bytes, what="result")


def decode_result(data: bytes) -> object:
    """The value that a handler returned."""
    return decode_payload(data, what="result")


def result_ttl_s(ttl_ms: int) -> int:
    """How long a result is kept, in whole seconds, rounded up as the peer does."""
    if ttl_ms <= 0:
        raise OptionError("result_ttl", ttl_ms, "must be longer than 0 ms")
    return -(-ttl_ms // 1000)


NOTICE_FIELD: Final = b"ids"
_encode: Final = Encoder().encode
_ids: Final = Decoder(list[str])


class StoredFailure(Struct, frozen=True, array_like=True):
    """Why a job has no result, for callers who wait for one."""

    reason: str
    error_type: str = ""
    message: str = ""
    traceback: str = ""


_failure: Final = Decoder(StoredFailure)


def encode_notice(job_ids: Sequence[str]) -> bytes:
    """The ids of jobs that have just ended, as one value."""
    return _encode(job_ids)


def decode_notice(data: bytes) -> list[str]:
    """The job ids in a notice."""
    return decode_as(_ids, data, what="notice", expected="a list of job ids")


def ids_in_notice(flat: Sequence[bytes]) -> list[str]:
    """The job ids in the fields of a notice's entry."""
    fields = pair_fields(flat, what="notice")
    if NOTICE_FIELD not in fields:
        raise DecodeError("notice", "it has no ids")
    return decode_notice(fields[NOTICE_FIELD])


def encode_failure(reason: BuryReason, failure: Failure | None) -> bytes:
    """The bytes of a `StoredFailure`."""
    if failure is None:
        return _encode(StoredFailure(reason.value))
    return _encode(
        StoredFailure(reason.value, failure.error_type, failure.message, failure.traceback)
    )


CANCELLED: Final = "cancelled"
"""The reason in the failure of a job that was cancelled."""


def encode_cancelled() -> bytes:
    """The bytes of a `StoredFailure` for a job that was cancelled."""
    return _encode(StoredFailure(CANCELLED))


def decode_failure(data: bytes) -> StoredFailure:
    """Why a job was buried."""
    return decode_as(_failure, data, what="failure", expected="a list of four texts")


def error_of_failure(job_id: str, data: bytes) -> JobFailed | JobCancelled:
    """What callers get who wait for the job."""
    failure = decode_failure(data)
    if failure.reason == CANCELLED:
        return JobCancelled(job_id)
    return JobFailed(
        job_id,
        reason=failure.reason,
        error_type=failure.error_type,
        message=failure.message,
        traceback=failure.traceback,
    )


class NodeResults(Protocol):
    """Where the results of a node of a flow are."""

    @property
    def flow(self) -> str:
        """The id of the flow."""

    @property
    def node(self) -> int:
        """The number of the node."""

    @property
    def queue(self) -> str:
        """The home queue of the flow."""
