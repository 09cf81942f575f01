"""What the scheduler has to say of a task when it is done with it."""

from msgspec import Struct

from tampu.scheduler.events import SkipReason, StopReason
from tampu.scheduler.run import RunRecord
from tampu.wire.task_state import TaskState


class Report(Struct, frozen=True, kw_only=True):
    """How a task stands, and its last runs, the oldest first."""

    task_id: str
    state: TaskState
    history: tuple[RunRecord, ...] = ()
    last_skip_reason: SkipReason | None = None
    stopped: StopReason | None = None  # None while the scheduler still has it
