"""Results of tasks as Django has them, made of what is known about a job."""

import builtins
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from traceback import format_exception
from typing import Any, Final

from django.conf import settings
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.module_loading import import_string
from msgspec import Struct, ValidationError, convert, to_builtins

from tampu.django.task import TampuTask
from tampu.django.tasks_api import (
    Task,
    TaskError,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultStatus,
)
from tampu.errors import ArgumentError, JobCancelled, JobFailed
from tampu.job import JobInfo, JobState
from tampu.util.clock import instant
from tampu.util.ids import is_own_id
from tampu.wire.dead import Failure

_STATUS: Final = {
    JobState.WAITING: TaskResultStatus.READY,
    JobState.DELAYED: TaskResultStatus.READY,
    JobState.RETRYING: TaskResultStatus.READY,
    JobState.ACTIVE: TaskResultStatus.RUNNING,
    JobState.DEAD: TaskResultStatus.FAILED,
    JobState.CANCELLED: TaskResultStatus.FAILED,
}
_TIMES: Final = ("started_at", "finished_at", "last_attempted_at")
_UNKNOWN_WORKER: Final = "unknown"
_TIMEOUT: Final = "JobTimeout"


class TaskCall(Struct, frozen=True):
    """The data of a job: the arguments, and what `using` has changed about the task."""

    args: list[Any]
    kwargs: dict[str, Any]
    using: dict[str, Any] = {}

    def to_data(self) -> dict[str, Any]:
        """As it is written."""
        data = {"args": self.args, "kwargs": self.kwargs}
        return {**data, "using": self.using} if self.using else data


class FinishedTask(Struct, frozen=True, kw_only=True):
    """What is stored as the result of a job: Django asks for more than the value."""

    task: str
    call: TaskCall
    enqueued_at_ms: int
    started_at_ms: int
    finished_at_ms: int
    worker_ids: list[str]
    errors: list[tuple[str, str]]  # of earlier attempts: the class of the error, its traceback
    return_value: Any

    def to_data(self) -> dict[str, Any]:
        """As it is written."""
        data: dict[str, Any] = to_builtins(self)
        return data


def result_id(job_id: str, queue: str) -> str:
    """The id of a result. It names the queue: Django asks for results with nothing but their id."""
    return f"{job_id}@{queue}"


def split_id(given: object) -> tuple[str, str]:
    """The job and the queue of a result; `TaskResultDoesNotExist` if it is no id of ours."""
    job_id, _, queue = str(given).partition("@")
    if not queue or not is_own_id(job_id):
        raise TaskResultDoesNotExist(given)
    return job_id, queue


# --- tasks ----------------------------------------------------------------------------------------


def find_task(path: str) -> Task:
    """The task with this module path; `ArgumentError` if there is none."""
    try:
        found = import_string(path)
    except ImportError as error:
        raise ArgumentError(path, None, "cannot be imported") from error
    if not isinstance(found, Task):
        raise ArgumentError(path, None, "is not a task of Django")
    return found


def changes_of(task: Task, due: datetime | None) -> dict[str, Any]:
    """What `using` has changed about a task since it was declared, as it is written."""
    try:
        declared = find_task(task.module_path)
    except ArgumentError:
        declared = None  # it was never bound to its name, as in a shell
    names = ("priority", "queue_name", "backend", "attempts")
    changed = {
        name: getattr(task, name, None)
        for name in names
        if declared is None or getattr(task, name, None) != getattr(declared, name, None)
    }
    return changed if due is None else {**changed, "run_after": due.isoformat()}


def restore_task(path: str, using: Mapping[str, Any]) -> Task:
    """The task of a job, as it was enqueued."""
    task, changes = find_task(path), dict(using)
    if not changes:
        return task
    if "run_after" in changes:
        changes["run_after"] = parse_datetime(changes["run_after"])
    if not isinstance(task, TampuTask):
        changes.pop("attempts", None)
    return replace(task, **changes)


# --- results --------------------------------------------------------------------------------------


def new_result(
    task: Task,
    call: TaskCall,
    *,
    id: str,
    enqueued_at: datetime | None,
    **known: Any,  # noqa: ANN401 - the fields of Django's
) -> TaskResult:
    """A result of Django; fields that are not given are empty."""
    empty = dict.fromkeys(_TIMES)
    fields: dict[str, Any] = {
        **empty,
        "status": TaskResultStatus.READY,
        "errors": [],
        "worker_ids": [],
        **known,
    }
    return TaskResult(
        task=task,
        id=id,
        enqueued_at=local_time(enqueued_at),
        args=call.args,
        kwargs=call.kwargs,
        backend=task.backend,
        **{name: local_time(each) if name in _TIMES else each for name, each in fields.items()},
    )


def local_time(moment: datetime | None) -> datetime | None:
    """An instant as Django has it: naive if USE_TZ is off."""
    if moment is None or settings.USE_TZ:
        return moment
    naive: datetime = timezone.make_naive(moment)
    return naive


def finished_result(id: str, stored: object) -> TaskResult:
    """The result of a task that has returned; `TaskResultDoesNotExist` if it is of another job."""
    try:
        record = convert(stored, FinishedTask)
        task = restore_task(record.task, record.call.using)
    except (ValidationError, ArgumentError) as error:
        raise TaskResultDoesNotExist(id) from error
    started_at = instant(record.started_at_ms)
    result = new_result(
        task,
        record.call,
        id=id,
        enqueued_at=instant(record.enqueued_at_ms),
        started_at=started_at,
        last_attempted_at=started_at,
        finished_at=instant(record.finished_at_ms),
        status=TaskResultStatus.SUCCESSFUL,
        worker_ids=record.worker_ids,
        errors=[TaskError(exception_class_path=kind, traceback=at) for kind, at in record.errors],
    )
    set_fields(result, _return_value=record.return_value)
    return result


def unfinished_result(id: str, info: JobInfo) -> TaskResult:
    """The result of a task that waits, runs or has failed; `TaskResultDoesNotExist` if unknown."""
    status = _STATUS.get(info.state)
    if status is None or info.name is None:
        raise TaskResultDoesNotExist(id)
    try:
        call = convert(info.data or {"args": [], "kwargs": {}}, TaskCall)
        task = restore_task(info.name, call.using)
    except (ValidationError, ArgumentError) as error:
        raise TaskResultDoesNotExist(id) from error
    return new_result(
        task,
        call,
        id=id,
        enqueued_at=info.created_at,
        started_at=info.started_at,
        last_attempted_at=info.started_at,
        finished_at=info.ended_at if status == TaskResultStatus.FAILED else None,
        status=status,
        worker_ids=worker_ids(info.attempt or 0, info.worker),
        errors=_errors_of(info),
    )


def _errors_of(info: JobInfo) -> list[TaskError]:
    if info.state is JobState.CANCELLED:
        return [TaskError(exception_class_path=_path_of(JobCancelled), traceback="")]
    return [] if info.failure is None else [stored_error(info.failure)]


def worker_ids(attempt: int, worker: str | None) -> list[str]:
    """One for each attempt, as Django counts attempts; of earlier ones we do not keep them."""
    return [_UNKNOWN_WORKER] * (attempt - 1) + [worker or _UNKNOWN_WORKER] * (attempt > 0)


def stored_error(failure: Failure) -> TaskError:
    """An error as Django has it, of what is kept of it."""
    kind = failure.error_type
    if not kind:  # buried without being run: the message says why
        return TaskError(exception_class_path=_path_of(JobFailed), traceback=failure.message)
    if kind == _TIMEOUT:
        kind = _path_of(TimeoutError)
    elif hasattr(builtins, kind):
        kind = f"{builtins.__name__}.{kind}"
    return TaskError(exception_class_path=kind, traceback=failure.traceback)


def raised_error(error: BaseException) -> TaskError:
    """An error as Django has it."""
    traceback = "".join(format_exception(error))
    return TaskError(exception_class_path=_path_of(type(error)), traceback=traceback)


def _path_of(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def set_fields(result: TaskResult, **fields: object) -> None:
    """Change a result in place, as Django's own backends do."""
    for name, value in fields.items():
        object.__setattr__(result, name, value)
