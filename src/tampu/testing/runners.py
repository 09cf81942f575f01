"""How tasks run in a test: as in a worker, with the dependencies that are overridden right now."""

import asyncio
from collections.abc import Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any

from tampu.consumer.batching import BatchDelivery, Work
from tampu.consumer.handler import Function, HandlerPlan, KeptResults, Place, Runner, timeout_s_of
from tampu.consumer.intake import BuryEntry, Delivery
from tampu.consumer.options import WorkerSettings
from tampu.consumer.runners.local import LoopRunner, ThreadRunner
from tampu.consumer.runners.traced import note_errors
from tampu.errors import JobFailed
from tampu.job import Job, enter_job, enter_queue
from tampu.outcome import Decision, Outcome, outcome_after_limit, timeout_outcome
from tampu.tasks.attempt_thread import Runtime
from tampu.tasks.execution import handler_function
from tampu.tasks.task import AnyTask
from tampu.testing.threads import KitThreads
from tampu.util.options import is_async
from tampu.wire.dead import Failure

if TYPE_CHECKING:
    from tampu.app import App


class TaskRunner:
    """Runs one task, and keeps what it raises by the id of its job.

    A task with `isolation="process"` runs in this process: what a test replaces would not reach a
    child process.
    """

    def __init__(
        self,
        app: "App",
        task: AnyTask,
        runtime: Runtime,
        *,
        threads: KitThreads,
        raised: dict[str, BaseException],
    ) -> None:
        self._app, self._task = app, task
        self._runtime, self._threads, self._raised = runtime, threads, raised
        self._overrides = app.overrides
        self._runner = self._make_runner()

    async def run(self, delivery: Work) -> Outcome:
        """Run the task for one delivery, or for a batch."""
        if self._overrides is not self._app.overrides:
            self._overrides = self._app.overrides
            self._runner = self._make_runner()
        return await self._runner.run(delivery)

    @property
    def place(self) -> Place:
        """Where the task runs."""
        return self._runner.place

    def abandon(self) -> None:
        """Do nothing: no attempt is abandoned in a test."""

    async def close(self) -> None:
        """Do nothing: the threads belong to the test."""

    def _make_runner(self) -> Runner:
        task = self._task
        definition = task.definition.override(self._overrides)
        function = handler_function(definition, self._runtime, task.middleware)
        recording = note_errors(_record_errors(function, self._raised))
        if is_async(recording):
            return LoopRunner(recording)
        return ThreadRunner(recording, self._threads)


async def run_attempt(delivery: Work, queue: str) -> Outcome:
    """Run the handler of a delivery with its time limit, in a task and a context of its own."""
    runner, limit_s = delivery.plan.runner, delivery.timeout_s
    began = monotonic()
    work = _enter_and_run(delivery, queue)
    running = asyncio.create_task(work, name=f"tampu-job-{delivery.job.name}")
    is_cancelled = limit_s is not None and runner.place is Place.LOOP
    done, _ = await asyncio.wait({running}, timeout=limit_s if is_cancelled else None)
    if not done:
        running.cancel()
        await asyncio.wait({running})
    if running.cancelled():
        return timeout_outcome(limit_s or 0.0)
    outcome = running.result()
    if limit_s is not None and monotonic() - began > limit_s:
        return outcome_after_limit(outcome, limit_s)
    return outcome


class _Outcomes:
    """Keeps the outcomes of jobs that a handler settles alone."""

    start = None

    def __init__(self) -> None:
        self.by_job: dict[Job[Any], Outcome] = {}

    def put(self, delivery: Delivery, outcome: Outcome, duration_ns: int) -> None:
        """A job was settled."""
        del duration_ns
        self.by_job[delivery.job] = outcome

    def cancel(self, delivery: Delivery) -> None:
        """Not called: a batch of a test starts at once."""


async def run_together(
    deliveries: list[Delivery], raised: dict[str, BaseException], *, queue: str
) -> list[Outcome]:
    """Run the handler for one job, or once for a batch of them; the outcome of each."""
    first = deliveries[0]
    if first.plan.batch is None:
        return [await run_attempt(first, queue)]
    work, outcomes = BatchDelivery(first.plan), _Outcomes()
    for each in deliveries:
        work.add(each)
    work.begin(outcomes)
    outcome = await run_attempt(work, queue)
    error = raised.pop(work.job.id, None)
    for each in work.end():
        outcomes.put(each, outcome, 0)
        if error is not None:
            raised[each.job.id] = error
    return [outcomes.by_job[each.job] for each in deliveries]


async def _enter_and_run(delivery: Work, queue: str) -> Outcome:
    enter_queue(queue)
    enter_job(delivery.job)
    return await delivery.plan.runner.run(delivery)


def make_kit_plans(
    app: "App",
    settings: WorkerSettings,
    *,
    threads: KitThreads,
    raised: dict[str, BaseException],
) -> tuple[Runtime, Mapping[str | None, HandlerPlan]]:
    """How to run the jobs of each task, and what all of them share."""
    runtime = Runtime(threads=threads)
    plans: dict[str | None, HandlerPlan] = {}
    for name, task in app.tasks.items():
        own = task.handler
        timeout = settings.timeout if own.timeout is None else own.timeout
        plans[name] = HandlerPlan(
            TaskRunner(app, task, runtime, threads=threads, raised=raised),
            own.attempts or settings.attempts,
            own.backoff or settings.backoff,
            timeout_s_of(timeout),
            KeptResults.of(settings.result_ttl),
            own.batch,
            own.streams,
        )
    return runtime, plans


def _record_errors(function: Function, raised: dict[str, BaseException]) -> Function:
    """The function; what it raises, or returns instead, is kept for the test."""
    called: Any = function

    def note(job: Job[Any], value: object) -> object:
        if isinstance(value, Decision):
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


def refusal_error(burial: BuryEntry) -> JobFailed | None:
    """Why an entry was not run; none if its time was over, which is what its producer asked for."""
    if burial.reason.value == "expired":
        return None
    failure = burial.failure or Failure("", "")
    return JobFailed(
        burial.job_id,
        reason=burial.reason.value,
        error_type=failure.error_type,
        message=failure.message,
    )


def failure_error(delivery: Delivery, failure: Failure | None) -> JobFailed:
    """The error of an attempt that raised nothing, for instance because it took too long."""
    failure = failure or Failure("", "")
    return JobFailed(
        delivery.job.id,
        reason=f"attempt {delivery.job.attempt} of {delivery.budget}",
        error_type=failure.error_type,
        message=failure.message,
        traceback=failure.traceback,
    )
