"""A sink that keeps what it is told, for tests and small programs."""

from collections import deque
from collections.abc import Sequence
from typing import TypeVar

from tampu.metrics.facts import Fact

F = TypeVar("F", bound=Fact)


class MemorySink:
    """The last facts, oldest first; `most` bounds them."""

    def __init__(self, most: int = 100_000) -> None:
        self._facts: deque[Fact] = deque(maxlen=most)

    def record(self, facts: Sequence[Fact]) -> None:
        """Keep them."""
        self._facts.extend(facts)

    def of(self, kind: type[F]) -> list[F]:
        """The facts of one kind."""
        return [fact for fact in self._facts if isinstance(fact, kind)]
