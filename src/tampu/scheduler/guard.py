"""Guards: an exclusive lease on each occurrence, across processes, and runs under such a lease."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from enum import auto
from time import monotonic
from typing import Any, Final, Generic, TypeVar

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
)
from tampu.util.options import Word

T = TypeVar("T")
_RETRY_FACTOR: Final = 4
"""After a failed renewal, the next one comes this many times sooner than usual."""


class Scope(Word):
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


class Refusal(Word):
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


class GuardedResult(Struct, Generic[T], frozen=True):
    """What the work returned, and whether its lease was lost meanwhile: then it does not count.

    `value` is None if the loss of the lease cancelled the work.
    """

    value: T | None
    lost: bool


async def run_guarded(
    guard: Guard,
    slot: Slot,
    work: Callable[[], Coroutine[Any, Any, T]],
    *,
    on_event: Callable[[LeaseEvent], None] | None = None,
) -> GuardedResult[T] | Refusal:
    """Run `work` while we hold a slot of a guard, or return why the guard refuses the slot.

    Open the guard first. If it cannot be reached for the slot, its `ServerError` is raised. The
    lease is renewed while the work runs and released after it. If the lease is lost, the work is
    cancelled; it may clean up, and is awaited. If this call is cancelled, so is the work, and the
    lease is released: its occurrence counts as done. If it is cancelled before the slot is ours,
    nothing runs, and a lease that was given all the same expires. Errors of the work are raised.

    `on_event` is called with each `LeaseAcquired`, `LeaseRenewed` and so on, as it happens.
    """
    return await _GuardedRun(guard, slot, on_event).run(work)


class _GuardedRun:
    """One run and its lease."""

    def __init__(
        self, guard: Guard, slot: Slot, on_event: Callable[[LeaseEvent], None] | None
    ) -> None:
        self._guard = guard
        self._slot = slot
        self._on_event = on_event
        self._lost = False
        self._cancelled = False  # our caller was cancelled

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> GuardedResult[T] | Refusal:
        """Acquire the lease, do the work while it is renewed, release it; leaves no task behind."""
        asked_at = monotonic()
        lease = await self._guard.acquire(self._slot)
        if isinstance(lease, Refusal):
            self._notify(LeaseContended)
            return lease
        self._notify(LeaseAcquired)
        working = asyncio.create_task(_call(work), name="tampu-guarded-work")
        renewing = asyncio.create_task(self._renew(lease, asked_at), name="tampu-guarded-lease")
        await self._wait_for_work(working, renewing)
        renewing.cancel()
        await self._wait_for_end(renewing)
        releasing = asyncio.create_task(self._release(lease), name="tampu-guarded-release")
        await self._wait_for_end(releasing)
        errors = [e for e in map(_task_error, (working, renewing, releasing)) if e is not None]
        if self._cancelled:
            raise asyncio.CancelledError from next(iter(errors), None)
        if errors:
            raise errors[0]
        if self._lost and working.cancelled():
            return GuardedResult(None, lost=True)
        return GuardedResult(working.result(), lost=self._lost)

    async def _wait_for_work(self, working: asyncio.Task[T], renewing: asyncio.Task[None]) -> None:
        """Wait until the work has ended; cancel it if the lease is lost or we are cancelled."""
        watched: set[asyncio.Task[Any]] = {working, renewing}
        while not working.done():
            try:
                await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                self._cancelled = True
                working.cancel()
            if renewing in watched and renewing.done():
                watched.remove(renewing)
                working.cancel()

    async def _wait_for_end(self, task: asyncio.Task[None]) -> None:
        """Wait for something short that must not be interrupted."""
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError:
                self._cancelled = True

    async def _renew(self, lease: Lease, renewed_at: float) -> None:
        """Renew the lease until it is lost. It lasts from when it was asked for, not later."""
        every_s, lease_s = self._guard.renew_every_s, self._guard.lease_s
        pause_s, retry_s = every_s, every_s / _RETRY_FACTOR
        renewals = failures = 0
        while True:
            await asyncio.sleep(pause_s)
            asked_at = monotonic()
            left_s = renewed_at + lease_s - asked_at
            # Ask even if it is late, because the loop was blocked: we may still hold the lease.
            answer = await _ask(self._guard.renew(lease), max(left_s, retry_s))
            if answer is True:
                renewals += 1
                renewed_at, pause_s = asked_at, every_s
                self._notify(LeaseRenewed, renewals=renewals)
                continue
            if answer is False:
                break
            failures += 1
            self._notify(LeaseRenewFailed, renewals=renewals, failures=failures, error=answer)
            left_s = renewed_at + lease_s - monotonic()
            if left_s < retry_s:
                await asyncio.sleep(max(left_s, 0))
                break
            pause_s = retry_s
        self._lose()

    async def _release(self, lease: Lease) -> None:
        if self._lost:
            return
        answer = await _ask(self._guard.release(lease), self._guard.lease_s)
        if answer is True:
            self._notify(LeaseReleased)
        elif answer is False:
            self._lose()
        else:
            self._notify(LeaseReleaseFailed, error=answer)

    def _lose(self) -> None:
        self._lost = True
        self._notify(LeaseLost)

    def _notify(self, kind: type[LeaseEvent], **facts: Any) -> None:  # noqa: ANN401 - its fields
        if self._on_event is not None:
            slot = self._slot
            self._on_event(
                kind(task_id=slot.task_id, resource=slot.resource, at_ms=slot.at_ms, **facts)
            )


async def _call(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Call the work inside its task, so that an error before its first await is raised there."""
    return await work()


async def _ask(call: Coroutine[Any, Any, bool], limit_s: float) -> bool | str:
    """The answer of the guard, or why there is none."""
    try:
        async with asyncio.timeout(limit_s):
            return await call
    except ServerError as error:
        return str(error)
    except TimeoutError:
        return f"the guard did not answer within {limit_s:g} s"


def _task_error(task: asyncio.Task[Any]) -> BaseException | None:
    return None if task.cancelled() else task.exception()
