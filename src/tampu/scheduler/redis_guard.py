"""A guard on a Redis or Valkey server: one for all schedulers that use it, by its clock."""

from secrets import token_hex
from typing import Final, Unpack

from tampu.scheduler.guard import Guard, Lease, Refusal, Scope, Slot
from tampu.scheduler.lease_settings import GuardOptions, GuardSettings
from tampu.server.client import CredentialCallback
from tampu.server.connect import Target
from tampu.server.guards import Answer, Holding, hold, keep, let_go
from tampu.settings import settings_from
from tampu.wire.guard_keys import done_member, guard_keys, held_field

_REFUSALS: Final = {Answer.HELD: Refusal.HELD, Answer.DONE: Refusal.DONE}


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
        self._settings = settings_from(GuardSettings, "RedisGuard", options)
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
        answer = await hold(await self._lanes.to(keys.held), keys, self._holding(lease))
        return _REFUSALS.get(answer, lease)

    async def renew(self, lease: Lease) -> bool:
        """Keep it for another while, also one that ran out if nobody has asked since."""
        keys = guard_keys(self._settings.prefix, lease.slot.resource)
        return await keep(await self._lanes.to(keys.held), keys, self._holding(lease))

    async def release(self, lease: Lease) -> bool:
        """Give it back; from now on its occurrence counts as run."""
        keys = guard_keys(self._settings.prefix, lease.slot.resource)
        lane = await self._lanes.to(keys.held)
        remember_ms = self._settings.remember_ms
        return await let_go(lane, keys, self._holding(lease), remember_ms=remember_ms)

    def _holding(self, lease: Lease) -> Holding:
        slot = lease.slot
        return Holding(
            field=held_field(None if slot.scope is Scope.RESOURCE else slot.at_ms),
            member=done_member(slot.task_id, slot.at_ms),
            token=lease.token,
            lease_ms=self._settings.lease_ms,
        )
