"""What a task's function gets, and what is told of a run afterwards."""

from collections.abc import Awaitable, Callable
from datetime import datetime, tzinfo
from typing import Generic, TypeAlias, TypeVar

from msgspec import Struct

from tampu.clock import instant
from tampu.scheduler.events import RunStatus

D = TypeVar("D")


class TaskRun(Struct, Generic[D], kw_only=True):
    """One run of a task, as its function sees it.

    A function in a thread cannot be interrupted: it may look at `cancelled` and return.
    """

    task_id: str
    at_ms: int
    deps: D
    zone: tzinfo  # the scheduler's
    catch_up: bool = False  # late, or in place of others that were missed
    manual: bool = False  # by `trigger_now`
    replayed: bool = False  # another scheduler began it before and did not finish
    cancelled: bool = False
    started_ms: int = 0

    @property
    def scheduled_at(self) -> datetime:
        """The instant it was scheduled for, in the scheduler's zone."""
        return instant(self.at_ms).astimezone(self.zone)


Function: TypeAlias = Callable[[TaskRun[D]], Awaitable[object]] | Callable[[TaskRun[D]], object]


class RunRecord(Struct, frozen=True, gc=False):
    """One run that has ended."""

    at_ms: int
    started_ms: int
    finished_ms: int
    status: RunStatus
    error: str | None = None
    catch_up: bool = False
    manual: bool = False

    @property
    def scheduled_at(self) -> datetime:
        """The instant it was scheduled for."""
        return instant(self.at_ms)

    @property
    def started_at(self) -> datetime:
        """When its function was called."""
        return instant(self.started_ms)

    @property
    def finished_at(self) -> datetime:
        """When its function was done."""
        return instant(self.finished_ms)
