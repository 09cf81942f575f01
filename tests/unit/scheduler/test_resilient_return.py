"""Writing back what changed when the store is there again."""

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from tampu.errors import AccessDenied
from tampu.scheduler.events import StoreDegraded, StoreRecovered
from tampu.scheduler.stores.store import MemoryStore
from tampu.wire.task_state import TaskState
from tests.stores import state_of
from tests.unit.scheduler.fragile import AWAY, House, housed


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with housed() as made:
        yield made


class TestComingBack:
    async def test_what_changed_is_written_back_and_told(self, house: House) -> None:
        await house.store.save([state_of("a", 1), state_of("b", 1), state_of("same", 1)])
        house.inner.trouble = AWAY
        await house.store.save([state_of("a", 2), state_of("c", 1)])
        await house.store.delete(["b"])
        await house.until_tried_again()
        house.inner.trouble = None
        assert await house.until_back() == StoreRecovered(written=3, kept=0)
        assert await house.stored("a", "b", "c") == [state_of("a", 2), None, state_of("c", 1)]

    async def test_then_the_inner_store_is_used_again(self, house: House) -> None:
        house.inner.trouble = AWAY
        await house.store.save([state_of("a", 1)])
        house.inner.trouble = None
        await house.until_back()
        await house.store.save([state_of("a", 2)])
        assert await house.stored("a") == [state_of("a", 2)]
        await house.inner.save([state_of("a", 3)])
        assert await house.store.load(["a"]) == [state_of("a", 3)]

    async def test_an_outage_without_a_change_ends_too(self, house: House) -> None:
        house.inner.trouble = AWAY
        await house.store.load(["a"])
        await house.until_tried_again()
        house.inner.trouble = None
        assert await house.until_back() == StoreRecovered(written=0, kept=0)

    async def test_every_outage_is_told(self, house: House) -> None:
        for lap in range(3):
            house.inner.trouble = AWAY
            await house.store.save([state_of("a", lap)])
            house.inner.trouble = None
            await house.until_back()
        kinds = [type(event) for event in house.events]
        assert kinds == [StoreDegraded, StoreRecovered] * 3

    async def test_who_is_behind_another_writes_nothing_until_he_has_caught_up(
        self, house: House
    ) -> None:
        house.inner.trouble = AWAY
        await house.store.save([state_of("a", 1)])
        await MemoryStore.save(house.inner, [state_of("a", 3)])
        house.inner.trouble = None
        assert (await house.until_back()).kept == 1
        for ours, stored in [(2, 3), (3, 3), (4, 4), (1, 1)]:
            await house.store.save([state_of("a", ours)])
            assert await house.stored("a") == [state_of("a", stored)]

    @pytest.mark.parametrize("ours", [1, 5, 6], ids=["older", "as old", "newer"])
    async def test_a_task_that_another_brought_further_is_left_to_him(
        self, house: House, ours: int
    ) -> None:
        await house.store.save([state_of("a", 1)])
        house.inner.trouble = AWAY
        mine = TaskState(task_id="a", fired=ours, last_error="mine")
        await house.store.save([mine, state_of("b", 1)])
        await MemoryStore.save(house.inner, [state_of("a", 5)])
        house.inner.trouble = None
        kept = 1 if ours < 5 else 0
        assert await house.until_back() == StoreRecovered(written=2 - kept, kept=kept)
        assert await house.stored("a", "b") == [state_of("a", 5) if kept else mine, state_of("b")]
        house.inner.trouble = AWAY
        assert await house.store.load(["a"]) == [state_of("a", 5) if kept else mine]

    @pytest.mark.parametrize("theirs", [3, 4], ids=["no further", "further"])
    async def test_a_task_deleted_here_that_another_brought_further_stays(
        self, house: House, theirs: int
    ) -> None:
        await house.store.save([state_of("a", 3)])
        house.inner.trouble = AWAY
        await house.store.delete(["a"])
        await house.store.delete(["a"])
        await MemoryStore.save(house.inner, [state_of("a", theirs)])
        house.inner.trouble = None
        await house.until_back()
        assert await house.stored("a") == [state_of("a", 4) if theirs == 4 else None]

    async def test_what_cannot_be_read_there_is_written_over(self, house: House) -> None:
        house.inner.trouble = AWAY
        await house.store.save([state_of("bad", 1)])
        house.inner.unreadable = {"bad"}
        house.inner.trouble = None
        assert await house.until_back() == StoreRecovered(written=1, kept=0)
        assert await house.stored("bad") == [state_of("bad", 1)]

    @pytest.mark.parametrize("call", ["save", "delete"])
    async def test_a_write_back_that_is_interrupted_begins_again(
        self, house: House, call: str
    ) -> None:
        await house.store.save([state_of("gone", 1)])
        house.inner.trouble = AWAY
        await house.store.save([state_of("a", 1)])
        await house.store.delete(["gone"])
        house.inner.refused = {call}
        await house.until_tried_again()
        assert len(house.events) == 1
        house.inner.trouble = None
        assert await house.until_back() == StoreRecovered(written=2, kept=0)
        assert await house.stored("a", "gone") == [state_of("a", 1), None]

    async def test_a_refusal_of_what_is_written_back_is_logged_once_and_tried_again(
        self, house: House, caplog: pytest.LogCaptureFixture
    ) -> None:
        house.inner.trouble = AWAY
        await house.store.save([state_of("a", 1)])
        house.inner.trouble = AccessDenied("redis://h", "no")
        await house.until_tried_again()
        logged = [r.message for r in caplog.records if r.levelno >= logging.WARNING]
        assert logged == ["a store is lost; its mirror will do", "a store cannot be written back"]
        assert await house.store.load(["a"]) == [state_of("a", 1)], "the mirror is still there"
        house.inner.trouble = None
        await house.until_back()
        assert await house.stored("a") == [state_of("a", 1)]


class TestWhileWritingBack:
    @pytest.mark.parametrize("change", ["save", "delete"])
    async def test_a_change_is_neither_lost_nor_overwritten(
        self, house: House, change: str
    ) -> None:
        house.inner.trouble = AWAY
        await house.store.save([state_of("a", 1), state_of("b", 1)])
        house.inner.trouble = None
        assert await house.next_call() == "load", "is it there?"
        assert await house.next_call() == "load", "what do others say of a and b?"
        if change == "save":
            await house.store.save([state_of("a", 2)])
        else:
            await house.store.delete(["a"])
        house.let_all_pass()
        assert await house.until_back() == StoreRecovered(written=2, kept=0)
        expected = state_of("a", 2) if change == "save" else None
        assert await house.stored("a", "b") == [expected, state_of("b", 1)]

    async def test_one_that_comes_while_it_is_being_written_is_written_after_it(
        self, house: House
    ) -> None:
        house.inner.trouble = AWAY
        await house.store.save([state_of("a", 1)])
        house.inner.trouble = None
        assert [await house.next_call() for _ in range(3)] == ["load", "load", "save"]
        await house.store.save([state_of("a", 2)])
        assert await house.store.load(["a"]) == [state_of("a", 2)]
        house.let_all_pass()
        assert await house.until_back() == StoreRecovered(written=1, kept=0)
        assert await house.stored("a") == [state_of("a", 2)]

    async def test_one_that_comes_at_the_very_end_waits_for_it(self, house: House) -> None:
        house.inner.trouble = AWAY
        await house.store.save([state_of("a", 1)])
        house.inner.trouble = None
        assert [await house.next_call() for _ in range(3)] == ["load", "load", "save"]
        await house.store.save([state_of("a", 2)])
        assert [await house.next_call() for _ in range(2)] == ["load", "save"]
        saving = asyncio.create_task(house.store.save([state_of("a", 3)]))
        await asyncio.wait([saving], timeout=0.02)
        assert not saving.done()
        house.let_all_pass()
        await saving
        assert await house.stored("a") == [state_of("a", 3)]
        assert house.events[-1] == StoreRecovered(written=1, kept=0)

    async def test_one_that_waits_while_it_fails_after_all_goes_to_the_mirror(
        self, house: House
    ) -> None:
        house.inner.trouble = AWAY
        await house.store.save([state_of("a", 1)])
        house.inner.trouble = None
        assert [await house.next_call() for _ in range(3)] == ["load", "load", "save"]
        await house.store.save([state_of("a", 2)])
        assert [await house.next_call() for _ in range(2)] == ["load", "save"]
        saving = asyncio.create_task(house.store.save([state_of("a", 3)]))
        await asyncio.wait([saving], timeout=0.02)
        house.inner.trouble = AWAY
        house.let_all_pass()
        await saving
        assert await house.stored("a") == [state_of("a", 1)]
        house.inner.trouble = None
        assert await house.until_back() == StoreRecovered(written=1, kept=0)
        assert await house.stored("a") == [state_of("a", 3)]

    async def test_it_ends_however_fast_changes_come(self, house: House) -> None:
        house.inner.trouble = AWAY
        latest = 0

        async def go_on() -> None:
            nonlocal latest
            while not house.events or isinstance(house.events[-1], StoreDegraded):
                latest += 1
                await house.store.save([state_of("a", latest)])
                await asyncio.sleep(0)

        going = asyncio.create_task(go_on())
        await house.until_tried_again()
        house.inner.slow = True
        house.inner.trouble = None
        await house.until_back()
        await going
        assert await house.stored("a") == [state_of("a", latest)]
