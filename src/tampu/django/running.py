"""Runs tasks of Django in a worker."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from time import monotonic
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured

from tampu.app import App
from tampu.django.database import clean_connections, close_connections
from tampu.django.results import (
    FinishedTask,
    TaskCall,
    find_task,
    local_time,
    new_result,
    raised_error,
    restore_task,
    result_id,
    set_fields,
    stored_error,
    worker_ids,
)
from tampu.django.settings import BackendSettings
from tampu.django.tasks_api import (
    Task,
    TaskContext,
    TaskResult,
    TaskResultStatus,
    normalize_json,
    task_finished,
    task_started,
)
from tampu.errors import ArgumentError
from tampu.job import Job
from tampu.limits.model import RateLimited
from tampu.outcome import Bury, Decision, Snooze, Unrecoverable
from tampu.tasks.attempt_thread import AttemptThread, attempt_thread
from tampu.util.clock import instant, now_ms, to_s
from tampu.util.options import is_async
from tampu.wire.dead import Failure

ANY_TASK: Final = "tasks of Django"
_TOO_LONG: Final = "it ran longer than its time limit"


class DjangoApp(App):
    """The app of a `TampuBackend`: runs jobs that are named as tasks of Django."""

    def __init__(self, settings: BackendSettings) -> None:
        super().__init__(
            settings.options.url,
            lifespan=_close_at_end,
            middleware=[clean_connections],
            default_queue=settings.queues[0] if settings.queues else "default",
            worker=settings.options.worker,
        )
        self.settings = settings
        self._found: dict[str, Task] = {}

        async def run_task(
            args: list[Any],
            kwargs: dict[str, Any],
            using: dict[str, Any] | None = None,
            *,
            job: Job[Any],
        ) -> dict[str, Any]:
            """Run the task that the job is named as."""
            return await self._run(TaskCall(args, kwargs, using or {}), job)

        self.any_task = self.task(name=ANY_TASK)(run_task)

    @property
    def queues(self) -> list[str]:
        """The queues of the backend."""
        return sorted(self.settings.queues or (self.default_queue,))

    async def _run(self, call: TaskCall, job: Job[Any]) -> dict[str, Any]:
        thread = attempt_thread()
        assert thread is not None  # noqa: S101 - there is middleware, and no child process
        if job.name not in self._found:
            self._found[job.name] = await thread.call(partial(_find_or_bury, job.name))
        attempt = TaskAttempt(self._found[job.name], call, job, settings=self.settings)
        if is_async(attempt.function):
            return await attempt.run_async(thread)
        found: dict[str, Any] = await thread.call(attempt.run_plainly)
        return found


@asynccontextmanager
async def _close_at_end(app: App) -> AsyncIterator[None]:
    del app
    try:
        yield
    finally:
        with ThreadPoolExecutor(1) as thread:  # Django refuses to close them on a loop
            await asyncio.get_running_loop().run_in_executor(thread, close_connections)


def _find_or_bury(path: str) -> Task:
    try:
        return find_task(path)
    except ArgumentError as error:
        raise Bury(str(error)) from error


class TaskAttempt:
    """One attempt of a task of Django, with the signals and the result that Django wants."""

    def __init__(
        self, task: Task, call: TaskCall, job: Job[Any], *, settings: BackendSettings
    ) -> None:
        self.function: Callable[..., Any] = task.func
        self._declared, self._call, self._job = task, call, job
        self._settings = settings
        self._began, self._started_ms = monotonic(), now_ms()

    def run_plainly(self) -> dict[str, Any]:
        """Run a plain function; in the thread of the job."""
        result = self._begin()
        try:
            value = self._finish_value(self.function(*self._arguments(result), **result.kwargs))
            self._check_limit()
        except BaseException as error:
            self._fail(result, error)
            raise
        return self._finish(result, value)

    async def run_async(self, thread: AttemptThread) -> dict[str, Any]:
        """Run an async function on the loop; signals are sent in the thread of the job."""
        result: TaskResult = await thread.call(self._begin)
        try:
            returned = await self.function(*self._arguments(result), **result.kwargs)
            value = self._finish_value(returned)
        except asyncio.CancelledError:
            if not thread.is_stopping and not self._job.cancelled:
                await thread.call(partial(self._fail, result, TimeoutError(_TOO_LONG)))
            raise
        except BaseException as error:
            await thread.call(partial(self._fail, result, error))
            raise
        found: dict[str, Any] = await thread.call(partial(self._finish, result, value))
        return found

    def _arguments(self, result: TaskResult) -> tuple[Any, ...]:
        context = (TaskContext(task_result=result),) if result.task.takes_context else ()
        return (*context, *result.args)

    def _begin(self) -> TaskResult:
        job, call = self._job, self._call
        task = restore_task(job.name, call.using) if call.using else self._declared
        started_at, error = instant(self._started_ms), job.extras.error
        result = new_result(
            task,
            call,
            id=result_id(job.id, task.queue_name),
            enqueued_at=job.created_at,
            started_at=started_at,
            last_attempted_at=started_at,
            status=TaskResultStatus.RUNNING,
            worker_ids=worker_ids(job.attempt, _worker_id()),
            errors=[]
            if error is None
            else [stored_error(Failure(error.error_type, error.message, error.traceback))],
        )
        task_started.send(sender=_backend_of(task), task_result=result)
        return result

    @staticmethod
    def _finish_value(returned: object) -> object:
        if isinstance(returned, Decision):
            raise returned
        value: object = normalize_json(returned)
        return value

    def _check_limit(self) -> None:
        """A function in a thread cannot be stopped; the job fails once it has returned."""
        limit_ms, own = self._job.extras.timeout_ms, self._settings.options.timeout
        limit_s = None if own is None else to_s("timeout", own)
        if limit_ms is not None:
            limit_s = limit_ms / 1000
        if limit_s is not None and monotonic() - self._began > limit_s:
            raise TimeoutError(_TOO_LONG)

    def _fail(self, result: TaskResult, error: BaseException) -> None:
        """Tell Django of a failed attempt if there is no other one."""
        if not self._is_last(result.task, error):
            return
        result.errors.append(raised_error(error))
        finished_at = local_time(instant(now_ms()))
        set_fields(result, finished_at=finished_at, status=TaskResultStatus.FAILED)
        try:
            raise error  # noqa: TRY301 - Django logs the error that is handled now
        except BaseException:  # noqa: BLE001 - that one
            task_finished.send(sender=_backend_of(result.task), task_result=result)

    def _is_last(self, task: Task, error: BaseException) -> bool:
        if isinstance(error, Snooze | RateLimited):
            return False
        budget = getattr(task, "attempts", None) or self._settings.options.attempts
        return isinstance(error, Unrecoverable) or self._job.attempt >= budget

    def _finish(self, result: TaskResult, value: object) -> dict[str, Any]:
        finished_ms = now_ms()
        set_fields(
            result,
            finished_at=local_time(instant(finished_ms)),
            status=TaskResultStatus.SUCCESSFUL,
            _return_value=value,
        )
        task_finished.send(sender=_backend_of(result.task), task_result=result)
        return FinishedTask(
            task=self._job.name,
            call=self._call,
            enqueued_at_ms=self._job.created_at_ms,
            started_at_ms=self._started_ms,
            finished_at_ms=finished_ms,
            worker_ids=result.worker_ids,
            errors=[(each.exception_class_path, each.traceback) for each in result.errors],
            return_value=value,
        ).to_data()


def _backend_of(task: Task) -> type:
    try:
        return type(task.get_backend())
    except ImproperlyConfigured:  # the worker's settings have no such backend
        return type(None)


def _worker_id() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"
