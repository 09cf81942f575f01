"""Where a scheduler keeps the states of its tasks, and how it waits for a store."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import TypeAlias, TypeVar

from tampu.errors import Closed, DecodeError, ServerError, Verdict
from tampu.scheduler.events import (
    ObserverList,
    StoreDegraded,
    StoreEvent,
    StoreOperation,
    StoreRecovered,
)
from tampu.util.lifecycle import Shared
from tampu.util.pauses import Pauses
from tampu.wire.task_state import TaskState

logger = logging.getLogger(__name__)
T = TypeVar("T")
Loaded: TypeAlias = TaskState | DecodeError | None
"""The stored state of a task, the reason why it cannot be read, or nothing."""


class Store(ABC):
    """Keeps the states of tasks by their ids.

    Write your own with `load`, `save` and `delete`. Each call has many tasks, and a scheduler makes
    one call at a time. If the store cannot be reached, raise a `ServerError`: the scheduler tries
    again, unless the error's verdict is to give up.
    """

    async def open(self) -> None:  # noqa: B027 - most stores need nothing
        """Prepare for use. Called once by each scheduler, which calls `close` later."""

    async def close(self) -> None:  # noqa: B027 - most stores need nothing
        """Free all resources when the last scheduler has called this."""

    def listen(self, listener: Callable[[StoreEvent], None]) -> None:
        """Call `listener` with outages that the store handles by itself."""
        del listener

    @abstractmethod
    async def load(self, task_ids: Sequence[str]) -> list[Loaded]:
        """The stored state of each task, in order."""

    @abstractmethod
    async def save(self, states: Sequence[TaskState]) -> None:
        """Replace the stored states; if this raises, any of them may have been replaced."""

    @abstractmethod
    async def delete(self, task_ids: Sequence[str]) -> None:
        """Delete the stored states."""


class MemoryStore(Store):
    """Keeps states in memory. Another scheduler that gets the same object continues from them."""

    def __init__(self) -> None:
        self._states: dict[str, TaskState] = {}

    async def load(self, task_ids: Sequence[str]) -> list[Loaded]:
        """The stored state of each task, in order."""
        return [self._states.get(task_id) for task_id in task_ids]

    async def save(self, states: Sequence[TaskState]) -> None:
        """Replace the stored states."""
        stored = self._states
        for state in states:
            stored[state.task_id] = state

    async def delete(self, task_ids: Sequence[str]) -> None:
        """Delete the stored states."""
        for task_id in task_ids:
            self._states.pop(task_id, None)


class CountedStore(Store):
    """A store that its first user opens and its last one closes."""

    def __init__(self) -> None:
        self._shared = Shared(self._open, lambda _: self._close())

    async def open(self) -> None:
        """Count one more user; the first one opens the store."""
        await self._shared.acquire()

    async def close(self) -> None:
        """Count one user less; the last one closes the store."""
        await self._shared.release()

    @abstractmethod
    async def _open(self) -> None: ...

    @abstractmethod
    async def _close(self) -> None: ...


class StoreRetries:
    """Repeats calls of a store that cannot be reached; reports each outage's start and end."""

    def __init__(self, observers: ObserverList) -> None:
        self._observers = observers
        self._pauses = Pauses(0.05, 2.0, spread=Random())  # noqa: S311 - spreads clients
        self._stopping = asyncio.Event()
        self._is_down = False

    def stop(self) -> None:
        """From now on, give up at the first failure: the scheduler stops."""
        self._stopping.set()

    async def ask(self, operation: StoreOperation, call: Callable[[], Awaitable[T]]) -> T | None:
        """The answer of the store, or None if it was given up.

        Raises an error that repeating the call cannot help.
        """
        while True:
            try:
                answer = await call()
            except ServerError as error:
                # At the end of a program the connection may be closed before us: not an error.
                closed = self._stopping.is_set() and isinstance(error, Closed)
                if error.verdict is Verdict.GIVE_UP and not closed:
                    raise
                self.note_failure(operation, error)
                if self._stopping.is_set():
                    facts = {"operation": operation.name, "error": str(error)}
                    text = "gave up the task store because the scheduler stops; %s failed: %s"
                    logger.warning(text, *facts.values(), extra=facts)
                    return None
            else:
                self.note_answer()
                return answer
            await self.pause()

    async def pause(self) -> None:
        """Wait before the next try, longer each time; `stop` ends it."""
        try:
            async with asyncio.timeout(self._pauses.next_s()):
                await self._stopping.wait()
        except TimeoutError:
            pass

    def note_failure(self, operation: StoreOperation, error: ServerError) -> None:
        """Report the start of an outage, if this is the first failure."""
        if not self._is_down:
            self._is_down = True
            facts = {"operation": operation.name, "error": str(error)}
            text = "cannot reach the task store, trying again; %s failed: %s"
            logger.warning(text, *facts.values(), extra=facts)
            self._observers.notify(StoreDegraded(operation=operation, error=str(error)))

    def note_answer(self) -> None:
        """Report the end of an outage, if there was one."""
        if self._is_down:
            self._is_down = False
            logger.info("the task store can be reached again")
            self._observers.notify(StoreRecovered())
            self._pauses.reset()
