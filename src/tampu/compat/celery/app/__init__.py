"""The app as in Celery, which holds an app of tampu."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from importlib.util import find_spec
from typing import Any, Final, NoReturn, overload
from zoneinfo import ZoneInfo

from tampu.compat.celery import _current, _sending, canvas
from tampu.compat.celery._absent import refuse
from tampu.compat.celery._declared import CeleryApp, DeclaredTask
from tampu.compat.celery._routing import check_routes
from tampu.compat.celery._running import running_task
from tampu.compat.celery._settings import Settings, queue_names
from tampu.compat.celery._task_options import new_task, set_options
from tampu.compat.celery.canvas import Canvas, Signature
from tampu.compat.celery.control import Control
from tampu.compat.celery.exceptions import NotRegistered, NotSupported
from tampu.compat.celery.result import AsyncResult, EagerResult, GroupResult, known_first
from tampu.compat.celery.signals import Signal
from tampu.compat.celery.task import Task as BaseTask

__all__ = ["Celery", "current_app", "current_task", "shared_task"]

_shared: Final[list[BaseTask]] = []
"""Shared tasks that were declared before there was an app."""


class Celery:
    """An app: declares tasks and sends them. `app.tampu` is the app of tampu that it holds."""

    Task: type[BaseTask] = BaseTask

    def __init__(
        self,
        main: str | None = None,
        *,
        broker: str | None = None,
        backend: str | None = None,
        include: Sequence[str] | None = None,
        task_cls: type[BaseTask] | None = None,
        config_source: object = None,
        namespace: str | None = None,
        set_as_current: bool = True,
        **settings: Any,
    ) -> None:
        self.main = main
        caller = inspect.currentframe()
        assert caller is not None  # noqa: S101 - CPython has frames
        assert caller.f_back is not None  # noqa: S101 - this was called
        self.module = str(caller.f_back.f_globals.get("__name__"))  # for child processes
        self.on_after_configure = Signal("on_after_configure")
        self.on_after_finalize = Signal("on_after_finalize")
        self._is_configured = False
        self._packages: list[tuple[Callable[[], Iterable[str]], str | None]] = []
        self._noted: list[str] = []
        self._tasks: dict[str, BaseTask] = {}
        self._app: CeleryApp | None = None
        self.control = Control(self)
        self.conf = Settings(self._configure)
        self._app = CeleryApp(self)
        if task_cls is not None:
            self.Task = task_cls
        given = {"broker_url": broker, "result_backend": backend, "include": include, **settings}
        self.conf.update({name: value for name, value in given.items() if value is not None})
        if config_source is not None:
            self.config_from_object(config_source, namespace=namespace)
        if set_as_current or _current.current() is None:
            self.set_current()

    def __repr__(self) -> str:
        return f"<Celery {self.main or '__main__'}>"

    def __getattr__(self, name: str) -> NoReturn:
        refuse("app", name)

    @property
    def tampu(self) -> CeleryApp:
        """The app of tampu, for everything that Celery does not have."""
        assert self._app is not None  # noqa: S101 - made when this was
        return self._app

    @property
    def tasks(self) -> Mapping[str, BaseTask]:
        """Its tasks by name."""
        return self._tasks

    @property
    def current_task(self) -> BaseTask | None:
        """The task that runs here, if any."""
        return running_task()

    def set_current(self) -> None:
        """Become the app of shared tasks, and of signatures by name."""
        _current.set_current(self)
        waiting, _shared[:] = list(_shared), []
        for each in waiting:
            self._adopt(each)

    def set_default(self) -> None:
        """The same as `set_current`."""
        self.set_current()

    def finalize(self, auto: bool = False) -> None:
        """Do nothing: tasks are complete when they are declared."""
        del auto

    def close(self) -> None:
        """Close the connections that sending has opened."""
        self.tampu.close_sync()

    def __enter__(self) -> Celery:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # --- settings -------------------------------------------------------------------------------

    def config_from_object(
        self,
        obj: Any,
        silent: bool = False,
        force: bool = False,
        namespace: str | None = None,
    ) -> None:
        """Take the settings of an object or module; with a namespace, those that begin with it."""
        del silent, force
        source = _named_object(obj) if isinstance(obj, str) else obj
        self.conf.update_from(source, namespace)

    def config_from_envvar(
        self,
        variable_name: str,
        silent: bool = False,
        force: bool = False,
    ) -> None:
        """As `config_from_object`, with the name of a module in an environment variable."""
        self.config_from_object(os.environ[variable_name], silent, force)

    @property
    def zone(self) -> str:
        """The time zone of `crontab` and of times without one."""
        return str(self.conf.timezone or "UTC")

    def aware(self, given: datetime) -> datetime:
        """An instant; without a time zone it is one of the setting `timezone`."""
        return given if given.tzinfo is not None else given.replace(tzinfo=ZoneInfo(self.zone))

    def known_queues(self) -> list[str]:
        """The queues that a job with an unknown queue may be on."""
        return known_first(queue_names(self.conf), self.tampu.queues, self._noted)

    def tracks_start(self, name: str | None) -> bool:
        """Whether a job of this task that runs is STARTED, not PENDING."""
        task = self._tasks.get(name or "")
        own = None if task is None else task.track_started
        return bool(self.conf.task_track_started if own is None else own)

    def note_queue(self, name: str) -> None:
        """Remember the queue of a call."""
        if name not in self._noted:
            self._noted.append(name)

    def _configure(self) -> None:
        check_routes(self.conf.task_routes)
        if self._app is not None:
            self._app.configure()

    # --- modules with tasks ---------------------------------------------------------------------

    def autodiscover_tasks(
        self,
        packages: Sequence[str] | Callable[[], Iterable[str]] | None = None,
        related_name: str | None = "tasks",
        force: bool = False,
    ) -> None:
        """Import the modules `tasks` of packages when a worker starts, or now with `force`.

        Without packages, those of the installed apps of Django.
        """
        if callable(packages):
            find = packages
        elif packages is None:
            find = _django_apps
        else:
            found = tuple(packages)
            find = lambda: found  # noqa: E731 - as short as that
        self._packages.append((find, related_name))
        if force:
            self.tampu.import_tasks()

    def discovered(self) -> list[str]:
        """The modules that `autodiscover_tasks` finds."""
        found: list[str] = []
        for find, related in self._packages:
            for package in find():
                name = package if related is None else f"{package}.{related}"
                if related is None or find_spec(name) is not None:
                    found.append(name)
        return found

    def tell_configured(self) -> None:
        """Send `on_after_configure` and `on_after_finalize`, once, after tasks were imported."""
        if not self._is_configured:
            self._is_configured = True
            self.on_after_configure.send(self, source=self.conf)
            self.on_after_finalize.send(self)

    def add_periodic_task(
        self,
        schedule: object,
        sig: Canvas,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        name: str | None = None,
        **options: Any,
    ) -> str:
        """Add an entry to `beat_schedule`, before the worker starts; returns its key."""
        if not isinstance(sig, Signature):
            raise NotSupported(f"a schedule for a {type(sig).__name__}", "schedule a task")
        key = name or repr(sig)
        call = sig.clone(args, kwargs, **options)
        entry = {"task": sig.task, "schedule": schedule, "args": call.args}
        entry |= {"kwargs": call.kwargs, "options": call.options}
        self.conf.beat_schedule = {**(self.conf.beat_schedule or {}), key: entry}
        return key

    # --- declaring ------------------------------------------------------------------------------

    @overload
    def task(self, function: Callable[..., Any], /) -> BaseTask: ...

    @overload
    def task(self, **options: Any) -> Callable[[Callable[..., Any]], BaseTask]: ...

    def task(self, *args: Any, **options: Any) -> Any:
        """Turn a function into a task: `@app.task`, or `@app.task(bind=True, ...)`."""
        if len(args) == 1 and callable(args[0]):
            return self._adopt(new_task(args[0], options))
        if args:
            raise TypeError("@task() takes exactly 1 argument")
        return lambda function: self._adopt(new_task(function, options))

    def register_task(self, task: BaseTask | type[BaseTask], **options: Any) -> BaseTask:
        """Add a task that is a class of its own, with a method `run`."""
        made = task() if isinstance(task, type) else task
        set_options(made, options)
        return self._adopt(made)

    def declared(self, task: BaseTask) -> DeclaredTask:
        """The task of tampu behind a task; tasks are added to the app when they are declared."""
        return self.tampu.add(task)

    def task_named(self, name: str) -> BaseTask:
        """The task with this name; `NotRegistered` if this program has not imported it."""
        if name not in self._tasks:
            self.tampu.import_tasks()
        if name not in self._tasks:
            raise NotRegistered(name)
        return self._tasks[name]

    def _adopt(self, task: BaseTask) -> BaseTask:
        if type(task) is BaseTask and self.Task is not BaseTask:
            task.__class__ = self.Task  # the base of the app, which a shared task did not know
        task.app = self
        task.name = task.name or self.gen_task_name(*_place_of(task))
        if task.name in self._tasks and _place_of(task) == _place_of(self._tasks[task.name]):
            return self._tasks[task.name]
        declared = task.tampu
        self._tasks[declared.name] = task
        return task

    def gen_task_name(self, name: str, module: str) -> str:
        """The name of a task that has none: its module and its function."""
        if module == "__main__" and self.main:
            return f"{self.main}.{name}"
        return f"{module}.{name}"

    # --- sending --------------------------------------------------------------------------------

    def send_task(
        self,
        name: str,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> AsyncResult | EagerResult:
        """Send a task by its name, also one that only the worker has.

        Arguments travel by name. So those of a task that this program has not imported must be
        given in `kwargs`.
        """
        try:
            task = self.task_named(name)
        except NotRegistered:
            given = _sending.send_options(options)
            return _sending.send_unknown(self, name, (args or (), kwargs or {}), given)
        return task.apply_async(args, kwargs, **options)

    def signature(self, name: str, *args: Any, **options: Any) -> Canvas:
        """A signature of a task by its name."""
        return canvas.signature(name, *args, app=self, **options)

    def AsyncResult(self, task_id: str) -> AsyncResult:  # noqa: N802 - Celery's name
        """The result of the job with this id."""
        return AsyncResult(task_id, app=self)

    def GroupResult(self, group_id: str, results: Sequence[Any]) -> GroupResult:  # noqa: N802 - Celery's name
        """The results of a group."""
        return GroupResult(group_id, results)


# --- shared tasks and the current app -----------------------------------------------------------


@overload
def shared_task(function: Callable[..., Any], /) -> BaseTask: ...


@overload
def shared_task(**options: Any) -> Callable[[Callable[..., Any]], BaseTask]: ...


def shared_task(*args: Any, **options: Any) -> Any:
    """A task of the app that is current, or of the first one that is created."""
    if len(args) == 1 and callable(args[0]):
        return _share(new_task(args[0], options))
    if args:
        raise TypeError("@shared_task() takes exactly 1 argument")
    return lambda function: _share(new_task(function, options))


def _share(task: BaseTask) -> BaseTask:
    app = _current.current()
    if app is None:
        _shared.append(task)
        return task
    return app._adopt(task)


class _CurrentApp:
    """Stands for the app that is current when it is used."""

    def __getattr__(self, name: str) -> Any:
        app = _current.current()
        if app is None:
            raise NotSupported("current_app without an app", "create one first: app = Celery(...)")
        return getattr(app, name)


class _CurrentTask:
    """Stands for the task that runs where it is used; false if none does."""

    def __bool__(self) -> bool:
        return running_task() is not None

    def __getattr__(self, name: str) -> Any:
        return getattr(running_task(), name)


current_app: Any = _CurrentApp()
current_task: Any = _CurrentTask()


def _place_of(task: BaseTask) -> tuple[str, str]:
    body = task.body if task._run is not None else type(task)
    return str(getattr(body, "__name__", type(task).__name__)), str(body.__module__)


def _named_object(name: str) -> object:
    """What "package.module:attribute" or "package.module" names."""
    module, _, attribute = name.partition(":")
    try:
        found: object = importlib.import_module(module)
    except ModuleNotFoundError:
        module, _, attribute = name.rpartition(".")
        if not module or attribute == "":
            raise
        found = importlib.import_module(module)
    for each in attribute.split(".") if attribute else ():
        found = getattr(found, each)
    return found


def _django_apps() -> list[str]:
    if "DJANGO_SETTINGS_MODULE" not in os.environ:
        advice = "name the packages: app.autodiscover_tasks(['shop', 'mail'])"
        raise NotSupported("autodiscover_tasks() without packages outside of Django", advice)
    django = importlib.import_module("django")
    django.setup()
    registry = sys.modules["django.apps"].apps
    return [each.name for each in registry.get_app_configs()]
