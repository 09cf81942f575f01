"""tampu: a job queue and scheduler on Redis or Valkey Streams with MessagePack."""

from tampu._version import __version__
from tampu.admin.counts import Counts
from tampu.admin.dead import DeadJob, DeadLetters
from tampu.app import App
from tampu.app_worker import AppWorker
from tampu.backoff import Backoff
from tampu.consumer.handler import Handler
from tampu.errors import (
    AccessDenied,
    ArgumentError,
    Closed,
    CommandRefused,
    ConnectionLost,
    DecodeError,
    EmbeddedFailed,
    EncodeError,
    JobFailed,
    MissingExtra,
    NotDurable,
    OptionError,
    OutOfPlace,
    QueueFull,
    ResultTimeout,
    ServerBusy,
    ServerError,
    ServerTooOld,
    ServerUnreachable,
    TampuError,
    TlsFailed,
    Verdict,
)
from tampu.events import JobEvent, QueueEvents
from tampu.job import Job, NewJob, current_job
from tampu.outcome import Bury, Retry, Snooze, Unrecoverable
from tampu.promoter import Promoter
from tampu.queue import Queue
from tampu.schedule import Schedule, ScheduleCounts, ScheduleSettings
from tampu.sync import SyncDeadLetters, SyncJob, SyncQueue
from tampu.tasks.marks import INJECTED, Depends
from tampu.tasks.router import Router
from tampu.tasks.task import Call, Task
from tampu.timing import At, Cron, Every, Missed, Overlap, TimeWindow
from tampu.wire.dead import BuryReason, Failure
from tampu.wire.event import EventKind
from tampu.worker import Worker

__all__ = [
    "INJECTED",
    "AccessDenied",
    "App",
    "AppWorker",
    "ArgumentError",
    "At",
    "Backoff",
    "Bury",
    "BuryReason",
    "Call",
    "Closed",
    "CommandRefused",
    "ConnectionLost",
    "Counts",
    "Cron",
    "DeadJob",
    "DeadLetters",
    "DecodeError",
    "Depends",
    "EmbeddedFailed",
    "EncodeError",
    "EventKind",
    "Every",
    "Failure",
    "Handler",
    "Job",
    "JobEvent",
    "JobFailed",
    "Missed",
    "MissingExtra",
    "NewJob",
    "NotDurable",
    "OptionError",
    "OutOfPlace",
    "Overlap",
    "Promoter",
    "Queue",
    "QueueEvents",
    "QueueFull",
    "ResultTimeout",
    "Retry",
    "Router",
    "Schedule",
    "ScheduleCounts",
    "ScheduleSettings",
    "ServerBusy",
    "ServerError",
    "ServerTooOld",
    "ServerUnreachable",
    "Snooze",
    "SyncDeadLetters",
    "SyncJob",
    "SyncQueue",
    "TampuError",
    "Task",
    "TimeWindow",
    "TlsFailed",
    "Unrecoverable",
    "Verdict",
    "Worker",
    "__version__",
    "current_job",
]
