"""How many jobs a process has run."""

from collections.abc import Callable, Sequence

from tampu.metrics.facts import Fact, JobEnded
from tampu.metrics.sinks import MetricsSink


class Tally:
    """A sink that counts runs, says when they are enough, and hands all on to the user's own."""

    def __init__(
        self, behind: MetricsSink | None, *, most: int | None, enough: Callable[[], None]
    ) -> None:
        self._behind, self._most, self._enough = behind, most, enough
        self._runs = 0

    def record(self, facts: Sequence[Fact]) -> None:
        """Count them."""
        self._runs += sum(isinstance(fact, JobEnded) for fact in facts)
        if self._most is not None and self._runs >= self._most:
            self._enough()
        if self._behind is not None:
            self._behind.record(facts)
