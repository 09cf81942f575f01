"""Routers: tasks and schedules that are declared together."""

from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from inspect import unwrap
from typing import (
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    Required,
    TypeVar,
    Unpack,
    overload,
)

from msgspec import Struct

from tampu.consumer.batch import JobBatch
from tampu.consumer.handler import Batch
from tampu.errors import OptionError, WrongContext
from tampu.limits.model import Concurrency, Limit, NamedLimits, Rate, check_limit_name, define_named
from tampu.limits.placing import Placement, find_place
from tampu.producer.request import JobRules
from tampu.schedules.model import ScheduleOptions, ScheduleSettings, check_rule, flow_options
from tampu.schedules.storing import NewSchedule
from tampu.tasks.middleware import Middleware, check_middleware
from tampu.tasks.settings import PlainTaskKeywords, TaskOptions, TaskSettings
from tampu.tasks.stream_task import StreamTask
from tampu.tasks.task import (
    AnyTask,
    AsyncTask,
    PlainTask,
    Task,
    TaskProducer,
)
from tampu.timing import Rule
from tampu.util.options import check_type, is_async, parse_options, yields
from tampu.wire.lines import LimitDefinition
from tampu.wire.names import check_queue_name
from tampu.wire.payload import encode_payload

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Y = TypeVar("Y")


class DeclaredSchedule(Struct, frozen=True):
    """A schedule that workers store when they start."""

    task: AnyTask
    rule: Rule
    arguments: Mapping[str, object]
    options: ScheduleOptions

    @property
    def key(self) -> str:
        """Its key; by default the task's name, so that a changed rule replaces the old one."""
        return self.options.get("key") or self.task.name

    def options_with_key(self) -> ScheduleOptions:
        """Its options, including its key."""
        return {**self.options, "key": self.key}

    def to_store(self, rules: JobRules) -> NewSchedule:
        """What a worker stores: like any schedule, and marked with the task that declares it."""
        options = self.options_with_key()
        if "expires" not in options:
            options["expires"] = self.task.expires
        settings = parse_options(ScheduleSettings, "a schedule", options)
        return NewSchedule(
            self.task.name,
            check_rule(self.rule, settings),
            encode_payload(self.data(), max_bytes=rules.max_payload),
            settings,
            place=self.place(rules.limits),
            declared_by=self.task.import_name,
        )

    def place(self, named: NamedLimits) -> Placement | None:
        """Where its jobs wait: as the task says, unless the schedule says otherwise."""
        data = self.data()
        flow = self.task.flow_options(data, flow_options(self.options))
        return find_place(self.task.name, data, flow, named=named)

    def data(self) -> dict[str, object]:
        """The data of its jobs; `ArgumentError` if the arguments do not fit the task."""
        return self.task.bind((), self.arguments)


class RouterOwner(TaskProducer, Protocol):
    """The app that includes a router."""

    @property
    def default_queue(self) -> str:
        """The queue of tasks that name none."""

    @property
    def tasks(self) -> Mapping[str, AnyTask]:
        """All of its tasks by name."""

    @property
    def middleware(self) -> tuple[Middleware, ...]:
        """The middleware of all tasks."""

    @property
    def limits(self) -> Mapping[str, LimitDefinition]:
        """All limits that were declared under a name."""

    def register(self, task: AnyTask) -> None:
        """Add a task; a second one with the same name is refused."""

    def register_limit(self, name: str, definition: LimitDefinition) -> None:
        """Add a limit; another definition of the same name is refused."""


class BatchTaskKeywords(TaskOptions, total=False):
    """Options of a task that gets batches, as keywords."""

    batch: Required[Batch]  # type: ignore[misc] # narrower than that of any task


class BatchTask(Task[[T], Any], Generic[T]):
    """A task whose function gets many jobs at once; each is enqueued as one record."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the function's own
        """Call the function itself, with a `JobBatch`."""
        self._check_plain_call(args, kwargs)
        function: Callable[..., Any] = self.function
        return function(*args, **kwargs)


class CollectDecorator(Protocol[R]):
    """The decorator that `task(collect=...)` returns: turns a generator into a task."""

    @overload
    def __call__(self, function: Callable[P, AsyncIterator[Y]], /) -> StreamTask[P, R, Y]: ...

    @overload
    def __call__(self, function: Callable[P, Iterator[Y]], /) -> StreamTask[P, R, Y]: ...


class TaskDecorator(Protocol):
    """The decorator that `task(...)` returns: turns a function into a task."""

    @overload
    def __call__(self, function: Callable[P, AsyncIterator[Y]], /) -> StreamTask[P, None, Y]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, function: Callable[P, Iterator[Y]], /) -> StreamTask[P, None, Y]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, function: Callable[P, R], /) -> PlainTask[P, R]: ...


class BatchDecorator(Protocol):
    """The decorator that `task(batch=...)` returns: turns a function of a batch into a task."""

    def __call__(
        self, function: Callable[Concatenate[JobBatch[T], ...], object], /
    ) -> BatchTask[T]:
        """The task of the function."""


class ScheduleDecorator(Protocol):
    """The decorator that `schedule(...)` returns: for a task, or a function that becomes one."""

    @overload
    def __call__(self, task: BatchTask[T], /) -> BatchTask[T]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, task: StreamTask[P, R, Y], /) -> StreamTask[P, R, Y]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, task: AsyncTask[P, R], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, task: PlainTask[P, R], /) -> PlainTask[P, R]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, task: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, task: Callable[P, R], /) -> PlainTask[P, R]: ...


class Router:
    """Tasks and schedules of one part of a program; `app.include(router)` adds them to the app.

    `queue` is the queue of tasks that name none. `middleware` applies to all of its tasks.
    """

    def __init__(self, *, queue: str | None = None, middleware: Sequence[Middleware] = ()) -> None:
        self._queue = None if queue is None else check_queue_name(queue)
        self._middleware = check_middleware(middleware)
        self._owner: RouterOwner | None = None
        self._tasks: dict[str, AnyTask] = {}
        self._schedules: list[DeclaredSchedule] = []
        self._limits: dict[str, LimitDefinition] = {}

    @property
    def tasks(self) -> Mapping[str, AnyTask]:
        """Its tasks by name."""
        return self._tasks

    @property
    def schedules(self) -> Sequence[DeclaredSchedule]:
        """The declared schedules."""
        return self._schedules

    @property
    def limits(self) -> Mapping[str, LimitDefinition]:
        """The limits that were declared under a name."""
        return self._limits

    @property
    def middleware(self) -> tuple[Middleware, ...]:
        """The middleware of its tasks: the app's first, then its own."""
        return (*self._app().middleware, *self._middleware)

    @property
    def producer(self) -> TaskProducer:
        """The app, through which its tasks add jobs."""
        return self._app()

    @overload
    def task(self, function: Callable[P, AsyncIterator[Y]], /) -> StreamTask[P, None, Y]: ...  # type: ignore[overload-overlap]

    @overload
    def task(self, function: Callable[P, Iterator[Y]], /) -> StreamTask[P, None, Y]: ...  # type: ignore[overload-overlap]

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]

    @overload
    def task(self, function: Callable[P, R], /) -> PlainTask[P, R]: ...

    @overload
    def task(self, **options: Unpack[BatchTaskKeywords]) -> BatchDecorator: ...  # type: ignore[overload-overlap]

    @overload
    def task(  # as below, but `"".join` has two signatures, and type checkers would take the first
        self, *, collect: Callable[[list[str]], str], **options: Unpack[PlainTaskKeywords]
    ) -> CollectDecorator[str]: ...

    @overload
    def task(
        self, *, collect: Callable[[list[Any]], R], **options: Unpack[PlainTaskKeywords]
    ) -> CollectDecorator[R]: ...

    @overload
    def task(self, **options: Unpack[PlainTaskKeywords]) -> TaskDecorator: ...

    def task(self, function: Any = None, /, **options: Any) -> Any:  # type: ignore[misc]
        """Turn a function into a task: `@app.task` or `@app.task(queue=..., attempts=...)`."""
        settings = parse_options(TaskSettings, "a task", options)

        def declare(function: Callable[..., Any], /) -> AnyTask:
            _check_function(function)
            kind: type[AnyTask] = AsyncTask if is_async(function) else PlainTask
            if yields(function):
                kind = StreamTask
            if settings.batch is not None:
                kind = BatchTask
            task = kind(function, self, settings)
            self._declare(task)
            return task

        return declare if function is None else declare(function)

    def limit(self, name: str, *limits: Concurrency | Rate) -> Limit:
        """Declare a limit under a name: `app.limit("stripe", Rate("25/s"), Concurrency(10))`.

        Tasks of the app share it, on each queue by itself. Returns `Limit(name)`, which is what
        tasks name it by. For one limit for each value write `Limit(name, by=...)` there.
        """
        definition = define_named(check_limit_name(name), limits)
        if self._owner is not None:
            self._owner.register_limit(name, definition)
        self.register_limit(name, definition)
        return Limit(name)

    def register_limit(self, name: str, definition: LimitDefinition) -> None:
        """Take a limit; `OptionError` if there is another one with the same name."""
        check_same(self._limits, name, definition)
        self._limits[name] = definition

    def check_limits(self) -> None:
        """Refuse tasks that name a limit that is not declared."""
        for task in self._tasks.values():
            task.check_limits()

    def schedule(
        self,
        rule: Rule,
        *,
        args: Mapping[str, object] | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleDecorator:
        """Declare a schedule: each worker of the task's queue stores it when it starts.

        `args` are the arguments of its jobs, by name. The key is the task's name unless you pass
        `key`. Options are those of `queue.schedules.add`.
        """
        settings = parse_options(ScheduleSettings, "a schedule", options)
        check_rule(rule, settings)
        check_type("args", args, Mapping | None, accepted="a dict of arguments by name")

        def declare(task: Any, /) -> Any:  # noqa: ANN401 - typed by ScheduleDecorator
            declared = task if isinstance(task, Task) else self.task(task)
            for option, given in declared.own_options.items():
                problem = "a schedule does not use task.options(...); set options on schedule(...)"
                raise OptionError(option, given, problem)
            self._schedules.append(DeclaredSchedule(declared, rule, args or {}, options))
            return declared

        return declare

    def queue_or_default(self, name: str | None) -> str:
        """The name itself; if it is None, the queue of the router or of the app."""
        return name or self._queue or self._app().default_queue

    def attach(self, owner: RouterOwner) -> None:
        """Become part of an app: with all of its tasks, or with none."""
        if self._owner is not None:
            raise OptionError("router", self, "already included in an app")
        for task in self._tasks.values():
            check_unique(owner.tasks, task)
        for name, definition in self._limits.items():
            check_same(owner.limits, name, definition)
        for task in self._tasks.values():
            owner.register(task)
        for name, definition in self._limits.items():
            owner.register_limit(name, definition)
        self._owner = owner

    def _declare(self, task: AnyTask) -> None:
        check_unique(self._tasks, task)
        if self._owner is not None:
            self._owner.register(task)
        self._tasks[task.name] = task

    def _app(self) -> RouterOwner:
        if self._owner is None:
            raise WrongContext("use this task", "its router is not included in an app yet")
        return self._owner


def check_same(limits: Mapping[str, LimitDefinition], name: str, new: LimitDefinition) -> None:
    """Refuse another definition of a limit."""
    if limits.get(name, new) != new:
        raise OptionError("limit", name, "declared twice, with different values")


def _check_function(given: object) -> None:
    if isinstance(given, Task):
        problem = "already a task; write @app.schedule(...) above @app.task"
        raise OptionError("function", given, problem)
    if not callable(given):
        problem = "expected a function; pass options by name, as in @app.task(queue=...)"
        raise OptionError("function", given, problem)


def check_unique(tasks: Mapping[str, AnyTask], task: AnyTask) -> None:
    """Refuse a second task with the same name."""
    other = tasks.get(task.name)
    if other is not None:
        advice = "give one of them another name"
        if other.__module__ != task.__module__ and _file_of(other) == _file_of(task):
            advice = "the module was both run and imported; start the program from another module"
        both = f"{other.full_name} and {task.full_name}"
        raise OptionError("name", task.name, f"used by both {both}; {advice}")


def _file_of(task: AnyTask) -> str:
    code = getattr(unwrap(task.function), "__code__", None)
    return getattr(code, "co_filename", task.__module__)
