"""Runs a task for a job: converts its arguments, creates its dependencies, closes them again."""

from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from functools import partial
from inspect import isawaitable, unwrap
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from tampu.consumer.batch import JobBatch, convert_batch
from tampu.consumer.handler import Function
from tampu.job import Job
from tampu.outcome import Decision
from tampu.tasks.arguments import (
    Arguments,
    BatchParts,
    RecordArguments,
    refuse_batch,
    without_arguments,
)
from tampu.tasks.attempt_thread import (
    AttemptThread,
    Runtime,
    ThreadManager,
    Values,
    enter_thread,
    leave_thread,
)
from tampu.tasks.depends import FactoryKind, Overrides, Step, dependency_steps, override_all
from tampu.tasks.middleware import ContextStack, Middleware
from tampu.tasks.signature import Signature, signature_of
from tampu.util.options import is_async

T = TypeVar("T")
_AnyManager: TypeAlias = AbstractAsyncContextManager[Any] | AbstractContextManager[Any]


class TaskDefinition(Struct, frozen=True):
    """A task's function, its signature and arguments, and the steps that create dependencies."""

    function: Callable[..., Any]
    signature: Signature
    arguments: Arguments
    steps: tuple[Step, ...]

    @classmethod
    def of(
        cls, name: str, function: Callable[..., Any], *, in_batches: bool = False
    ) -> "TaskDefinition":
        """The definition of a function; `OptionError` if it can never run."""
        signature = signature_of(function)
        steps = dependency_steps(signature.dependencies.values())
        if in_batches:
            parts = BatchParts(name, signature)
            return cls(function, parts.signature, parts.arguments, steps)
        refuse_batch(signature)
        return cls(function, signature, Arguments(name, signature), steps)

    def override(self, overrides: Overrides) -> "TaskDefinition":
        """The definition with other factories; itself if it uses none of the overridden ones."""
        if not any(step.dependency.factory in overrides for step in self.steps):
            return self
        dependencies = override_all(self.signature.dependencies, overrides)
        return replace(
            self,
            signature=replace(self.signature, dependencies=dependencies),
            steps=dependency_steps(dependencies.values(), overrides),
        )

    @property
    def needs_loop(self) -> bool:
        """Whether it or a dependency must be awaited, even if a decorator hides that."""
        if is_async(self.function) or is_async(unwrap(self.function)):
            return True
        return any(step.kind.needs_loop for step in self.steps)

    @property
    def needs_one_thread(self) -> bool:
        """Whether it and a dependency are plain: then both must run in the same thread."""
        if is_async(self.function) or is_async(unwrap(self.function)):
            return False
        own = [step.kind for step in self.steps if step.dependency.scope == "job"]
        return not all(kind.needs_loop for kind in own)

    @property
    def has_cleanup(self) -> bool:
        """Whether a dependency has code to run after the job."""
        return any(step.kind.yields for step in self.steps)


def handler_function(
    definition: TaskDefinition, runtime: Runtime, middleware: Sequence[Middleware]
) -> Function:
    """A function that runs the task for a job, in the cheapest way possible."""
    arguments = definition.arguments
    if isinstance(arguments, RecordArguments):
        inner = replace(definition, arguments=without_arguments(definition.signature))
        return _converting(handler_function(inner, runtime, middleware), arguments.to_record)
    if not definition.steps and not middleware:
        if is_async(definition.function):
            return _simple_async_function(definition)
        return _simple_function(definition)
    if middleware or definition.needs_loop:
        return _TaskCall(definition, runtime, middleware)
    call = _TaskCall(definition, Runtime(runtime.values), ())  # runs in the calling thread
    return lambda job: _run_without_loop(call(job))


def _simple_async_function(definition: TaskDefinition) -> Function:
    function, convert = definition.function, definition.arguments.convert
    job_parameters = definition.signature.job_parameters
    if not job_parameters:

        async def run(job: Job[Any]) -> object:
            return await function(**convert(job.data))

        return run

    async def run_with_job(job: Job[Any]) -> object:
        return await function(**convert(job.data), **dict.fromkeys(job_parameters, job))

    return run_with_job


def _simple_function(definition: TaskDefinition) -> Function:
    function, convert = definition.function, definition.arguments.convert
    job_parameters = definition.signature.job_parameters

    def run(job: Job[Any]) -> object:
        return function(**convert(job.data), **dict.fromkeys(job_parameters, job))

    return run


def _converting(function: Function, to_record: Callable[[object], object]) -> Function:
    """The function; it gets the batch with converted data, or is not called if no job fits."""

    call: Any = function

    async def run(batch: Job[Any]) -> object:
        assert isinstance(batch, JobBatch)  # noqa: S101 - its handler has a batch
        converted = convert_batch(batch, to_record)
        return None if converted is None else await call(converted)

    def run_plainly(batch: Job[Any]) -> object:
        assert isinstance(batch, JobBatch)  # noqa: S101 - its handler has a batch
        converted = convert_batch(batch, to_record)
        return None if converted is None else call(converted)

    return run if is_async(call) else run_plainly


class _TaskCall:
    """Runs a task with its middleware outside, its dependencies inside of that."""

    def __init__(
        self, definition: TaskDefinition, runtime: Runtime, middleware: Sequence[Middleware]
    ) -> None:
        self._definition = definition
        self._runtime = runtime
        self._middleware = middleware
        self._is_async = is_async(definition.function)
        self._is_plain = not (self._is_async or is_async(unwrap(definition.function)))
        self._shares_thread = definition.needs_one_thread
        self._awaits = bool(runtime.threads or definition.has_cleanup or middleware)

    async def __call__(self, job: Job[Any]) -> object:
        threads = self._runtime.threads
        if threads is None:
            return await self._run(job, None)
        thread = AttemptThread(threads, self._runtime)
        token = enter_thread(thread)
        try:
            return await self._run(job, thread)
        finally:
            leave_thread(token)
            thread.end()

    async def _run(self, job: Job[Any], thread: "AttemptThread | None") -> object:
        stack = ContextStack(job)
        value, error = None, None
        try:
            for each in self._middleware:
                await stack.enter(self._place(each(job), thread), essential=False)
            value = await self._call(job, stack, thread)
            if isinstance(value, Decision):
                raise value  # so that middleware and dependencies see it  # noqa: TRY301
        except GeneratorExit:
            raise  # the loop has ended: nothing can be awaited any more
        except BaseException as raised:  # noqa: BLE001 - raised again after the stack is left
            error = raised
        error = await stack.leave(error)
        if error is None:
            return value
        try:
            raise error
        finally:
            del error  # it refers to this frame: a cycle that only the collector would find

    def _place(self, manager: _AnyManager, thread: "AttemptThread | None") -> _AnyManager:
        """A plain context manager belongs into the thread that a plain task runs in."""
        if thread is None or not self._is_plain or not isinstance(manager, AbstractContextManager):
            return manager
        return ThreadManager(manager, thread)

    async def _call(
        self, job: Job[Any], stack: ContextStack, thread: "AttemptThread | None"
    ) -> object:
        definition = self._definition
        arguments = definition.arguments.convert(job.data)
        values = dict(self._runtime.values)
        create = Creation(job, stack, thread if self._shares_thread else None)
        await create_dependencies(definition.steps, values, create)
        arguments.update(dict.fromkeys(definition.signature.job_parameters, job))
        for name, dependency in definition.signature.dependencies.items():
            arguments[name] = values[dependency]
        call = partial(definition.function, **arguments)
        if self._is_async:
            return await call()
        value = call() if thread is None else await thread.call(call)
        # A decorator may hide an async function: await it before the stack is left.
        return await value if self._awaits and isawaitable(value) else value


class Creation(Struct, frozen=True):
    """What dependencies are created with: their job, what closes them, the thread of plain ones."""

    job: Job[Any] | None
    stack: ContextStack
    thread: AttemptThread | None = None  # None: plain factories run where they are called


async def create_dependencies(steps: Sequence[Step], values: Values, creation: Creation) -> None:
    """Add to `values` what the steps create, unless it is there already."""
    for step in steps:
        if step.dependency not in values:
            arguments = {name: values[needed] for name, needed in step.needs}
            arguments.update(dict.fromkeys(step.job_parameters, creation.job))
            factory = partial(step.dependency.factory, **arguments)
            values[step.dependency] = await _create(step.kind, factory, creation)


@asynccontextmanager
async def app_dependencies(steps: Sequence[Step], values: Values) -> AsyncIterator[None]:
    """Inside the block, `values` has the dependencies with scope="app" that the steps create."""
    stack, error = ContextStack(), None
    try:
        await create_dependencies(steps, values, Creation(None, stack))
        yield
    except BaseException as raised:  # noqa: BLE001 - raised again after the stack is left
        error = raised
    values.clear()
    error = await stack.leave(error)
    if error is not None:
        raise error


async def _create(kind: FactoryKind, factory: Callable[[], Any], creation: Creation) -> object:
    stack, thread = creation.stack, creation.thread
    match kind:
        case FactoryKind.PLAIN:
            return factory() if thread is None else await thread.call(factory)
        case FactoryKind.ASYNC:
            value = factory()
            return await value if isawaitable(value) else value  # a decorator may have awaited it
        case FactoryKind.GENERATOR:
            manager = contextmanager(factory)()
            inside = manager if thread is None else ThreadManager(manager, thread)
            return await stack.enter(inside, essential=True)
        case FactoryKind.ASYNC_GENERATOR:
            return await stack.enter(asynccontextmanager(factory)(), essential=True)


def _run_without_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never suspends, from a thread without an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return] # a coroutine's
    coroutine.close()
    raise AssertionError(coroutine)  # handler_function runs only what needs no loop
