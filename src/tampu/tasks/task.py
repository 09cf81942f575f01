"""A task: a function that can still be called, and whose calls can be added as jobs."""

import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import update_wrapper
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    ParamSpec,
    Protocol,
    Self,
    TypeAlias,
    TypeVar,
    Unpack,
    cast,
)

from msgspec.structs import asdict, replace

from tampu.consumer.handler import Function, Handler, StreamHandler
from tampu.errors import ArgumentError, OptionError
from tampu.job import Job, JobOptions, NewJob
from tampu.limits.declared import NO_FLOW, check_declared
from tampu.limits.model import NamedLimits
from tampu.limits.placing import FlowOptions, limits_of
from tampu.producer.request import JobRules, new_job, request_for
from tampu.producer.sync_job import SyncJob
from tampu.tasks.arguments import WHOLE, ConvertingHost, ReturnType
from tampu.tasks.calls import Call, FirstStep
from tampu.tasks.depends import refuse_web_dependencies
from tampu.tasks.drafts import Draft, check_draft, split_arguments
from tampu.tasks.execution import TaskDefinition
from tampu.tasks.lazy import LazyDefinition
from tampu.tasks.middleware import Middleware
from tampu.tasks.settings import TaskSettings
from tampu.tasks.signature import check_parameters, function_name, module_name
from tampu.util.clock import Duration, now_ms
from tampu.util.options import yields
from tampu.util.portal import Portal
from tampu.wire.lines import LimitDefinition
from tampu.wire.names import check_job_name, check_queue_name

if TYPE_CHECKING:
    from tampu.queue import Queue

P = ParamSpec("P")
R = TypeVar("R")


class TaskProducer(Protocol):
    """What a task needs from its app to add jobs."""

    def queue(self, name: str) -> "Queue":
        """The queue with this name, for the running event loop."""

    async def add_draft(self, draft: Draft, following: Sequence[Draft]) -> None:
        """Add a job whose request has its id; make known what those need that follow it."""

    def portal(self) -> Portal:
        """The portal for threads without an event loop."""

    @property
    def limits(self) -> NamedLimits:
        """The limits that were declared under a name."""

    @property
    def job_rules(self) -> JobRules:
        """The limits of each job."""

    def trace_headers(self) -> dict[str, str]:
        """What jobs carry that are added later, so that they belong to the trace of now."""


class TaskRegistry(Protocol):
    """The router or app that a task was declared with."""

    @property
    def producer(self) -> TaskProducer:
        """The app; raises `WrongContext` if the router is not included in one yet."""

    @property
    def middleware(self) -> tuple[Middleware, ...]:
        """The middleware of all of its tasks."""

    def queue_or_default(self, name: str | None) -> str:
        """The name itself, or the default queue if it is None."""


class Task(Generic[P, R]):
    """A function that can still be called, and whose calls can be added as jobs.

    `P` are the function's parameters, `R` is its result. Created by `@app.task` and `@router.task`.
    """

    def __init__(
        self, function: Callable[P, Any], registry: TaskRegistry, settings: TaskSettings
    ) -> None:
        self._copy_attributes(function)
        make = StreamHandler if yields(function) else Handler
        self.handler = make(  # validates the function and its options
            cast("Function", function),
            attempts=settings.attempts,
            backoff=settings.backoff,
            timeout=settings.timeout,
            isolation=settings.isolation,
            result_ttl=settings.result_ttl,
            batch=settings.batch,
        )
        settings.check_streaming(streams=self.handler.streams)
        self._injected = check_parameters(function)
        refuse_web_dependencies(function)
        self._function = function
        self._registry = registry
        self._settings = settings
        self._flow = settings.flow
        self._flow.check_arguments(inspect.signature(function).parameters.keys() - self._injected)
        self._queue = settings.queue
        self._options: JobOptions = {}
        self.name = check_job_name(
            function_name(function) if settings.name is None else settings.name
        )
        self._lazy = LazyDefinition(self.name, function, settings)

    def _copy_attributes(self, function: Callable[P, Any]) -> None:
        """Look like the function, without hiding any attribute of a task."""
        for name, value in getattr(function, "__dict__", {}).items():
            if not hasattr(type(self), name):
                self.__dict__[name] = value
        update_wrapper(cast("Callable[P, Any]", self), function, updated=())

    def __repr__(self) -> str:
        return f"<Task {self.name!r}>"

    def __reduce__(self) -> str:
        """Pickled by its name in its module, as functions are."""
        return str(getattr(self, "__qualname__", self.name))

    @property
    def queue(self) -> str:
        """The queue that its jobs are added to."""
        return self._registry.queue_or_default(self._queue)

    @property
    def function(self) -> Callable[P, Any]:
        """The function itself."""
        return self._function

    @property
    def full_name(self) -> str:
        """The name of the function with its module."""
        name = getattr(self._function, "__qualname__", type(self._function).__qualname__)
        return f"{self.__module__}.{name}"

    @property
    def return_type(self) -> ReturnType:
        """What its result is converted to."""
        return self._lazy.return_type

    @property
    def import_name(self) -> str:
        """Its full name as other programs see it: the same if its module is the program itself."""
        module = self.__module__
        return module_name(module) + self.full_name.removeprefix(module)

    @property
    def middleware(self) -> tuple[Middleware, ...]:
        """Its middleware, outermost first: the app's, the router's, its own."""
        return (*self._registry.middleware, *self._settings.middleware)

    @property
    def definition(self) -> TaskDefinition:
        """Its signature, arguments and dependencies; `OptionError` if it can never run."""
        return self._lazy.definition

    @property
    def returns_nothing(self) -> bool:
        """Whether a result of None only says that it has ended."""
        return not self.handler.streams and self.definition.signature.returns_nothing

    @property
    def expires(self) -> Duration | None:
        """How long its jobs wait before they are buried instead of run."""
        return self._settings.expires

    @property
    def own_options(self) -> JobOptions:
        """The options of its jobs that were set by `options`."""
        return self._options

    def flow_options(
        self, arguments: Mapping[str, object], own: Mapping[str, object]
    ) -> FlowOptions:
        """Where the job of a call waits; `own` are options of the job. Raises `OptionError`."""
        found = self._flow.for_call({**self._lazy.defaults, **arguments}, own)
        check_declared(found.limits, self._registry.producer.limits)
        return found

    def limits(self, named: NamedLimits) -> dict[str, LimitDefinition]:
        """The limits of its jobs, given those that the app has declared under a name."""
        return limits_of(self.name, self._settings.limits, named)

    def check_limits(self) -> None:
        """Refuse a task that names a limit that its app does not declare."""
        check_declared(self._flow.limits, self._registry.producer.limits)

    def _job_options(self, arguments: Mapping[str, object] | None) -> JobOptions:
        """The options of the job of a call: those of the task, and its own, which win."""
        given = {"unique": self._settings.unique, "expires": self._settings.expires}
        known = {name: value for name, value in given.items() if value is not None}
        options: JobOptions = {**cast("JobOptions", known), **self._options}
        if arguments is None or not self.is_placed:
            return options
        flow = asdict(self.flow_options(arguments, self._options))
        return {**options, **cast("JobOptions", flow)}

    def options(self, *, queue: str | None = None, **options: Unpack[JobOptions]) -> Self:
        """The same task with options for its jobs; `queue` adds them to another queue."""
        new_job(self.name, None, options)  # refuses unknown options
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__)
        if queue is not None:
            copy._queue = check_queue_name(queue)
        copy._options = {**self._options, **options}
        return copy

    def draft(
        self,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
        *,
        check: bool = True,
        place: bool = True,
    ) -> Draft:
        """A job of a flow or chain to come, whose arguments may stand for results.

        `check`: known arguments were not checked yet. `place`: flow control decides about it now.
        """
        arguments = self.definition.arguments
        bound = split_arguments(arguments.bind(args, kwargs))
        if check:
            arguments.check_some(bound.known)
        data = bound.sent.get(WHOLE, bound.sent)
        job = new_job(self.name, data, self._job_options(bound.known if place else None))
        rules = self._registry.producer.job_rules
        request = check_draft(request_for(job, rules, now_ms()))
        return Draft(self.queue, request, bound.later)

    def check_items(self, items: Sequence[object]) -> None:
        """Refuse items of a map that do not fit the first parameter."""
        self.definition.arguments.check_first(items)

    @property
    def is_placed(self) -> bool:
        """Whether flow control decides about each of its jobs."""
        return self._flow != NO_FLOW or bool(self._options.get("limits"))

    async def add_first(self, first: Draft, others: Sequence[Draft], *, step: FirstStep) -> None:
        """Add the first step of a chain."""
        request = replace(first.request, job_id=step.job_id, payload=step.payload)
        draft = replace(first, request=request)
        await self._registry.producer.add_draft(draft, others)

    def trace_headers(self) -> dict[str, str]:
        """What jobs carry that are added later, so that they belong to the trace of now."""
        return self._registry.producer.trace_headers()

    def in_portal(self, add: Callable[[], Coroutine[Any, Any, Job[R]]]) -> SyncJob[R]:
        """The job that is added in the thread of the app."""
        portal = self._registry.producer.portal()
        return self._make_sync(portal.call(add), portal)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """A call for `enqueue_many`; `ArgumentError` if the arguments do not fit."""
        return Call(self, self.bind(args, kwargs))

    def bind(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[str, object]:
        """The arguments of a call by name, checked as the worker will; else `ArgumentError`."""
        arguments = self.definition.arguments
        bound = arguments.bind(args, kwargs)
        arguments.check(bound)
        return bound

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Add a job that calls the function with these arguments; see `Queue.add`.

        Leave out the parameters that the worker injects. If the arguments do not fit, raises
        `ArgumentError` and adds nothing.
        """
        bound = self.bind(args, kwargs)
        queue = self._registry.producer.queue(self.queue)
        options = self._job_options(bound)
        return self.typed(await queue.add(self.name, bound, **options))

    async def enqueue_many(self, calls: Iterable[Call[R]]) -> list[Job[R]]:
        """Add many calls of this task with few calls to the server; see `Queue.add_many`.

        Create them with `call`, or with `options(...).call` to give them options. Calls for several
        queues are added queue by queue: if one queue refuses, others may have added theirs.
        """
        given = list(calls)
        by_queue: dict[str, list[int]] = {}
        for number, each in enumerate(given):
            by_queue.setdefault(self._queue_for(each), []).append(number)
        wanted = [each.task.job_of(each) for each in given]
        added: dict[int, Job[R]] = {}
        for queue, numbers in by_queue.items():
            new = [wanted[number] for number in numbers]
            jobs = await self._registry.producer.queue(queue).add_many(new)
            added.update(zip(numbers, map(self.typed, jobs), strict=True))
        return [added[number] for number in range(len(given))]

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> SyncJob[R]:
        """As `enqueue`, from code without an event loop; waits until the job is added."""
        return self.in_portal(lambda: self.enqueue(*args, **kwargs))

    def enqueue_many_sync(self, calls: Iterable[Call[R]]) -> list[SyncJob[R]]:
        """As `enqueue_many`, from code without an event loop."""
        portal, given = self._registry.producer.portal(), list(calls)
        added = portal.call(lambda: self.enqueue_many(given))
        return [self._make_sync(job, portal) for job in added]

    def job(self, job_id: str) -> Job[R]:
        """The job of this task with this id, whoever added it; see `Queue.job`."""
        return self.typed(self._registry.producer.queue(self.queue).job(job_id))

    def job_sync(self, job_id: str) -> SyncJob[R]:
        """As `job`, for code without an event loop."""

        async def find() -> Job[R]:
            return self.job(job_id)

        return self.in_portal(find)

    def _queue_for(self, call: Call[R]) -> str:
        given: object = call
        if not isinstance(given, Call) or given.task._function is not self._function:
            expected = f"expected calls created by {self.name}.call(...)"
            raise OptionError("calls", given if isinstance(given, Call) else type(given), expected)
        return call.task.queue

    def job_of(self, call: Call[R]) -> NewJob:
        """The job of a call, with the options of the task and its own."""
        return new_job(self.name, call.arguments, self._job_options(call.arguments))

    def typed(self, job: Job[Any]) -> Job[R]:
        """The job of this task; its `result` converts the value if the return type needs it."""
        kind = self._lazy.return_type
        return replace(job, host=ConvertingHost(job.host, kind)) if kind.converts else job

    @staticmethod
    def _make_sync(job: Job[Any], portal: Portal) -> SyncJob[Any]:
        return SyncJob(job, portal)

    def _check_plain_call(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
        """A plain call must give every argument, also those that a worker injects."""
        if self._injected:
            bound = inspect.signature(self._function).bind_partial(*args, **kwargs)
            for name in sorted(self._injected - bound.arguments.keys()):
                problem = "injected only by a worker; pass it when you call the function yourself"
                raise ArgumentError(self.name, name, problem)


AnyTask: TypeAlias = Task[..., Any]


class AsyncTask(Task[P, R]):
    """A task of an async function."""

    # Async itself, so that code that checks for an async function finds one.
    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, without a job."""
        self._check_plain_call(args, kwargs)
        value: R = await self._function(*args, **kwargs)
        return value


class PlainTask(Task[P, R]):
    """A task of a plain function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, without a job."""
        self._check_plain_call(args, kwargs)
        value: R = self._function(*args, **kwargs)
        return value
