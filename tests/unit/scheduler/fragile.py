"""A resilient store over one that is away when told so."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from tampu.errors import DecodeError, ServerUnreachable, TampuError
from tampu.scheduler.events import StoreEvent, StoreRecovered
from tampu.scheduler.stores.resilient import ResilientStore
from tampu.scheduler.stores.store import Loaded, MemoryStore
from tampu.wire.task_state import TaskState
from tests.waiting import wait_until

AWAY = ServerUnreachable("redis://h", "nobody is there")
UNREADABLE = DecodeError("task state", "it is not JSON")


class Fragile(MemoryStore):
    """A store in memory that fails with `trouble`, and that holds each call back at a `gate`."""

    def __init__(self) -> None:
        super().__init__()
        self.trouble: TampuError | None = None
        self.refused: set[str] = set()  # calls that fail, of those that would
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
        await self._pass("load")
        found = await super().load(task_ids)
        pairs = zip(task_ids, found, strict=True)
        return [UNREADABLE if each in self.unreadable else state for each, state in pairs]

    async def save(self, states: Sequence[TaskState]) -> None:
        await self._pass("save")
        await super().save(states)

    async def delete(self, task_ids: Sequence[str]) -> None:
        await self._pass("delete")
        await super().delete(task_ids)

    async def _pass(self, call: str) -> None:
        self.calls.append(call)
        if self.slow:
            await asyncio.sleep(0.001)
        if self.gate is not None:
            await self.gate.wait()
        if self.trouble is not None and (not self.refused or call in self.refused):
            raise self.trouble


class House:
    """A resilient store, what is below it, and what it tells."""

    def __init__(self) -> None:
        self.inner = Fragile()
        self.store = ResilientStore(self.inner, retry_every="1ms")
        self.events: list[StoreEvent] = []
        self.store.listen(self.events.append)

    async def stored(self, *task_ids: str) -> list[Loaded]:
        """What the inner store holds, whatever is wrong with it."""
        return await MemoryStore.load(self.inner, task_ids)

    async def until_back(self) -> StoreRecovered:
        await wait_until(self._is_back, within=10, sentence="the store is back")
        event = self.events[-1]
        assert isinstance(event, StoreRecovered)
        return event

    def _is_back(self) -> bool:
        return bool(self.events) and isinstance(self.events[-1], StoreRecovered)

    async def next_call(self) -> str:
        """Let the call before the gate pass, if there is one; the next that stands there."""
        came, before = len(self.inner.calls), self.inner.gate
        self.inner.gate = asyncio.Event()
        if before is not None:
            before.set()
        await wait_until(lambda: len(self.inner.calls) > came, within=10, sentence="a call comes")
        return self.inner.calls[-1]

    def let_all_pass(self) -> None:
        gate, self.inner.gate = self.inner.gate, None
        if gate is not None:
            gate.set()

    async def until_tried_again(self) -> None:
        tried = len(self.inner.calls)
        await wait_until(
            lambda: len(self.inner.calls) > tried + 2, within=10, sentence="it tries again"
        )


@asynccontextmanager
async def housed() -> AsyncIterator[House]:
    """Open, and closed without anything left over."""
    made = House()
    await made.store.open()
    yield made
    made.let_all_pass()
    await made.store.close()
    assert made.inner.users == 0
    assert not returning()


def returning() -> int:
    """How many tasks try to come back."""
    return sum(task.get_name() == "tampu-store-return" for task in asyncio.all_tasks())
