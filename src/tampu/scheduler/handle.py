"""A task in a running scheduler, for who wants something of it."""

import asyncio

from msgspec import structs

from tampu.scheduler.active import (
    ActiveTask,
    Grant,
    Granted,
    SchedulerContext,
    StateRequest,
    out_of_place,
)
from tampu.scheduler.events import RunAsked, StopReason, TaskPaused, TaskResumed
from tampu.scheduler.task import TaskReport
from tampu.wire.task_state import TaskState, Waiting


class TaskHandle:
    """Made by `Scheduler.add`."""

    def __init__(self, course: ActiveTask, desk: SchedulerContext) -> None:
        self._course = course
        self._desk = desk

    def __repr__(self) -> str:
        return f"<TaskHandle {self.id!r}>"

    @property
    def id(self) -> str:
        """The task's."""
        return self._course.task.id

    def report(self) -> TaskReport:
        """How the task stands now."""
        return self._course.report()

    async def ready(self) -> None:
        """Until the task's state has been loaded and stored, and it waits for its next instant."""
        await self._wish("ready", _as_it_is)

    async def wait(self) -> TaskReport:
        """Until the scheduler is done with the task; raises what made it fail."""
        return await asyncio.shield(self._course.ended)

    def cancel(self) -> None:
        """Begin no more runs, and be done when those that are active have ended."""
        self._stop(StopReason.CANCELLED)

    def shutdown(self) -> None:
        """As `cancel`; the report tells which of the two it was."""
        self._stop(StopReason.SHUTDOWN)

    async def pause(self) -> bool:
        """Begin no more runs until `resume`; True if it was not paused. It outlasts a restart."""
        return await self._wish("pause", _paused)

    async def resume(self) -> bool:
        """Begin runs again; what the pause left out is missed. True if it was paused."""
        return await self._wish("resume", _resumed)

    async def trigger_now(self) -> bool:
        """Have it run once, beside its schedule; False if somebody has asked for that already.

        The overlap policy and the guard have their say. While it is paused the run waits.
        """
        return await self._wish("trigger_now", _triggered)

    def _stop(self, reason: StopReason) -> None:
        course = self._course
        if course.stopping is None and course.stopped is None:
            course.stopping = reason
            self._desk.call(course)

    async def _wish(self, what: str, grant: Grant) -> bool:
        course = self._course
        if course.stopping is not None or course.stopped is not None:
            raise out_of_place(what)
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        course.wishes.append(StateRequest(what, grant, done))
        self._desk.call(course)
        return await done


def _as_it_is(state: TaskState, now_ms: int) -> Granted:
    del now_ms
    return Granted(state, None)


def _paused(state: TaskState, now_ms: int) -> Granted:
    if state.paused_ms is not None:
        return Granted(state, None)
    return Granted(structs.replace(state, paused_ms=now_ms), TaskPaused(task_id=state.task_id))


def _resumed(state: TaskState, now_ms: int) -> Granted:
    if state.paused_ms is None:
        return Granted(state, None)
    resumed = structs.replace(state, paused_ms=None, resumed_ms=now_ms)
    return Granted(resumed, TaskResumed(task_id=state.task_id))


def _triggered(state: TaskState, now_ms: int) -> Granted:
    if state.asked is not None:
        return Granted(state, None)
    asked = structs.replace(state, asked=Waiting(now_ms, manual=True))
    return Granted(asked, RunAsked(task_id=state.task_id, at_ms=now_ms, manual=True))
