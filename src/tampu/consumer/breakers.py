"""Tells the breakers of tasks how attempts ended."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from tampu.outcome import Done, Failed, UnrecoverableFailure
from tampu.server.scripts.gate import NotedOutcome, note_outcomes
from tampu.wire.lines import breakers_of, parse_breaker

if TYPE_CHECKING:
    from tampu.consumer.intake import Delivery
    from tampu.outcome import Outcome
    from tampu.server.lane import Lane
    from tampu.server.scripts.gate import BreakerChange
    from tampu.wire.keys import QueueKeys

logger = logging.getLogger(__name__)
_COUNTED: Final = (Done, Failed, UnrecoverableFailure)
_MOST_A_CALL: Final = 1_000


class Breakers:
    """Tells the breakers of a queue's tasks how attempts ended, and logs what they do.

    They are told before the entries are settled: what is settled lets the next job through, and a
    job that was tried decides whether there is a next one.
    """

    def __init__(self, lane: Lane, keys: QueueKeys) -> None:
        self._lane = lane
        self._keys = keys
        self._noted: list[NotedOutcome] = []

    def note(self, delivery: Delivery, outcome: Outcome) -> None:
        """An attempt has ended so. What neither succeeded nor failed does not count."""
        found = breakers_of(delivery.job.extras.line)
        if found and isinstance(outcome, _COUNTED):
            failed = not isinstance(outcome, Done)
            self._noted += [NotedOutcome(each, delivery.entry_id, failed) for each in found]

    async def tell(self) -> None:
        """Tell what was noted, in its order. If the call fails, that is not counted."""
        if not self._noted:
            return
        noted, self._noted = self._noted, []
        for start in range(0, len(noted), _MOST_A_CALL):
            part = noted[start : start + _MOST_A_CALL]
            for change in await note_outcomes(self._lane, self._keys, part):
                self._log(change)

    def _log(self, change: BreakerChange) -> None:
        breaker = parse_breaker(change.breaker)
        if breaker is None:
            return
        facts = {"job_name": breaker.task, "queue": self._keys.name}
        if not change.stops:
            logger.warning("%s works again: its jobs start again", breaker.task, extra=facts)
            return
        cooldown_s = breaker.cooldown_ms / 1000
        logger.warning(
            "%d of the last %d attempts of %s failed: none of its jobs starts for %g s",
            change.failures,
            breaker.of,
            breaker.task,
            cooldown_s,
            extra=facts | {"failures": change.failures, "of": breaker.of, "cooldown_s": cooldown_s},
        )
