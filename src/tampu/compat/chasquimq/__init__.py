"""The public names of chasquimq 1.3, implemented on top of tampu.

To move a program, change `import chasquimq` to `from tampu.compat import chasquimq`. If you cannot
change the program, run `sys.modules["chasquimq"] = tampu.compat.chasquimq` before it is imported.
The modules have the same names as in chasquimq. docs/guide/moving-from-chasquimq.md lists the
intended differences.
"""

from tampu.compat.chasquimq._alias import install_finder as _install_finder
from tampu.compat.chasquimq._native import Consumer, Producer, Scheduler, version
from tampu.compat.chasquimq.errors import NotSupportedError, UnrecoverableError
from tampu.compat.chasquimq.job import Job
from tampu.compat.chasquimq.queue import Queue
from tampu.compat.chasquimq.queue_events import QueueEvent, QueueEvents
from tampu.compat.chasquimq.repeat import (
    BackoffSpec,
    MissedFiresPolicy,
    RepeatableMeta,
    RepeatPattern,
)
from tampu.compat.chasquimq.worker import Handler, Worker

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

_install_finder()
