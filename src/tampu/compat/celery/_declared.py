"""The app and the tasks of tampu that stand behind those of Celery."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Optional, get_type_hints

from tampu.app import App
from tampu.backoff import MAX_ATTEMPTS
from tampu.compat.celery import _running, _sending, signals
from tampu.compat.celery._current import app_or_current
from tampu.compat.celery._routing import find_route, level_of
from tampu.compat.celery._settings import result_ttl, seconds_of, server_url
from tampu.compat.celery.exceptions import NotSupported
from tampu.compat.celery.schedules import rule_of
from tampu.job import current_job
from tampu.limits.model import Rate
from tampu.tasks.hints import Unsupported, prepare_hint
from tampu.tasks.router import DeclaredSchedule
from tampu.tasks.settings import TaskSettings
from tampu.tasks.task import AnyTask, PlainTask
from tampu.timing.zones import parse_zone
from tampu.util.options import is_async, yields

if TYPE_CHECKING:
    from tampu.compat.celery.app import Celery
    from tampu.compat.celery.task import Task
    from tampu.consumer.options import WorkerOptions
    from tampu.schedules.model import ScheduleOptions

_NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_RATE_UNITS: Final = {"s": "s", "m": "m", "h": "h"}
_BEAT_KEYS: Final = {"task", "schedule", "args", "kwargs", "options", "enabled", "relative"}


class DeclaredTask(PlainTask[..., Any]):
    """The task of tampu behind one of Celery: the same name, arguments and queue."""

    def __init__(self, task: Task, app: CeleryApp) -> None:
        self.celery_task = task
        super().__init__(_function_of(task), app, _settings_of(task, app.conf))

    def __reduce__(self) -> Any:
        """Pickled for child processes, as its name and the modules of its app and function."""
        task = self.celery_task
        return _find_task, (task.app.module, task.body.__module__, self.name)

    @property
    def queue(self) -> str:
        """The queue that its jobs are added to: its own, that of a route, or the default."""
        conf = self.celery_task.app.conf
        found = self._queue or find_route(conf.task_routes, self.name)
        return found or str(conf.task_default_queue)


class CeleryApp(App):
    """The app of tampu behind one of Celery. Its options follow the settings."""

    def __init__(self, celery: Celery) -> None:
        self.celery = celery
        super().__init__(lifespan=_lifespan)

    @property
    def conf(self) -> Any:
        """The settings."""
        return self.celery.conf

    def configure(self) -> None:
        """Take over the settings; raises for those that are invalid."""
        conf = self.conf
        worker: WorkerOptions = {
            "store_results": not conf.task_ignore_result,
            "result_ttl": result_ttl(conf),
        }
        if conf.worker_concurrency is not None:
            worker["concurrency"] = conf.worker_concurrency
        if conf.worker_pool == "solo":
            worker["concurrency"] = 1
        if conf.task_time_limit is not None:
            worker["timeout"] = seconds_of("task_time_limit", conf.task_time_limit)
        if _needs_process(conf, None, None):
            worker["isolation"] = "process"
        self.url, self.worker = server_url(conf.broker_url), worker
        self._default_queue = str(conf.task_default_queue)
        parse_zone("timezone", self.celery.zone)

    def add(self, task: Task) -> DeclaredTask:
        """The task of tampu for one of Celery; `OptionError` if there is one with its name."""
        declared = DeclaredTask(task, self)
        self._declare(declared)
        return declared

    @property
    def imports(self) -> list[str]:
        """The modules with tasks: by the settings, and those that `autodiscover_tasks` finds."""
        conf = self.conf
        return [*_texts(conf.imports), *_texts(conf.include), *self.celery.discovered()]

    @imports.setter
    def imports(self, given: object) -> None:
        """The settings decide, whatever the app was created with."""

    def import_tasks(self) -> None:
        """Import the modules with tasks, then tell who waits for that."""
        super().import_tasks()
        self.celery.tell_configured()

    @property
    def schedules(self) -> Sequence[DeclaredSchedule]:
        """Those of tampu, and the entries of `beat_schedule`."""
        entries: Mapping[str, Mapping[str, Any]] = self.conf.beat_schedule or {}
        beat = [self._schedule_of(key, entry) for key, entry in entries.items()]
        return [*super().schedules, *beat]

    def _schedule_of(self, key: str, entry: Mapping[str, Any]) -> DeclaredSchedule:
        for name in entry:
            if name not in _BEAT_KEYS:
                raise NotSupported(f"{name!r} in beat_schedule", "give it in `options`")
        task = self.tasks.get(entry["task"])
        if task is None:
            problem = f"the task {entry['task']!r} in beat_schedule"
            raise NotSupported(
                problem, "import its module, for instance with Celery(include=[...])"
            )
        placed = rule_of(entry["schedule"]).place(self.celery.zone)
        options = _sending.schedule_options(entry.get("options") or {})
        queue = options.pop("queue", None)
        kept: ScheduleOptions = {"key": key, "window": placed.window, **options}  # type: ignore[typeddict-item] # checked
        chosen = task if queue is None else task.options(queue=queue)
        definition = chosen.definition.arguments
        arguments = definition.bind(tuple(entry.get("args") or ()), entry.get("kwargs") or {})
        return DeclaredSchedule(chosen, placed.rule, arguments, kept)


def _texts(given: str | Sequence[str] | None) -> list[str]:
    return [given] if isinstance(given, str) else list(given or ())


def _settings_of(task: Task, conf: Any) -> TaskSettings:
    ttl = None if task.ignore_result is None else 0 if task.ignore_result else result_ttl(conf)
    isolated = _needs_process(conf, task.time_limit, task.soft_time_limit)
    expires = None if task.expires is None else seconds_of("expires", task.expires)
    return TaskSettings(
        name=task.name,
        queue=task.queue,
        attempts=MAX_ATTEMPTS if task.attempts is None else task.attempts,
        timeout=task.time_limit,
        isolation="process" if isolated else None,
        result_ttl=ttl,
        expires=expires,
        priority=level_of(task.priority),
        limits=() if task.rate_limit is None else (_rate_of(task.rate_limit),),
    )


def _needs_process(conf: Any, hard: float | None, soft: float | None) -> bool:
    """Only a process can be ended at a time limit, or interrupted at a soft one."""
    if conf.worker_pool in {"prefork", "processes"}:
        return True
    limits = (hard, soft, conf.task_time_limit, conf.task_soft_time_limit)
    return any(each is not None for each in limits)


def _rate_of(limit: str | float) -> Rate:
    """Celery's "10/m", or a number for each second, over all workers."""
    count, _, unit = str(limit).partition("/")
    if "." in count or (unit or "s") not in _RATE_UNITS:
        raise NotSupported(f"rate_limit={limit!r}", 'write a whole number, as in "10/m"')
    return Rate(f"{count}/{unit or 's'}")


def _function_of(task: Task) -> Callable[..., Any]:
    """What a worker calls: it has the parameters of the task, and runs it as Celery does."""
    body = task.body
    signature = inspect.signature(body)
    _check_body(task, signature)

    @wraps(body)
    def perform(**arguments: Any) -> Any:
        return _running.run_job(task, current_job(), arguments, on_end=_sending.send_links)

    # `object`: whoever waits for a result of None gets it, also long after the job.
    perform.__annotations__ = {**_hints_of(body, signature), "return": object}
    perform.__signature__ = signature  # type: ignore[attr-defined] # what `inspect` looks for
    return perform


def _hints_of(body: Callable[..., Any], signature: inspect.Signature) -> dict[str, Any]:
    """The types that arguments can be converted to. Celery ignores hints: others are left out."""
    try:
        hints = get_type_hints(body, include_extras=True)
    except (AttributeError, NameError, SyntaxError, TypeError):  # it names what is not there
        return {}
    kept: dict[str, Any] = {}
    for name, parameter in signature.parameters.items():
        hint = hints.get(name, Any)
        if parameter.default is None:
            hint = Optional[hint]  # noqa: UP045 - of any kind
        with suppress(Unsupported):
            prepare_hint(hint)
            kept[name] = hint
    return kept


def _check_body(task: Task, signature: inspect.Signature) -> None:
    if is_async(task.body) or yields(task.body):
        advice = "declare it with @app.tampu.task, which takes async functions and generators"
        raise NotSupported(f"{task.name} as an async function or a generator", advice)
    for each in signature.parameters.values():
        if each.kind not in _NAMED:
            advice = "arguments travel by name; take a list or a dict as one argument instead"
            raise NotSupported(f"the parameter {each} of {task.name}", advice)


def _find_task(app_module: str, module: str, name: str) -> AnyTask:
    """The task with this name, in a process that has to import it."""
    import_module(app_module)
    import_module(module)
    return app_or_current(None).task_named(name).tampu


@asynccontextmanager
async def _lifespan(app: App) -> AsyncIterator[None]:
    """Tell the signals of a worker, whose receivers may block."""
    assert isinstance(app, CeleryApp)  # noqa: S101 - its own lifespan
    celery = app.celery
    await asyncio.to_thread(_tell_start, celery)
    try:
        yield
    finally:
        await asyncio.to_thread(_tell_stop, celery)


def _tell_start(celery: Celery) -> None:
    signals.worker_init.send(celery)
    _running.start_process(celery)
    signals.worker_ready.send(celery)


def _tell_stop(celery: Celery) -> None:
    signals.worker_process_shutdown.send(celery)
    signals.worker_shutdown.send(celery)
