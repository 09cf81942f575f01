"""Leases on a Redis or Valkey server: their options, and the guard that gives them out."""

from dataclasses import dataclass
from secrets import token_hex
from typing import Final, TypedDict, Unpack

from tampu.errors import OptionError
from tampu.scheduler.guard import Guard, Lease, Refusal, Scope, Slot
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
    done_member,
    guard_keys,
    held_field,
)
from tampu.wire.names import check_prefix

_REFUSALS: Final = {LeaseAnswer.HELD: Refusal.HELD, LeaseAnswer.DONE: Refusal.DONE}


class LeaseOptions(TypedDict, total=False):
    """Keyword options of a `CoordinatedStore`."""

    lease: Duration
    renew_every: Duration
    timeout: Duration
    prefix: str


class GuardOptions(LeaseOptions, total=False):
    """Keyword options of a `RedisGuard`."""

    remember: Duration


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSettings:
    """Options of leases on a server, validated."""

    lease: Duration = "30s"  # how long a lease lasts after its last renewal
    renew_every: Duration = "10s"
    timeout: Duration = "5s"  # for one call to the server
    prefix: str = DEFAULT_TASK_PREFIX  # of the keys

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
        """How often a lease is renewed."""
        return to_positive_ms("renew_every", self.renew_every) / 1000

    def make_lanes(self, url: Target, credentials: CredentialCallback | None) -> Lanes:
        """Lanes to the server on which no call takes longer than `timeout`."""
        timeout_s = to_positive_ms("timeout", self.timeout) / 1000
        return Lanes.within(timeout_s, url, credentials)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardSettings(LeaseSettings):
    """Options of a `RedisGuard`, validated."""

    prefix: str = DEFAULT_GUARD_PREFIX
    remember: Duration = "24h"  # for how long an occurrence that was run is refused

    def __post_init__(self) -> None:
        LeaseSettings.__post_init__(self)  # `super()` does not work in a class with slots
        to_positive_ms("remember", self.remember)

    @property
    def remember_ms(self) -> int:
        """For how long an occurrence that was run is refused."""
        return to_positive_ms("remember", self.remember)


class RedisGuard(Guard):
    """Leases on a Redis or Valkey server, so that many schedulers can run the same task.

        Scheduler(guard=RedisGuard("redis://localhost"))

    It remembers which occurrences were run, for `remember` (24 hours by default), and refuses
    them. The other options are `lease`, `renew_every`, `timeout` and `prefix`. A call without an
    answer within `timeout` raises a `ServerError`. Works in a cluster too.
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
        self._lanes = self._settings.make_lanes(url, credentials)

    async def open(self) -> None:
        """Count one more user. The first call of the guard connects."""
        self._lanes.open()

    async def close(self) -> None:
        """Disconnect when the last user has called this."""
        await self._lanes.close()

    async def acquire(self, slot: Slot) -> Lease | Refusal:
        """Take a slot; an occurrence that was run is refused while it is remembered."""
        lease = Lease(slot, token_hex(16))
        keys = guard_keys(self._settings.prefix, slot.resource)
        answer = await acquire_lease(await self._lanes.to(keys.held), keys, self._claim(lease))
        return _REFUSALS.get(answer, lease)

    async def renew(self, lease: Lease) -> bool:
        """Extend a lease, even an expired one if nobody has asked for the slot since."""
        keys = guard_keys(self._settings.prefix, lease.slot.resource)
        return await renew_lease(await self._lanes.to(keys.held), keys, self._claim(lease))

    async def release(self, lease: Lease) -> bool:
        """End a lease and remember that its occurrence was run."""
        keys = guard_keys(self._settings.prefix, lease.slot.resource)
        lane = await self._lanes.to(keys.held)
        remember_ms = self._settings.remember_ms
        return await release_lease(lane, keys, self._claim(lease), remember_ms=remember_ms)

    def _claim(self, lease: Lease) -> LeaseClaim:
        slot = lease.slot
        return LeaseClaim(
            field=held_field(None if slot.scope is Scope.RESOURCE else slot.at_ms),
            member=done_member(slot.task_id, slot.at_ms),
            token=lease.token,
            lease_ms=self._settings.lease_ms,
        )
