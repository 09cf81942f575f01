"""The last check before a run: whether this occurrence is ours to run."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum, auto
from secrets import token_hex
from typing import Final, TypedDict, Unpack

from msgspec import Struct

from tampu.errors import OptionError
from tampu.server.client import CredentialCallback
from tampu.server.connect import Target
from tampu.server.lanes import Lanes
from tampu.server.scripts.scheduler import (
    LeaseAnswer,
    LeaseClaim,
    acquire_lease,
    release_lease,
    renew_lease,
)
from tampu.util.clock import Duration, to_positive_ms
from tampu.util.options import parse_options
from tampu.wire.keys import (
    DEFAULT_GUARD_PREFIX,
    DEFAULT_TASK_PREFIX,
    check_prefix,
    done_member,
    guard_keys,
    held_field,
)


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


class LeaseOptions(TypedDict, total=False):
    """What may be said of whoever gives out leases, besides where its server is."""

    lease: Duration
    renew_every: Duration
    timeout: Duration
    prefix: str


class GuardOptions(LeaseOptions, total=False):
    """The same of a guard."""

    remember: Duration


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSettings:
    """For how long a run is ours at a time."""

    lease: Duration = "30s"  # how long one lasts after it was last renewed
    renew_every: Duration = "10s"
    timeout: Duration = "5s"  # how long one call to the server may take
    prefix: str = DEFAULT_TASK_PREFIX  # of its keys

    def __post_init__(self) -> None:
        lease_ms = to_positive_ms("lease", self.lease)
        for option in ("renew_every", "timeout"):
            given = getattr(self, option)
            if to_positive_ms(option, given) >= lease_ms:
                raise OptionError(option, given, f"must be shorter than lease={self.lease!r}")
        check_prefix(self.prefix)

    @property
    def lease_ms(self) -> int:
        """How long a lease lasts."""
        return to_positive_ms("lease", self.lease)

    @property
    def renew_every_s(self) -> float:
        """How often it is renewed."""
        return to_positive_ms("renew_every", self.renew_every) / 1000

    def lanes(self, url: Target, credentials: CredentialCallback | None) -> Lanes:
        """The way to the server, on which no call takes longer than its time."""
        timeout_s = to_positive_ms("timeout", self.timeout) / 1000
        return Lanes.within(timeout_s, url, credentials)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardSettings(LeaseSettings):
    """The same of a guard."""

    prefix: str = DEFAULT_GUARD_PREFIX
    remember: Duration = "24h"  # how long an occurrence that was run is not to be had again

    def __post_init__(self) -> None:
        LeaseSettings.__post_init__(self)  # `super()` does not find its way through slots
        to_positive_ms("remember", self.remember)

    @property
    def remember_ms(self) -> int:
        """How long an occurrence that was run is not to be had again."""
        return to_positive_ms("remember", self.remember)


_REFUSALS: Final = {LeaseAnswer.HELD: Refusal.HELD, LeaseAnswer.DONE: Refusal.DONE}


class RedisGuard(Guard):
    """Leases on a server. What was run is remembered, so that nobody runs it again.

    Options are those of `GuardSettings`. A call that is not answered within `timeout` raises a
    `ServerError`. A cluster keeps each resource in one slot.
    """

    def __init__(
        self,
        url: Target = None,
        *,
        credentials: CredentialCallback | None = None,
        **options: Unpack[GuardOptions],
    ) -> None:
        self._settings = parse_options(GuardSettings, "RedisGuard", options)
        self.lease_s = self._settings.lease_ms / 1000
        self.renew_every_s = self._settings.renew_every_s
        self._lanes = self._settings.lanes(url, credentials)

    async def open(self) -> None:
        """One more who uses it; it connects when it is first asked."""
        self._lanes.open()

    async def close(self) -> None:
        """One less; the last one disconnects."""
        await self._lanes.close()

    async def acquire(self, slot: Slot) -> Lease | Refusal:
        """Take a slot; an occurrence that was run within the time to remember is refused."""
        lease = Lease(slot, token_hex(16))
        keys = guard_keys(self._settings.prefix, slot.resource)
        answer = await acquire_lease(await self._lanes.to(keys.held), keys, self._holding(lease))
        return _REFUSALS.get(answer, lease)

    async def renew(self, lease: Lease) -> bool:
        """Keep it for another while, also one that ran out if nobody has asked since."""
        keys = guard_keys(self._settings.prefix, lease.slot.resource)
        return await renew_lease(await self._lanes.to(keys.held), keys, self._holding(lease))

    async def release(self, lease: Lease) -> bool:
        """Give it back; from now on its occurrence counts as run."""
        keys = guard_keys(self._settings.prefix, lease.slot.resource)
        lane = await self._lanes.to(keys.held)
        remember_ms = self._settings.remember_ms
        return await release_lease(lane, keys, self._holding(lease), remember_ms=remember_ms)

    def _holding(self, lease: Lease) -> LeaseClaim:
        slot = lease.slot
        return LeaseClaim(
            field=held_field(None if slot.scope is Scope.RESOURCE else slot.at_ms),
            member=done_member(slot.task_id, slot.at_ms),
            token=lease.token,
            lease_ms=self._settings.lease_ms,
        )
