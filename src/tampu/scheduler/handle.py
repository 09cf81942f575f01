"""A handle of a task in a running scheduler."""

import asyncio

from msgspec import structs

from tampu.scheduler.active import ActiveTask, SchedulerContext, StateChange, StateRequest
from tampu.scheduler.events import Event, RunAsked, StopReason, TaskPaused, TaskResumed
from tampu.scheduler.task import TaskReport
from tampu.wire.task_state import TaskState, Waiting


class TaskHandle:
    """Controls one task of a scheduler. Returned by `Scheduler.add`."""

    def __init__(self, active: ActiveTask, context: SchedulerContext) -> None:
        self._active = active
        self._context = context

    def __repr__(self) -> str:
        return f"<TaskHandle {self.id!r}>"

    @property
    def id(self) -> str:
        """The id of the task."""
        return self._active.task.id

    def report(self) -> TaskReport:
        """The state of the task and its last runs, as of now."""
        return self._active.report()

    async def ready(self) -> None:
        """Wait until the state of the task is loaded and stored."""
        await self._request("wait for", _change_nothing)

    async def wait(self) -> TaskReport:
        """Wait until the task has ended or was stopped; raises the error of a failed scheduler."""
        return await asyncio.shield(self._active.finished)

    def cancel(self) -> None:
        """Start no more runs, and end the task when its active runs have ended."""
        self._stop(StopReason.CANCELLED)

    def shutdown(self) -> None:
        """As `cancel`, with `StopReason.SHUTDOWN` in the report."""
        self._stop(StopReason.SHUTDOWN)

    async def pause(self) -> bool:
        """Start no more runs until `resume`, even after a restart; False if already paused."""
        return await self._request("pause", _pause)

    async def resume(self) -> bool:
        """Start runs again; False if the task is not paused.

        The missed policy decides about the occurrences of the pause.
        """
        return await self._request("resume", _resume)

    async def trigger_now(self) -> bool:
        """Run once outside the schedule; False if such a run is already waiting.

        Returns when the request is stored, not when the run has ended. The overlap policy, the
        limits and the guard apply. If the task is paused, the run waits.
        """
        return await self._request("trigger", _trigger)

    def _stop(self, reason: StopReason) -> None:
        active = self._active
        if active.stopping is None and active.stopped is None:
            active.stopping = reason
            self._context.schedule(active)

    async def _request(self, action: str, change: StateChange) -> bool:
        active = self._active
        if active.stopping is not None or active.stopped is not None:
            raise active.refusal(action)
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        active.requests.append(StateRequest(action, change, done))
        self._context.schedule(active)
        return await done


def _change_nothing(state: TaskState, now_ms: int) -> None:
    del state, now_ms


def _pause(state: TaskState, now_ms: int) -> tuple[TaskState, Event] | None:
    if state.paused_ms is not None:
        return None
    return structs.replace(state, paused_ms=now_ms), TaskPaused(task_id=state.task_id)


def _resume(state: TaskState, now_ms: int) -> tuple[TaskState, Event] | None:
    if state.paused_ms is None:
        return None
    resumed = structs.replace(state, paused_ms=None, resumed_ms=now_ms)
    return resumed, TaskResumed(task_id=state.task_id)


def _trigger(state: TaskState, now_ms: int) -> tuple[TaskState, Event] | None:
    if state.asked is not None:
        return None
    asked = structs.replace(state, asked=Waiting(now_ms, manual=True))
    return asked, RunAsked(task_id=state.task_id, at_ms=now_ms, manual=True)
