"""Where facts go."""

import logging
from collections import deque
from collections.abc import Sequence
from typing import Protocol, TypeVar

from tampu.metrics.facts import Fact

logger = logging.getLogger(__name__)


class MetricsSink(Protocol):
    """Takes facts in batches, in the order in which they came about; on the worker's loop."""

    def record(self, facts: Sequence[Fact]) -> None:
        """Count them; quickly, and without waiting for anything."""


class Teller:
    """Tells a sink; a sink that fails is logged the first time and never fails a job."""

    def __init__(self, sink: MetricsSink | None) -> None:
        self.sink = sink
        self._failed = False

    def tell(self, *facts: Fact) -> None:
        """Hand facts on, if there is a sink."""
        if self.sink is None:
            return
        try:
            self.sink.record(facts)
        except Exception:  # border: a sink is somebody else's code
            if not self._failed:
                logger.warning("metrics sink failed", exc_info=True)
            self._failed = True


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
