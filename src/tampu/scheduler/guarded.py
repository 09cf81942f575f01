"""A run under a lease: taken before it, renewed during it, given back after it."""

import asyncio
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any, Final, Generic, Protocol, TypeVar

from msgspec import Struct

from tampu.errors import ServerError
from tampu.scheduler.events import (
    LeaseAcquired,
    LeaseContended,
    LeaseEvent,
    LeaseLost,
    LeaseReleased,
    LeaseReleaseFailed,
    LeaseRenewed,
    LeaseRenewFailed,
    ObserverList,
)
from tampu.scheduler.guard import Guard, Lease, Refusal, Slot
from tampu.scheduler.task import TaskRun

T = TypeVar("T")
_SOONER: Final = 4
"""How many times as often as usual a renewal that failed is tried again."""


class GuardedResult(Struct, Generic[T], frozen=True):
    """What a run returned, and whether its lease was lost meanwhile: then it does not count.

    Of a run that the loss has cancelled, `value` is None.
    """

    value: T | None
    lost: bool


class Watch(Protocol):
    """Is told what becomes of a lease, as it happens."""

    def acquired(self) -> None:
        """It is ours, and the run begins."""

    def contended(self) -> None:
        """It is not to be had, and there will be no run."""

    def renewed(self, renewals: int) -> None:
        """It stays ours, for the so-many-th time."""

    def renew_failed(self, renewals: int, failures: int, error: str) -> None:
        """The guard could not be asked; it will be asked again while the lease lasts."""

    def lost(self) -> None:
        """It is not ours any more; told once."""

    def released(self) -> None:
        """It was given back."""

    def release_failed(self, error: str) -> None:
        """The guard could not be told; the lease runs out by itself."""


class _Unwatched:
    """Nobody is told."""

    def acquired(self) -> None:
        pass

    def contended(self) -> None:
        pass

    def renewed(self, renewals: int) -> None:
        pass

    def renew_failed(self, renewals: int, failures: int, error: str) -> None:
        pass

    def lost(self) -> None:
        pass

    def released(self) -> None:
        pass

    def release_failed(self, error: str) -> None:
        pass


async def guarded(
    guard: Guard,
    slot: Slot,
    work: Callable[[], Coroutine[Any, Any, T]],
    *,
    watch: Watch | None = None,
) -> GuardedResult[T] | Refusal:
    """Run `work` as a task of its own while a slot is ours, or say why the slot is not to be had.

    The guard has been opened by the caller, and raises a `ServerError` if it cannot be asked for
    the slot. When the lease is lost the work is cancelled; it may clean up, and is waited for.
    When this is cancelled so is the work, and the lease is given back behind it: it ran, so its
    occurrence is done. (Cancelled before the slot is ours, nothing ran; if the guard has given it
    out all the same, the lease runs out by itself.) What the work raises is raised here.
    """
    watch = watch or _Unwatched()
    asked_at = monotonic()
    lease = await guard.acquire(slot)
    if isinstance(lease, Refusal):
        watch.contended()
        return lease
    watch.acquired()
    return await _GuardedRun(guard, lease, watch).run(work, asked_at)


class _GuardedRun:
    """One run and its lease."""

    def __init__(self, guard: Guard, lease: Lease, watch: Watch) -> None:
        self._guard = guard
        self._lease = lease
        self._watch = watch
        self._lost = False
        self._cancelled = False  # by who waits for the run

    async def run(
        self, work: Callable[[], Coroutine[Any, Any, T]], asked_at: float
    ) -> GuardedResult[T]:
        """Do the work, keep the lease meanwhile, give it back; no task is left behind."""
        working = asyncio.create_task(_called(work), name="tampu-guarded-work")
        keeping = asyncio.create_task(self._keep(asked_at), name="tampu-guarded-lease")
        await self._until_done(working, keeping)
        keeping.cancel()
        await self._until_ended(keeping)
        releasing = asyncio.create_task(self._release(), name="tampu-guarded-release")
        await self._until_ended(releasing)
        failures = [f for f in map(_failure, (working, keeping, releasing)) if f is not None]
        if self._cancelled:
            raise asyncio.CancelledError from next(iter(failures), None)
        if failures:
            raise failures[0]
        if self._lost and working.cancelled():
            return GuardedResult(None, lost=True)
        return GuardedResult(working.result(), lost=self._lost)

    async def _until_done(self, working: asyncio.Task[T], keeping: asyncio.Task[None]) -> None:
        """Wait for the work to end, and cancel it with the lease's end or our own."""
        watched: set[asyncio.Task[Any]] = {working, keeping}
        while not working.done():
            try:
                await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                self._cancelled = True
                working.cancel()
            if keeping in watched and keeping.done():
                watched.remove(keeping)
                working.cancel()

    async def _until_ended(self, task: asyncio.Task[None]) -> None:
        """Wait for something short that must be gone through with."""
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError:
                self._cancelled = True

    async def _keep(self, renewed_at: float) -> None:
        """Renew the lease until it is lost. It begins when it was asked for, and not any later."""
        every_s, lease_s = self._guard.renew_every_s, self._guard.lease_s
        pause_s, retry_s = every_s, every_s / _SOONER
        renewals = failures = 0
        while True:
            await asyncio.sleep(pause_s)
            asked_at = monotonic()
            left_s = renewed_at + lease_s - asked_at
            # Who asks late, since the loop was blocked, asks all the same: it may be ours yet.
            answer = await _answer(self._guard.renew(self._lease), max(left_s, retry_s))
            if answer is True:
                renewals += 1
                renewed_at, pause_s = asked_at, every_s
                self._watch.renewed(renewals)
                continue
            if answer is False:
                break
            failures += 1
            self._watch.renew_failed(renewals, failures, answer)
            left_s = renewed_at + lease_s - monotonic()
            if left_s < retry_s:
                await asyncio.sleep(max(left_s, 0))
                break
            pause_s = retry_s
        self._lose()

    async def _release(self) -> None:
        if self._lost:
            return
        answer = await _answer(self._guard.release(self._lease), self._guard.lease_s)
        if answer is True:
            self._watch.released()
        elif answer is False:
            self._lose()
        else:
            self._watch.release_failed(answer)

    def _lose(self) -> None:
        self._lost = True
        self._watch.lost()


async def _called(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """So that what `work` raises before it gives a coroutine is raised in its task too."""
    return await work()


async def _answer(asked: Coroutine[Any, Any, bool], limit_s: float) -> bool | str:
    """What the guard answered, or why it could not be asked."""
    try:
        async with asyncio.timeout(limit_s):
            return await asked
    except ServerError as error:
        return str(error)
    except TimeoutError:
        return f"the guard did not answer within {limit_s:g} s"


def _failure(task: asyncio.Task[Any]) -> BaseException | None:
    return None if task.cancelled() else task.exception()


class LeaseWatch:
    """A `Watch` that makes events of what it is told."""

    def __init__(self, telling: ObserverList, slot: Slot, run: TaskRun[Any], *, fired: int) -> None:
        self._telling = telling
        self._facts: dict[str, Any] = {
            "task_id": slot.task_id,
            "resource": slot.resource,
            "at_ms": slot.at_ms,
            "catch_up": run.catch_up,
            "manual": run.manual,
            "fired": fired,
        }

    def acquired(self) -> None:
        """It is ours, and the run begins."""
        self._tell(LeaseAcquired)

    def contended(self) -> None:
        """It is not to be had, and there will be no run."""
        self._tell(LeaseContended)

    def renewed(self, renewals: int) -> None:
        """It stays ours."""
        self._tell(LeaseRenewed, renewals=renewals)

    def renew_failed(self, renewals: int, failures: int, error: str) -> None:
        """The guard could not be asked."""
        self._tell(LeaseRenewFailed, renewals=renewals, failures=failures, error=error)

    def lost(self) -> None:
        """It is not ours any more."""
        self._tell(LeaseLost)

    def released(self) -> None:
        """It was given back."""
        self._tell(LeaseReleased)

    def release_failed(self, error: str) -> None:
        """The guard could not be told."""
        self._tell(LeaseReleaseFailed, error=error)

    def _tell(self, kind: type[LeaseEvent], **more: Any) -> None:  # noqa: ANN401 - its fields
        if self._telling.anybody:
            self._telling.tell(kind(**self._facts, **more))
