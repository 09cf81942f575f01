"""One suite for all stores. Its tests take an open `store` from a fixture."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeAlias

from msgspec.structs import fields, replace

from tampu.scheduler.stores.store import Store
from tampu.wire.task_state import TaskState, Waiting

ODD_IDS = ["a b:ü*", "'; DROP TABLE tasks; --", "%", "日本", "[x]?", "A", "a", "x" * 256]

FULL = TaskState(
    task_id="full",
    fingerprint="every:5000",
    next_ms=1_800_000_000_000,
    anchor_ms=1_700_000_000_000,
    fired=2**40,
    ran=5,
    failed=2,
    skipped=3,
    queued=Waiting(1_799_999_995_000, catch_up=True),
    asked=Waiting(1_799_999_996_000, manual=True),
    stands_in_ms=1_799_999_990_000,
    paused_ms=1_799_999_991_000,
    resumed_ms=-1,
    last_run_ms=1_799_999_993_000,
    last_success_ms=1_799_999_994_001,
    last_error="KeyError: 'ü'\n\0",
)


OpenStore: TypeAlias = Callable[[Store], Awaitable[None]]


@asynccontextmanager
async def store_opener() -> AsyncIterator[OpenStore]:
    """A function that opens a store; all of them are closed at the end."""
    async with AsyncExitStack() as stack:

        async def open_store(store: Store) -> None:
            await store.open()
            stack.push_async_callback(store.close)

        yield open_store


def state_of(task_id: str, fired: int = 1) -> TaskState:
    return TaskState(task_id=task_id, fired=fired, next_ms=1000 * fired)


class StoreSuite:
    async def test_every_field_is_restored(self, store: Store) -> None:
        unset = [f.name for f in fields(FULL) if getattr(FULL, f.name) == f.default]
        assert not unset, "the test would not notice that these are lost"
        await store.save([FULL])
        assert await store.load([FULL.task_id]) == [FULL]

    async def test_an_unknown_task_has_no_state(self, store: Store) -> None:
        assert await store.load(["nobody"]) == [None]

    async def test_states_are_returned_in_the_requested_order(self, store: Store) -> None:
        a, b = state_of("a", 1), state_of("b", 2)
        await store.save([a, b])
        assert await store.load(["b", "nobody", "a", "b"]) == [b, None, a, b]

    async def test_the_last_save_wins(self, store: Store) -> None:
        await store.save([FULL, state_of("a", 1)])
        later = TaskState(task_id=FULL.task_id)
        await store.save([state_of("a", 2), later, state_of("a", 3)])
        assert await store.load([FULL.task_id, "a"]) == [later, state_of("a", 3)]

    async def test_only_the_given_states_are_deleted(self, store: Store) -> None:
        await store.save([state_of("a"), state_of("b"), state_of("ab")])
        await store.delete(["a", "nobody", "ab"])
        assert await store.load(["a", "b", "ab"]) == [None, state_of("b"), None]
        await store.save([state_of("a", 2)])
        assert await store.load(["a"]) == [state_of("a", 2)]

    async def test_unusual_ids_are_kept_apart(self, store: Store) -> None:
        states = [replace(FULL, task_id=each, ran=n) for n, each in enumerate(ODD_IDS)]
        await store.save(states)
        assert await store.load(ODD_IDS) == states
        await store.delete(ODD_IDS[:1])
        assert await store.load(ODD_IDS) == [None, *states[1:]]

    async def test_thousands_of_states_in_one_call(self, store: Store) -> None:
        states = [state_of(f"task-{n}", n) for n in range(2500)]
        ids = [state.task_id for state in states]
        await store.save(states)
        assert await store.load(ids) == states
        await store.delete(ids[:-1])
        assert await store.load(ids) == [None] * 2499 + states[-1:]

    async def test_calls_without_tasks(self, store: Store) -> None:
        await store.save([])
        await store.delete([])
        assert await store.load([]) == []

    async def test_a_store_stays_open_until_its_last_user_closes_it(self, store: Store) -> None:
        await store.open()
        await store.close()
        await store.save([FULL])
        assert await store.load([FULL.task_id]) == [FULL]
