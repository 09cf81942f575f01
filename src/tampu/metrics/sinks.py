"""Sinks: where facts go."""

import logging
from collections import deque
from collections.abc import Sequence
from typing import Protocol, TypeVar

from tampu.errors import OptionError
from tampu.metrics.facts import Fact

logger = logging.getLogger(__name__)
F = TypeVar("F", bound=Fact)


class MetricsSink(Protocol):
    """Takes facts in batches, in the order in which they happened, on the worker's loop."""

    def record(self, facts: Sequence[Fact]) -> None:
        """Count the facts. Must be quick and must not wait."""


def check_sink(option: str, given: object) -> None:
    """Raise `OptionError` for something that is neither None nor a sink."""
    if given is not None and not callable(getattr(given, "record", None)):
        raise OptionError(option, given, "expected a sink: an object with record(facts)")


class SafeSink:
    """Passes facts to a sink, if there is one. A sink that raises never fails a job."""

    def __init__(self, sink: MetricsSink | None) -> None:
        self._sink = sink
        self._failed = False
        self.is_set = sink is not None

    def record(self, facts: Sequence[Fact]) -> None:
        """Pass the facts on; the first error of a sink is logged."""
        if self._sink is None:
            return
        try:
            self._sink.record(facts)
        except Exception:  # border: a sink is the user's code
            if not self._failed:
                logger.warning("metrics sink %r failed", self._sink, exc_info=True)
            self._failed = True


class MemorySink:
    """Keeps the last facts, at most `most` of them, oldest first."""

    def __init__(self, most: int = 100_000) -> None:
        self._facts: deque[Fact] = deque(maxlen=most)

    def record(self, facts: Sequence[Fact]) -> None:
        """Keep the facts."""
        self._facts.extend(facts)

    def of(self, kind: type[F]) -> list[F]:
        """The facts of one kind."""
        return [fact for fact in self._facts if isinstance(fact, kind)]
