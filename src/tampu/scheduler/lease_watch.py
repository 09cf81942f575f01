"""Tells observers what becomes of the lease of one run."""

from typing import Any

from tampu.scheduler.events import (
    LeaseAcquired,
    LeaseContended,
    LeaseEvent,
    LeaseLost,
    LeaseReleased,
    LeaseReleaseFailed,
    LeaseRenewed,
    LeaseRenewFailed,
)
from tampu.scheduler.guard import Slot
from tampu.scheduler.observer import Telling
from tampu.scheduler.run import TaskRun


class LeaseWatch:
    """A `Watch` that makes events of what it is told."""

    def __init__(self, telling: Telling, slot: Slot, run: TaskRun[Any], *, fired: int) -> None:
        self._telling = telling
        self._facts: dict[str, Any] = {
            "task_id": slot.task_id,
            "resource": slot.resource,
            "at_ms": slot.at_ms,
            "catch_up": run.catch_up,
            "manual": run.manual,
            "fired": fired,
        }

    def acquired(self) -> None:
        """It is ours, and the run begins."""
        self._tell(LeaseAcquired)

    def contended(self) -> None:
        """It is not to be had, and there will be no run."""
        self._tell(LeaseContended)

    def renewed(self, renewals: int) -> None:
        """It stays ours."""
        self._tell(LeaseRenewed, renewals=renewals)

    def renew_failed(self, renewals: int, failures: int, error: str) -> None:
        """The guard could not be asked."""
        self._tell(LeaseRenewFailed, renewals=renewals, failures=failures, error=error)

    def lost(self) -> None:
        """It is not ours any more."""
        self._tell(LeaseLost)

    def released(self) -> None:
        """It was given back."""
        self._tell(LeaseReleased)

    def release_failed(self, error: str) -> None:
        """The guard could not be told."""
        self._tell(LeaseReleaseFailed, error=error)

    def _tell(self, kind: type[LeaseEvent], **more: Any) -> None:  # noqa: ANN401 - its fields
        if self._telling.anybody:
            self._telling.tell(kind(**self._facts, **more))
