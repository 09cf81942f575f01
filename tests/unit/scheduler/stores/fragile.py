"""A resilient store over a store that fails when the test says so."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from tampu.errors import DecodeError, ServerUnreachable, TampuError
from tampu.scheduler.events import StoreEvent, StoreRecovered
from tampu.scheduler.stores.resilient import ResilientStore
from tampu.scheduler.stores.store import Loaded, MemoryStore
from tampu.wire.task_state import TaskState
from tests.waiting import wait_until

UNREACHABLE = ServerUnreachable("redis://h", "connection refused")
UNREADABLE = DecodeError("task state", "it is not JSON")


class FragileStore(MemoryStore):
    """A store in memory that fails with `error`, and that holds each call at a `gate`."""

    def __init__(self) -> None:
        super().__init__()
        self.error: TampuError | None = None
        self.failing: set[str] = set()  # the calls that fail with `error`; empty: all
        self.unreadable: set[str] = set()
        self.gate: asyncio.Event | None = None
        self.slow = False
        self.calls: list[str] = []
        self.users = 0

    async def open(self) -> None:
        self.users += 1

    async def close(self) -> None:
        self.users -= 1

    async def load(self, task_ids: Sequence[str]) -> list[Loaded]:
        await self._enter("load")
        found = await super().load(task_ids)
        pairs = zip(task_ids, found, strict=True)
        return [UNREADABLE if each in self.unreadable else state for each, state in pairs]

    async def save(self, states: Sequence[TaskState]) -> None:
        await self._enter("save")
        await super().save(states)

    async def delete(self, task_ids: Sequence[str]) -> None:
        await self._enter("delete")
        await super().delete(task_ids)

    async def _enter(self, call: str) -> None:
        self.calls.append(call)
        if self.slow:
            await asyncio.sleep(0.001)
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None and (not self.failing or call in self.failing):
            raise self.error


class RecordingStore(MemoryStore):
    """A store in memory that keeps every save, and that fails with the errors of the test."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: dict[str, TampuError] = {}
        self.unreadable = False
        self.failures = 0
        self.saved: list[list[TaskState]] = []
        self.users = 0

    async def open(self) -> None:
        self._enter("open")
        self.users += 1

    async def close(self) -> None:
        self.users -= 1

    async def load(self, task_ids: Sequence[str]) -> list[Loaded]:
        self._enter("load")
        if self.unreadable:
            return [UNREADABLE for _ in task_ids]
        return await super().load(task_ids)

    async def save(self, states: Sequence[TaskState]) -> None:
        self._enter("save")
        self.saved.append(list(states))
        await super().save(states)

    async def delete(self, task_ids: Sequence[str]) -> None:
        self._enter("delete")
        await super().delete(task_ids)

    async def one(self) -> TaskState:
        """The stored state of the task "t"."""
        [found] = await MemoryStore.load(self, ["t"])
        assert isinstance(found, TaskState)
        return found

    def _enter(self, call: str) -> None:
        if call in self.errors:
            self.failures += 1
            raise self.errors[call]


class ResilientHarness:
    """A resilient store, its inner store, and its events."""

    def __init__(self) -> None:
        self.inner = FragileStore()
        self.store = ResilientStore(self.inner, retry_every="1ms")
        self.events: list[StoreEvent] = []
        self.store.listen(self.events.append)

    async def stored(self, *task_ids: str) -> list[Loaded]:
        """The states in the inner store, even while it fails."""
        return await MemoryStore.load(self.inner, task_ids)

    async def wait_for_recovery(self) -> StoreRecovered:
        await wait_until(self._has_recovered, within=60, sentence="the store has recovered")
        event = self.events[-1]
        assert isinstance(event, StoreRecovered)
        return event

    def _has_recovered(self) -> bool:
        return bool(self.events) and isinstance(self.events[-1], StoreRecovered)

    async def next_call(self) -> str:
        """Let the held call pass, if there is one; return the next call that is held."""
        count, before = len(self.inner.calls), self.inner.gate
        self.inner.gate = asyncio.Event()
        if before is not None:
            before.set()
        await wait_until(
            lambda: len(self.inner.calls) > count, within=60, sentence="a call is made"
        )
        return self.inner.calls[-1]

    def open_gate(self) -> None:
        gate, self.inner.gate = self.inner.gate, None
        if gate is not None:
            gate.set()

    async def wait_for_retry(self) -> None:
        count = len(self.inner.calls)
        await wait_until(
            lambda: len(self.inner.calls) > count + 2, within=60, sentence="it tries again"
        )


@asynccontextmanager
async def open_harness() -> AsyncIterator[ResilientHarness]:
    """An open harness; nothing is left over when it is closed."""
    made = ResilientHarness()
    await made.store.open()
    yield made
    made.open_gate()
    await made.store.close()
    assert made.inner.users == 0
    assert not count_recoveries()


def count_recoveries() -> int:
    """How many tasks try to recover a store."""
    return sum(task.get_name() == "tampu-store-recovery" for task in asyncio.all_tasks())
