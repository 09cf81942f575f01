"""Where the scheduler keeps what it knows of its tasks."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeAlias

from tampu.errors import DecodeError
from tampu.scheduler.events import StoreEvent
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
