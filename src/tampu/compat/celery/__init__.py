"""Celery's Python interface on top of tampu: a program changes one import.

    from tampu.compat.celery import Celery, shared_task, chain, group, chord

The modules have the names of Celery's: `tampu.compat.celery.schedules`, `signals`, `result`,
`exceptions`, `states`, `utils.log`. What is not supported raises `NotSupported`, which says how to
do it in tampu. `app.tampu` is the app of tampu that a program can move to, task by task. The page
Moving from Celery lists what is there and what is different.
"""

from tampu.compat.celery._absent import refuse_imports
from tampu.compat.celery._running import Context
from tampu.compat.celery._settings import Settings
from tampu.compat.celery.app import Celery, current_app, current_task, shared_task
from tampu.compat.celery.canvas import Signature, chain, chord, group, signature
from tampu.compat.celery.exceptions import (
    Ignore,
    MaxRetriesExceededError,
    NotSupported,
    Reject,
    Retry,
    SoftTimeLimitExceeded,
)
from tampu.compat.celery.result import AsyncResult, EagerResult, GroupResult
from tampu.compat.celery.schedules import crontab
from tampu.compat.celery.task import Task
from tampu.compat.celery.utils import uuid
from tampu.compat.celery.utils.log import get_task_logger

__all__ = [
    "AsyncResult",
    "Celery",
    "Context",
    "EagerResult",
    "GroupResult",
    "Ignore",
    "MaxRetriesExceededError",
    "NotSupported",
    "Reject",
    "Retry",
    "Settings",
    "Signature",
    "SoftTimeLimitExceeded",
    "Task",
    "chain",
    "chord",
    "crontab",
    "current_app",
    "current_task",
    "get_task_logger",
    "group",
    "shared_task",
    "signature",
    "uuid",
]

__getattr__ = refuse_imports("celery")
