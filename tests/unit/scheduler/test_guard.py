"""A run under a lease: renewed, lost, released, cancelled."""

import asyncio
from collections.abc import AsyncIterator
from time import monotonic

import pytest

from tampu.errors import ConnectionLost, ServerUnreachable
from tampu.scheduler.events import (
    LeaseRenewed,
    LeaseRenewFailed,
)
from tampu.scheduler.guard import GuardedResult, Refusal, run_guarded
from tests.unit.scheduler.manual_guard import (
    LONG_S,
    SLOT,
    UNREACHABLE,
    HeldWork,
    LeaseLog,
    ManualGuard,
)
from tests.waiting import wait_until

SOON = 60.0


@pytest.fixture
def log() -> LeaseLog:
    return LeaseLog()


@pytest.fixture
def work() -> HeldWork:
    return HeldWork()


@pytest.fixture(autouse=True)
async def _no_leftover_tasks() -> AsyncIterator[None]:
    yield
    names = [task.get_name() for task in asyncio.all_tasks()]
    assert not [name for name in names if name.startswith("tampu-guarded")]


async def test_the_result_is_returned_and_the_lease_is_released(log: LeaseLog) -> None:
    guard = ManualGuard(renew_every_s=LONG_S / 2)

    async def quick() -> int:
        return 7

    assert await run_guarded(guard, SLOT, quick, on_event=log) == GuardedResult(7, lost=False)
    assert guard.calls == ["acquire", "release"]
    assert log.kinds == ["LeaseAcquired", "LeaseReleased"]


async def test_no_listener_is_needed() -> None:
    guard = ManualGuard(renew_every_s=0.001)
    for answer in (True, UNREACHABLE, False):
        guard.on_renew = guard.on_release = answer
        work = HeldWork()
        outcome = asyncio.ensure_future(run_guarded(guard, SLOT, work))
        started = len(guard.renewals_at)

        def was_renewed(started: int = started) -> bool:
            return len(guard.renewals_at) > started

        await wait_until(was_renewed, within=SOON, sentence="a renewal")
        work.released.set()
        assert isinstance(await outcome, GuardedResult)
    guard.on_acquire = Refusal.HELD
    assert await run_guarded(guard, SLOT, HeldWork()) is Refusal.HELD


@pytest.mark.parametrize("refusal", Refusal)
async def test_a_refused_slot_runs_nothing(log: LeaseLog, work: HeldWork, refusal: Refusal) -> None:
    guard = ManualGuard()
    guard.on_acquire = refusal
    assert await run_guarded(guard, SLOT, work, on_event=log) is refusal
    assert not work.started.is_set()
    assert guard.calls == ["acquire"]
    assert log.kinds == ["LeaseContended"]


async def test_an_unreachable_guard_raises_and_nothing_runs(log: LeaseLog, work: HeldWork) -> None:
    guard = ManualGuard()
    guard.on_acquire = UNREACHABLE
    with pytest.raises(ServerUnreachable):
        await run_guarded(guard, SLOT, work, on_event=log)
    assert not work.started.is_set()
    assert log.kinds == []


async def test_the_lease_is_renewed_while_the_work_runs(log: LeaseLog, work: HeldWork) -> None:
    guard = ManualGuard()
    running = asyncio.ensure_future(run_guarded(guard, SLOT, work, on_event=log))
    await wait_until(lambda: log.count(LeaseRenewed) >= 3, within=SOON, sentence="three renewals")
    work.released.set()
    assert await running == GuardedResult("value", lost=False)
    assert log.kinds[:4] == ["LeaseAcquired", *["LeaseRenewed"] * 3]
    assert [e.renewals for e in log.events if isinstance(e, LeaseRenewed)][:3] == [1, 2, 3]
    assert log.kinds[-1] == "LeaseReleased"


async def test_a_lost_lease_cancels_the_work_and_is_reported_once(
    log: LeaseLog, work: HeldWork
) -> None:
    guard = ManualGuard()
    guard.on_renew = False
    async with asyncio.timeout(SOON):
        assert await run_guarded(guard, SLOT, work, on_event=log) == GuardedResult(None, lost=True)
    assert work.cancelled == 1
    assert guard.calls == ["acquire", "renew"], "a lease that we lost is not released"
    assert log.kinds == ["LeaseAcquired", "LeaseLost"]


async def test_work_whose_lease_is_lost_may_clean_up(log: LeaseLog, work: HeldWork) -> None:
    guard = ManualGuard()
    guard.on_renew = False
    work.may_end.clear()
    running = asyncio.ensure_future(run_guarded(guard, SLOT, work, on_event=log))
    await asyncio.wait_for(work.cleaning.wait(), SOON)
    assert not running.done()
    work.may_end.set()
    assert await asyncio.wait_for(running, SOON) == GuardedResult(None, lost=True)
    assert work.cancelled == 1


async def test_work_that_ignores_the_cancellation_is_marked_as_lost() -> None:
    guard = ManualGuard()
    guard.on_renew = False

    async def stubborn() -> str:
        try:
            await asyncio.sleep(LONG_S)
        except asyncio.CancelledError:
            return "saved"
        return "slept"

    outcome = await asyncio.wait_for(run_guarded(guard, SLOT, stubborn), SOON)
    assert outcome == GuardedResult("saved", lost=True)


async def test_a_failed_renewal_is_tried_again(log: LeaseLog, work: HeldWork) -> None:
    guard = ManualGuard()
    guard.on_renew = UNREACHABLE
    running = asyncio.ensure_future(run_guarded(guard, SLOT, work, on_event=log))
    await wait_until(lambda: log.count(LeaseRenewFailed) >= 3, within=SOON, sentence="failures")
    guard.on_renew = True
    await wait_until(lambda: log.count(LeaseRenewed) >= 1, within=SOON, sentence="a renewal")
    work.released.set()
    assert await running == GuardedResult("value", lost=False)
    failures = [event for event in log.events if isinstance(event, LeaseRenewFailed)]
    assert [event.failures for event in failures][:3] == [1, 2, 3]
    assert {(event.renewals, event.error) for event in failures} == {(0, str(UNREACHABLE))}


async def test_failed_renewals_come_sooner_until_the_lease_expires(
    log: LeaseLog, work: HeldWork
) -> None:
    guard = ManualGuard(lease_s=1.0, renew_every_s=0.6)  # at the usual pace, only one would fit
    guard.on_renew = UNREACHABLE
    started_at = monotonic()
    outcome = await asyncio.wait_for(run_guarded(guard, SLOT, work, on_event=log), SOON)
    assert outcome == GuardedResult(None, lost=True)
    assert monotonic() - started_at >= 0.9, "we held it for the whole lease"
    assert log.count(LeaseRenewFailed) >= 2
    assert log.kinds[-1] == "LeaseLost"
    assert "release" not in guard.calls


async def test_a_lease_lasts_from_its_last_renewal(log: LeaseLog, work: HeldWork) -> None:
    guard = ManualGuard(lease_s=0.1, renew_every_s=0.02)
    running = asyncio.ensure_future(run_guarded(guard, SLOT, work, on_event=log))
    await wait_until(lambda: log.count(LeaseRenewed) >= 6, within=SOON, sentence="renewals")
    guard.on_renew = UNREACHABLE
    renewed_at = guard.renewals_at[-1]
    assert await asyncio.wait_for(running, SOON) == GuardedResult(None, lost=True)
    assert monotonic() - renewed_at >= 0.09


async def test_a_guard_that_hangs_loses_the_lease_when_it_expires(
    log: LeaseLog, work: HeldWork
) -> None:
    guard = ManualGuard(lease_s=0.05, renew_every_s=0.02)
    guard.answers.clear()
    outcome = await asyncio.wait_for(run_guarded(guard, SLOT, work, on_event=log), SOON)
    assert outcome == GuardedResult(None, lost=True)
    assert log.kinds == ["LeaseAcquired", "LeaseRenewFailed", "LeaseLost"]


async def test_a_loop_that_was_blocked_tries_to_renew_an_expired_lease(log: LeaseLog) -> None:
    guard = ManualGuard(lease_s=0.02, renew_every_s=0.01)

    async def blocking() -> str:
        ends = monotonic() + 0.05
        while monotonic() < ends:
            pass
        await wait_until(lambda: log.count(LeaseRenewed) > 0, within=SOON, sentence="a renewal")
        return "value"

    outcome = await run_guarded(guard, SLOT, blocking, on_event=log)
    assert outcome == GuardedResult("value", lost=False)


async def test_a_release_of_a_lease_that_is_not_ours_makes_it_lost(
    log: LeaseLog, work: HeldWork
) -> None:
    guard = ManualGuard(renew_every_s=LONG_S / 2)
    guard.on_release = False
    work.released.set()
    assert await run_guarded(guard, SLOT, work, on_event=log) == GuardedResult("value", lost=True)
    assert log.kinds == ["LeaseAcquired", "LeaseLost"]


async def test_a_failed_release_is_reported_and_the_result_counts(
    log: LeaseLog, work: HeldWork
) -> None:
    guard = ManualGuard(renew_every_s=LONG_S / 2)
    guard.on_release = ConnectionLost("redis://host", "it broke")
    work.released.set()
    assert await run_guarded(guard, SLOT, work, on_event=log) == GuardedResult("value", lost=False)
    assert log.kinds == ["LeaseAcquired", "LeaseReleaseFailed"]
    assert log.events[-1].error == str(guard.on_release)  # type: ignore[attr-defined]


async def test_a_release_that_hangs_ends_when_the_lease_expires(
    log: LeaseLog, work: HeldWork
) -> None:
    guard = ManualGuard(lease_s=0.05, renew_every_s=0.04)
    guard.answers.clear()
    work.released.set()
    outcome = await asyncio.wait_for(run_guarded(guard, SLOT, work, on_event=log), SOON)
    assert outcome == GuardedResult("value", lost=False)
    assert log.kinds == ["LeaseAcquired", "LeaseReleaseFailed"]


async def test_an_error_of_the_work_is_raised_after_the_release(log: LeaseLog) -> None:
    guard = ManualGuard(renew_every_s=LONG_S / 2)

    async def broken() -> None:
        raise LookupError("no such thing")

    with pytest.raises(LookupError, match="no such thing"):
        await run_guarded(guard, SLOT, broken, on_event=log)
    assert log.kinds == ["LeaseAcquired", "LeaseReleased"]


async def test_work_that_fails_before_its_first_await_releases_the_lease(log: LeaseLog) -> None:
    guard = ManualGuard(renew_every_s=LONG_S / 2)

    def fails() -> None:
        raise LookupError("no coroutine")

    with pytest.raises(LookupError, match="no coroutine"):
        await run_guarded(guard, SLOT, fails, on_event=log)  # type: ignore[arg-type]
    assert log.kinds == ["LeaseAcquired", "LeaseReleased"]


async def test_an_error_after_the_lease_is_lost_is_raised(log: LeaseLog) -> None:
    guard = ManualGuard()
    guard.on_renew = False

    async def broken() -> None:
        try:
            await asyncio.sleep(LONG_S)
        except asyncio.CancelledError:
            raise LookupError("while cleaning up") from None

    with pytest.raises(LookupError):
        await run_guarded(guard, SLOT, broken, on_event=log)
    assert log.kinds == ["LeaseAcquired", "LeaseLost"]


async def test_a_cancellation_cancels_the_work_and_releases_the_lease(
    log: LeaseLog, work: HeldWork
) -> None:
    guard = ManualGuard()
    running = asyncio.ensure_future(run_guarded(guard, SLOT, work, on_event=log))
    await asyncio.wait_for(work.started.wait(), SOON)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, SOON)
    assert work.cancelled == 1
    assert log.kinds[-1] == "LeaseReleased"


async def test_the_lease_is_renewed_while_cancelled_work_cleans_up(
    log: LeaseLog, work: HeldWork
) -> None:
    guard = ManualGuard()
    work.may_end.clear()
    running = asyncio.ensure_future(run_guarded(guard, SLOT, work, on_event=log))
    await asyncio.wait_for(work.started.wait(), SOON)
    running.cancel()
    await asyncio.wait_for(work.cleaning.wait(), SOON)
    renewals = log.count(LeaseRenewed)
    await wait_until(
        lambda: log.count(LeaseRenewed) > renewals, within=SOON, sentence="renewed meanwhile"
    )
    assert not running.done()
    work.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, SOON)
    assert log.kinds[-1] == "LeaseReleased"


async def test_a_cancellation_does_not_interrupt_the_release(log: LeaseLog) -> None:
    guard = ManualGuard(renew_every_s=LONG_S / 2)

    async def quick() -> int:
        return 7

    guard.answers.clear()
    running = asyncio.ensure_future(run_guarded(guard, SLOT, quick, on_event=log))
    await wait_until(lambda: "release" in guard.calls, within=SOON, sentence="the release")
    running.cancel()
    await asyncio.sleep(0)
    guard.answers.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert log.kinds == ["LeaseAcquired", "LeaseReleased"]


async def test_a_timeout_cancels_the_work_and_releases_the_lease(
    log: LeaseLog, work: HeldWork
) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await run_guarded(ManualGuard(), SLOT, work, on_event=log)
    assert work.cancelled == 1
    assert log.kinds[-1] == "LeaseReleased"


async def test_work_that_raises_a_cancellation_releases_the_lease(log: LeaseLog) -> None:
    guard = ManualGuard(renew_every_s=LONG_S / 2)

    async def cancels_itself() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await run_guarded(guard, SLOT, cancels_itself, on_event=log)
    assert log.kinds == ["LeaseAcquired", "LeaseReleased"]


async def test_an_unexpected_error_of_the_guard_ends_the_run(log: LeaseLog, work: HeldWork) -> None:
    guard = ManualGuard()
    guard.on_renew = LookupError("a bug of the guard")
    with pytest.raises(LookupError):
        await asyncio.wait_for(run_guarded(guard, SLOT, work, on_event=log), SOON)
    assert work.cancelled == 1
    assert log.kinds == ["LeaseAcquired", "LeaseReleased"]
