"""Tasks declared together: a part of an app, or all of it."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from inspect import unwrap
from typing import Any, ParamSpec, Protocol, TypeVar, Unpack, overload

from msgspec import Struct

from tampu.errors import OptionError, WrongContext
from tampu.schedules.model import ScheduleOptions, ScheduleSettings, check_rule
from tampu.tasks.middleware import Middleware, check_middleware
from tampu.tasks.task import (
    AnyTask,
    AsyncTask,
    PlainTask,
    Task,
    TaskOptions,
    TaskProducer,
    TaskSettings,
)
from tampu.timing import Rule
from tampu.util.functions import is_async
from tampu.util.options import check_type, parse_options
from tampu.wire.keys import check_queue_name

P = ParamSpec("P")
R = TypeVar("R")


class DeclaredSchedule(Struct, frozen=True):
    """A schedule that workers store when they start."""

    task: AnyTask
    rule: Rule
    arguments: Mapping[str, object]
    options: ScheduleOptions

    @property
    def key(self) -> str:
        """Its key; the task's name, so that a changed rule replaces the one before."""
        return self.options.get("key") or self.task.name

    def keyed(self) -> ScheduleOptions:
        """Its options with its key."""
        return {**self.options, "key": self.key}

    def data(self) -> dict[str, object]:
        """The arguments of its jobs; `ArgumentError` if the task cannot be called with them."""
        arguments = self.task.recipe.arguments
        bound = arguments.bind((), self.arguments)
        arguments.check(bound)
        return bound


class Owner(TaskProducer, Protocol):
    """The app that a router was included in."""

    @property
    def default_queue(self) -> str:
        """Where tasks go that name no queue."""

    @property
    def tasks(self) -> Mapping[str, AnyTask]:
        """All of its tasks by their names."""

    @property
    def middleware(self) -> tuple[Middleware, ...]:
        """What is around every run."""

    def admit(self, task: AnyTask) -> None:
        """Take a task; a second one of the same name is refused."""


class TaskDecorator(Protocol):
    """What `task(...)` gives: makes a task of a function."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, function: Callable[P, R], /) -> PlainTask[P, R]: ...


class ScheduleDecorator(Protocol):
    """What `schedule(...)` gives: declares a schedule of a task, or of a function made one."""

    @overload
    def __call__(self, task: AsyncTask[P, R], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, task: PlainTask[P, R], /) -> PlainTask[P, R]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, task: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, task: Callable[P, R], /) -> PlainTask[P, R]: ...


class Router:
    """Tasks and schedules of one part of a program; `app.include(router)` makes them the app's.

    `queue` is where its tasks go that name none, `middleware` is around all of them.
    """

    def __init__(self, *, queue: str | None = None, middleware: Sequence[Middleware] = ()) -> None:
        self._queue = None if queue is None else check_queue_name(queue)
        self._middleware = check_middleware(middleware)
        self._owner: Owner | None = None
        self._tasks: dict[str, AnyTask] = {}
        self._schedules: list[DeclaredSchedule] = []

    @property
    def tasks(self) -> Mapping[str, AnyTask]:
        """Its tasks by their names."""
        return self._tasks

    @property
    def schedules(self) -> Sequence[DeclaredSchedule]:
        """The schedules that were declared."""
        return self._schedules

    @property
    def middleware(self) -> tuple[Middleware, ...]:
        """What is around the runs of its tasks: the app's first, then its own."""
        return (*self._owned().middleware, *self._middleware)

    @property
    def producer(self) -> TaskProducer:
        """The app that its tasks' jobs are added by."""
        return self._owned()

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]

    @overload
    def task(self, function: Callable[P, R], /) -> PlainTask[P, R]: ...

    @overload
    def task(self, **options: Unpack[TaskOptions]) -> TaskDecorator: ...

    def task(self, function: Any = None, /, **options: Any) -> Any:  # type: ignore[misc]
        """Make a task of a function: `@app.task` or `@app.task(queue=..., attempts=...)`."""
        settings = parse_options(TaskSettings, "a task", options)

        def declared(function: Callable[..., Any], /) -> AnyTask:
            _check_function(function)
            kind = AsyncTask if is_async(function) else PlainTask
            made: AnyTask = kind(function, self, settings)
            self._keep(made)
            return made

        return declared if function is None else declared(function)

    def schedule(
        self,
        rule: Rule,
        *,
        args: Mapping[str, object] | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleDecorator:
        """Declare a schedule: each worker that serves the task's queue stores it as it starts.

        `args` are the arguments of its jobs, by name. Its key is the task's name unless `key` is
        given. Options are those of `Queue.schedule`.
        """
        settings = parse_options(ScheduleSettings, "a schedule", options)
        check_rule(rule, settings)
        check_type("args", args, Mapping | None, accepted="a dict of arguments by their names")

        def declared(task: Any, /) -> Any:  # noqa: ANN401 - as its type says
            made = task if isinstance(task, Task) else self.task(task)
            for option, given in made.job_options.items():
                raise OptionError(option, given, "is an option of a call: a schedule has its own")
            self._schedules.append(DeclaredSchedule(made, rule, args or {}, options))
            return made

        return declared

    def queue_of(self, wanted: str | None) -> str:
        """The queue of a task that wants this one."""
        return wanted or self._queue or self._owned().default_queue

    def give_to(self, owner: Owner) -> None:
        """Become a part of an app: all of its tasks, or none."""
        if self._owner is not None:
            raise OptionError("router", self, "is a part of an app already")
        for task in self._tasks.values():
            refuse_clash(owner.tasks, task)
        for task in self._tasks.values():
            owner.admit(task)
        self._owner = owner

    def _keep(self, task: AnyTask) -> None:
        refuse_clash(self._tasks, task)
        if self._owner is not None:
            self._owner.admit(task)
        self._tasks[task.name] = task

    def _owned(self) -> Owner:
        if self._owner is None:
            raise WrongContext("use this task", "its router is not included in an app yet")
        return self._owner


def _check_function(given: object) -> None:
    if isinstance(given, Task):
        raise OptionError("function", given, "is a task already; a schedule stands above its task")
    if not callable(given):
        accepted = "must be a function; options have names, as in @app.task(queue=...)"
        raise OptionError("function", given, accepted)


def refuse_clash(tasks: Mapping[str, AnyTask], task: AnyTask) -> None:
    """Refuse a second task of a name."""
    other = tasks.get(task.name)
    if other is not None:
        way_out = "give one of them another name"
        if other.__module__ != task.__module__ and _file_of(other) == _file_of(task):
            way_out = "that is one module, run and imported; run it from another one"
        raise OptionError(
            "name", task.name, f"names both {other.where} and {task.where}: {way_out}"
        )


def _file_of(task: AnyTask) -> str:
    code = getattr(unwrap(task.function), "__code__", None)
    return getattr(code, "co_filename", task.__module__)
