"""Ours: what a worker says of itself while it lives."""

from typing import Final

from msgspec import Struct
from msgspec.msgpack import Decoder, Encoder

from tampu.wire.record import decode_as

CONSUMER_PREFIX: Final = b"t-"
"""Begins the consumer names of our workers; one without a mark is dead, and no peer's."""


class WorkerMark(Struct, frozen=True, array_like=True):
    """Which connection it beats on, and where it runs."""

    client_id: int  # 0: the server would not say
    host: str
    pid: int
    started_at_ms: int
    concurrency: int
    lease_ms: int  # what its key is given with each sign of life


_encode: Final = Encoder().encode
_decoder: Final = Decoder(WorkerMark)


def encode_mark(mark: WorkerMark) -> bytes:
    """The value of the worker's key."""
    return _encode(mark)


def decode_mark(data: bytes) -> WorkerMark:
    """What a worker said of itself."""
    return decode_as(_decoder, data, what="worker mark", expected="a list of six values")
