"""A task as the handler that a worker runs: arguments converted, dependencies made, all closed."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from contextvars import copy_context
from functools import partial
from inspect import isawaitable, unwrap
from typing import Any, TypeVar

from msgspec import Struct, field

from tampu.consumer.handler import Function
from tampu.job import Job
from tampu.outcome import Retry, Snooze, Unrecoverable
from tampu.tasks.arguments import Arguments
from tampu.tasks.depends import FactoryKind, Step, dependency_steps
from tampu.tasks.middleware import ContextStack, Middleware
from tampu.tasks.signature import Dependency, Signature
from tampu.util.functions import is_async

T = TypeVar("T")
Values = dict[Dependency, Any]


class Recipe(Struct, frozen=True):
    """A task, looked at: all that running it needs."""

    function: Callable[..., Any]
    shape: Signature
    arguments: Arguments
    steps: tuple[Step, ...]

    @classmethod
    def of(cls, name: str, function: Callable[..., Any], shape: Signature) -> "Recipe":
        """The recipe of a function; `OptionError` if it could never be run."""
        arguments = Arguments(name, shape)
        return cls(function, shape, arguments, dependency_steps(shape.dependencies.values()))

    @property
    def is_bare(self) -> bool:
        """Whether it depends on nothing."""
        return not self.steps

    @property
    def needs_loop(self) -> bool:
        """Whether something of it must be awaited, also if a decorator hides that."""
        if is_async(self.function) or is_async(unwrap(self.function)):
            return True
        return any(step.kind.needs_loop for step in self.steps)

    @property
    def closes(self) -> bool:
        """Whether something that it depends on is closed behind the run."""
        return any(step.kind.yields for step in self.steps)


class Runtime(Struct):
    """What the runs of one worker share."""

    values: Values = field(default_factory=dict)  # of the dependencies with scope="app"
    threads: ThreadPoolExecutor | None = None  # None: plain functions run where they are called
    stopping: bool = False  # what is cancelled now is cancelled because its grace is over


def function_for(recipe: Recipe, runtime: Runtime, middleware: Sequence[Middleware]) -> Function:
    """The function of a job that runs the task for it, in the cheapest way that does."""
    if recipe.is_bare and not middleware:
        return _bare_async(recipe) if is_async(recipe.function) else _bare_plain(recipe)
    if middleware or recipe.needs_loop:
        return _TaskCall(recipe, runtime, middleware)
    run = _TaskCall(recipe, Runtime(runtime.values), ())  # in the thread that calls it
    return lambda job: _at_once(run(job))


def _bare_async(recipe: Recipe) -> Function:
    function, convert, jobs = recipe.function, recipe.arguments.convert, recipe.shape.jobs
    if not jobs:

        async def run(job: Job[Any]) -> object:
            return await function(**convert(job.data))

        return run

    async def run_with_job(job: Job[Any]) -> object:
        return await function(**convert(job.data), **dict.fromkeys(jobs, job))

    return run_with_job


def _bare_plain(recipe: Recipe) -> Function:
    function, convert, jobs = recipe.function, recipe.arguments.convert, recipe.shape.jobs

    def run(job: Job[Any]) -> object:
        return function(**convert(job.data), **dict.fromkeys(jobs, job))

    return run


class _TaskCall:
    """Runs a task with all that is around it: middleware, then dependencies, then the function."""

    def __init__(self, recipe: Recipe, runtime: Runtime, middleware: Sequence[Middleware]) -> None:
        self._recipe = recipe
        self._runtime = runtime
        self._middleware = middleware
        self._is_async = is_async(recipe.function)
        self._awaits = bool(runtime.threads or recipe.closes or middleware)

    async def __call__(self, job: Job[Any]) -> object:
        around = ContextStack()
        value, error = None, None
        try:
            for each in self._middleware:
                await around.enter(each(job), essential=False)
            value = await self._called(job, around)
            if isinstance(value, Retry | Snooze | Unrecoverable):
                raise value  # so that what is around it sees it, too  # noqa: TRY301
        except GeneratorExit:
            raise  # the loop is gone: nothing can be left any more
        except BaseException as raised:  # noqa: BLE001 - raised again when all around is left
            error = raised
        error = await around.leave(error)
        if error is None:
            return value
        try:
            raise error
        finally:
            del error  # it knows this frame: a circle that only the collector would find

    async def _called(self, job: Job[Any], around: ContextStack) -> object:
        recipe = self._recipe
        arguments = recipe.arguments.convert(job.data)
        values = dict(self._runtime.values)
        await make(recipe.steps, values, job=job, around=around)
        arguments.update(dict.fromkeys(recipe.shape.jobs, job))
        for name, dependency in recipe.shape.dependencies.items():
            arguments[name] = values[dependency]
        call = partial(recipe.function, **arguments)
        if self._is_async:
            return await call()
        threads = self._runtime.threads
        value = call() if threads is None else await self._in_thread(threads, call)
        # It may be no plain function after all, such as a decorator's around an async one: then
        # what is around it is left when that is through.
        return await value if self._awaits and isawaitable(value) else value

    async def _in_thread(self, threads: ThreadPoolExecutor, call: Callable[[], Any]) -> object:
        """Call it in a thread, which cannot be interrupted.

        Past its time limit it is waited for, since what it uses is closed then. When the worker
        stops it is not: its job is handed back.
        """
        loop = asyncio.get_running_loop()
        running = loop.run_in_executor(threads, copy_context().run, _ended, call)
        try:
            value, error = await asyncio.shield(running)
        except asyncio.CancelledError:
            if not self._runtime.stopping:
                await asyncio.wait([running])
            raise
        if error is not None:
            raise error
        return value


async def make(
    steps: Sequence[Step], values: Values, *, job: Job[Any] | None, around: ContextStack
) -> None:
    """Take the steps whose values are not there yet."""
    for step in steps:
        if step.dependency not in values:
            given = {name: values[needed] for name, needed in step.needs}
            given.update(dict.fromkeys(step.jobs, job))
            values[step.dependency] = await _made(step, given, around)


async def _made(step: Step, given: dict[str, Any], around: ContextStack) -> object:
    factory = step.dependency.factory
    match step.kind:
        case FactoryKind.PLAIN:
            return factory(**given)
        case FactoryKind.ASYNC:
            return await factory(**given)
        case FactoryKind.GENERATOR:
            return await around.enter(contextmanager(factory)(**given), essential=True)
        case FactoryKind.ASYNC_GENERATOR:
            return await around.enter(asynccontextmanager(factory)(**given), essential=True)


def _ended(call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """What it returned, and what it raised: a StopIteration cannot be passed on by a future."""
    try:
        return call(), None
    except BaseException as error:  # noqa: BLE001 - raised again by who waits
        return None, error


def _at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """What a coroutine returns that never suspends: the one core, from a thread without a loop."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return] # a coroutine's
    coroutine.close()
    raise AssertionError(coroutine)  # only what needs no loop is run so
