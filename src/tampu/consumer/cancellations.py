"""The requests to cancel jobs that a worker knows of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tampu.outcome import Cancelled, Done
from tampu.util.clock import now_ms
from tampu.wire.control import KEPT_MS, CancelRequest
from tampu.wire.flow import group_of, parked_group

if TYPE_CHECKING:
    from tampu.consumer.intake import Delivery
    from tampu.outcome import Outcome

_MANY: Final = 1000


class Cancellations:
    """The requests to cancel jobs that this worker knows of."""

    def __init__(self) -> None:
        self._requests: dict[str, tuple[CancelRequest, int]] = {}  # each with when to forget it

    def __len__(self) -> int:
        return len(self._requests)

    def note(self, request: CancelRequest) -> None:
        """Remember a request for as long as the server does."""
        now = now_ms()
        if len(self._requests) >= _MANY:
            self._requests = {key: it for key, it in self._requests.items() if it[1] > now}
        self._requests[request.job_id] = request, now + KEPT_MS

    def of(self, delivery: Delivery) -> CancelRequest | None:
        """The request to cancel the job of a delivery, or all jobs of its flow, if there is one."""
        group = group_of(delivery.job.id)
        if group is not None and (found := self._requests.get(group)) is not None:
            return found[0]
        return self._find(delivery.job.id, delivery)

    def parks(self, delivery: Delivery) -> CancelRequest | None:
        """The request to take out jobs of its flow that have not started, if there is one."""
        group = group_of(delivery.job.id)
        return None if group is None else self._find(parked_group(group), delivery)

    def _find(self, what: str, delivery: Delivery) -> CancelRequest | None:
        found = self._requests.get(what)
        if found is None or delivery.envelope.created_at_ms > found[0].latest_ms:
            return None  # none, or one for an earlier job with the same id
        return found[0]

    def overrule(self, delivery: Delivery, outcome: Outcome) -> Outcome:
        """The outcome of an attempt, given what was requested: only what is done stays done."""
        if not self._requests or isinstance(outcome, Done) or self.of(delivery) is None:
            return outcome
        return Cancelled()
