"""Dead letters: the peer's fields `d, [n], source_id, reason, [detail]`, then ours."""

from collections.abc import Sequence
from enum import Enum
from typing import Final

from msgspec import Struct

from tampu.wire.fields import (
    clip_text,
    clip_text_front,
    pair_fields,
    show_number,
    show_text,
    tell_text,
)

MAX_MESSAGE_BYTES: Final = 8_192
MAX_TRACEBACK_BYTES: Final = 32_768


class BuryReason(Enum):
    """Why a job was buried, spelled as on the wire."""

    RETRIES_EXHAUSTED = "retries_exhausted"
    UNRECOVERABLE = "unrecoverable"
    DECODE_FAILED = "decode_failed"
    MALFORMED = "malformed"  # the entry has no envelope at all
    OVERSIZE_PAYLOAD = "oversize_payload"

    UNKNOWN_HANDLER = "unknown_handler"  # from here on: ours
    CRASHED = "crashed"  # it took its worker down in each of its attempts
    EXPIRED = "expired"  # its deadline passed before it could run


_REASONS: Final = {reason.value: reason for reason in BuryReason}


class Failure(Struct, frozen=True):
    """The exception that ended the last attempt, in words."""

    error_type: str
    message: str
    traceback: str = ""


class DeadEntry(Struct, frozen=True, kw_only=True):
    """A buried job. `envelope` and `raw_name` are exactly the bytes that were in the entry."""

    envelope: bytes
    source_id: str
    reason: BuryReason | str  # text only for a reason that a later peer wrote
    raw_name: bytes = b""
    detail: str | None = None
    failure: Failure | None = None
    attempt: int | None = None
    worker: str | None = None
    buried_at_ms: int | None = None
    extras: bytes | None = None
    entry: bytes | None = None  # of a malformed entry: all its fields, as `pack_fields` wrote them

    @property
    def name(self) -> str:
        """The job's name, for people to read."""
        return show_text(self.raw_name)


def encode_dead(letter: DeadEntry) -> list[bytes]:
    """The fields in the peer's order, then ours; what is not there is not written.

    Message and traceback are cut to a size that thousands of dead letters can have.
    """
    flat = [b"d", letter.envelope]
    if letter.raw_name:
        flat += b"n", letter.raw_name
    flat += b"source_id", tell_text(letter.source_id), b"reason", _spell(letter.reason)
    if letter.detail is not None:
        flat += b"detail", clip_text(letter.detail, MAX_MESSAGE_BYTES)
    return flat + _own_fields(letter)


def decode_dead(flat: Sequence[bytes]) -> DeadEntry:
    """The dead letter that the fields of an entry hold; fields that are missing count as empty."""
    given = pair_fields(flat, what="dead letter")
    reason = show_text(given.get(b"reason", b""))
    return DeadEntry(
        envelope=given.get(b"d", b""),
        source_id=show_text(given.get(b"source_id", b"")),
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


def _own_fields(letter: DeadEntry) -> list[bytes]:
    flat: list[bytes] = []
    if letter.failure is not None:
        failure = letter.failure
        flat += b"error_type", clip_text(failure.error_type, MAX_MESSAGE_BYTES)
        flat += b"error", clip_text(failure.message, MAX_MESSAGE_BYTES)
        if failure.traceback:
            flat += b"traceback", clip_text_front(failure.traceback, MAX_TRACEBACK_BYTES)
    if letter.attempt is not None:
        flat += b"attempt", b"%d" % letter.attempt
    if letter.worker is not None:
        flat += b"worker", tell_text(letter.worker)
    if letter.buried_at_ms is not None:
        flat += b"buried_at_ms", b"%d" % letter.buried_at_ms
    if letter.extras is not None:
        flat += b"x", letter.extras
    if letter.entry is not None:
        flat += b"entry", letter.entry
    return flat


def _spell(reason: BuryReason | str) -> bytes:
    return tell_text(reason.value if isinstance(reason, BuryReason) else reason)


def _failure(given: dict[bytes, bytes]) -> Failure | None:
    if b"error_type" not in given:
        return None
    parts = (given.get(field, b"") for field in (b"error_type", b"error", b"traceback"))
    return Failure(*map(show_text, parts))


def _text(given: dict[bytes, bytes], field: bytes) -> str | None:
    return show_text(given[field]) if field in given else None


def _number(given: dict[bytes, bytes], field: bytes) -> int | None:
    number = show_number(given.get(field, b""))
    return number if isinstance(number, int) else None
