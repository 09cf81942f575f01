"""How tasks run in a test: as in a worker, with the dependencies that are overridden right now."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tampu.consumer.handler import Function, HandlerPlan, Runner, timeout_s_of
from tampu.consumer.intake import Delivery
from tampu.consumer.options import WorkerSettings
from tampu.consumer.runners.local import LoopRunner, ThreadRunner
from tampu.job import Job
from tampu.outcome import Outcome, Retry, Snooze, Unrecoverable
from tampu.tasks.execution import Runtime, handler_function
from tampu.tasks.task import AnyTask
from tampu.testing.threads import HandlerThreads
from tampu.util.options import is_async

if TYPE_CHECKING:
    from tampu.app import App


class TaskRunner:
    """Runs one task, and keeps what it raises by the id of its job.

    A task with `isolation="process"` runs in this process: what a test replaces would not reach a
    child process.
    """

    def __init__(
        self, app: "App", task: AnyTask, runtime: Runtime, *, raised: dict[str, BaseException]
    ) -> None:
        self._app, self._task = app, task
        self._runtime, self._raised = runtime, raised
        self._overrides = app.overrides
        self._runner = self._make_runner()

    async def run(self, delivery: Delivery) -> Outcome:
        """Run the task for one delivery."""
        if self._overrides is not self._app.overrides:
            self._overrides = self._app.overrides
            self._runner = self._make_runner()
        return await self._runner.run(delivery)

    async def close(self) -> None:
        """Do nothing: the threads belong to the test."""

    def _make_runner(self) -> Runner:
        task, threads = self._task, self._runtime.threads
        definition = task.definition.override(self._overrides)
        function = handler_function(definition, self._runtime, task.middleware)
        recording = _record_errors(function, self._raised)
        if threads is None or is_async(recording):
            return LoopRunner(recording)
        return ThreadRunner(recording, threads)


def make_kit_plans(
    app: "App",
    settings: WorkerSettings,
    *,
    threads: HandlerThreads,
    raised: dict[str, BaseException],
) -> tuple[Runtime, Mapping[str | None, HandlerPlan]]:
    """How to run the jobs of each task, and what all of them share."""
    runtime = Runtime(threads=threads)
    plans: dict[str | None, HandlerPlan] = {}
    for name, task in app.tasks.items():
        own = task.handler
        timeout = settings.timeout if own.timeout is None else own.timeout
        plans[name] = HandlerPlan(
            TaskRunner(app, task, runtime, raised=raised),
            own.attempts or settings.attempts,
            own.backoff or settings.backoff,
            timeout_s_of(timeout),
        )
    return runtime, plans


def _record_errors(function: Function, raised: dict[str, BaseException]) -> Function:
    """The function; what it raises, or returns instead, is kept for the test."""
    called: Any = function

    def note(job: Job[Any], value: object) -> object:
        if isinstance(value, Retry | Snooze | Unrecoverable):
            raised[job.id] = value
        return value

    async def run(job: Job[Any]) -> object:
        try:
            return note(job, await called(job))
        except asyncio.CancelledError:
            raise  # its time limit is over
        except BaseException as error:
            raised[job.id] = error
            raise

    def run_plainly(job: Job[Any]) -> object:
        try:
            return note(job, called(job))
        except BaseException as error:
            raised[job.id] = error
            raise

    return run if is_async(function) else run_plainly
