"""The three ways to call a task's function: awaited, called, or called in a thread."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from inspect import isawaitable
from typing import Any, Final

from msgspec import Struct

from tampu.errors import ServerError, text_of
from tampu.scheduler.active import ActiveTask, SchedulerContext
from tampu.scheduler.clock import Clock
from tampu.scheduler.decision import Run
from tampu.scheduler.events import RunStarted, RunStatus, SkipReason
from tampu.scheduler.guard import Guard, Refusal, Slot
from tampu.scheduler.guarded import LeaseWatch, guarded
from tampu.scheduler.task import RunRecord, ScheduledTask, TaskRun

_LONGEST_ERROR = 1000


class RunEnding(Struct, frozen=True, gc=False):
    """How a call ended."""

    status: RunStatus
    error: str | None = None


GOOD = RunEnding(RunStatus.SUCCESS)
CANCELLED = RunEnding(RunStatus.CANCELLED)


class Threads:
    """Threads for blocking functions, started when they are first needed."""

    def __init__(self, limit: int, clock: Clock) -> None:
        self._limit = limit
        self._clock = clock
        self._pool: ThreadPoolExecutor | None = None

    async def call(self, function: Callable[[TaskRun[Any]], object], run: TaskRun[Any]) -> object:
        """Call it in a thread; if this is cancelled, `run` says so, and the call is waited for."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._limit, thread_name_prefix="tampu-task")
        called = self._pool.submit(copy_context().run, self._in_thread, function, run)
        calling = asyncio.wrap_future(called)
        try:
            return await asyncio.shield(calling)
        except asyncio.CancelledError:
            run.cancelled = True
            called.cancel()  # has an effect only while it waits for a thread
            await asyncio.wait([calling])
            if not calling.cancelled():
                calling.exception()  # looked at, so that asyncio does not report it
            raise

    def close(self) -> None:
        """Start nothing more; what still runs goes on to its end."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _in_thread(self, function: Callable[[TaskRun[Any]], object], run: TaskRun[Any]) -> object:
        run.started_ms = self._clock.now_ms()  # it may have waited for a thread
        try:
            return function(run)
        except StopIteration as error:  # no future can hold it, so nobody would ever hear of it
            raise RuntimeError("the function raised StopIteration") from error


def called_inline(task: ScheduledTask[Any], run: TaskRun[Any]) -> RunEnding | Awaitable[object]:
    """Call a plain function here and now; what it gives to await, if anything, comes back."""
    try:
        value = task.function(run)
    except BaseException as error:  # noqa: BLE001 - border: user code may raise anything
        return failed(error)
    return value if value is not None and isawaitable(value) else GOOD


async def ending_of(run: TaskRun[Any], value: Awaitable[object]) -> RunEnding:
    """How what a function gave to await ends; also if it is cancelled."""
    try:
        await value
    except GeneratorExit:
        raise  # not the function's: the loop is gone, and this task with it
    except BaseException as error:  # noqa: BLE001 - border: user code may raise anything
        if isinstance(error, asyncio.CancelledError) and _is_cancelled():
            run.cancelled = True
            return CANCELLED
        return failed(error)
    return GOOD


async def called(task: ScheduledTask[Any], run: TaskRun[Any], threads: Threads) -> object:
    """Call a function of whatever kind, and await what it gives to await."""
    value = await threads.call(task.function, run) if task.blocking else task.function(run)
    return await value if isawaitable(value) else value


def failed(error: BaseException) -> RunEnding:
    """The ending of a call that raised."""
    text = f"{type(error).__name__}: {text_of(error)}"
    return RunEnding(RunStatus.FAILED, text[:_LONGEST_ERROR])


def _is_cancelled() -> bool:
    """Whether somebody has cancelled us; a function may raise the same by itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


logger = logging.getLogger(__name__)
_RUN: Final = "tampu-task-run"
LEASE_LOST: Final = "its lease was lost"
_REASONS = {Refusal.HELD: SkipReason.CONTENDED, Refusal.DONE: SkipReason.DONE}


class Endings(ABC):
    """Where the ends of runs are handed in."""

    @abstractmethod
    def ended(self, course: ActiveTask, record: RunRecord) -> None:
        """A run is over."""

    @abstractmethod
    def refused(self, course: ActiveTask, run: TaskRun[Any], reason: SkipReason) -> None:
        """A run was not allowed to begin."""


class Start(Struct, frozen=True):
    """A run to start: under a guard, and for the second time, if so."""

    course: ActiveTask
    decision: Run
    guard: Guard | None = None
    replayed: bool = False


class Runs:
    """The runs of a scheduler's tasks."""

    def __init__(self, desk: SchedulerContext, threads: Threads, endings: Endings) -> None:
        self._desk = desk
        self._threads = threads
        self._endings = endings
        self._now_ms = desk.clock.now_ms
        self._loop = asyncio.get_running_loop()
        self._guard_is_away = False

    def start(self, start: Start) -> None:
        """Start a run; that of a plain function is over when this returns."""
        course, occurrence = start.course, start.decision.occurrence
        task = course.task
        run = TaskRun(
            task_id=task.id,
            at_ms=occurrence.at_ms,
            deps=task.deps,
            zone=self._desk.zone,
            catch_up=occurrence.catch_up,
            manual=occurrence.manual,
            replayed=start.replayed,
        )
        if self._desk.telling.anybody:
            self._tell_start(course, run)
        if start.guard is not None or start.decision.cancels or task.blocking:
            self._own(course, run, self._whole(start, run))
            return
        run.started_ms = self._now_ms()
        value = called_inline(task, run)
        if type(value) is RunEnding:
            self._end(course, run, value)
        else:
            self._own(course, run, self._awaited(course, run, value))  # type: ignore[arg-type]

    def _own(
        self, course: ActiveTask, run: TaskRun[Any], running: Coroutine[Any, Any, None]
    ) -> None:
        # Each takes itself out when it is over: a callback would be one more call of the loop.
        task = self._loop.create_task(running, name=_RUN)
        if task.done():
            return  # an eager one may be over already
        course.runs[id(run)] = task
        if course.is_hurried:
            course.cancel_runs([task])

    async def _awaited(
        self, course: ActiveTask, run: TaskRun[Any], value: Awaitable[object]
    ) -> None:
        ending = await ending_of(run, value)
        course.runs.pop(id(run), None)
        self._end(course, run, ending)

    async def _whole(self, start: Start, run: TaskRun[Any]) -> None:
        """A run with all that may come before it."""
        course = start.course
        ending: RunEnding | SkipReason | None = None
        if start.decision.cancels:
            ending = await self._behind_others(course, run)
        if ending is None:
            work = partial(self._work, course, run)
            if start.guard is None:
                ending = await work()
            else:
                ending = await self._under(start.guard, course, run=run, work=work)
        course.runs.pop(id(run), None)
        if isinstance(ending, SkipReason):
            self._endings.refused(course, run, ending)
        else:
            self._end(course, run, ending)

    async def _behind_others(self, course: ActiveTask, run: TaskRun[Any]) -> RunEnding | None:
        """Cancel the other runs and wait for their ends; its own, if it is cancelled meanwhile.

        Before a guard is asked: what it is asked for may be what they hold.
        """
        others = [task for number, task in course.runs.items() if number != id(run)]
        course.cancel_runs(others)
        try:
            if others:
                await asyncio.wait(others)
        except asyncio.CancelledError:
            run.cancelled = True
            return CANCELLED
        return None

    async def _work(self, course: ActiveTask, run: TaskRun[Any]) -> RunEnding:
        """Call the function; raises nothing."""
        run.started_ms = self._now_ms()
        return await ending_of(run, called(course.task, run, self._threads))

    async def _under(
        self,
        guard: Guard,
        course: ActiveTask,
        *,
        run: TaskRun[Any],
        work: Callable[[], Coroutine[Any, Any, RunEnding]],
    ) -> RunEnding | SkipReason:
        task = course.task
        slot = Slot(task.id, task.resource or task.id, task.scope, run.at_ms)
        watch = LeaseWatch(self._desk.telling, slot, run, fired=course.state.fired)
        try:
            held = await guarded(guard, slot, work, watch=watch)
        except asyncio.CancelledError:
            run.cancelled = True
            return CANCELLED
        except ServerError as error:  # the work itself raises nothing
            self._note_guard_away(error)
            return SkipReason.GUARD_AWAY
        except Exception:  # border: a guard may be somebody else's code
            logger.exception("a guard of the scheduler failed")
            return SkipReason.GUARD_AWAY
        self._guard_is_away = False
        if isinstance(held, Refusal):
            return _REASONS[held]
        if held.lost or held.value is None:
            return RunEnding(RunStatus.LOST, LEASE_LOST)
        return held.value

    def _note_guard_away(self, error: ServerError) -> None:
        if not self._guard_is_away:
            self._guard_is_away = True
            logger.warning("no run begins without its guard", extra={"problem": str(error)})

    def _end(self, course: ActiveTask, run: TaskRun[Any], ending: RunEnding) -> None:
        now_ms = self._now_ms()
        if ending.status is RunStatus.FAILED:
            # Without its text, which is the user's: the report and observers have that.
            logger.warning("a run failed", extra={"task_id": run.task_id, "at_ms": run.at_ms})
        record = RunRecord(
            run.at_ms,
            run.started_ms or now_ms,
            now_ms,
            ending.status,
            ending.error,
            run.catch_up,
            run.manual,
        )
        self._endings.ended(course, record)

    def _tell_start(self, course: ActiveTask, run: TaskRun[Any]) -> None:
        self._desk.telling.tell(
            RunStarted(
                task_id=run.task_id,
                at_ms=run.at_ms,
                catch_up=run.catch_up,
                manual=run.manual,
                replayed=run.replayed,
                fired=course.state.fired,
            )
        )
