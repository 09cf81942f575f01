"""The last check before a run: whether this occurrence is ours to run."""

from abc import ABC, abstractmethod
from enum import Enum, auto

from msgspec import Struct


class Scope(Enum):
    """What a lease excludes."""

    OCCURRENCE = auto()  # the same instant on the same resource
    RESOURCE = auto()  # every other run on the resource


class Slot(Struct, frozen=True):
    """What a run wants to have for itself."""

    task_id: str
    resource: str
    scope: Scope
    at_ms: int


class Lease(Struct, frozen=True):
    """A slot that is ours while we renew it."""

    slot: Slot
    token: str


class Refusal(Enum):
    """Why a slot is not to be had."""

    HELD = auto()  # somebody else has it now
    DONE = auto()  # the occurrence has been run


class Guard(ABC):
    """Gives out leases; one that cannot be reached raises a `ServerError`."""

    renew_every_s: float
    lease_s: float

    async def open(self) -> None:  # noqa: B027 - most need nothing
        """Get ready. Called by each scheduler that uses the guard, and answered by a `close`."""

    async def close(self) -> None:  # noqa: B027 - most need nothing
        """Let go, once the last scheduler that uses it has closed it."""

    @abstractmethod
    async def acquire(self, slot: Slot) -> Lease | Refusal:
        """Take a slot, or learn why not."""

    @abstractmethod
    async def renew(self, lease: Lease) -> bool:
        """Keep it for another while; False if it is not ours any more."""

    @abstractmethod
    async def release(self, lease: Lease) -> bool:
        """Give it back, its occurrence done; False if it was not ours any more."""
