"""The backend for Django's tasks."""

import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import fields
from datetime import datetime, timedelta
from functools import cached_property, partial
from typing import Any, ClassVar, Final, TypeVar

from asgiref.sync import sync_to_async
from django.db import connections, transaction

from tampu.django.checks import check_backend
from tampu.django.database import connect_anew
from tampu.django.results import (
    TaskCall,
    changes_of,
    finished_result,
    local_time,
    new_result,
    result_id,
    split_id,
    unfinished_result,
)
from tampu.django.running import DjangoApp
from tampu.django.settings import BackendOptions, BackendSettings, EnqueueMode, check_task_queue
from tampu.django.task import TampuTask, due_at, job_options
from tampu.django.tasks_api import (
    BaseTaskBackend,
    InvalidTask,
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    task_enqueued,
)
from tampu.errors import JobCancelled, JobFailed, OptionError
from tampu.job import Job, JobInfo, JobOptions, JobState, NewJob
from tampu.outbox.outbox import Outbox
from tampu.outbox.writing import HOW_TO_MIGRATE
from tampu.util.clock import instant, now_ms
from tampu.util.ids import new_id
from tampu.util.options import check_type, parse_options
from tampu.wire.names import check_job_name

T = TypeVar("T")
_LOOKS: Final = 3  # a job may change its place between two questions
_apps: Final[dict[BackendSettings, DjangoApp]] = {}
_outboxes: Final[dict[DjangoApp, Outbox]] = {}
_lock: Final = threading.Lock()


class DjangoOutbox(Outbox):
    """The outbox of a backend, whose table a migration creates."""

    how_to_create: ClassVar[str] = HOW_TO_MIGRATE


def app_of(settings: BackendSettings) -> DjangoApp:
    """The app of a backend. Django makes a backend for each thread; they share one."""
    with _lock:
        found = _apps.get(settings)
        if found is None:
            found = _apps[settings] = DjangoApp(settings)
            if settings.options.mode is EnqueueMode.OUTBOX:
                connect = partial(connect_anew, settings.options.database)
                _outboxes[found] = DjangoOutbox(found, database=connect)
        return found


class TampuBackend(BaseTaskBackend):  # type: ignore[misc] # Django has no types
    """Runs Django's tasks on tampu: `"BACKEND": "tampu.django.TampuBackend"` in `TASKS`.

    `OPTIONS` are those of `BackendOptions`. `manage.py tampu_worker` runs the tasks.
    """

    task_class = TampuTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, params)
        self._given: Mapping[str, Any] = params.get("OPTIONS", {})
        self._queue_names: Sequence[str] = tuple(params.get("QUEUES", ["default"]))

    @cached_property
    def settings(self) -> BackendSettings:
        """Its settings; `OptionError` if they are invalid."""
        for name in self._queue_names:
            check_task_queue(name)
        options = parse_options(BackendOptions, "OPTIONS", self._given)
        return BackendSettings(self.alias, tuple(self._queue_names), options)

    @property
    def app(self) -> DjangoApp:
        """The app that adds its jobs and that its workers run."""
        return app_of(self.settings)

    def check(self, **kwargs: Any) -> Iterable[Any]:  # noqa: ANN401 - as Django has it
        """What is wrong with its settings, for `manage.py check`."""
        del kwargs
        return check_backend(self)

    def validate_task(self, task: Task) -> None:
        """Refuse a task that cannot run: `InvalidTask`."""
        try:
            accepted = "an aware datetime or a timedelta"
            check_type("run_after", task.run_after, datetime | timedelta | None, accepted=accepted)
            super().validate_task(_without_wait(task))
            check_task_queue(task.queue_name)
            check_job_name(task.module_path)
            if isinstance(task, TampuTask):
                task.check_options()
        except OptionError as error:
            raise InvalidTask(str(error)) from error

    # --- enqueueing -----------------------------------------------------------------------------

    def enqueue(self, task: Task, args: Iterable[Any], kwargs: Mapping[str, Any]) -> TaskResult:
        """Add a job for a task; when, the option `enqueue` says."""
        new = _NewTask(self, task, (args, kwargs))
        match self.settings.options.mode:
            case EnqueueMode.NOW:
                new.added(self._call(new.add))
                task_enqueued.send(type(self), task_result=new.result)
            case EnqueueMode.ON_COMMIT:
                new.choose_id()
                database = self.settings.options.database
                transaction.on_commit(partial(self._add_later, new), using=database)
            case EnqueueMode.OUTBOX:
                new.store()
                task_enqueued.send(type(self), task_result=new.result)
        return new.result

    async def aenqueue(
        self, task: Task, args: Iterable[Any], kwargs: Mapping[str, Any]
    ) -> TaskResult:
        """As `enqueue`, from async code."""
        if self.settings.options.mode is not EnqueueMode.NOW:
            # The transaction belongs to the thread in which Django's models run.
            return await sync_to_async(self.enqueue)(task, args, kwargs)
        new = _NewTask(self, task, (args, kwargs))
        new.added(await self.app.portal().join(new.add))
        await task_enqueued.asend(type(self), task_result=new.result)
        return new.result

    def _add_later(self, new: "_NewTask") -> None:
        self._call(new.add)
        task_enqueued.send(type(self), task_result=new.result)

    # --- results --------------------------------------------------------------------------------

    def get_result(self, result_id: str) -> TaskResult:
        """The result with this id, whatever has become of the task.

        `TaskResultDoesNotExist` if it was never enqueued, or is no longer kept.
        """
        job_id, queue = self._place_of(result_id)
        return _result_of(result_id, self._call(lambda: self._look(job_id, queue)))

    async def aget_result(self, result_id: str) -> TaskResult:
        """As `get_result`, from async code."""
        job_id, queue = self._place_of(result_id)
        found = await self.app.portal().join(lambda: self._look(job_id, queue))
        return _result_of(result_id, found)

    def _place_of(self, given: object) -> tuple[str, str]:
        job_id, queue = split_id(given)
        try:
            check_task_queue(queue)
        except OptionError:
            raise TaskResultDoesNotExist(given) from None
        return job_id, queue

    async def _look(self, job_id: str, queue: str) -> object:
        """The stored result of a job, or what is known about a job without one."""
        of = self.app.queue(queue)
        for _ in range(_LOOKS):
            stored = (await of.results([job_id])).get(job_id)
            if stored is not None and not isinstance(stored, JobFailed | JobCancelled):
                return stored
            info = await of.job(job_id).info()
            if info.state not in {JobState.DONE, JobState.UNKNOWN}:
                break
        return info  # done or unknown: it has ended since we looked, or nothing is known

    def _call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return self.app.portal().call(work)


class _NewTask:
    """A task that is being enqueued: its job, and its result."""

    def __init__(
        self,
        backend: TampuBackend,
        task: Task,
        arguments: tuple[Iterable[Any], Mapping[str, Any]],
    ) -> None:
        backend.validate_task(task)
        due = due_at(task.run_after)
        args, kwargs = arguments
        given = TaskCall(list(args), dict(kwargs), changes_of(task, due))
        self.result = new_result(task, given, id="", enqueued_at=None)
        # As Django has made them of it: what JSON knows.
        self.call = TaskCall(self.result.args, self.result.kwargs, given.using)
        self.options: JobOptions = job_options(task, due)
        self._app, self._task = backend.app, task

    def choose_id(self) -> None:
        """Give it an id before it is added."""
        at_ms = now_ms()
        self.options["job_id"] = new_id(at_ms)
        self._set_id(self.options["job_id"], at_ms)

    async def add(self) -> Job[Any]:
        """Add the job."""
        queue = self._app.queue(self._task.queue_name)
        return await queue.add(self._task.module_path, self.call.to_data(), **self.options)

    def store(self) -> None:
        """Store the job in the outbox, in the transaction that is open or one of its own."""
        outbox, database = _outboxes[self._app], self._app.settings.options.database
        job = NewJob(self._task.module_path, self.call.to_data(), **self.options)
        with transaction.atomic(using=database, savepoint=False):
            job_id = outbox.add_sync(connections[database], self._task.queue_name, job)
        self._set_id(job_id, now_ms())

    def added(self, job: Job[Any]) -> None:
        """The job was added, and has an id."""
        self._set_id(job.id, job.created_at_ms)

    def _set_id(self, job_id: str | None, at_ms: int) -> None:
        assert job_id is not None  # noqa: S101 - it was just made
        object.__setattr__(self.result, "id", result_id(job_id, self._task.queue_name))
        object.__setattr__(self.result, "enqueued_at", local_time(instant(at_ms)))


def _without_wait(task: Task) -> Task:
    """The task as Django can check it: its documentation knows a timedelta, its code does not."""
    if not isinstance(task.run_after, timedelta):
        return task
    shown = object.__new__(type(task))
    for field in fields(task):
        object.__setattr__(shown, field.name, copy(getattr(task, field.name)))
    object.__setattr__(shown, "run_after", None)
    return shown


def _result_of(id: str, found: object) -> TaskResult:
    if isinstance(found, JobInfo):
        return unfinished_result(id, found)
    return finished_result(id, found)
