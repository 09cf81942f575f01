"""tampu: a job queue and scheduler on Redis or Valkey Streams with MessagePack."""

from tampu._version import __version__
from tampu.admin.counts import Counts
from tampu.admin.dead import DeadJob, DeadLetters
from tampu.backoff import Backoff
from tampu.consumer.handler import Handler
from tampu.errors import (
    AccessDenied,
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
    StoreFailed,
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
from tampu.timing import At, Cron, Every, Missed, Overlap, TimeWindow
from tampu.wire.dead import BuryReason, Failure
from tampu.wire.event import EventKind
from tampu.worker import Worker

__all__ = [
    "AccessDenied",
    "At",
    "Backoff",
    "Bury",
    "BuryReason",
    "Closed",
    "CommandRefused",
    "ConnectionLost",
    "Counts",
    "Cron",
    "DeadJob",
    "DeadLetters",
    "DecodeError",
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
    "Schedule",
    "ScheduleCounts",
    "ScheduleSettings",
    "ServerBusy",
    "ServerError",
    "ServerTooOld",
    "ServerUnreachable",
    "Snooze",
    "StoreFailed",
    "SyncDeadLetters",
    "SyncJob",
    "SyncQueue",
    "TampuError",
    "TimeWindow",
    "TlsFailed",
    "Unrecoverable",
    "Verdict",
    "Worker",
    "__version__",
    "current_job",
]
