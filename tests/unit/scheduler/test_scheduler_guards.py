"""Schedulers with a guard that refuses, fails or cannot be reached."""

import asyncio
import logging

import pytest

from tampu.scheduler import MemoryStore, SkipReason
from tampu.scheduler.guard import Guard, Lease, Refusal, Slot
from tampu.timing import At, Overlap
from tests.unit.scheduler.harness import SOON, Harness, finish, minutes, task
from tests.unit.scheduler.manual_guard import UNREACHABLE, ManualGuard
from tests.unit.scheduler.plans import MINUTE, START_MS, nothing

pytestmark = pytest.mark.usefixtures("no_leftovers")


class RefusingGuard(Guard):
    """Refuses the instants of the test, as soon as it may answer."""

    lease_s, renew_every_s = 60.0, 20.0

    def __init__(self) -> None:
        self.refused: set[int] = set()
        self.error: Exception | None = None
        self.answers = asyncio.Event()
        self.answers.set()
        self.users = 0

    async def open(self) -> None:
        if self.error is not None:
            raise self.error
        self.users += 1

    async def close(self) -> None:
        self.users -= 1

    async def acquire(self, slot: Slot) -> Lease | Refusal:
        await self.answers.wait()
        return Refusal.DONE if slot.at_ms in self.refused else Lease(slot, "token")

    async def renew(self, lease: Lease) -> bool:
        return bool(lease)

    async def release(self, lease: Lease) -> bool:
        return bool(lease)


class TestRefusals:
    async def test_a_refused_run_does_not_count_towards_max_runs(self) -> None:
        guard = RefusingGuard()
        guard.refused = {START_MS + n * MINUTE for n in (1, 3, 4)}
        harness = Harness(guard=guard)
        running = await harness.start_run(task(nothing, max_runs=2))
        await harness.turn(5 * MINUTE)
        report = await finish(running)
        assert harness.log.ended == minutes([2, 5])
        done = SkipReason.DONE
        assert harness.log.skipped == [(done, n * MINUTE, 1) for n in (1, 3, 4)]
        assert (report.state.ran, report.state.skipped, report.state.fired) == (2, 3, 5)

    async def test_no_occurrence_comes_twice_if_one_of_two_runs_is_refused(self) -> None:
        guard = RefusingGuard()
        guard.refused = {START_MS + MINUTE}
        harness = Harness(guard=guard)
        running = await harness.start_run(task(nothing, overlap=Overlap.ALLOW, max_runs=2))
        guard.answers.clear()
        await harness.turn(3 * MINUTE)
        assert harness.log.started == minutes([1, 2]), "two may run, and both have started"
        guard.answers.set()
        await harness.turn(MINUTE)
        report = await finish(running)
        assert harness.log.ended == minutes([2, 3])
        assert (report.state.fired, report.state.ran) == (3, 2)

    async def test_a_refused_run_counts_towards_max_fires(self) -> None:
        guard = RefusingGuard()
        guard.refused = {START_MS + 2 * MINUTE}
        harness = Harness(guard=guard)
        running = await harness.start_run(task(nothing, max_runs=2, max_fires=2))
        await harness.turn(2 * MINUTE)
        report = await finish(running)
        assert (report.state.fired, report.state.ran) == (2, 1)

    async def test_the_store_is_closed_if_the_guard_does_not_open(self) -> None:
        class CountingStore(MemoryStore):
            users = 0

            async def open(self) -> None:
                self.users += 1

            async def close(self) -> None:
                self.users -= 1

        guard, store = RefusingGuard(), CountingStore()
        guard.error = ValueError("no")
        harness = Harness(guard=guard, store=store)
        with pytest.raises(ValueError, match="no"):
            await harness.scheduler.run(task(nothing))
        assert (store.users, guard.users) == (0, 0)
        guard.error = None
        await asyncio.wait_for(harness.scheduler.run(task(nothing, At())), SOON)
        assert (store.users, guard.users) == (0, 0)


class TestFailures:
    async def test_an_unexpected_error_of_a_guard_skips_the_run_and_is_logged(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        guard = ManualGuard()
        guard.on_acquire = ZeroDivisionError("in the guard")
        harness = Harness(guard=guard)
        async with harness.scheduler as scheduler:
            scheduler.add(task(nothing))
            await harness.turn(MINUTE)
            guard.on_acquire = None
        assert [reason for reason, _, _ in harness.log.skipped] == [SkipReason.GUARD_UNREACHABLE]
        (record,) = caplog.records
        assert record.message == (
            "task t, scheduled for 2026-10-24T00:01:00+00:00, was skipped because its guard failed:"
            " ZeroDivisionError: in the guard"
        )
        assert record.exc_info

    async def test_the_start_and_the_end_of_each_outage_are_logged_once(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "tampu.scheduler")
        guard = ManualGuard()
        harness = Harness(guard=guard)
        async with harness.scheduler as scheduler:
            scheduler.add(task(nothing))
            for answer in (UNREACHABLE, UNREACHABLE, Refusal.DONE, UNREACHABLE):
                guard.on_acquire = answer
                await harness.turn(MINUTE)
        unreachable, done = SkipReason.GUARD_UNREACHABLE, SkipReason.DONE
        assert [reason for reason, _, _ in harness.log.skipped] == [
            unreachable,
            unreachable,
            done,
            unreachable,
        ]
        lost = f"cannot reach the guard ({UNREACHABLE}); runs are skipped until it answers"
        assert caplog.messages == [lost, "the guard can be reached again", lost]
