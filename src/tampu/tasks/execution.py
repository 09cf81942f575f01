"""Runs a task for a job: converts its arguments, creates its dependencies, closes them again."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from contextvars import copy_context
from functools import partial
from inspect import isawaitable, unwrap
from typing import Any, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from tampu.consumer.handler import Function
from tampu.job import Job
from tampu.outcome import Retry, Snooze, Unrecoverable
from tampu.tasks.arguments import Arguments
from tampu.tasks.depends import FactoryKind, Overrides, Step, dependency_steps, override_all
from tampu.tasks.middleware import ContextStack, Middleware
from tampu.tasks.signature import Dependency, Signature, signature_of
from tampu.util.options import is_async

T = TypeVar("T")
Values = dict[Dependency, Any]


class TaskDefinition(Struct, frozen=True):
    """A task's function, its signature and arguments, and the steps that create dependencies."""

    function: Callable[..., Any]
    signature: Signature
    arguments: Arguments
    steps: tuple[Step, ...]

    @classmethod
    def of(cls, name: str, function: Callable[..., Any]) -> "TaskDefinition":
        """The definition of a function; `OptionError` if it can never run."""
        signature = signature_of(function)
        steps = dependency_steps(signature.dependencies.values())
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
    def has_cleanup(self) -> bool:
        """Whether a dependency has code to run after the job."""
        return any(step.kind.yields for step in self.steps)


class Runtime(Struct):
    """What all attempts of one worker share."""

    values: Values = field(default_factory=dict)  # of the dependencies with scope="app"
    threads: ThreadPoolExecutor | None = None  # None: plain functions run where they are called
    stopping: bool = False  # whether attempts are cancelled because the worker stops


def handler_function(
    definition: TaskDefinition, runtime: Runtime, middleware: Sequence[Middleware]
) -> Function:
    """A function that runs the task for a job, in the cheapest way possible."""
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


class _TaskCall:
    """Runs a task with its middleware outside, its dependencies inside of that."""

    def __init__(
        self, definition: TaskDefinition, runtime: Runtime, middleware: Sequence[Middleware]
    ) -> None:
        self._definition = definition
        self._runtime = runtime
        self._middleware = middleware
        self._is_async = is_async(definition.function)
        self._awaits = bool(runtime.threads or definition.has_cleanup or middleware)

    async def __call__(self, job: Job[Any]) -> object:
        stack = ContextStack(job)
        value, error = None, None
        try:
            for each in self._middleware:
                await stack.enter(each(job), essential=False)
            value = await self._call(job, stack)
            if isinstance(value, Retry | Snooze | Unrecoverable):
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

    async def _call(self, job: Job[Any], stack: ContextStack) -> object:
        definition = self._definition
        arguments = definition.arguments.convert(job.data)
        values = dict(self._runtime.values)
        await create_dependencies(definition.steps, values, job=job, stack=stack)
        arguments.update(dict.fromkeys(definition.signature.job_parameters, job))
        for name, dependency in definition.signature.dependencies.items():
            arguments[name] = values[dependency]
        call = partial(definition.function, **arguments)
        if self._is_async:
            return await call()
        threads = self._runtime.threads
        value = call() if threads is None else await self._call_in_thread(threads, call)
        # A decorator may hide an async function: await it before the stack is left.
        return await value if self._awaits and isawaitable(value) else value

    async def _call_in_thread(self, threads: ThreadPoolExecutor, call: Callable[[], Any]) -> object:
        """Call it in a thread, which cannot be interrupted.

        After a timeout we wait for the thread, because what it uses is closed next. When the worker
        stops we do not: the job goes back to the queue.
        """
        loop = asyncio.get_running_loop()
        running = loop.run_in_executor(threads, copy_context().run, _capture, call)
        try:
            value, error = await asyncio.shield(running)
        except asyncio.CancelledError:
            if not self._runtime.stopping:
                await asyncio.wait([running])
            raise
        if error is not None:
            raise error
        return value


async def create_dependencies(
    steps: Sequence[Step], values: Values, *, job: Job[Any] | None, stack: ContextStack
) -> None:
    """Add to `values` what the steps create, unless it is there already."""
    for step in steps:
        if step.dependency not in values:
            arguments = {name: values[needed] for name, needed in step.needs}
            arguments.update(dict.fromkeys(step.job_parameters, job))
            values[step.dependency] = await _create(step, arguments, stack)


@asynccontextmanager
async def app_dependencies(steps: Sequence[Step], values: Values) -> AsyncIterator[None]:
    """Inside the block, `values` has the dependencies with scope="app" that the steps create."""
    stack, error = ContextStack(), None
    try:
        await create_dependencies(steps, values, job=None, stack=stack)
        yield
    except BaseException as raised:  # noqa: BLE001 - raised again after the stack is left
        error = raised
    values.clear()
    error = await stack.leave(error)
    if error is not None:
        raise error


async def _create(step: Step, arguments: dict[str, Any], stack: ContextStack) -> object:
    factory = step.dependency.factory
    match step.kind:
        case FactoryKind.PLAIN:
            return factory(**arguments)
        case FactoryKind.ASYNC:
            return await factory(**arguments)
        case FactoryKind.GENERATOR:
            return await stack.enter(contextmanager(factory)(**arguments), essential=True)
        case FactoryKind.ASYNC_GENERATOR:
            return await stack.enter(asynccontextmanager(factory)(**arguments), essential=True)


def _capture(call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """The value it returned and the error it raised; a future cannot carry a StopIteration."""
    try:
        return call(), None
    except BaseException as error:  # noqa: BLE001 - raised again by the caller
        return None, error


def _run_without_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never suspends, from a thread without an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return] # a coroutine's
    coroutine.close()
    raise AssertionError(coroutine)  # handler_function runs only what needs no loop
