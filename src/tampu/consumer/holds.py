"""Tasks and keys that are paused: a worker gives their jobs back, which wait in their lines."""

from __future__ import annotations

from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any

from tampu.wire.lines import escape

if TYPE_CHECKING:
    from tampu.job import Job


class Holds:
    """What is paused, as the gate names it, and until when by our own clock."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def __bool__(self) -> bool:
        return bool(self._until)

    def add(self, what: str, left_ms: int | None) -> None:
        """Hold jobs for that long; None: until `remove`."""
        self._until[what] = inf if left_ms is None else monotonic() + left_ms / 1000

    def remove(self, what: str) -> None:
        """Hold them no longer."""
        self._until.pop(what, None)

    def clear(self) -> None:
        """Hold nothing."""
        self._until.clear()

    def covers(self, job: Job[Any]) -> bool:
        """Whether a job is held."""
        name, key = escape(job.name), job.key
        names = [name] if key is None else [name, f"/{escape(key)}", f"{name}/{escape(key)}"]
        return any(self._is_held(each) for each in names)

    def _is_held(self, what: str) -> bool:
        until = self._until.get(what)
        if until is None:
            return False
        if until > monotonic():
            return True
        del self._until[what]
        return False
