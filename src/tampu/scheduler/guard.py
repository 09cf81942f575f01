"""Guards: an exclusive lease on each occurrence, across processes and machines."""

from abc import ABC, abstractmethod
from enum import Enum, auto

from msgspec import Struct


class Scope(Enum):
    """What a lease excludes."""

    OCCURRENCE = auto()  # other runs of the same instant on the same resource
    RESOURCE = auto()  # all other runs on the resource


class Slot(Struct, frozen=True):
    """What a run wants to hold exclusively."""

    task_id: str
    resource: str
    scope: Scope
    at_ms: int


class Lease(Struct, frozen=True):
    """A slot that we hold while we renew it."""

    slot: Slot
    token: str


class Refusal(Enum):
    """Why a guard refuses a slot."""

    HELD = auto()  # somebody else holds it
    DONE = auto()  # the occurrence has already been run


class Guard(ABC):
    """Gives out leases. A guard that cannot be reached raises a `ServerError`."""

    renew_every_s: float
    lease_s: float

    async def open(self) -> None:  # noqa: B027 - most guards need nothing
        """Prepare for use. Called once by each scheduler, which calls `close` later."""

    async def close(self) -> None:  # noqa: B027 - most guards need nothing
        """Free all resources when the last scheduler has called this."""

    @abstractmethod
    async def acquire(self, slot: Slot) -> Lease | Refusal:
        """Take a slot, or say why not."""

    @abstractmethod
    async def renew(self, lease: Lease) -> bool:
        """Extend a lease; False if we no longer hold it."""

    @abstractmethod
    async def release(self, lease: Lease) -> bool:
        """End a lease and mark its occurrence as done; False if we no longer held it."""
