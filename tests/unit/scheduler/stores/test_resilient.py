"""A resilient store during an outage, and its closing."""

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
from tests.unit.scheduler.stores.fragile import (
    UNREACHABLE,
    UNREADABLE,
    FragileStore,
    ResilientHarness,
    count_recoveries,
    open_harness,
)


@pytest.fixture
async def harness() -> AsyncIterator[ResilientHarness]:
    async with open_harness() as made:
        yield made


class TestOutage:
    @pytest.mark.parametrize(
        "error",
        [
            UNREACHABLE,
            ConnectionLost("redis://h", "reset"),
            ServerBusy("redis://h", "LOADING", "reading"),
            QueueFull("redis://h", "OOM", "no memory"),
        ],
        ids=lambda error: type(error).__name__,
    )
    async def test_states_that_were_saved_or_loaded_before_are_known(
        self, harness: ResilientHarness, error: ServerError
    ) -> None:
        await harness.inner.save([state_of("theirs", 3)])
        await harness.store.save([state_of("ours", 2)])
        await harness.store.load(["theirs"])
        harness.inner.error = error
        assert await harness.store.load(["theirs", "ours", "nobody"]) == [
            state_of("theirs", 3),
            state_of("ours", 2),
            None,
        ]
        assert harness.events == [StoreDegraded(operation=StoreOperation.LOAD, error=str(error))]

    async def test_changes_during_the_outage_are_known(self, harness: ResilientHarness) -> None:
        await harness.store.save([state_of("a", 1), state_of("b", 1)])
        harness.inner.error = UNREACHABLE
        await harness.store.save([state_of("a", 2), state_of("c", 1)])
        await harness.store.delete(["b"])
        assert await harness.store.load(["a", "b", "c"]) == [
            state_of("a", 2),
            None,
            state_of("c", 1),
        ]
        assert await harness.stored("a", "b", "c") == [state_of("a", 1), state_of("b", 1), None]

    async def test_a_store_that_was_never_reached_knows_no_states(
        self, harness: ResilientHarness
    ) -> None:
        harness.inner.error = UNREACHABLE
        assert await harness.store.load(["a", "b"]) == [None, None]

    @pytest.mark.parametrize("operation", list(StoreOperation))
    async def test_the_event_names_the_first_call_that_failed(
        self, harness: ResilientHarness, operation: StoreOperation
    ) -> None:
        harness.inner.error = UNREACHABLE
        first: dict[StoreOperation, Callable[[], Awaitable[object]]] = {
            StoreOperation.LOAD: lambda: harness.store.load(["a"]),
            StoreOperation.SAVE: lambda: harness.store.save([state_of("a")]),
            StoreOperation.DELETE: lambda: harness.store.delete(["a"]),
        }
        await first[operation]()
        await harness.store.save([state_of("b")])
        await harness.wait_for_retry()
        assert harness.events == [StoreDegraded(operation=operation, error=str(UNREACHABLE))]

    async def test_each_listener_receives_an_outage_once(self, harness: ResilientHarness) -> None:
        others: list[StoreEvent] = []
        harness.store.listen(others.append)
        harness.store.listen(harness.events.append)
        harness.inner.error = UNREACHABLE
        await harness.store.load(["a"])
        assert len(harness.events) == len(others) == 1

    @pytest.mark.parametrize(
        "error", [AccessDenied("redis://h", "no"), StoreFailed("f", "full")], ids=str
    )
    async def test_an_error_that_will_not_pass_is_raised(
        self, harness: ResilientHarness, error: TampuError
    ) -> None:
        harness.inner.error = error
        with pytest.raises(type(error)) as caught:
            await harness.store.load(["a"])
        assert caught.value is error
        with pytest.raises(type(error)):
            await harness.store.save([FULL])
        with pytest.raises(type(error)):
            await harness.store.delete(["a"])
        harness.inner.error = None
        assert await harness.store.load([FULL.task_id]) == [None]
        assert harness.events == []

    async def test_an_unreadable_state_is_reported(self, harness: ResilientHarness) -> None:
        await harness.store.save([FULL])
        harness.inner.unreadable = {"bad"}
        assert await harness.store.load(["bad", FULL.task_id]) == [UNREADABLE, FULL]

    async def test_a_state_that_another_scheduler_deleted_is_not_in_the_mirror(
        self, harness: ResilientHarness
    ) -> None:
        await harness.store.save([FULL])
        await harness.inner.delete([FULL.task_id])
        await harness.store.load([FULL.task_id])
        harness.inner.error = UNREACHABLE
        assert await harness.store.load([FULL.task_id]) == [None]


class TestClosing:
    @pytest.fixture
    async def interrupted(self) -> ResilientHarness:
        harness = ResilientHarness()
        await harness.store.open()
        harness.inner.error = UNREACHABLE
        await harness.store.save([state_of("a", 1)])
        return harness

    async def test_changes_are_written_back(self, interrupted: ResilientHarness) -> None:
        interrupted.inner.error = None
        await interrupted.store.close()
        assert await interrupted.stored("a") == [state_of("a", 1)]
        assert interrupted.events[-1] == StoreRecovered(written=1, kept=0)
        assert interrupted.inner.users == 0

    async def test_changes_that_cannot_be_written_back_are_logged_once(
        self, interrupted: ResilientHarness, caplog: pytest.LogCaptureFixture
    ) -> None:
        await interrupted.store.close()
        (record,) = [r for r in caplog.records if r.levelno >= logging.WARNING]
        assert record.message == (
            f"closed the task store; states not written back: 1 ({UNREACHABLE})"
        )
        assert vars(record)["tasks"] == 1
        assert interrupted.inner.users == 0
        assert not count_recoveries()

    async def test_closing_makes_one_try(self) -> None:
        inner = FragileStore()
        inner.error = UNREACHABLE
        store = ResilientStore(inner, retry_every="1h")
        await store.open()
        await store.save([state_of("b", 1)])
        calls = len(inner.calls)
        await store.close()
        assert inner.calls[calls:] == ["load"]

    async def test_nothing_is_logged_if_there_is_nothing_to_write_back(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        harness = ResilientHarness()
        await harness.store.open()
        harness.inner.error = UNREACHABLE
        await harness.store.load(["a"])
        assert caplog.messages == [
            f"cannot reach the task store, continuing from memory; LOAD failed: {UNREACHABLE}"
        ]
        caplog.clear()
        await harness.store.close()
        assert not caplog.records

    async def test_the_store_recovers_while_one_of_two_users_is_left(
        self, interrupted: ResilientHarness
    ) -> None:
        await interrupted.store.open()
        await interrupted.store.close()
        interrupted.inner.error = None
        await interrupted.wait_for_recovery()
        assert interrupted.inner.users == 1
        await interrupted.store.close()

    async def test_a_store_can_be_opened_again(self, interrupted: ResilientHarness) -> None:
        await interrupted.store.close()
        interrupted.inner.error = None
        await interrupted.store.open()
        await interrupted.store.save([state_of("b", 1)])
        assert await interrupted.stored("a", "b") == [None, state_of("b", 1)]
        await interrupted.store.close()

    async def test_a_listener_is_removed_when_the_store_is_closed(
        self, interrupted: ResilientHarness
    ) -> None:
        await interrupted.store.close()
        events: list[StoreEvent] = []
        for _ in range(2):
            interrupted.store.listen(events.append)
            await interrupted.store.open()
            await interrupted.store.load(["a"])
            await interrupted.store.close()
        assert [type(event) for event in events] == [StoreDegraded] * 2
        assert [type(event) for event in interrupted.events] == [StoreDegraded]


class TestOptions:
    def test_an_invalid_store_is_refused_by_name(self) -> None:
        with pytest.raises(OptionError, match="Invalid inner "):
            ResilientStore("redis://h")  # type: ignore[arg-type]

    @pytest.mark.parametrize("retry_every", [0, -1, "soon", None])
    def test_an_invalid_pause_is_refused_by_name(self, retry_every: float) -> None:
        with pytest.raises(OptionError, match="Invalid retry_every "):
            ResilientStore(MemoryStore(), retry_every=retry_every)

    def test_it_is_a_store(self) -> None:
        assert isinstance(ResilientStore(MemoryStore()), Store)
