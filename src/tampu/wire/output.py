"""The stream of a job: what its handler yields, entry by entry, and how it ended.

The id of an entry says which run of the job wrote it, and which chunk of that run it is. A run is
one delivery of the job's entry to a worker; later runs have larger numbers. So the server refuses
what a worker writes whose job another one has taken over, and what is sent twice.
"""

import re
from collections.abc import Sequence
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar, final

from msgspec import Struct

from tampu.errors import DecodeError, OptionError, StreamGap
from tampu.wire.fields import decode_number, pair_fields
from tampu.wire.payload import decode_payload, encode_payload

Y = TypeVar("Y")

MAX_CHUNK_BYTES: Final = 1_048_576
MAX_CHUNKS: Final = 10_000
"""About so many chunks of a job are kept; older ones are deleted."""
LAST_NUMBER: Final = 2**64 - 1
"""The number of the entry that ends a stream: nothing can follow it in its run."""
_ID: Final = re.compile(r"[0-9]{1,20}-[0-9]{1,20}")
_SEQUENCE_BITS, _ATTEMPT_BITS = 12, 10
_NO_RUN: Final = 0  # of the entry that a reader writes, so that whoever ends the job finds a stream
_ATTEMPT, _VALUE, _ASKS, _END = b"a", b"v", b"q", b"f"


@final
class Chunk(Struct, Generic[Y], frozen=True):
    """What a job has yielded. A reader that comes back passes the `id` of its last chunk."""

    id: str
    value: Y
    attempt: int


@final
class Restarted(Struct, frozen=True):
    """The job has started again: the chunks of this attempt follow, from its first one on."""

    attempt: int


class OutputRules(Struct, frozen=True):
    """How a task yields: with a `window`, no more than so many chunks that nobody has read.

    With `cancel_on_close`, its job is cancelled when all readers have left.
    """

    window: int | None = None
    cancel_on_close: bool = False


class JobOutput(Protocol):
    """The stream that an attempt of a job writes."""

    async def put(self, value: object) -> None:
        """Write a chunk soon; waits while too many are unwritten, or unread."""

    async def flush(self) -> None:
        """Return when all chunks are on the server; there will be no more."""

    async def close(self) -> None:
        """There will be no more chunks."""

    def put_blocking(self, value: object) -> None:
        """As `put`, for a handler in a thread."""

    def flush_blocking(self) -> None:
        """As `flush`, for a handler in a thread."""


class ChunkId(NamedTuple):
    """The id of a chunk: its run, and its number in it, from 1 on."""

    run: int
    number: int

    def encode(self) -> bytes:
        """As the server has it."""
        return b"%d-%d" % self


BEGINNING: Final = ChunkId(_NO_RUN, 0)


def check_chunk_id(option: str, given: str | None) -> ChunkId:
    """The id of a chunk, or `OptionError`; None is before the first chunk."""
    if given is None:
        return BEGINNING
    checked: object = given
    if not isinstance(checked, str) or not _ID.fullmatch(checked):
        raise OptionError(option, checked, "expected the id of a chunk, or None for all chunks")
    return _chunk_id(given.encode())


def run_of(entry_id: bytes, attempt: int) -> int:
    """The number of a run: larger for each delivery of a job, whoever gets it."""
    ms, _, sequence = entry_id.partition(b"-")
    place = int(sequence) & ((1 << _SEQUENCE_BITS) - 1)
    tried = attempt & ((1 << _ATTEMPT_BITS) - 1)
    return (int(ms) << _SEQUENCE_BITS | place) << _ATTEMPT_BITS | tried


def encode_chunk(value: object) -> bytes:
    """The MessagePack of a chunk, or `EncodeError`."""
    return encode_payload(value, max_bytes=MAX_CHUNK_BYTES, what="chunk")


class OutputCursor:
    """A position in the stream of a job: makes items of the entries that follow it."""

    def __init__(self, job_id: str, after: ChunkId) -> None:
        self._job_id = job_id
        self.last = after
        self.asks = False  # whether the worker wants to know that the last chunk was read
        self.has_ended = False
        self.failure = b""  # why the job is not done, if it has ended and is not

    @property
    def after(self) -> bytes:
        """The id to read after."""
        return self.last.encode()

    @property
    def has_begun(self) -> bool:
        """Whether there has been a chunk."""
        return self.last.run != _NO_RUN

    def read(self, entry_id: bytes, flat: Sequence[bytes] | None) -> list[Chunk[Any] | Restarted]:
        """The items of an entry; none if it was read before, or is the end.

        Raises `StreamGap` if chunks before it are gone, and `DecodeError`.
        """
        at, before = _chunk_id(entry_id), self.last
        if at <= before:
            return []
        fields = pair_fields(flat or (), what="entry of a stream")
        self.asks = False
        if (failure := fields.get(_END)) is not None:
            self.last, self.has_ended, self.failure = at, True, failure
            return []
        if at.run == _NO_RUN:
            return []
        expected = before.number + 1 if at.run == before.run else 1
        if at.number != expected:
            raise StreamGap(self._job_id, entry_id.decode())
        chunk = _decode_chunk(entry_id, fields)
        self.last, self.asks = at, _ASKS in fields
        is_new = before.run not in {_NO_RUN, at.run}
        return [Restarted(chunk.attempt), chunk] if is_new else [chunk]


def read_chunk(entry_id: bytes, flat: Sequence[bytes] | None) -> Chunk[Any] | None:
    """The chunk in an entry, or `DecodeError`; None for an entry without one."""
    fields = pair_fields(flat or (), what="entry of a stream")
    return _decode_chunk(entry_id, fields) if _VALUE in fields else None


def _decode_chunk(entry_id: bytes, fields: dict[bytes, bytes]) -> Chunk[Any]:
    attempt = decode_number(fields.get(_ATTEMPT, b""))
    if not isinstance(attempt, int) or _VALUE not in fields:
        raise DecodeError("entry of a stream", "it has no attempt or no value")
    return Chunk(entry_id.decode(), decode_payload(fields[_VALUE], what="chunk"), attempt)


def _chunk_id(entry_id: bytes) -> ChunkId:
    run, _, number = entry_id.partition(b"-")
    return ChunkId(int(run), int(number))
