"""Going on from the mirror while the store is away."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tampu.errors import (
    AccessDenied,
    ConnectionLost,
    OptionError,
    QueueFull,
    ServerBusy,
    ServerError,
    StoreFailed,
    TampuError,
)
from tampu.scheduler.events import StoreDegraded, StoreEvent, StoreOperation, StoreRecovered
from tampu.scheduler.stores.resilient import ResilientStore
from tampu.scheduler.stores.store import MemoryStore, Store
from tests.stores import FULL, state_of
from tests.unit.scheduler.fragile import AWAY, UNREADABLE, Fragile, House, housed, returning


@pytest.fixture
async def house() -> AsyncIterator[House]:
    async with housed() as made:
        yield made


class TestGoingOn:
    @pytest.mark.parametrize(
        "trouble",
        [
            AWAY,
            ConnectionLost("redis://h", "reset"),
            ServerBusy("redis://h", "LOADING", "reading"),
            QueueFull("redis://h", "OOM", "no memory"),
        ],
        ids=lambda trouble: type(trouble).__name__,
    )
    async def test_what_was_saved_and_loaded_before_is_known(
        self, house: House, trouble: ServerError
    ) -> None:
        await house.inner.save([state_of("theirs", 3)])
        await house.store.save([state_of("ours", 2)])
        await house.store.load(["theirs"])
        house.inner.trouble = trouble
        assert await house.store.load(["theirs", "ours", "nobody"]) == [
            state_of("theirs", 3),
            state_of("ours", 2),
            None,
        ]
        assert house.events == [StoreDegraded(operation=StoreOperation.LOAD, error=str(trouble))]

    async def test_what_is_saved_and_deleted_meanwhile_is_known(self, house: House) -> None:
        await house.store.save([state_of("a", 1), state_of("b", 1)])
        house.inner.trouble = AWAY
        await house.store.save([state_of("a", 2), state_of("c", 1)])
        await house.store.delete(["b"])
        assert await house.store.load(["a", "b", "c"]) == [state_of("a", 2), None, state_of("c", 1)]
        assert await house.stored("a", "b", "c") == [state_of("a", 1), state_of("b", 1), None]

    async def test_a_store_that_is_away_from_the_beginning_knows_nobody(self, house: House) -> None:
        house.inner.trouble = AWAY
        assert await house.store.load(["a", "b"]) == [None, None]

    @pytest.mark.parametrize("operation", list(StoreOperation))
    async def test_the_event_names_what_failed_first(
        self, house: House, operation: StoreOperation
    ) -> None:
        house.inner.trouble = AWAY
        first: dict[StoreOperation, Callable[[], Awaitable[object]]] = {
            StoreOperation.LOAD: lambda: house.store.load(["a"]),
            StoreOperation.SAVE: lambda: house.store.save([state_of("a")]),
            StoreOperation.DELETE: lambda: house.store.delete(["a"]),
        }
        await first[operation]()
        await house.store.save([state_of("b")])
        await house.until_tried_again()
        assert house.events == [StoreDegraded(operation=operation, error=str(AWAY))]

    async def test_an_outage_is_told_to_all_who_listen_once(self, house: House) -> None:
        others: list[StoreEvent] = []
        house.store.listen(others.append)
        house.store.listen(house.events.append)
        house.inner.trouble = AWAY
        await house.store.load(["a"])
        assert len(house.events) == len(others) == 1

    @pytest.mark.parametrize(
        "trouble", [AccessDenied("redis://h", "no"), StoreFailed("f", "full")], ids=str
    )
    async def test_what_will_not_pass_is_raised_as_it_is(
        self, house: House, trouble: TampuError
    ) -> None:
        house.inner.trouble = trouble
        with pytest.raises(type(trouble)) as caught:
            await house.store.load(["a"])
        assert caught.value is trouble
        with pytest.raises(type(trouble)):
            await house.store.save([FULL])
        with pytest.raises(type(trouble)):
            await house.store.delete(["a"])
        house.inner.trouble = None
        assert await house.store.load([FULL.task_id]) == [None]
        assert house.events == []

    async def test_what_cannot_be_read_is_told_as_it_is(self, house: House) -> None:
        await house.store.save([FULL])
        house.inner.unreadable = {"bad"}
        assert await house.store.load(["bad", FULL.task_id]) == [UNREADABLE, FULL]

    async def test_a_mirror_does_not_outlive_what_others_deleted(self, house: House) -> None:
        await house.store.save([FULL])
        await house.inner.delete([FULL.task_id])
        await house.store.load([FULL.task_id])
        house.inner.trouble = AWAY
        assert await house.store.load([FULL.task_id]) == [None]


class TestClosing:
    @pytest.fixture
    async def lost(self) -> House:
        house = House()
        await house.store.open()
        house.inner.trouble = AWAY
        await house.store.save([state_of("a", 1)])
        return house

    async def test_what_is_dirty_is_written_back(self, lost: House) -> None:
        lost.inner.trouble = None
        await lost.store.close()
        assert await lost.stored("a") == [state_of("a", 1)]
        assert lost.events[-1] == StoreRecovered(written=1, kept=0)
        assert lost.inner.users == 0

    async def test_what_cannot_be_written_back_is_logged_once(
        self, lost: House, caplog: pytest.LogCaptureFixture
    ) -> None:
        await lost.store.close()
        (record,) = [r for r in caplog.records if r.levelno >= logging.WARNING]
        assert record.message == "a store was closed with states not written back"
        assert vars(record)["tasks"] == 1
        assert lost.inner.users == 0
        assert not returning()

    async def test_one_try_is_made(self) -> None:
        inner = Fragile()
        inner.trouble = AWAY
        store = ResilientStore(inner, retry_every="1h")
        await store.open()
        await store.save([state_of("b", 1)])
        calls = len(inner.calls)
        await store.close()
        assert inner.calls[calls:] == ["load"]

    async def test_an_outage_without_a_change_is_closed_without_a_word(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        house = House()
        await house.store.open()
        house.inner.trouble = AWAY
        await house.store.load(["a"])
        assert caplog.messages == ["a store is lost; its mirror will do"]
        caplog.clear()
        await house.store.close()
        assert not caplog.records

    async def test_one_of_two_users_that_closes_leaves_the_outage_to_the_other(
        self, lost: House
    ) -> None:
        await lost.store.open()
        await lost.store.close()
        lost.inner.trouble = None
        await lost.until_back()
        assert lost.inner.users == 1
        await lost.store.close()

    async def test_it_can_be_opened_again(self, lost: House) -> None:
        await lost.store.close()
        lost.inner.trouble = None
        await lost.store.open()
        await lost.store.save([state_of("b", 1)])
        assert await lost.stored("a", "b") == [None, state_of("b", 1)]
        await lost.store.close()

    async def test_who_has_closed_it_is_told_nothing_more(self, lost: House) -> None:
        await lost.store.close()
        told: list[StoreEvent] = []
        for _ in range(2):
            lost.store.listen(told.append)
            await lost.store.open()
            await lost.store.load(["a"])
            await lost.store.close()
        assert [type(event) for event in told] == [StoreDegraded] * 2
        assert [type(event) for event in lost.events] == [StoreDegraded]


class TestOptions:
    def test_what_is_no_store_is_refused(self) -> None:
        with pytest.raises(OptionError, match="Invalid inner "):
            ResilientStore("redis://h")  # type: ignore[arg-type]

    @pytest.mark.parametrize("retry_every", [0, -1, "soon", None])
    def test_a_pause_that_cannot_be_is_refused(self, retry_every: float) -> None:
        with pytest.raises(OptionError, match="Invalid retry_every "):
            ResilientStore(MemoryStore(), retry_every=retry_every)

    def test_it_is_a_store(self) -> None:
        assert isinstance(ResilientStore(MemoryStore()), Store)
