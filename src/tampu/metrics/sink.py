"""Where facts go."""

import logging
from collections.abc import Sequence
from typing import Protocol

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
