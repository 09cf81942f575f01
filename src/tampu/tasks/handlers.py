"""From tasks to the handlers of a worker."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from tampu.consumer.handler import Function, Handler, Isolation
from tampu.consumer.options import WorkerOptions, WorkerSettings
from tampu.errors import OptionError
from tampu.job import Job
from tampu.tasks.depends import Step
from tampu.tasks.execution import Runtime, function_for
from tampu.tasks.middleware import Middleware
from tampu.tasks.task import AnyTask
from tampu.util.options import parse_options


class InChild:
    """Runs a task in a child process, with all that is around it but what is app-wide.

    It travels there as the names of the task and its middleware.
    """

    def __init__(self, task: AnyTask, middleware: tuple[Middleware, ...]) -> None:
        self._task, self._middleware = task, middleware
        self._function: Function | None = None

    def __reduce__(self) -> tuple[type["InChild"], tuple[AnyTask, tuple[Middleware, ...]]]:
        return InChild, (self._task, self._middleware)

    def __call__(self, job: Job[Any]) -> object:
        """What the task returns, or what is to be awaited for it."""
        if self._function is None:
            self._function = function_for(self._task.recipe, Runtime(), self._middleware)
        return self._function(job)


def settings_for(owner: str, options: WorkerOptions) -> WorkerSettings:
    """The options of a worker that runs tasks, checked."""
    settings = parse_options(WorkerSettings, owner, options)
    if settings.raw:
        raise OptionError("raw", settings.raw, "is for handlers: a task takes arguments, not bytes")
    return settings


def handler_of(task: AnyTask, runtime: Runtime, isolation: Isolation) -> Handler:
    """The handler that runs a task; `OptionError` if it could never be run."""
    recipe, middleware = task.recipe, task.middleware
    if (task.handler.isolation or isolation) is None:
        return replace(task.handler, function=function_for(recipe, runtime, middleware))
    for step in recipe.steps:
        if step.dependency.scope == "app":
            accepted = (
                f'is not to be had for {task.name}: {step.dependency.name} with scope="app" '
                "lives in the worker, not in its child processes"
            )
            raise OptionError("isolation", "process", accepted)
    return replace(task.handler, function=InChild(task, middleware))


def app_wide(tasks: Iterable[AnyTask]) -> list[Step]:
    """The steps to what all tasks need with scope="app", each once, in their order."""
    steps = {step.dependency: step for task in tasks for step in task.recipe.steps}
    return [step for step in steps.values() if step.dependency.scope == "app"]
