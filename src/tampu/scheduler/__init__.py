"""A scheduler in a process: runs functions by rules of time. No server is needed."""

from tampu.scheduler.bridge import AddJob
from tampu.scheduler.clock import Clock, ManualClock
from tampu.scheduler.coordinated_store import CoordinatedStore
from tampu.scheduler.events import (
    ClockJumped,
    Event,
    LeaseAcquired,
    LeaseContended,
    LeaseLost,
    LeaseReleased,
    LeaseReleaseFailed,
    LeaseRenewed,
    LeaseRenewFailed,
    RunAsked,
    RunCompleted,
    RunQueued,
    RunSkipped,
    RunStarted,
    RunStatus,
    ScheduleChanged,
    SkipReason,
    Source,
    StateDeleted,
    StateLoaded,
    StateRepaired,
    StopReason,
    StoreDegraded,
    StoreOperation,
    StoreRecovered,
    TaskPaused,
    TaskResumed,
    TaskStopped,
)
from tampu.scheduler.guard import Guard, Lease, Refusal, Scope, Slot
from tampu.scheduler.guarded import Held, Watch, guarded
from tampu.scheduler.handle import TaskHandle
from tampu.scheduler.memory_store import MemoryStore
from tampu.scheduler.observer import LogObserver, Observer
from tampu.scheduler.redis_guard import RedisGuard
from tampu.scheduler.redis_store import RedisStore
from tampu.scheduler.report import Report
from tampu.scheduler.resilient_store import ResilientStore
from tampu.scheduler.run import RunRecord, TaskRun
from tampu.scheduler.scheduler import Scheduler
from tampu.scheduler.sqlite_store import SqliteStore
from tampu.scheduler.store import Loaded, Store
from tampu.scheduler.task import ScheduledTask
from tampu.wire.task_state import TaskState

__all__ = [
    "AddJob",
    "Clock",
    "ClockJumped",
    "CoordinatedStore",
    "Event",
    "Guard",
    "Held",
    "Lease",
    "LeaseAcquired",
    "LeaseContended",
    "LeaseLost",
    "LeaseReleaseFailed",
    "LeaseReleased",
    "LeaseRenewFailed",
    "LeaseRenewed",
    "Loaded",
    "LogObserver",
    "ManualClock",
    "MemoryStore",
    "Observer",
    "RedisGuard",
    "RedisStore",
    "Refusal",
    "Report",
    "ResilientStore",
    "RunAsked",
    "RunCompleted",
    "RunQueued",
    "RunRecord",
    "RunSkipped",
    "RunStarted",
    "RunStatus",
    "ScheduleChanged",
    "ScheduledTask",
    "Scheduler",
    "Scope",
    "SkipReason",
    "Slot",
    "Source",
    "SqliteStore",
    "StateDeleted",
    "StateLoaded",
    "StateRepaired",
    "StopReason",
    "Store",
    "StoreDegraded",
    "StoreOperation",
    "StoreRecovered",
    "TaskHandle",
    "TaskPaused",
    "TaskResumed",
    "TaskRun",
    "TaskState",
    "TaskStopped",
    "Watch",
    "guarded",
]
