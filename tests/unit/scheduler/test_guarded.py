"""A run under a lease: kept, lost, given back, cancelled."""

import asyncio
from collections.abc import AsyncIterator
from time import monotonic

import pytest

from tampu.errors import ConnectionLost, ServerUnreachable
from tampu.scheduler.guard import Refusal
from tampu.scheduler.guarded import GuardedResult, guarded
from tests.unit.scheduler.hand_guard import AWAY, LONG_S, SLOT, HandGuard, Notes, Work
from tests.waiting import wait_until

SOON = 10.0


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
def work() -> Work:
    return Work()


@pytest.fixture(autouse=True)
async def _no_task_is_left() -> AsyncIterator[None]:
    yield
    names = [task.get_name() for task in asyncio.all_tasks()]
    assert not [name for name in names if name.startswith("tampu-guarded")]


async def test_what_the_work_returns_comes_back_and_the_lease_is_given_back(notes: Notes) -> None:
    guard = HandGuard(renew_every_s=LONG_S / 2)

    async def quick() -> int:
        return 7

    assert await guarded(guard, SLOT, quick, watch=notes) == GuardedResult(7, lost=False)
    assert guard.asked == ["acquire", "release"]
    assert notes.told == [("acquired",), ("released",)]


async def test_nobody_has_to_watch() -> None:
    guard = HandGuard(renew_every_s=0.001)
    for answer in (True, AWAY, False):
        guard.on_renew = guard.on_release = answer
        work = Work()
        outcome = asyncio.ensure_future(guarded(guard, SLOT, work))
        begun = len(guard.renewals_at)

        def renewed(begun: int = begun) -> bool:
            return len(guard.renewals_at) > begun

        await wait_until(renewed, within=SOON, sentence="a renewal")
        work.go_on.set()
        assert isinstance(await outcome, GuardedResult)
    guard.on_acquire = Refusal.HELD
    assert await guarded(guard, SLOT, Work()) is Refusal.HELD


@pytest.mark.parametrize("refusal", Refusal)
async def test_a_slot_that_is_not_to_be_had_runs_nothing(
    notes: Notes, work: Work, refusal: Refusal
) -> None:
    guard = HandGuard()
    guard.on_acquire = refusal
    assert await guarded(guard, SLOT, work, watch=notes) is refusal
    assert not work.begun.is_set()
    assert guard.asked == ["acquire"]
    assert notes.told == [("contended",)]


async def test_a_guard_that_cannot_be_asked_raises_and_runs_nothing(
    notes: Notes, work: Work
) -> None:
    guard = HandGuard()
    guard.on_acquire = AWAY
    with pytest.raises(ServerUnreachable):
        await guarded(guard, SLOT, work, watch=notes)
    assert not work.begun.is_set()
    assert notes.told == []


async def test_the_lease_is_renewed_while_the_work_goes_on(notes: Notes, work: Work) -> None:
    guard = HandGuard()
    running = asyncio.ensure_future(guarded(guard, SLOT, work, watch=notes))
    await wait_until(lambda: notes.count("renewed") >= 3, within=SOON, sentence="three renewals")
    work.go_on.set()
    assert await running == GuardedResult("value", lost=False)
    assert notes.told[:4] == [("acquired",), ("renewed", 1), ("renewed", 2), ("renewed", 3)]
    assert notes.told[-1] == ("released",)


async def test_a_lost_lease_cancels_the_work_and_is_told_once(notes: Notes, work: Work) -> None:
    guard = HandGuard()
    guard.on_renew = False
    async with asyncio.timeout(SOON):
        assert await guarded(guard, SLOT, work, watch=notes) == GuardedResult(None, lost=True)
    assert work.cancelled == 1
    assert guard.asked == ["acquire", "renew"], "what is not ours is not given back"
    assert notes.told == [("acquired",), ("lost",)]


async def test_work_that_lost_its_lease_may_clean_up(notes: Notes, work: Work) -> None:
    guard = HandGuard()
    guard.on_renew = False
    work.cleaned.clear()
    running = asyncio.ensure_future(guarded(guard, SLOT, work, watch=notes))
    await asyncio.wait_for(work.cleaning.wait(), SOON)
    assert not running.done()
    work.cleaned.set()
    assert await asyncio.wait_for(running, SOON) == GuardedResult(None, lost=True)
    assert work.cancelled == 1


async def test_work_that_returns_all_the_same_is_marked_as_lost() -> None:
    guard = HandGuard()
    guard.on_renew = False

    async def stubborn() -> str:
        try:
            await asyncio.sleep(LONG_S)
        except asyncio.CancelledError:
            return "saved"
        return "slept"

    outcome = await asyncio.wait_for(guarded(guard, SLOT, stubborn), SOON)
    assert outcome == GuardedResult("saved", lost=True)


async def test_a_renewal_that_fails_is_told_and_tried_again_sooner(
    notes: Notes, work: Work
) -> None:
    guard = HandGuard(renew_every_s=0.2)
    guard.on_renew = AWAY
    running = asyncio.ensure_future(guarded(guard, SLOT, work, watch=notes))
    await wait_until(lambda: notes.count("renew_failed") == 3, within=SOON, sentence="failures")
    guard.on_renew = True
    await wait_until(lambda: notes.count("renewed") == 1, within=SOON, sentence="a renewal")
    work.go_on.set()
    assert await running == GuardedResult("value", lost=False)
    assert notes.told[1] == ("renew_failed", 0, 1, str(AWAY))
    assert [entry for entry in notes.told if entry[0] == "renew_failed"][-1][1:3] == (0, 3)
    gaps = [b - a for a, b in zip(guard.renewals_at, guard.renewals_at[1:], strict=False)]
    assert 0.04 < min(gaps) < guard.renew_every_s


async def test_a_lease_that_runs_out_unrenewed_is_lost(notes: Notes, work: Work) -> None:
    guard = HandGuard(lease_s=0.1, renew_every_s=0.02)
    guard.on_renew = AWAY
    began = monotonic()
    outcome = await asyncio.wait_for(guarded(guard, SLOT, work, watch=notes), SOON)
    assert outcome == GuardedResult(None, lost=True)
    assert monotonic() - began >= 0.09, "it was ours for all of the lease"
    assert notes.count("renew_failed") >= 3
    assert notes.told[-1] == ("lost",)
    assert "release" not in guard.asked


async def test_a_lease_lasts_from_its_last_renewal(notes: Notes, work: Work) -> None:
    guard = HandGuard(lease_s=0.1, renew_every_s=0.02)
    running = asyncio.ensure_future(guarded(guard, SLOT, work, watch=notes))
    await wait_until(lambda: notes.count("renewed") >= 6, within=SOON, sentence="renewals")
    guard.on_renew = AWAY
    renewed_at = guard.renewals_at[-1]
    assert await asyncio.wait_for(running, SOON) == GuardedResult(None, lost=True)
    assert monotonic() - renewed_at >= 0.09


async def test_a_guard_that_hangs_does_not_hold_the_work_beyond_its_lease(
    notes: Notes, work: Work
) -> None:
    guard = HandGuard(lease_s=0.05, renew_every_s=0.02)
    guard.answers.clear()
    outcome = await asyncio.wait_for(guarded(guard, SLOT, work, watch=notes), SOON)
    assert outcome == GuardedResult(None, lost=True)
    assert [entry[0] for entry in notes.told] == ["acquired", "renew_failed", "lost"]


async def test_a_loop_that_was_blocked_asks_before_it_gives_up(notes: Notes) -> None:
    guard = HandGuard(lease_s=0.02, renew_every_s=0.01)

    async def blocking() -> str:
        ends = monotonic() + 0.05
        while monotonic() < ends:
            pass
        await wait_until(lambda: notes.count("renewed") > 0, within=SOON, sentence="a renewal")
        return "value"

    outcome = await guarded(guard, SLOT, blocking, watch=notes)
    assert outcome == GuardedResult("value", lost=False)


async def test_a_release_that_finds_the_lease_gone_makes_it_lost(notes: Notes, work: Work) -> None:
    guard = HandGuard(renew_every_s=LONG_S / 2)
    guard.on_release = False
    work.go_on.set()
    assert await guarded(guard, SLOT, work, watch=notes) == GuardedResult("value", lost=True)
    assert notes.told == [("acquired",), ("lost",)]


async def test_a_release_that_fails_is_told_and_not_lost(notes: Notes, work: Work) -> None:
    guard = HandGuard(renew_every_s=LONG_S / 2)
    guard.on_release = ConnectionLost("redis://house", "it went away")
    work.go_on.set()
    assert await guarded(guard, SLOT, work, watch=notes) == GuardedResult("value", lost=False)
    assert notes.told == [("acquired",), ("release_failed", str(guard.on_release))]


async def test_a_release_that_hangs_ends_with_the_lease(notes: Notes, work: Work) -> None:
    guard = HandGuard(lease_s=0.05, renew_every_s=0.04)
    guard.answers.clear()
    work.go_on.set()
    outcome = await asyncio.wait_for(guarded(guard, SLOT, work, watch=notes), SOON)
    assert outcome == GuardedResult("value", lost=False)
    assert [entry[0] for entry in notes.told] == ["acquired", "release_failed"]


async def test_what_the_work_raises_is_raised_behind_the_release(notes: Notes) -> None:
    guard = HandGuard(renew_every_s=LONG_S / 2)

    async def broken() -> None:
        raise LookupError("no such thing")

    with pytest.raises(LookupError, match="no such thing"):
        await guarded(guard, SLOT, broken, watch=notes)
    assert notes.told == [("acquired",), ("released",)]


async def test_work_that_fails_before_it_begins_gives_the_lease_back(notes: Notes) -> None:
    guard = HandGuard(renew_every_s=LONG_S / 2)

    def unmade() -> None:
        raise LookupError("no coroutine")

    with pytest.raises(LookupError, match="no coroutine"):
        await guarded(guard, SLOT, unmade, watch=notes)  # type: ignore[arg-type]
    assert notes.told == [("acquired",), ("released",)]


async def test_what_is_raised_behind_a_lost_lease_is_raised_too(notes: Notes) -> None:
    guard = HandGuard()
    guard.on_renew = False

    async def broken() -> None:
        try:
            await asyncio.sleep(LONG_S)
        except asyncio.CancelledError:
            raise LookupError("while cleaning up") from None

    with pytest.raises(LookupError):
        await guarded(guard, SLOT, broken, watch=notes)
    assert notes.told == [("acquired",), ("lost",)]


async def test_cancelled_it_cancels_the_work_and_gives_the_lease_back(
    notes: Notes, work: Work
) -> None:
    guard = HandGuard()
    running = asyncio.ensure_future(guarded(guard, SLOT, work, watch=notes))
    await asyncio.wait_for(work.begun.wait(), SOON)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, SOON)
    assert work.cancelled == 1
    assert notes.told[-1] == ("released",)


async def test_while_cancelled_work_cleans_up_its_lease_is_renewed(
    notes: Notes, work: Work
) -> None:
    guard = HandGuard()
    work.cleaned.clear()
    running = asyncio.ensure_future(guarded(guard, SLOT, work, watch=notes))
    await asyncio.wait_for(work.begun.wait(), SOON)
    running.cancel()
    await asyncio.wait_for(work.cleaning.wait(), SOON)
    renewals = notes.count("renewed")
    await wait_until(
        lambda: notes.count("renewed") > renewals, within=SOON, sentence="renewed meanwhile"
    )
    assert not running.done()
    work.cleaned.set()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, SOON)
    assert notes.told[-1] == ("released",)


async def test_cancelled_during_the_release_it_goes_through_with_it(notes: Notes) -> None:
    guard = HandGuard(renew_every_s=LONG_S / 2)

    async def quick() -> int:
        return 7

    guard.answers.clear()
    running = asyncio.ensure_future(guarded(guard, SLOT, quick, watch=notes))
    await wait_until(lambda: "release" in guard.asked, within=SOON, sentence="the release")
    running.cancel()
    await asyncio.sleep(0)
    guard.answers.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert notes.told == [("acquired",), ("released",)]


async def test_a_time_limit_around_it_is_one(notes: Notes, work: Work) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await guarded(HandGuard(), SLOT, work, watch=notes)
    assert work.cancelled == 1
    assert notes.told[-1] == ("released",)


async def test_work_that_cancels_itself_is_given_back(notes: Notes) -> None:
    guard = HandGuard(renew_every_s=LONG_S / 2)

    async def resigned() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await guarded(guard, SLOT, resigned, watch=notes)
    assert notes.told == [("acquired",), ("released",)]


async def test_a_guard_with_an_error_of_its_own_ends_the_run(notes: Notes, work: Work) -> None:
    guard = HandGuard()
    guard.on_renew = LookupError("a bug of the guard")
    with pytest.raises(LookupError):
        await asyncio.wait_for(guarded(guard, SLOT, work, watch=notes), SOON)
    assert work.cancelled == 1
    assert notes.told == [("acquired",), ("released",)]
