"""A guard with answers set by the test, and work that runs until it is released."""

import asyncio
from time import monotonic

from tampu.errors import ServerUnreachable
from tampu.scheduler.events import LeaseEvent
from tampu.scheduler.guard import Guard, Lease, Refusal, Scope, Slot

SLOT = Slot("t", "printer", Scope.OCCURRENCE, 1000)
UNREACHABLE = ServerUnreachable("redis://guard", "it did not answer in time")
LONG_S = 60.0


class ManualGuard(Guard):
    """Answers as the test says, and counts its calls."""

    def __init__(self, *, lease_s: float = LONG_S, renew_every_s: float = 0.005) -> None:
        self.lease_s, self.renew_every_s = lease_s, renew_every_s
        self.on_acquire: Refusal | Exception | None = None
        self.on_renew: bool | Exception = True
        self.on_release: bool | Exception = True
        self.answers = asyncio.Event()
        self.answers.set()
        self.calls: list[str] = []
        self.renewals_at: list[float] = []

    async def acquire(self, slot: Slot) -> Lease | Refusal:
        self.calls.append("acquire")
        await asyncio.sleep(0)
        if isinstance(self.on_acquire, Exception):
            raise self.on_acquire
        return self.on_acquire or Lease(slot, "token")

    async def renew(self, lease: Lease) -> bool:
        assert lease == Lease(SLOT, "token")
        self.calls.append("renew")
        self.renewals_at.append(monotonic())
        return await self._give(self.on_renew)

    async def release(self, lease: Lease) -> bool:
        assert lease == Lease(SLOT, "token")
        self.calls.append("release")
        return await self._give(self.on_release)

    async def _give(self, answer: bool | Exception) -> bool:  # noqa: FBT001 - the answer
        await asyncio.sleep(0)
        await self.answers.wait()
        if isinstance(answer, Exception):
            raise answer
        return answer


class LeaseLog:
    """Keeps the events of a lease."""

    def __init__(self) -> None:
        self.events: list[LeaseEvent] = []

    def __call__(self, event: LeaseEvent) -> None:
        self.events.append(event)

    @property
    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.events]

    def count(self, kind: type[LeaseEvent]) -> int:
        return sum(isinstance(event, kind) for event in self.events)


class HeldWork:
    """Work that runs until it is released, and notes what happens to it."""

    def __init__(self) -> None:
        self.started, self.released = asyncio.Event(), asyncio.Event()
        self.cleaning, self.may_end = asyncio.Event(), asyncio.Event()
        self.may_end.set()
        self.cancelled = 0

    async def __call__(self) -> str:
        self.started.set()
        try:
            await self.released.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            self.cleaning.set()
            await self.may_end.wait()
            raise
        return "value"
