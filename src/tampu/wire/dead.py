"""Entries of the dead stream: the fields `d, [n], source_id, reason, [detail]`, then ours."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from tampu.util.options import Word
from tampu.wire.fields import (
    clip_text,
    clip_text_front,
    decode_number,
    decode_text,
    encode_text,
    pair_fields,
)

MAX_MESSAGE_BYTES: Final = 8_192
MAX_TRACEBACK_BYTES: Final = 32_768


class BuryReason(Word):
    """Why a job was buried, spelled as on the wire."""

    RETRIES_EXHAUSTED = "retries_exhausted"
    UNRECOVERABLE = "unrecoverable"
    DECODE_FAILED = "decode_failed"
    MALFORMED = "malformed"  # the entry has no envelope at all
    OVERSIZE_PAYLOAD = "oversize_payload"

    UNKNOWN_HANDLER = "unknown_handler"  # this and the following are ours
    CRASHED = "crashed"  # its last attempt crashed the worker
    EXPIRED = "expired"  # its deadline passed before it could run


_REASONS: Final = {reason.value: reason for reason in BuryReason}


class Failure(Struct, frozen=True):
    """The exception that ended the last attempt, as text."""

    error_type: str
    message: str
    traceback: str = ""


class DeadEntry(Struct, frozen=True, kw_only=True):
    """A buried job. `envelope` and `raw_name` are the exact bytes of its stream entry."""

    envelope: bytes
    source_id: str
    reason: BuryReason | str  # a str only if a later peer wrote it
    raw_name: bytes = b""
    detail: str | None = None
    failure: Failure | None = None
    attempt: int | None = None
    worker: str | None = None
    buried_at_ms: int | None = None
    extras: bytes | None = None
    entry: bytes | None = None  # all fields of a malformed entry, from `pack_fields`

    @property
    def name(self) -> str:
        """The job's name, for display."""
        return decode_text(self.raw_name)


def encode_dead(entry: DeadEntry) -> list[bytes]:
    """The fields in the peer's order, then ours; absent values are not written.

    Long messages and tracebacks are cut, so that thousands of dead letters fit into memory.
    """
    flat = [b"d", entry.envelope]
    if entry.raw_name:
        flat += b"n", entry.raw_name
    flat += b"source_id", encode_text(entry.source_id), b"reason", _spell(entry.reason)
    if entry.detail is not None:
        flat += b"detail", clip_text(entry.detail, MAX_MESSAGE_BYTES)
    return flat + _own_fields(entry)


def decode_dead(flat: Sequence[bytes]) -> DeadEntry:
    """The dead letter in the fields of an entry; missing fields count as empty."""
    given = pair_fields(flat, what="dead letter")
    reason = decode_text(given.get(b"reason", b""))
    return DeadEntry(
        envelope=given.get(b"d", b""),
        source_id=decode_text(given.get(b"source_id", b"")),
        reason=_REASONS.get(reason, reason),
        raw_name=given.get(b"n", b""),
        detail=_text(given, b"detail"),
        failure=_failure(given),
        attempt=_number(given, b"attempt"),
        worker=_text(given, b"worker"),
        buried_at_ms=_number(given, b"buried_at_ms"),
        extras=given.get(b"x"),
        entry=given.get(b"entry"),
    )


def _own_fields(entry: DeadEntry) -> list[bytes]:
    flat: list[bytes] = []
    if entry.failure is not None:
        failure = entry.failure
        flat += b"error_type", clip_text(failure.error_type, MAX_MESSAGE_BYTES)
        flat += b"error", clip_text(failure.message, MAX_MESSAGE_BYTES)
        if failure.traceback:
            flat += b"traceback", clip_text_front(failure.traceback, MAX_TRACEBACK_BYTES)
    if entry.attempt is not None:
        flat += b"attempt", b"%d" % entry.attempt
    if entry.worker is not None:
        flat += b"worker", encode_text(entry.worker)
    if entry.buried_at_ms is not None:
        flat += b"buried_at_ms", b"%d" % entry.buried_at_ms
    if entry.extras is not None:
        flat += b"x", entry.extras
    if entry.entry is not None:
        flat += b"entry", entry.entry
    return flat


def _spell(reason: BuryReason | str) -> bytes:
    return encode_text(reason.value if isinstance(reason, BuryReason) else reason)


def _failure(given: dict[bytes, bytes]) -> Failure | None:
    if b"error_type" not in given:
        return None
    parts = (given.get(field, b"") for field in (b"error_type", b"error", b"traceback"))
    return Failure(*map(decode_text, parts))


def _text(given: dict[bytes, bytes], field: bytes) -> str | None:
    return decode_text(given[field]) if field in given else None


def _number(given: dict[bytes, bytes], field: bytes) -> int | None:
    number = decode_number(given.get(field, b""))
    return number if isinstance(number, int) else None
