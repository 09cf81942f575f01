"""Who holds a lock: the text in a lock key."""

from enum import Enum
from typing import Final
from uuid import UUID

from msgspec import Struct

from tampu.errors import DecodeError


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
