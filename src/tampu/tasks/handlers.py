"""Turns tasks into the handlers of a worker."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from tampu.consumer.handler import Function, Handler, Isolation, KeptResults
from tampu.consumer.options import WorkerOptions, WorkerSettings
from tampu.errors import OptionError
from tampu.job import Job
from tampu.tasks.attempt_thread import Runtime
from tampu.tasks.depends import NO_OVERRIDES, Overrides, Step
from tampu.tasks.execution import handler_function
from tampu.tasks.middleware import Middleware
from tampu.tasks.task import AnyTask
from tampu.util.options import parse_options

_SIGN_TTL_S: Final = 60


class ChildFunction:
    """Runs a task in a child process, with its middleware and its dependencies of one job.

    It is pickled as the names of the task and its middleware.
    """

    def __init__(self, task: AnyTask, middleware: tuple[Middleware, ...]) -> None:
        self._task, self._middleware = task, middleware
        self._function: Function | None = None

    def __repr__(self) -> str:
        return self._task.full_name

    def __reduce__(self) -> tuple[type["ChildFunction"], tuple[AnyTask, tuple[Middleware, ...]]]:
        return ChildFunction, (self._task, self._middleware)

    def __call__(self, job: Job[Any]) -> object:
        """The task's return value, or an awaitable of it."""
        if self._function is None:
            self._function = handler_function(self._task.definition, Runtime(), self._middleware)
        return self._function(job)


def parse_worker_options(owner: str, options: WorkerOptions) -> WorkerSettings:
    """The options of a worker that runs tasks, validated."""
    settings = parse_options(WorkerSettings, owner, options)
    if settings.raw:
        problem = "not supported for tasks, whose data is converted to arguments"
        raise OptionError("raw", settings.raw, problem)
    return settings


def handler_of(
    task: AnyTask,
    runtime: Runtime,
    isolation: Isolation,
    *,
    overrides: Overrides = NO_OVERRIDES,
) -> Handler:
    """The handler that runs a task; `OptionError` if the task can never run."""
    definition, middleware = task.definition.override(overrides), task.middleware
    if (task.handler.isolation or isolation) is None:
        return replace(task.handler, function=handler_function(definition, runtime, middleware))
    if definition is not task.definition:
        problem = (
            f"not possible for task {task.name!r} inside app.override(...), "
            "which does not reach child processes"
        )
        raise OptionError("isolation", "process", problem)
    for step in definition.steps:
        if step.dependency.scope == "app":
            problem = (
                f"not possible for task {task.name!r}: its dependency {step.dependency.name} has "
                'scope="app" and exists only in the worker, not in its child processes'
            )
            raise OptionError("isolation", "process", problem)
    return replace(task.handler, function=ChildFunction(task, middleware))


def kept_results(task: AnyTask, kept: KeptResults) -> KeptResults:
    """What is kept of the results of a task, given the options.

    A None that only says that the function has returned is kept for a minute at most, unless the
    task has a time of its own: most tasks return nothing, and few callers wait for them.
    """
    is_sign = task.returns_nothing and task.handler.result_ttl is None
    none_ttl_s = min(kept.ttl_s, _SIGN_TTL_S) if is_sign else kept.ttl_s
    return KeptResults(kept.ttl_s, none_ttl_s, optional=True)


def app_steps(tasks: Iterable[AnyTask], overrides: Overrides = NO_OVERRIDES) -> list[Step]:
    """The steps that create all dependencies with scope="app", each once, in order."""
    definitions = [task.definition.override(overrides) for task in tasks]
    steps = {step.dependency: step for each in definitions for step in each.steps}
    return [step for step in steps.values() if step.dependency.scope == "app"]


def check_override(tasks: Iterable[AnyTask], factory: object, replacement: object) -> None:
    """Refuse an override that has no effect, or whose replacement is not a factory."""
    if not callable(replacement):
        problem = "expected a function; to use a value, pass a function that returns it"
        raise OptionError("replacement", type(replacement), problem)
    steps = [step for task in tasks for step in task.definition.steps]
    if not any(step.dependency.factory == factory for step in steps):
        name = getattr(factory, "__qualname__", factory)
        raise OptionError("factory", name, "no task of the app depends on it")
