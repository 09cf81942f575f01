"""Who holds a lock, and the heartbeat that a worker writes."""

from enum import Enum
from typing import Final
from uuid import UUID

from msgspec import Struct
from msgspec.msgpack import Decoder, Encoder

from tampu.errors import DecodeError
from tampu.wire.msgpack import decode_as


class HolderKind(Enum):
    """What sort of program took the lock, spelled as on the wire."""

    CONSUMER = "c"  # a worker, whose promoter takes the lock in its name
    PROMOTER = "p"
    SCHEDULER = "s"


_KINDS: Final = {kind.value: kind for kind in HolderKind}


class LockHolder(Struct, frozen=True):
    """A holder's id. Users may name a worker as they like, so the text is what counts."""

    text: str

    @property
    def kind(self) -> HolderKind | None:
        """What the id says of itself; None for a name of the user's own."""
        prefix, dash, _ = self.text.partition("-")
        return _KINDS.get(prefix) if dash else None

    def to_bytes(self) -> bytes:
        """The value of the lock key."""
        return self.text.encode()


def new_holder(kind: HolderKind, unique: UUID, *, name: str | None = None) -> LockHolder:
    """An id that nobody else has, given a UUID that nobody else has; with a name to know it by."""
    own = unique if name is None else f"{name}-{unique}"
    return LockHolder(f"{kind.value}-{own}")


def parse_holder(data: bytes) -> LockHolder:
    """The holder that a lock key names."""
    try:
        return LockHolder(data.decode())
    except UnicodeDecodeError:
        raise DecodeError("lock holder", "it is not UTF-8") from None


CONSUMER_PREFIX: Final = b"t-"
"""Begins the consumer names of our workers; one without a mark is dead, and no peer's."""


class WorkerHeartbeat(Struct, frozen=True, array_like=True):
    """Which connection it beats on, and where it runs."""

    client_id: int  # 0: the server would not say
    host: str
    pid: int
    started_at_ms: int
    concurrency: int
    lease_ms: int  # what its key is given with each sign of life


_encode: Final = Encoder().encode
_decoder: Final = Decoder(WorkerHeartbeat)


def encode_heartbeat(mark: WorkerHeartbeat) -> bytes:
    """The value of the worker's key."""
    return _encode(mark)


def decode_heartbeat(data: bytes) -> WorkerHeartbeat:
    """What a worker said of itself."""
    return decode_as(_decoder, data, what="worker mark", expected="a list of six values")
