"""Runs a task: its request, its signals and its methods around it, and what the run ended in."""

from __future__ import annotations

import logging
import os
import random
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from tampu.compat.celery import signals
from tampu.compat.celery.exceptions import (
    TIMED_OUT,
    Ignore,
    Reject,
    Retry,
    SoftTimeLimitExceeded,
    TimeLimitExceeded,
)
from tampu.compat.celery.states import FAILURE, IGNORED, REJECTED, RETRY, SUCCESS
from tampu.errors import ServerError, text_of
from tampu.job import Job, current_queue
from tampu.limits.model import RateLimited
from tampu.outcome import NO_RESULT, Bury, Snooze, Unrecoverable, handler_frames
from tampu.outcome import Retry as TampuRetry
from tampu.wire.extras import MAX_FAILURES

if TYPE_CHECKING:
    from tampu.compat.celery.task import Task

logger = logging.getLogger(__name__)
_REQUEUE_S: Final = 1.0
_DECISIONS: Final = (TampuRetry, Snooze, RateLimited, Unrecoverable)


@dataclass(frozen=True, kw_only=True)
class Context:
    """What `self.request` says about the run."""

    id: str = ""
    task: str | None = None
    args: Sequence[object] = ()
    kwargs: Mapping[str, object] = field(default_factory=dict)
    retries: int = 0
    is_eager: bool = False
    called_directly: bool = True
    delivery_info: Mapping[str, object] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    hostname: str = field(default_factory=socket.gethostname)
    timelimit: tuple[float | None, float | None] = (None, None)
    root_id: str | None = None
    parent_id: str | None = None
    chain: None = None
    chord: None = None
    group: None = None

    @property
    def correlation_id(self) -> str:
        """The id."""
        return self.id

    def get(self, name: str, default: object = None) -> Any:
        """One of them by its name, or the default."""
        return getattr(self, name, default)


@dataclass(frozen=True)
class ExceptionInfo:
    """An error with its traceback as text, as signals and the methods of tasks get it."""

    exception: BaseException
    traceback: str

    @property
    def type(self) -> type[BaseException]:
        """The class of the error."""
        return type(self.exception)

    def __str__(self) -> str:
        return self.traceback


@dataclass(frozen=True)
class Ended:
    """What a run ended in: a value, or the error that was raised."""

    state: str
    value: object = None
    error: Exception | None = None
    info: ExceptionInfo | None = None  # of an error


@dataclass(frozen=True)
class _Frame:
    """A task that runs; `entered`: its own `__call__` is running already."""

    task: Task
    context: Context
    entered: bool = False


_NO_REQUEST: Final = Context()
_frames: ContextVar[tuple[_Frame, ...]] = ContextVar("tampu_celery_frames", default=())


def request_of(task: Task) -> Context:
    """The request of the run of a task that is going on here; an empty one outside of any."""
    for frame in reversed(_frames.get()):
        if frame.task is task:
            return frame.context
    return _NO_REQUEST


def running_task() -> Task | None:
    """The task that runs here, if any."""
    frames = _frames.get()
    return frames[-1].task if frames else None


def runs_in_worker() -> bool:
    """Whether a worker runs a task here."""
    return any(not frame.context.called_directly for frame in _frames.get())


def call_directly(task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call the function of a task, also for a task whose own `__call__` calls that of its base."""
    top = _frames.get()[-1:]
    if top and top[0].task is task and not (top[0].entered or top[0].context.called_directly):
        with _enter(replace(top[0], entered=True)):
            return task.run(*args, **kwargs)
    with _enter(_Frame(task, Context(task=task.name, args=tuple(args), kwargs=kwargs))):
        return task.run(*args, **kwargs)


@contextmanager
def _enter(frame: _Frame) -> Iterator[None]:
    token = _frames.set((*_frames.get(), frame))
    try:
        yield
    finally:
        _frames.reset(token)


def trace(task: Task, context: Context, *, refused: Exception | None = None) -> Ended:
    """Run a task once, with everything around it. `refused`: it must not run and fails with this.

    Never raises an `Exception`, except a decision of tampu's own.
    """
    task_id, args, kwargs = context.id, context.args, context.kwargs
    given = {"task_id": task_id, "task": task, "args": args, "kwargs": kwargs}
    with _enter(_Frame(task, context)):
        signals.task_prerun.send(task, **given)
        ended = _run(task, context, refused)
        _tell_end(task, context, ended)
        what = ended.value if ended.error is None else ended.error
        if ended.state in {SUCCESS, FAILURE}:
            task.after_return(ended.state, what, task_id, args, kwargs, ended.info)
        signals.task_postrun.send(task, retval=what, state=ended.state, **given)
    return ended


def _tell_end(task: Task, context: Context, ended: Ended) -> None:
    task_id, args, kwargs, error = context.id, context.args, context.kwargs, ended.error
    info = ended.info
    if ended.state == SUCCESS:
        task.on_success(ended.value, task_id, args, kwargs)
        signals.task_success.send(task, result=ended.value)
    elif isinstance(error, Retry) and info is not None:
        task.on_retry(error.exc or error, task_id, args, kwargs, info)
        signals.task_retry.send(task, request=context, reason=error, einfo=info)
    elif ended.state == FAILURE and error is not None and info is not None:
        task.on_failure(error, task_id, args, kwargs, info)
        told = {"exception": error, "traceback": error.__traceback__, "einfo": info}
        signals.task_failure.send(task, task_id=task_id, args=args, kwargs=kwargs, **told)


def _run(task: Task, context: Context, refused: Exception | None) -> Ended:
    try:
        if refused is not None:
            raise refused  # noqa: TRY301 - as if the task had raised it
        task.before_start(context.id, context.args, context.kwargs)
        with _soft_limit(context.timelimit[1]):
            return Ended(SUCCESS, _call(task, context))
    except Retry as error:
        return Ended(RETRY, error=error, info=_info(error))
    except _DECISIONS:
        raise  # tampu's own: a program that is being moved may use them
    except Ignore as error:
        return Ended(IGNORED, error=error)
    except Reject as error:
        return Ended(REJECTED, error=error)
    except Exception as error:  # noqa: BLE001 - border: a user's task
        return Ended(FAILURE, error=error, info=_info(error))


def _call(task: Task, context: Context) -> object:
    """Call the task; errors of `autoretry_for` become retries."""
    call = task if task.has_own_call else task.run
    retried = tuple(task.autoretry_for)
    raised: tuple[type[Exception], ...] = (Ignore, Reject, *_DECISIONS, *task.dont_autoretry_for)
    try:
        return call(*context.args, **context.kwargs)
    except raised:
        raise
    except retried as error:
        options = dict(task.retry_kwargs)
        if task.retry_backoff:
            options["countdown"] = _backoff_s(task, context.retries)
        task.retry(exc=error, **options)
        raise AssertionError(error) from None  # retry always raises


def _backoff_s(task: Task, retries: int) -> int:
    wait_s = min(
        int(task.retry_backoff_max), int(max(1.0, task.retry_backoff)) * 2 ** min(retries, 60)
    )
    return random.randrange(wait_s + 1) if task.retry_jitter else wait_s  # noqa: S311 - jitter


def _info(error: Exception) -> ExceptionInfo:
    frames = handler_frames(error)
    try:
        text = "".join(traceback.format_exception(type(error), error, frames))
    except Exception:  # noqa: BLE001 - it calls methods of the user's objects
        text = text_of(error)
    return ExceptionInfo(error, text)


@contextmanager
def _soft_limit(limit_s: float | None) -> Iterator[None]:
    """Raise `SoftTimeLimitExceeded` inside the block after a time, in a process of its own."""
    if limit_s is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise SoftTimeLimitExceeded

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# --- in a worker --------------------------------------------------------------------------------

_started_in: list[int] = []
"""The processes that have sent `worker_process_init`: this one, once it has."""


def start_process(sender: object) -> None:
    """Send `worker_process_init` once in each process that runs tasks."""
    if _started_in != [os.getpid()]:
        _started_in[:] = [os.getpid()]
        signals.worker_process_init.send(sender)


def run_job(
    task: Task,
    job: Job[Any],
    arguments: Mapping[str, object],
    *,
    on_end: Callable[[Task, Job[Any], Ended, Context], None],
) -> object:
    """One attempt in a worker: returns the result, or raises what tampu understands.

    Whether a failed job runs again is decided here, as in Celery: only if the task asks for it.
    """
    start_process(task.app)
    context = _context_of(task, job, arguments)
    _close_old_connections()
    try:
        ended = trace(task, context, refused=_refusal(job))
        on_end(task, job, ended, context)
    except (ServerError, *_DECISIONS):
        raise  # what follows could not be sent: the whole run is repeated
    except Exception as error:  # border: a method of the task that is called around it
        raise Bury(error=error) from error
    finally:
        _close_old_connections()
    match ended.error:
        case None:
            return ended.value
        case Ignore():
            return NO_RESULT
        case Reject(requeue=True):
            raise Snooze(_REQUEUE_S)
        case Retry():
            raise ended.error
        case _:
            raise Bury(error=ended.error) from ended.error


def _close_old_connections() -> None:
    """In a program with Django, close what its settings no longer keep, as Celery does."""
    database = sys.modules.get("django.db")
    if database is None or "DJANGO_SETTINGS_MODULE" not in os.environ:
        return
    try:
        database.close_old_connections()
    except Exception:
        logger.warning("cannot close connections of Django's database", exc_info=True)


def _refusal(job: Job[Any]) -> Exception | None:
    """An attempt that was stopped at its time limit was the last one."""
    last = job.extras.error
    if last is not None and last.error_type == TIMED_OUT:
        return TimeLimitExceeded(last.message)
    return None


def _context_of(task: Task, job: Job[Any], arguments: Mapping[str, object]) -> Context:
    failed, given = len(job.extras.failed_at_ms), job.data or {}  # without defaults
    by_name = {name: value for name, value in arguments.items() if name in given}
    by_position: list[object] = []
    for name in task.positional:
        if name not in by_name:
            break
        by_position.append(by_name.pop(name))
    queue = current_queue() or task.queue_name
    return Context(
        id=job.id,
        task=task.name,
        args=by_position,
        kwargs=by_name,
        # Attempts that ended with their worker are none of a task's retries.
        retries=failed if failed < MAX_FAILURES else job.attempt - 1,
        called_directly=False,
        delivery_info={
            "exchange": "",
            "routing_key": queue,
            "priority": task.priority,
            "redelivered": job.attempt > failed + 1,
        },
        headers=job.headers,
        timelimit=task.time_limits,
        root_id=job.id,
    )
