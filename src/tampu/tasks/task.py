"""A task: a function that can be called as before, and whose calls can be jobs."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, update_wrapper
from typing import (
    Any,
    Generic,
    ParamSpec,
    Protocol,
    Self,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
)

from msgspec import Struct
from msgspec.structs import replace

from tampu.backoff import Backoff
from tampu.consumer.handler import Function, Handler, Isolation
from tampu.errors import ArgumentError, OptionError
from tampu.job import Host, Job, JobOptions, NewJob
from tampu.producer.request import new_job
from tampu.queue import Queue
from tampu.sync import Portal, SyncJob
from tampu.tasks.arguments import ReturnType
from tampu.tasks.execution import Recipe
from tampu.tasks.middleware import Middleware, check_middleware
from tampu.tasks.signature import check_parameters, signature_of
from tampu.util.clock import Duration
from tampu.wire.keys import check_job_name, check_queue_name

P = ParamSpec("P")
R = TypeVar("R")


class TaskOptions(TypedDict, total=False):
    """What may be said of a task."""

    name: str | None
    queue: str | None
    attempts: int | None
    backoff: Backoff | None
    timeout: Duration | None
    isolation: Isolation
    middleware: list[Middleware] | tuple[Middleware, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSettings:
    """The options of a task, checked but for those that a `Handler` checks."""

    name: str | None = None  # None: the function's
    queue: str | None = None  # None: the router's, then the app's
    attempts: int | None = None  # of a job; this and the next three as the worker has it, if None
    backoff: Backoff | None = None
    timeout: Duration | None = None
    isolation: Isolation = None
    middleware: list[Middleware] | tuple[Middleware, ...] = ()

    def __post_init__(self) -> None:
        if self.name is not None:
            check_job_name(self.name)
        if self.queue is not None:
            check_queue_name(self.queue)
        check_middleware(self.middleware)


class TaskProducer(Protocol):
    """What a task needs of its app to become jobs."""

    def queue(self, name: str) -> Queue:
        """The queue of a name, for the running loop."""

    def portal(self) -> Portal:
        """The way for threads without a loop."""


class Home(Protocol):
    """Where a task was declared."""

    @property
    def producer(self) -> TaskProducer:
        """The app; raises `WrongContext` if there is none yet."""

    @property
    def middleware(self) -> tuple[Middleware, ...]:
        """What is around the runs of all of its tasks."""

    def queue_of(self, wanted: str | None) -> str:
        """The queue that a task wants, or the one that it gets otherwise."""


class Call(Struct, Generic[R], frozen=True):
    """A call of a task that has not been added yet: its arguments and its options."""

    task: "Task[..., R]"
    arguments: Mapping[str, object]

    def __repr__(self) -> str:
        return f"<Call of {self.task!r}>"  # arguments are nobody's business


class _Looked:
    """What a look at the function finds: at first use, since annotations may be defined late."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self._name, self._function = name, function

    @cached_property
    def recipe(self) -> Recipe:
        """What running it needs."""
        return Recipe.of(self._name, self._function, signature_of(self._function))

    @cached_property
    def returned(self) -> ReturnType:
        """What is known of its results."""
        return ReturnType(self.recipe.shape.returns)


class Task(Generic[P, R]):
    """A function that is called as before, and whose calls can be added as jobs.

    `P` are the function's parameters, `R` is what it returns, or what awaiting it does. Made by
    `@app.task` and `@router.task`.
    """

    def __init__(self, function: Callable[P, Any], home: Home, settings: TaskSettings) -> None:
        self._take_attributes(function)
        self.handler = Handler(  # checks the function and how it is to be run
            cast("Function", function),
            attempts=settings.attempts,
            backoff=settings.backoff,
            timeout=settings.timeout,
            isolation=settings.isolation,
        )
        self._marked = check_parameters(function)
        self._function = function
        self._home = home
        self._settings = settings
        self._queue = settings.queue
        self._options: JobOptions = {}
        self.name = check_job_name(_name_of(function) if settings.name is None else settings.name)
        self._looked = _Looked(self.name, function)

    def _take_attributes(self, function: Callable[P, Any]) -> None:
        """Look like the function; an attribute of it hides none of a task's own."""
        for name, value in getattr(function, "__dict__", {}).items():
            if not hasattr(type(self), name):
                self.__dict__[name] = value
        update_wrapper(cast("Callable[P, Any]", self), function, updated=())

    def __repr__(self) -> str:
        return f"<Task {self.name!r}>"

    def __reduce__(self) -> str:
        """By its name in its module, as functions are."""
        return str(getattr(self, "__qualname__", self.name))

    @property
    def queue(self) -> str:
        """The queue that its jobs go to."""
        return self._home.queue_of(self._queue)

    @property
    def function(self) -> Callable[P, Any]:
        """The function itself."""
        return self._function

    @property
    def where(self) -> str:
        """The function's full name."""
        name = getattr(self._function, "__qualname__", type(self._function).__qualname__)
        return f"{self.__module__}.{name}"

    @property
    def middleware(self) -> tuple[Middleware, ...]:
        """What is around its runs, outermost first: the app's, the router's, its own."""
        return (*self._home.middleware, *self._settings.middleware)

    @property
    def recipe(self) -> Recipe:
        """What running it needs."""
        return self._looked.recipe

    @property
    def job_options(self) -> JobOptions:
        """What `options` has said of its jobs."""
        return self._options

    def options(self, *, queue: str | None = None, **options: Unpack[JobOptions]) -> Self:
        """The same task, its jobs with these options; `queue` sends them to another queue."""
        new_job(self.name, None, options)  # names an option that there is not
        again = object.__new__(type(self))
        again.__dict__.update(self.__dict__)
        if queue is not None:
            again._queue = check_queue_name(queue)
        again._options = {**self._options, **options}
        return again

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """A call for `enqueue_many`; `ArgumentError` if the arguments do not fit."""
        arguments = self.recipe.arguments
        bound = arguments.bind(args, kwargs)
        arguments.check(bound)
        return Call(self, bound)

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Add a job that calls the function with these arguments; see `Queue.add`.

        `ArgumentError`, and nothing is added, if they do not fit. Parameters that a worker fills
        are left out.
        """
        arguments = self.recipe.arguments
        bound = arguments.bind(args, kwargs)
        arguments.check(bound)
        queue = self._home.producer.queue(self.queue)
        return self._typed(await queue.add(self.name, bound, **self._options))

    async def enqueue_many(self, calls: Iterable[Call[R]]) -> list[Job[R]]:
        """Add many calls of this task in few calls to the server; see `Queue.add_many`.

        They come from `call`, also from that of `options(...)`, whose options they keep. Those of
        several queues are added queue by queue: if one refuses its own, others may have theirs.
        """
        given = list(calls)
        by_queue: dict[str, list[int]] = {}
        for number, each in enumerate(given):
            by_queue.setdefault(self._queue_of(each), []).append(number)
        added: dict[int, Job[R]] = {}
        for queue, numbers in by_queue.items():
            wanted = [given[number].task._new_job(given[number]) for number in numbers]
            jobs = await self._home.producer.queue(queue).add_many(wanted)
            added.update(zip(numbers, map(self._typed, jobs), strict=True))
        return [added[number] for number in range(len(given))]

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> SyncJob[R]:
        """As `enqueue`, from code without an event loop; waits until the job is added."""
        portal = self._home.producer.portal()
        return SyncJob(portal.call(lambda: self.enqueue(*args, **kwargs)), portal)

    def enqueue_many_sync(self, calls: Iterable[Call[R]]) -> list[SyncJob[R]]:
        """As `enqueue_many`, from code without an event loop."""
        portal, given = self._home.producer.portal(), list(calls)
        added = portal.call(lambda: self.enqueue_many(given))
        return [SyncJob(job, portal) for job in added]

    def _queue_of(self, call: Call[R]) -> str:
        given: object = call
        if not isinstance(given, Call) or given.task._function is not self._function:
            accepted = f"expected calls of {self.name}, made by its call(...)"
            raise OptionError("calls", given if isinstance(given, Call) else type(given), accepted)
        return call.task.queue

    def _new_job(self, call: Call[R]) -> NewJob:
        return new_job(self.name, call.arguments, self._options)

    def _typed(self, job: Job[Any]) -> Job[R]:
        returned = self._looked.returned
        return replace(job, host=_TypedHost(job.host, returned)) if returned.converts else job

    def _check_plain_call(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        """A plain call gives everything: nobody fills what is marked."""
        if self._marked:
            bound = inspect.signature(self._function).bind_partial(*args, **kwargs)
            for name in sorted(self._marked - bound.arguments.keys()):
                problem = "is filled by a worker only: give it when you call the function"
                raise ArgumentError(self.name, name, problem)


AnyTask: TypeAlias = Task[..., Any]


class AsyncTask(Task[P, R]):
    """A task of an async function."""

    # Itself async, so that who asks for an async callable finds one.
    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself; no job comes of it."""
        self._check_plain_call(args, kwargs)
        value: R = await self._function(*args, **kwargs)
        return value


class PlainTask(Task[P, R]):
    """A task of a plain function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself; no job comes of it."""
        self._check_plain_call(args, kwargs)
        value: R = self._function(*args, **kwargs)
        return value


class _TypedHost:
    """Where a job lives whose result is more than MessagePack tells."""

    def __init__(self, host: Host, returned: ReturnType) -> None:
        self._host, self._returned = host, returned

    async def wait_for_result(self, job_id: str, timeout: Duration) -> object:
        """What the task returned, of its type."""
        return self._returned.convert(await self._host.wait_for_result(job_id, timeout))

    def report_progress(self, job: Job[Any], percent: int) -> None:
        """As the job's own host has it."""
        self._host.report_progress(job, percent)


def _name_of(function: Callable[..., object]) -> str:
    """The function's short name: the same in `__main__`, and what other programs can write."""
    name = getattr(function, "__name__", None)
    if not isinstance(name, str) or name == "<lambda>":
        raise OptionError("name", name, "must be given for a function that has none")
    return name
