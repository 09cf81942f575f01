"""tampu: a job queue and scheduler on Redis or Valkey Streams with MessagePack."""

from importlib import import_module
from typing import TYPE_CHECKING, Final

from tampu._version import __version__
from tampu.errors import (
    AccessDenied,
    ArgumentError,
    Closed,
    CommandRefused,
    ConnectionLost,
    DecodeError,
    EmbeddedFailed,
    EncodeError,
    JobCancelled,
    JobExists,
    JobFailed,
    MissingExtra,
    NoStream,
    NotDurable,
    OptionError,
    OutboxFailed,
    QueueFull,
    ResultTimeout,
    ServerBusy,
    ServerError,
    ServerTooOld,
    ServerUnreachable,
    StoreFailed,
    StreamError,
    StreamGap,
    StreamRestarted,
    TampuError,
    TlsFailed,
    UnknownLimit,
    Verdict,
    WrongContext,
)

if TYPE_CHECKING:
    from tampu.admin.dead import DeadLetter, DeadLetters
    from tampu.admin.flow_info import FlowInfo, RunState
    from tampu.admin.listing import JobListing
    from tampu.admin.queues import Counts
    from tampu.app import App
    from tampu.app_worker import AppWorker
    from tampu.backoff import Backoff
    from tampu.consumer.batch import BatchJob, JobBatch
    from tampu.consumer.handler import Batch, Handler
    from tampu.events import QueueEvents
    from tampu.flows.batch import FlowBatch, SyncFlowBatch
    from tampu.flows.flow import Flow
    from tampu.flows.nodes import Node, NodeFailed, NodeOutcome, Nodes, Ok, Results
    from tampu.flows.run import FlowProgress, FlowRun, SyncFlowRun
    from tampu.job import (
        CancelState,
        Job,
        JobEvent,
        JobInfo,
        JobState,
        NewJob,
        current_job,
    )
    from tampu.limits.model import (
        Breaker,
        Concurrency,
        Debounce,
        Limit,
        Priority,
        Rate,
        RateLimited,
    )
    from tampu.limits.reasons import WaitsFor, Why
    from tampu.metrics.alerts import Alert
    from tampu.outcome import Bury, Retry, Snooze, Unrecoverable
    from tampu.producer.sync_job import SyncJob
    from tampu.queue import Queue
    from tampu.schedules.admin import Schedules
    from tampu.schedules.model import Schedule, ScheduleCounts, ScheduleSettings
    from tampu.services.notify import NotifyCommand, NotifyJob, NotifyWebhook
    from tampu.standalone import Promoter
    from tampu.sync import SyncDeadLetters, SyncJobListing, SyncQueue, SyncSchedules
    from tampu.tasks.calls import Call, Chain, chain
    from tampu.tasks.router import Router
    from tampu.tasks.signature import INJECTED, Depends
    from tampu.tasks.stream_task import StreamJob, StreamTask, SyncStreamJob
    from tampu.tasks.task import Task
    from tampu.timing import At, Cron, Every, Missed, Overlap, TimeWindow
    from tampu.unique import Unique
    from tampu.wire.alerts import AlertNotice
    from tampu.wire.dead import BuryReason, Failure
    from tampu.wire.event import EventKind
    from tampu.wire.output import Chunk, Restarted
    from tampu.worker import Worker

__all__ = [
    "INJECTED",
    "AccessDenied",
    "Alert",
    "AlertNotice",
    "App",
    "AppWorker",
    "ArgumentError",
    "At",
    "Backoff",
    "Batch",
    "BatchJob",
    "Breaker",
    "Bury",
    "BuryReason",
    "Call",
    "CancelState",
    "Chain",
    "Chunk",
    "Closed",
    "CommandRefused",
    "Concurrency",
    "ConnectionLost",
    "Counts",
    "Cron",
    "DeadLetter",
    "DeadLetters",
    "Debounce",
    "DecodeError",
    "Depends",
    "EmbeddedFailed",
    "EncodeError",
    "EventKind",
    "Every",
    "Failure",
    "Flow",
    "FlowBatch",
    "FlowInfo",
    "FlowProgress",
    "FlowRun",
    "Handler",
    "Job",
    "JobBatch",
    "JobCancelled",
    "JobEvent",
    "JobExists",
    "JobFailed",
    "JobInfo",
    "JobListing",
    "JobState",
    "Limit",
    "Missed",
    "MissingExtra",
    "NewJob",
    "NoStream",
    "Node",
    "NodeFailed",
    "NodeOutcome",
    "Nodes",
    "NotDurable",
    "NotifyCommand",
    "NotifyJob",
    "NotifyWebhook",
    "Ok",
    "OptionError",
    "OutboxFailed",
    "Overlap",
    "Priority",
    "Promoter",
    "Queue",
    "QueueEvents",
    "QueueFull",
    "Rate",
    "RateLimited",
    "Restarted",
    "ResultTimeout",
    "Results",
    "Retry",
    "Router",
    "RunState",
    "Schedule",
    "ScheduleCounts",
    "ScheduleSettings",
    "Schedules",
    "ServerBusy",
    "ServerError",
    "ServerTooOld",
    "ServerUnreachable",
    "Snooze",
    "StoreFailed",
    "StreamError",
    "StreamGap",
    "StreamJob",
    "StreamRestarted",
    "StreamTask",
    "SyncDeadLetters",
    "SyncFlowBatch",
    "SyncFlowRun",
    "SyncJob",
    "SyncJobListing",
    "SyncQueue",
    "SyncSchedules",
    "SyncStreamJob",
    "TampuError",
    "Task",
    "TimeWindow",
    "TlsFailed",
    "Unique",
    "UnknownLimit",
    "Unrecoverable",
    "Verdict",
    "WaitsFor",
    "Why",
    "Worker",
    "WrongContext",
    "__version__",
    "chain",
    "current_job",
]

# Each of the others is imported when it is first asked for (docs/decisions/0023): the command line
# shows its help without redis-py, and who needs a part pays for that part.
_HOMES: Final = {
    "tampu.admin.queues": "Counts",
    "tampu.admin.flow_info": "FlowInfo RunState",
    "tampu.admin.dead": "DeadLetter DeadLetters",
    "tampu.admin.listing": "JobListing",
    "tampu.app": "App",
    "tampu.app_worker": "AppWorker",
    "tampu.backoff": "Backoff",
    "tampu.consumer.batch": "BatchJob JobBatch",
    "tampu.consumer.handler": "Batch Handler",
    "tampu.events": "QueueEvents",
    "tampu.flows.batch": "FlowBatch SyncFlowBatch",
    "tampu.flows.flow": "Flow",
    "tampu.flows.nodes": "Node NodeFailed NodeOutcome Nodes Ok Results",
    "tampu.flows.run": "FlowProgress FlowRun SyncFlowRun",
    "tampu.job": "CancelState Job JobEvent JobInfo JobState NewJob current_job",
    "tampu.limits.model": "Breaker Concurrency Debounce Limit Priority Rate RateLimited",
    "tampu.limits.reasons": "WaitsFor Why",
    "tampu.metrics.alerts": "Alert",
    "tampu.outcome": "Bury Retry Snooze Unrecoverable",
    "tampu.services.notify": "NotifyCommand NotifyJob NotifyWebhook",
    "tampu.standalone": "Promoter",
    "tampu.queue": "Queue",
    "tampu.schedules.admin": "Schedules",
    "tampu.schedules.model": "Schedule ScheduleCounts ScheduleSettings",
    "tampu.producer.sync_job": "SyncJob",
    "tampu.sync": "SyncDeadLetters SyncJobListing SyncQueue SyncSchedules",
    "tampu.tasks.signature": "INJECTED Depends",
    "tampu.tasks.router": "Router",
    "tampu.tasks.stream_task": "StreamJob StreamTask SyncStreamJob",
    "tampu.tasks.calls": "Call Chain chain",
    "tampu.tasks.task": "Task",
    "tampu.timing": "At Cron Every Missed Overlap TimeWindow",
    "tampu.unique": "Unique",
    "tampu.wire.alerts": "AlertNotice",
    "tampu.wire.dead": "BuryReason Failure",
    "tampu.wire.event": "EventKind",
    "tampu.wire.output": "Chunk Restarted",
    "tampu.worker": "Worker",
}

if not TYPE_CHECKING:  # to a type checker any name would be one

    def __getattr__(name: str) -> object:
        """One of the public names, from the module that it lives in."""
        for home, names in _HOMES.items():
            if name in names.split():
                found = globals()[name] = getattr(import_module(home), name)
                return found
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
