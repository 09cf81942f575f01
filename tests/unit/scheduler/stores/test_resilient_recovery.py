"""A resilient store after an outage: it writes back what has changed."""

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from tampu.errors import AccessDenied
from tampu.scheduler.events import StoreDegraded, StoreRecovered
from tampu.scheduler.stores.store import MemoryStore
from tampu.wire.task_state import TaskState
from tests.stores import state_of
from tests.unit.scheduler.stores.fragile import UNREACHABLE, ResilientHarness, open_harness


@pytest.fixture
async def harness() -> AsyncIterator[ResilientHarness]:
    async with open_harness() as made:
        yield made


class TestRecovery:
    async def test_changes_are_written_back_and_counted(self, harness: ResilientHarness) -> None:
        await harness.store.save([state_of("a", 1), state_of("b", 1), state_of("same", 1)])
        harness.inner.error = UNREACHABLE
        await harness.store.save([state_of("a", 2), state_of("c", 1)])
        await harness.store.delete(["b"])
        await harness.wait_for_retry()
        harness.inner.error = None
        assert await harness.wait_for_recovery() == StoreRecovered(written=3, kept=0)
        assert await harness.stored("a", "b", "c") == [state_of("a", 2), None, state_of("c", 1)]

    async def test_the_inner_store_is_used_again(self, harness: ResilientHarness) -> None:
        harness.inner.error = UNREACHABLE
        await harness.store.save([state_of("a", 1)])
        harness.inner.error = None
        await harness.wait_for_recovery()
        await harness.store.save([state_of("a", 2)])
        assert await harness.stored("a") == [state_of("a", 2)]
        await harness.inner.save([state_of("a", 3)])
        assert await harness.store.load(["a"]) == [state_of("a", 3)]

    async def test_an_outage_without_changes_ends(self, harness: ResilientHarness) -> None:
        harness.inner.error = UNREACHABLE
        await harness.store.load(["a"])
        await harness.wait_for_retry()
        harness.inner.error = None
        assert await harness.wait_for_recovery() == StoreRecovered(written=0, kept=0)

    async def test_every_outage_is_reported(self, harness: ResilientHarness) -> None:
        for lap in range(3):
            harness.inner.error = UNREACHABLE
            await harness.store.save([state_of("a", lap)])
            harness.inner.error = None
            await harness.wait_for_recovery()
        kinds = [type(event) for event in harness.events]
        assert kinds == [StoreDegraded, StoreRecovered] * 3

    async def test_a_state_that_is_behind_is_not_saved_until_it_catches_up(
        self, harness: ResilientHarness
    ) -> None:
        harness.inner.error = UNREACHABLE
        await harness.store.save([state_of("a", 1)])
        await MemoryStore.save(harness.inner, [state_of("a", 3)])
        harness.inner.error = None
        assert (await harness.wait_for_recovery()).kept == 1
        for ours, stored in [(2, 3), (3, 3), (4, 4), (1, 1)]:
            await harness.store.save([state_of("a", ours)])
            assert await harness.stored("a") == [state_of("a", stored)]

    @pytest.mark.parametrize("ours", [1, 5, 6], ids=["older", "as old", "newer"])
    async def test_a_task_that_another_scheduler_brought_further_is_kept(
        self, harness: ResilientHarness, ours: int
    ) -> None:
        await harness.store.save([state_of("a", 1)])
        harness.inner.error = UNREACHABLE
        mine = TaskState(task_id="a", fired=ours, last_error="mine")
        await harness.store.save([mine, state_of("b", 1)])
        await MemoryStore.save(harness.inner, [state_of("a", 5)])
        harness.inner.error = None
        kept = 1 if ours < 5 else 0
        assert await harness.wait_for_recovery() == StoreRecovered(written=2 - kept, kept=kept)
        assert await harness.stored("a", "b") == [state_of("a", 5) if kept else mine, state_of("b")]
        harness.inner.error = UNREACHABLE
        assert await harness.store.load(["a"]) == [state_of("a", 5) if kept else mine]

    @pytest.mark.parametrize("theirs", [3, 4], ids=["no further", "further"])
    async def test_a_deleted_task_that_another_scheduler_brought_further_is_kept(
        self, harness: ResilientHarness, theirs: int
    ) -> None:
        await harness.store.save([state_of("a", 3)])
        harness.inner.error = UNREACHABLE
        await harness.store.delete(["a"])
        await harness.store.delete(["a"])
        await MemoryStore.save(harness.inner, [state_of("a", theirs)])
        harness.inner.error = None
        await harness.wait_for_recovery()
        assert await harness.stored("a") == [state_of("a", 4) if theirs == 4 else None]

    async def test_an_unreadable_state_is_overwritten(self, harness: ResilientHarness) -> None:
        harness.inner.error = UNREACHABLE
        await harness.store.save([state_of("bad", 1)])
        harness.inner.unreadable = {"bad"}
        harness.inner.error = None
        assert await harness.wait_for_recovery() == StoreRecovered(written=1, kept=0)
        assert await harness.stored("bad") == [state_of("bad", 1)]

    @pytest.mark.parametrize("call", ["save", "delete"])
    async def test_an_interrupted_write_back_is_repeated(
        self, harness: ResilientHarness, call: str
    ) -> None:
        await harness.store.save([state_of("gone", 1)])
        harness.inner.error = UNREACHABLE
        await harness.store.save([state_of("a", 1)])
        await harness.store.delete(["gone"])
        harness.inner.failing = {call}
        await harness.wait_for_retry()
        assert len(harness.events) == 1
        harness.inner.error = None
        assert await harness.wait_for_recovery() == StoreRecovered(written=2, kept=0)
        assert await harness.stored("a", "gone") == [state_of("a", 1), None]

    async def test_a_write_back_that_is_denied_is_logged_once_and_tried_again(
        self, harness: ResilientHarness, caplog: pytest.LogCaptureFixture
    ) -> None:
        harness.inner.error = UNREACHABLE
        await harness.store.save([state_of("a", 1)])
        harness.inner.error = denied = AccessDenied("redis://h", "no")
        await harness.wait_for_retry()
        logged = [r.message for r in caplog.records if r.levelno >= logging.WARNING]
        assert logged == [
            f"cannot reach the task store, continuing from memory; SAVE failed: {UNREACHABLE}",
            f"cannot write back to the task store (states: 1), trying again: {denied}",
        ]
        assert await harness.store.load(["a"]) == [state_of("a", 1)], "it continues from memory"
        harness.inner.error = None
        await harness.wait_for_recovery()
        assert await harness.stored("a") == [state_of("a", 1)]


class TestWhileWritingBack:
    @pytest.mark.parametrize("change", ["save", "delete"])
    async def test_a_change_is_neither_lost_nor_overwritten(
        self, harness: ResilientHarness, change: str
    ) -> None:
        harness.inner.error = UNREACHABLE
        await harness.store.save([state_of("a", 1), state_of("b", 1)])
        harness.inner.error = None
        assert await harness.next_call() == "load", "a probe"
        assert await harness.next_call() == "load", "the stored states of a and b"
        if change == "save":
            await harness.store.save([state_of("a", 2)])
        else:
            await harness.store.delete(["a"])
        harness.open_gate()
        assert await harness.wait_for_recovery() == StoreRecovered(written=2, kept=0)
        expected = state_of("a", 2) if change == "save" else None
        assert await harness.stored("a", "b") == [expected, state_of("b", 1)]

    async def test_a_task_that_changes_while_it_is_written_is_written_again(
        self, harness: ResilientHarness
    ) -> None:
        harness.inner.error = UNREACHABLE
        await harness.store.save([state_of("a", 1)])
        harness.inner.error = None
        assert [await harness.next_call() for _ in range(3)] == ["load", "load", "save"]
        await harness.store.save([state_of("a", 2)])
        assert await harness.store.load(["a"]) == [state_of("a", 2)]
        harness.open_gate()
        assert await harness.wait_for_recovery() == StoreRecovered(written=1, kept=0)
        assert await harness.stored("a") == [state_of("a", 2)]

    async def test_a_save_waits_while_the_last_changes_are_written(
        self, harness: ResilientHarness
    ) -> None:
        harness.inner.error = UNREACHABLE
        await harness.store.save([state_of("a", 1)])
        harness.inner.error = None
        assert [await harness.next_call() for _ in range(3)] == ["load", "load", "save"]
        await harness.store.save([state_of("a", 2)])
        assert [await harness.next_call() for _ in range(2)] == ["load", "save"]
        saving = asyncio.create_task(harness.store.save([state_of("a", 3)]))
        await asyncio.wait([saving], timeout=0.02)
        assert not saving.done()
        harness.open_gate()
        await saving
        assert await harness.stored("a") == [state_of("a", 3)]
        assert harness.events[-1] == StoreRecovered(written=1, kept=0)

    async def test_a_save_that_waits_goes_to_memory_if_the_write_back_fails(
        self, harness: ResilientHarness
    ) -> None:
        harness.inner.error = UNREACHABLE
        await harness.store.save([state_of("a", 1)])
        harness.inner.error = None
        assert [await harness.next_call() for _ in range(3)] == ["load", "load", "save"]
        await harness.store.save([state_of("a", 2)])
        assert [await harness.next_call() for _ in range(2)] == ["load", "save"]
        saving = asyncio.create_task(harness.store.save([state_of("a", 3)]))
        await asyncio.wait([saving], timeout=0.02)
        harness.inner.error = UNREACHABLE
        harness.open_gate()
        await saving
        assert await harness.stored("a") == [state_of("a", 1)]
        harness.inner.error = None
        assert await harness.wait_for_recovery() == StoreRecovered(written=1, kept=0)
        assert await harness.stored("a") == [state_of("a", 3)]

    async def test_recovery_ends_however_fast_states_change(
        self, harness: ResilientHarness
    ) -> None:
        harness.inner.error = UNREACHABLE
        latest = 0

        async def keep_saving() -> None:
            nonlocal latest
            while not harness.events or isinstance(harness.events[-1], StoreDegraded):
                latest += 1
                await harness.store.save([state_of("a", latest)])
                await asyncio.sleep(0)

        saving = asyncio.create_task(keep_saving())
        await harness.wait_for_retry()
        harness.inner.slow = True
        harness.inner.error = None
        await harness.wait_for_recovery()
        await saving
        assert await harness.stored("a") == [state_of("a", latest)]
