"""The public names of chasquimq 1.3, over tampu.

`from tampu.compat import chasquimq` is all that a program written for it has to change; one that
cannot be changed gets `sys.modules["chasquimq"] = tampu.compat.chasquimq` before it is imported.
Its modules have the names of theirs. What is different on purpose:
docs/guide/moving-from-chasquimq.md.
"""

from tampu._version import __version__ as _tampu_version
from tampu.compat.adapter.consumer import Consumer
from tampu.compat.adapter.errors import NotSupportedError, UnrecoverableError
from tampu.compat.adapter.events import QueueEvent, QueueEvents
from tampu.compat.adapter.job import Job
from tampu.compat.adapter.producer import Producer
from tampu.compat.adapter.queue import Queue
from tampu.compat.adapter.repeat import (
    BackoffSpec,
    MissedFiresPolicy,
    RepeatableMeta,
    RepeatPattern,
)
from tampu.compat.adapter.scheduler import Scheduler
from tampu.compat.adapter.worker import Handler, Worker

__all__ = [
    "BackoffSpec",
    "Consumer",
    "Handler",
    "Job",
    "MissedFiresPolicy",
    "NotSupportedError",
    "Producer",
    "Queue",
    "QueueEvent",
    "QueueEvents",
    "RepeatPattern",
    "RepeatableMeta",
    "Scheduler",
    "UnrecoverableError",
    "Worker",
    "version",
]


def version() -> str:
    """The version of chasquimq whose names these are, and tampu's own."""
    return f"1.3.0+tampu.{_tampu_version}"
