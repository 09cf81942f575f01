"""Jobs in an outbox table: the bytes of its column `job`.

A job is a MessagePack array that begins with its version. Later versions may append elements, which
this one ignores.
"""

from typing import Final, Literal

from msgspec import Struct
from msgspec.msgpack import Decoder, Encoder
from msgspec.structs import replace

from tampu.errors import DecodeError
from tampu.wire.envelope import RetryOverride, Uint64
from tampu.wire.extras import NO_EXTRAS, Extras
from tampu.wire.keys import UniqueUntil
from tampu.wire.msgpack import decode_as

VERSION: Final = 1


class OutboxKey(Struct, frozen=True, array_like=True):
    """The unique key that a job wants."""

    key: str
    until: UniqueUntil
    held_ms: Uint64
    on_conflict: Literal["return", "replace"]


class OutboxLimit(Struct, frozen=True, array_like=True):
    """A limit that a job needs, and its definition; None if it is declared elsewhere."""

    name: str
    definition: str | None


class OutboxJob(Struct, frozen=True, array_like=True):
    """A job as a transaction has stored it: checked, encoded, and with an id of its own."""

    version: Uint64
    name: str
    job_id: str
    payload: bytes
    stored_at_ms: Uint64
    due_at_ms: Uint64  # 0: at once
    unique_ms: Uint64  # how long its id stays taken after it is due
    retry: RetryOverride | None = None
    extras: Extras = NO_EXTRAS
    unique: OutboxKey | None = None
    limits: tuple[OutboxLimit, ...] = ()
    weight: float | None = None


class OutboxFigures(Struct, frozen=True):
    """How an outbox is doing: its rows when they were counted, and what relays have moved so far.

    `counted_at_ms` is by the server's clock.
    """

    waiting: int = 0
    refused: int = 0
    oldest_ms: int = 0  # how long the oldest row had waited
    moved: int = 0
    duplicates: int = 0
    counted_at_ms: int = 0
    age_ms: int = 0  # how long ago they were counted

    def as_of(self, now_ms: int) -> "OutboxFigures":
        """The figures as they are known now: a row that waited then may still wait."""
        age_ms = max(0, now_ms - self.counted_at_ms)
        oldest_ms = self.oldest_ms + age_ms if self.waiting else 0
        return replace(self, age_ms=age_ms, oldest_ms=oldest_ms)


_encode: Final = Encoder().encode
_decoder: Final = Decoder(OutboxJob)


def encode_outbox_job(job: OutboxJob) -> bytes:
    """The bytes of the column."""
    return _encode(job)


def decode_outbox_job(data: bytes) -> OutboxJob:
    """The job in a row; raises `DecodeError`."""
    job = decode_as(_decoder, data, what="row", expected="a job of an outbox")
    if job.version != VERSION:
        problem = f"it was written as version {job.version}, and this release reads {VERSION}"
        raise DecodeError("row", problem)
    return job
