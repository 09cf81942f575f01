"""Runs of tasks: how their functions are called, with or without a guard, and how they end."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from inspect import isawaitable
from typing import Any, Final

from msgspec import Struct, structs

from tampu.errors import ServerError, text_of
from tampu.scheduler.active import ActiveTask, SchedulerContext
from tampu.scheduler.clock import Clock
from tampu.scheduler.decision import Run
from tampu.scheduler.events import LeaseEvent, RunStarted, RunStatus, SkipReason
from tampu.scheduler.guard import Guard, Refusal, Slot, run_guarded
from tampu.scheduler.task import RunRecord, ScheduledTask, TaskRun
from tampu.util.clock import instant

logger = logging.getLogger(__name__)
_MAX_ERROR_LENGTH: Final = 1000
_TASK_NAME: Final = "tampu-task-run"
_SKIP_REASONS: Final = {Refusal.HELD: SkipReason.CONTENDED, Refusal.DONE: SkipReason.DONE}
LEASE_LOST: Final = "its lease was lost"


class RunEnding(Struct, frozen=True, gc=False):
    """How the call of a function ended."""

    status: RunStatus
    error: str | None = None


_SUCCESS: Final = RunEnding(RunStatus.SUCCESS)
_CANCELLED: Final = RunEnding(RunStatus.CANCELLED)


class Threads:
    """Threads for blocking functions. The first call starts them."""

    def __init__(self, limit: int, clock: Clock) -> None:
        self._limit = limit
        self._clock = clock
        self._pool: ThreadPoolExecutor | None = None

    async def call(self, function: Callable[[TaskRun[Any]], object], run: TaskRun[Any]) -> object:
        """Call a function in a thread. If cancelled, set `run.cancelled` and wait for its end."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._limit, thread_name_prefix="tampu-task")
        submitted = self._pool.submit(copy_context().run, self._call_here, function, run)
        calling = asyncio.wrap_future(submitted)
        try:
            return await asyncio.shield(calling)
        except asyncio.CancelledError:
            run.cancelled = True
            submitted.cancel()  # has an effect only while it waits for a thread
            await asyncio.wait([calling])
            if not calling.cancelled():
                calling.exception()  # marks it as retrieved, so that asyncio does not report it
            raise

    def close(self) -> None:
        """Start no more calls; active ones run to their end."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _call_here(self, function: Callable[[TaskRun[Any]], object], run: TaskRun[Any]) -> object:
        run.started_ms = self._clock.now_ms()  # it may have waited for a thread
        try:
            return function(run)
        except StopIteration as error:  # a future cannot hold it
            raise RuntimeError("the function raised StopIteration") from error


class RunOwner(ABC):
    """Is called at the end of each run."""

    @abstractmethod
    def on_run_ended(self, active: ActiveTask, record: RunRecord) -> None:
        """A run has ended."""

    @abstractmethod
    def on_run_refused(self, active: ActiveTask, run: TaskRun[Any], reason: SkipReason) -> None:
        """A guard refused a run, so it did not start."""


class Runs:
    """Starts the runs of a scheduler's tasks."""

    def __init__(self, context: SchedulerContext, threads: Threads, owner: RunOwner) -> None:
        self._context = context
        self._threads = threads
        self._owner = owner
        self._now_ms = context.clock.now_ms
        self._loop = asyncio.get_running_loop()
        self._guard_unreachable = False

    def start(
        self,
        active: ActiveTask,
        decision: Run,
        *,
        guard: Guard | None = None,
        replayed: bool = False,
    ) -> None:
        """Start a run; the run of a plain function has ended when this returns."""
        task, occurrence = active.task, decision.occurrence
        run = TaskRun(
            task_id=task.id,
            at_ms=occurrence.at_ms,
            deps=task.deps,
            zone=self._context.zone,
            catch_up=occurrence.catch_up,
            manual=occurrence.manual,
            replayed=replayed,
        )
        if not self._context.observers.is_empty:
            self._notify_start(active, run)
        if guard is not None or decision.cancels or task.blocking:
            whole = self._run_whole(active, run, guard=guard, cancels=decision.cancels)
            self._create_task(active, run, whole)
            return
        run.started_ms = self._now_ms()
        value = _call_inline(task, run)
        if type(value) is RunEnding:
            self._end(active, run, value)
        else:
            self._create_task(active, run, self._run_awaitable(active, run, value))  # type: ignore[arg-type]

    def _create_task(
        self, active: ActiveTask, run: TaskRun[Any], running: Coroutine[Any, Any, None]
    ) -> None:
        # Each run removes itself at its end: a done callback would cost one more call of the loop.
        task = self._loop.create_task(running, name=_TASK_NAME)
        if task.done():
            return  # an eager task may already be over
        active.runs[id(run)] = task
        if active.is_cancelling:
            active.cancel_runs([task])

    async def _run_awaitable(
        self, active: ActiveTask, run: TaskRun[Any], value: Awaitable[object]
    ) -> None:
        ending = await _await_ending(run, value)
        active.runs.pop(id(run), None)
        self._end(active, run, ending)

    async def _run_whole(
        self, active: ActiveTask, run: TaskRun[Any], *, guard: Guard | None, cancels: bool
    ) -> None:
        """A run with everything that may come before it: other runs, a guard, a thread."""
        ending: RunEnding | SkipReason | None = None
        if cancels:
            ending = await self._cancel_other_runs(active, run)
        if ending is None:
            work = partial(self._call_function, active.task, run)
            if guard is None:
                ending = await work()
            else:
                ending = await self._run_under(guard, active, run=run, work=work)
        active.runs.pop(id(run), None)
        if isinstance(ending, SkipReason):
            self._owner.on_run_refused(active, run, ending)
        else:
            self._end(active, run, ending)

    async def _cancel_other_runs(self, active: ActiveTask, run: TaskRun[Any]) -> RunEnding | None:
        """Cancel the other runs and wait for them; an ending if we are cancelled meanwhile.

        This comes before the guard, because they may hold the lease that this run needs.
        """
        others = [task for number, task in active.runs.items() if number != id(run)]
        active.cancel_runs(others)
        try:
            if others:
                await asyncio.wait(others)
        except asyncio.CancelledError:
            run.cancelled = True
            return _CANCELLED
        return None

    async def _call_function(self, task: ScheduledTask[Any], run: TaskRun[Any]) -> RunEnding:
        """Call the function; raises nothing."""
        run.started_ms = self._now_ms()
        return await _await_ending(run, _call(task, run, self._threads))

    async def _run_under(
        self,
        guard: Guard,
        active: ActiveTask,
        *,
        run: TaskRun[Any],
        work: Callable[[], Coroutine[Any, Any, RunEnding]],
    ) -> RunEnding | SkipReason:
        task = active.task
        slot = Slot(task.id, task.resource or task.id, task.scope, run.at_ms)
        on_event = None
        if not self._context.observers.is_empty:
            on_event = partial(self._notify_lease, run, active.state.fired)
        try:
            result = await run_guarded(guard, slot, work, on_event=on_event)
        except asyncio.CancelledError:
            run.cancelled = True
            return _CANCELLED
        except Exception as error:  # noqa: BLE001 - border: a guard may be user code
            self._log_guard_error(run, error)
            return SkipReason.GUARD_UNREACHABLE
        if self._guard_unreachable:
            self._guard_unreachable = False
            logger.info("the guard can be reached again")
        if isinstance(result, Refusal):
            return _SKIP_REASONS[result]
        if result.lost or result.value is None:
            return RunEnding(RunStatus.LOST, LEASE_LOST)
        return result.value

    def _log_guard_error(self, run: TaskRun[Any], error: Exception) -> None:
        facts = {"task_id": run.task_id, "at_ms": run.at_ms, "error": _error_text(error)}
        if not isinstance(error, ServerError):
            text = "task %s, scheduled for %s, was skipped because its guard failed: %s"
            when = instant(run.at_ms).isoformat()
            logger.error(text, run.task_id, when, facts["error"], exc_info=error, extra=facts)
        elif not self._guard_unreachable:
            self._guard_unreachable = True
            text = "cannot reach the guard (%s); runs are skipped until it answers"
            logger.warning(text, error, extra=facts)

    def _end(self, active: ActiveTask, run: TaskRun[Any], ending: RunEnding) -> None:
        now_ms = self._now_ms()
        record = RunRecord(
            run.at_ms,
            run.started_ms or now_ms,
            now_ms,
            ending.status,
            ending.error,
            run.catch_up,
            run.manual,
        )
        self._owner.on_run_ended(active, record)

    def _notify_start(self, active: ActiveTask, run: TaskRun[Any]) -> None:
        self._context.observers.notify(
            RunStarted(
                task_id=run.task_id,
                at_ms=run.at_ms,
                catch_up=run.catch_up,
                manual=run.manual,
                replayed=run.replayed,
                fired=active.state.fired,
            )
        )

    def _notify_lease(self, run: TaskRun[Any], fired: int, event: LeaseEvent) -> None:
        facts: Any = {"catch_up": run.catch_up, "manual": run.manual, "fired": fired}
        self._context.observers.notify(structs.replace(event, **facts))


def _call_inline(task: ScheduledTask[Any], run: TaskRun[Any]) -> RunEnding | Awaitable[object]:
    """Call a plain function, and return how it ended or what it wants to be awaited."""
    try:
        value = task.function(run)
    except BaseException as error:  # noqa: BLE001 - border: user code may raise anything
        return _log_failure(run, error)
    return value if value is not None and isawaitable(value) else _SUCCESS


async def _call(task: ScheduledTask[Any], run: TaskRun[Any], threads: Threads) -> object:
    """Call a function of any kind, and await what it returns if it can be awaited."""
    value = await threads.call(task.function, run) if task.blocking else task.function(run)
    return await value if isawaitable(value) else value


async def _await_ending(run: TaskRun[Any], value: Awaitable[object]) -> RunEnding:
    """Await the result of a function, and return how it ended; a cancellation is an ending too."""
    try:
        await value
    except GeneratorExit:
        raise  # not from the function: the loop was closed, and this task with it
    except BaseException as error:  # noqa: BLE001 - border: user code may raise anything
        if isinstance(error, asyncio.CancelledError) and _is_cancelled():
            run.cancelled = True
            return _CANCELLED
        return _log_failure(run, error)
    return _SUCCESS


def _log_failure(run: TaskRun[Any], error: BaseException) -> RunEnding:
    text = _error_text(error)
    logger.warning(
        "task %s, scheduled for %s, failed: %s",
        run.task_id,
        instant(run.at_ms).isoformat(),
        text,
        exc_info=error,
        extra={"task_id": run.task_id, "at_ms": run.at_ms, "error": text},
    )
    return RunEnding(RunStatus.FAILED, text)


def _error_text(error: BaseException) -> str:
    return f"{type(error).__name__}: {text_of(error)}"[:_MAX_ERROR_LENGTH]


def _is_cancelled() -> bool:
    """Whether our task was cancelled; a function may raise `CancelledError` by itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
