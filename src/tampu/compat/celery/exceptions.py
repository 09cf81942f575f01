"""The exceptions of Celery, and the one for what is not supported."""

import builtins
import sys

from tampu.errors import JobFailed, TampuError, text_of
from tampu.outcome import Retry as TampuRetry
from tampu.util.clock import Duration
from tampu.wire.dead import BuryReason

__all__ = [
    "CeleryError",
    "Ignore",
    "ImproperlyConfigured",
    "MaxRetriesExceededError",
    "NotImportable",
    "NotRegistered",
    "NotSupported",
    "Reject",
    "Retry",
    "SoftTimeLimitExceeded",
    "TaskError",
    "TaskPredicate",
    "TaskRevokedError",
    "TimeLimitExceeded",
    "TimeoutError",
]

TIMED_OUT = "JobTimeout"
"""How tampu names the error of an attempt that was stopped at its time limit."""


class NotSupported(TampuError, NotImplementedError):
    """Something of Celery that does not exist here; says how to do it in tampu."""

    def __init__(self, what: str, advice: str) -> None:
        self.what, self.advice = what, advice
        super().__init__(f"tampu.compat.celery does not support {what}: {advice}.")


class NotImportable(NotSupported, ImportError):
    """A name of a module of Celery that does not exist here."""


class CeleryError(Exception):
    """Base of Celery's errors."""


class ImproperlyConfigured(CeleryError, ImportError):
    """A program that asks for what its settings do not allow."""


class TaskError(CeleryError):
    """Base of errors of tasks."""


class NotRegistered(KeyError, CeleryError):
    """A task that this program has not declared or imported."""


class MaxRetriesExceededError(TaskError):
    """A task that has asked for another retry after its last one."""


class TaskRevokedError(CeleryError):
    """A task that was revoked, or has expired."""


class TimeoutError(CeleryError, builtins.TimeoutError):
    """No result within the time given."""


class SoftTimeLimitExceeded(Exception):
    """Raised inside a task at its soft time limit."""


class TimeLimitExceeded(Exception):
    """A task whose process was ended at its time limit."""


class TaskPredicate(CeleryError):
    """Base of what a task raises to decide what becomes of it."""


class Retry(TaskPredicate, TampuRetry):
    """Run the task again later; raised by `self.retry`."""

    def __init__(
        self,
        message: str | None = None,
        exc: BaseException | None = None,
        when: Duration | None = None,
    ) -> None:
        self.message, self.exc, self.when = message, exc, when
        why = message if exc is None else f"{type(exc).__name__}: {text_of(exc)}"
        TampuRetry.__init__(self, f"Retry: {why}" if why else "", after=0 if when is None else when)


class Ignore(TaskPredicate):
    """End the task without a result."""


class Reject(TaskPredicate):
    """Give the task up, or with `requeue` run it again a second later."""

    def __init__(self, reason: object = None, requeue: bool = False) -> None:
        self.reason, self.requeue = reason, requeue
        super().__init__(reason, requeue)

    def __str__(self) -> str:
        return f"reject requeue={self.requeue}: {self.reason}"


def error_of(failed: JobFailed) -> Exception:
    """The error that a task raised: of its own class if this program has imported that."""
    if failed.reason == BuryReason.EXPIRED.value:
        return TaskRevokedError("expired")
    if failed.error_type == TIMED_OUT:
        return TimeLimitExceeded(failed.message)
    kind = _find_class(failed.error_type)
    if kind is None:
        return failed
    try:
        return kind(failed.message)
    except Exception:  # noqa: BLE001 - a user's constructor may want anything
        return failed


def _find_class(name: str) -> type[Exception] | None:
    """The class of errors with this name. Nothing is imported: the name comes from the server."""
    module, _, rest = name.rpartition(".")
    found: object = getattr(sys.modules.get(module or "builtins"), rest, None)
    return found if isinstance(found, type) and issubclass(found, Exception) else None
