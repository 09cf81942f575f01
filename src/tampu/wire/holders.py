"""Ids of lock holders, and the heartbeat that a worker writes."""

from enum import Enum
from typing import Final
from uuid import UUID

from msgspec import Struct
from msgspec.msgpack import Decoder, Encoder

from tampu.wire.msgpack import decode_as


class HolderKind(Enum):
    """Which kind of program holds a lock, spelled as on the wire."""

    CONSUMER = "c"  # a worker; its promoter uses the same id
    PROMOTER = "p"
    SCHEDULER = "s"
    RELAY = "r"  # of an outbox in a database


_KINDS: Final = {kind.value: kind for kind in HolderKind}


class LockHolder(Struct, frozen=True):
    """The id of a lock holder. A custom worker name is possible, so any text is valid."""

    text: str

    @property
    def kind(self) -> HolderKind | None:
        """The kind that the id starts with; None for a custom name."""
        prefix, dash, _ = self.text.partition("-")
        return _KINDS.get(prefix) if dash else None

    def to_bytes(self) -> bytes:
        """The value of the lock key."""
        return self.text.encode()


def new_holder(kind: HolderKind, unique: UUID, *, name: str | None = None) -> LockHolder:
    """A unique id, made from a unique UUID and optionally a name to recognise it by."""
    own = unique if name is None else f"{name}-{unique}"
    return LockHolder(f"{kind.value}-{own}")


CONSUMER_PREFIX: Final = b"t-"
"""The prefix of our workers' consumer names. One without a heartbeat is dead."""


_HEARTBEATS_LATE: Final = 3


def heartbeat_s(lease_ms: int) -> float:
    """From one heartbeat to the next."""
    return min(1.0, lease_ms / 6000)


def suspect_s(lease_ms: int) -> float:
    """A worker without heartbeat for so long is dead if its connection is closed as well."""
    return _HEARTBEATS_LATE * heartbeat_s(lease_ms)


class WorkerHeartbeat(Struct, frozen=True, array_like=True):
    """Which connection sends the heartbeats, and where the worker runs."""

    client_id: int  # 0: the server did not tell
    host: str
    pid: int
    started_at_ms: int
    concurrency: int
    lease_ms: int  # the expiry that each heartbeat gives its key

    def is_late(self, left_ms: int) -> bool:
        """Whether the next one should have come, if this one lasts for `left_ms`."""
        silent_s = (self.lease_ms - left_ms) / 1000
        # Below 0: it has more time left than a heartbeat gives, so the server's clock was set back.
        return silent_s >= suspect_s(self.lease_ms) or silent_s < 0


_encode: Final = Encoder().encode
_decoder: Final = Decoder(WorkerHeartbeat)


def encode_heartbeat(heartbeat: WorkerHeartbeat) -> bytes:
    """The value of the worker's key."""
    return _encode(heartbeat)


def decode_heartbeat(data: bytes) -> WorkerHeartbeat:
    """The heartbeat in the value of a worker's key."""
    return decode_as(_decoder, data, what="heartbeat", expected="a list of six values")
