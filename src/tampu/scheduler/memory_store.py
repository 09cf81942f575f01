"""A store in memory."""

from collections.abc import Sequence

from tampu.scheduler.store import Loaded, Store
from tampu.wire.task_state import TaskState


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
