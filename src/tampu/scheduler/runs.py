"""Starts runs, and hands in how each ended."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final

from msgspec import Struct

from tampu.errors import ServerError
from tampu.scheduler.calling import (
    CANCELLED,
    Ending,
    Threads,
    called,
    called_inline,
    ending_of,
)
from tampu.scheduler.course import Course
from tampu.scheduler.decision import Run
from tampu.scheduler.desk import Desk
from tampu.scheduler.events import RunStarted, RunStatus, SkipReason
from tampu.scheduler.guard import Guard, Refusal, Slot
from tampu.scheduler.guarded import guarded
from tampu.scheduler.lease_watch import LeaseWatch
from tampu.scheduler.run import RunRecord, TaskRun

logger = logging.getLogger(__name__)

_RUN: Final = "tampu-task-run"
LEASE_LOST: Final = "its lease was lost"

_REASONS = {Refusal.HELD: SkipReason.CONTENDED, Refusal.DONE: SkipReason.DONE}


class Endings(ABC):
    """Where the ends of runs are handed in."""

    @abstractmethod
    def ended(self, course: Course, record: RunRecord) -> None:
        """A run is over."""

    @abstractmethod
    def refused(self, course: Course, run: TaskRun[Any], reason: SkipReason) -> None:
        """A run was not allowed to begin."""


class Start(Struct, frozen=True):
    """A run to start: under a guard, and for the second time, if so."""

    course: Course
    decision: Run
    guard: Guard | None = None
    replayed: bool = False


class Runs:
    """The runs of a scheduler's tasks."""

    def __init__(self, desk: Desk, threads: Threads, endings: Endings) -> None:
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
        if type(value) is Ending:
            self._end(course, run, value)
        else:
            self._own(course, run, self._awaited(course, run, value))  # type: ignore[arg-type]

    def _own(self, course: Course, run: TaskRun[Any], running: Coroutine[Any, Any, None]) -> None:
        # Each takes itself out when it is over: a callback would be one more call of the loop.
        task = self._loop.create_task(running, name=_RUN)
        if task.done():
            return  # an eager one may be over already
        course.runs[id(run)] = task
        if course.is_hurried:
            course.cancel_runs([task])

    async def _awaited(self, course: Course, run: TaskRun[Any], value: Awaitable[object]) -> None:
        ending = await ending_of(run, value)
        course.runs.pop(id(run), None)
        self._end(course, run, ending)

    async def _whole(self, start: Start, run: TaskRun[Any]) -> None:
        """A run with all that may come before it."""
        course = start.course
        ending: Ending | SkipReason | None = None
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

    async def _behind_others(self, course: Course, run: TaskRun[Any]) -> Ending | None:
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

    async def _work(self, course: Course, run: TaskRun[Any]) -> Ending:
        """Call the function; raises nothing."""
        run.started_ms = self._now_ms()
        return await ending_of(run, called(course.task, run, self._threads))

    async def _under(
        self,
        guard: Guard,
        course: Course,
        *,
        run: TaskRun[Any],
        work: Callable[[], Coroutine[Any, Any, Ending]],
    ) -> Ending | SkipReason:
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
            return Ending(RunStatus.LOST, LEASE_LOST)
        return held.value

    def _note_guard_away(self, error: ServerError) -> None:
        if not self._guard_is_away:
            self._guard_is_away = True
            logger.warning("no run begins without its guard", extra={"problem": str(error)})

    def _end(self, course: Course, run: TaskRun[Any], ending: Ending) -> None:
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

    def _tell_start(self, course: Course, run: TaskRun[Any]) -> None:
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
