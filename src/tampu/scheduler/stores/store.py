"""Where the scheduler keeps what it knows of its tasks."""

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
from tampu.server.lane import LaneOptions, Pauses
from tampu.wire.task_state import TaskState

Loaded: TypeAlias = TaskState | DecodeError | None
"""What is stored of a task: its state, why it cannot be read, or nothing."""


class Store(ABC):
    """Keeps the states of tasks by their ids; asked for many at a time, never by two calls at once.

    One that cannot be reached raises a `ServerError`, and the scheduler asks again.
    """

    async def open(self) -> None:  # noqa: B027 - most need nothing
        """Get ready. Called by each scheduler that uses the store, and answered by a `close`."""

    async def close(self) -> None:  # noqa: B027 - most need nothing
        """Let go, once the last scheduler that uses it has closed it."""

    def listen(self, tell: Callable[[StoreEvent], None]) -> None:
        """Whom to tell of the store's own troubles."""
        del tell

    @abstractmethod
    async def load(self, task_ids: Sequence[str]) -> list[Loaded]:
        """What is stored of each task."""

    @abstractmethod
    async def save(self, states: Sequence[TaskState]) -> None:
        """Keep these in place of what was there; all of them or, if it fails, any of them."""

    @abstractmethod
    async def delete(self, task_ids: Sequence[str]) -> None:
        """Forget these."""


class MemoryStore(Store):
    """Keeps states while the process lives; who gives one to the next scheduler goes on from it."""

    def __init__(self) -> None:
        self._states: dict[str, TaskState] = {}

    async def load(self, task_ids: Sequence[str]) -> list[Loaded]:
        """What is stored of each task."""
        return [self._states.get(task_id) for task_id in task_ids]

    async def save(self, states: Sequence[TaskState]) -> None:
        """Keep these in place of what was there."""
        kept = self._states
        for state in states:
            kept[state.task_id] = state

    async def delete(self, task_ids: Sequence[str]) -> None:
        """Forget these."""
        for task_id in task_ids:
            self._states.pop(task_id, None)


logger = logging.getLogger(__name__)
T = TypeVar("T")


class StoreRetries:
    """Waits for a store that cannot be reached; told once an outage, and once it is over."""

    def __init__(self, telling: ObserverList) -> None:
        self._telling = telling
        self._pauses = Pauses(LaneOptions(), Random())  # noqa: S311 - spreads clients
        self._hurried = asyncio.Event()
        self._troubled = False

    def hurry(self) -> None:
        """From now on give up at the first failure: the scheduler is to stop."""
        self._hurried.set()

    async def until_answered(
        self, operation: StoreOperation, ask: Callable[[], Awaitable[T]]
    ) -> T | None:
        """What the store answers; None if it is given up. What will not get better is raised."""
        while True:
            try:
                answer = await ask()
            except ServerError as error:
                # A program that ends takes the connection along: that is no trouble with the store.
                ended = self._hurried.is_set() and isinstance(error, Closed)
                if error.verdict is Verdict.GIVE_UP and not ended:
                    raise
                self.failed(operation, error)
                if self._hurried.is_set():
                    logger.warning("a store is given up", extra={"operation": operation.name})
                    return None
            else:
                self.answered()
                return answer
            await self.pause()

    async def pause(self) -> None:
        """Wait for a while, longer each time."""
        try:
            async with asyncio.timeout(self._pauses.next_s()):
                await self._hurried.wait()
        except TimeoutError:
            pass

    def failed(self, operation: StoreOperation, error: ServerError) -> None:
        """It did not answer."""
        if not self._troubled:
            facts = {"operation": operation.name, "problem": str(error)}
            logger.warning("a store cannot be reached, and is asked again", extra=facts)
            self._telling.tell(StoreDegraded(operation=operation, error=str(error)))
        self._troubled = True

    def answered(self) -> None:
        """It did."""
        if self._troubled:
            logger.info("a store is back")
            self._telling.tell(StoreRecovered())
            self._pauses.reset()
        self._troubled = False
