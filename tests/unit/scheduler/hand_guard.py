"""A guard that answers as it is told to, and who watches it."""

import asyncio
from time import monotonic

from tampu.errors import ServerUnreachable
from tampu.scheduler.guard import Guard, Lease, Refusal, Scope, Slot

SLOT = Slot("t", "house", Scope.OCCURRENCE, 1000)
AWAY = ServerUnreachable("redis://house", "it did not answer in time")
LONG_S = 60.0


class HandGuard(Guard):
    """Answers as it is told to, and counts how often it is asked."""

    def __init__(self, *, lease_s: float = LONG_S, renew_every_s: float = 0.005) -> None:
        self.lease_s, self.renew_every_s = lease_s, renew_every_s
        self.on_acquire: Refusal | Exception | None = None
        self.on_renew: bool | Exception = True
        self.on_release: bool | Exception = True
        self.answers = asyncio.Event()
        self.answers.set()
        self.asked: list[str] = []
        self.renewals_at: list[float] = []

    async def acquire(self, slot: Slot) -> Lease | Refusal:
        self.asked.append("acquire")
        await asyncio.sleep(0)
        if isinstance(self.on_acquire, Exception):
            raise self.on_acquire
        return self.on_acquire or Lease(slot, "token")

    async def renew(self, lease: Lease) -> bool:
        assert lease == Lease(SLOT, "token")
        self.asked.append("renew")
        self.renewals_at.append(monotonic())
        return await self._said(self.on_renew)

    async def release(self, lease: Lease) -> bool:
        assert lease == Lease(SLOT, "token")
        self.asked.append("release")
        return await self._said(self.on_release)

    async def _said(self, answer: bool | Exception) -> bool:  # noqa: FBT001 - what is answered
        await asyncio.sleep(0)
        await self.answers.wait()
        if isinstance(answer, Exception):
            raise answer
        return answer


class Notes:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    def acquired(self) -> None:
        self.told.append(("acquired",))

    def contended(self) -> None:
        self.told.append(("contended",))

    def renewed(self, renewals: int) -> None:
        self.told.append(("renewed", renewals))

    def renew_failed(self, renewals: int, failures: int, error: str) -> None:
        self.told.append(("renew_failed", renewals, failures, error))

    def lost(self) -> None:
        self.told.append(("lost",))

    def released(self) -> None:
        self.told.append(("released",))

    def release_failed(self, error: str) -> None:
        self.told.append(("release_failed", error))

    def count(self, name: str) -> int:
        return sum(entry[0] == name for entry in self.told)


class Work:
    """Runs until it is let go; what becomes of it is known."""

    def __init__(self) -> None:
        self.begun, self.go_on = asyncio.Event(), asyncio.Event()
        self.cleaning, self.cleaned = asyncio.Event(), asyncio.Event()
        self.cleaned.set()
        self.cancelled = 0

    async def __call__(self) -> str:
        self.begun.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            self.cleaning.set()
            await self.cleaned.wait()
            raise
        return "value"
