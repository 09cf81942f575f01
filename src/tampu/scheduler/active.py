"""The tasks of a running scheduler: the state of each, and what they all share."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from datetime import tzinfo
from typing import Any, Final, TypeAlias

from msgspec import Struct, structs

from tampu.errors import WrongContext
from tampu.scheduler.clock import Clock, DueQueue
from tampu.scheduler.decision import Skip, TaskPlan
from tampu.scheduler.events import (
    ClockJumped,
    Event,
    ObserverList,
    RunCompleted,
    RunQueued,
    RunSkipped,
    RunStatus,
    ScheduleChanged,
    SkipReason,
    Source,
    StateLoaded,
    StateRepaired,
    StopReason,
)
from tampu.scheduler.restore import RestoredTask
from tampu.scheduler.task import RunRecord, ScheduledTask, TaskReport
from tampu.wire.task_state import TaskState, Waiting

_CHECK_CLOCK_MS: Final = 1000  # how soon a clock that was set is noticed
_JUMP_MS: Final = 1000  # a smaller difference is a clock that is being adjusted slowly

StateChange: TypeAlias = Callable[[TaskState, int], tuple[TaskState, Event] | None]
"""From a state and the time to the new state and its event; None if there is nothing to change."""


class StateRequest(Struct, frozen=True):
    """A change that a `TaskHandle` asks for, and the future that it waits for."""

    action: str  # such as "pause"
    change: StateChange
    done: asyncio.Future[bool]

    def resolve(self, *, changed: bool) -> None:
        """Answer the caller, if it still waits."""
        if not self.done.done():
            self.done.set_result(changed)


class ActiveTask:
    """A task that was added: its plan, its state, its runs, and the requests of its handles."""

    def __init__(self, task: ScheduledTask[Any], plan: TaskPlan, *, history: int) -> None:
        self.task = task
        self.base_plan = plan  # without the anchor of a stored state
        self.plan = plan
        self.state = TaskState(task_id=task.id)
        self.is_loaded = False
        self.due_ms: int | None = None  # when the scheduler looks at it next
        self.running = 0
        self.runs: dict[int, asyncio.Task[None]] = {}  # by the id of their `TaskRun`
        self.requests: list[StateRequest] = []
        self.last_decided_ms: int | None = None  # when a run was decided that left no next one
        self.stopping: StopReason | None = None
        self.is_cancelling = False  # active runs are cancelled, and so are those about to start
        self.stopped: StopReason | None = None
        self.last_skip_reason: SkipReason | None = None
        self.finished: asyncio.Future[TaskReport] = asyncio.get_running_loop().create_future()
        self._history: deque[RunRecord] = deque(maxlen=history)

    def add_record(self, record: RunRecord) -> None:
        """Keep the record of a run that has ended."""
        self._history.append(record)

    def cancel_runs(self, runs: Iterable[asyncio.Task[None]]) -> None:
        """Cancel some runs, each after its first step: before that it cannot record its end."""
        loop = asyncio.get_running_loop()
        for run in runs:
            loop.call_soon(_cancel_once, run)

    def cancel_all_runs(self) -> None:
        """Cancel the active runs, and those that were decided on but have not started."""
        self.is_cancelling = True
        self.cancel_runs(self.runs.values())

    def report(self) -> TaskReport:
        """The state of the task and its last runs."""
        return TaskReport(
            task_id=self.task.id,
            state=self.state,
            history=tuple(self._history),
            last_skip_reason=self.last_skip_reason,
            stopped=self.stopped,
        )

    def finish(self, reason: StopReason) -> None:
        """End the task, and give its last report to everyone who waits for it."""
        self.stopped = reason
        if not self.finished.done():
            self.finished.set_result(self.report())
        self._refuse_requests()

    def fail(self, error: BaseException) -> None:
        """End the task with an error, which everyone who waits for it receives."""
        self.stopped = StopReason.FAILED
        if not self.finished.done():
            self.finished.set_exception(error)
            self.finished.exception()  # marks it as retrieved, in case nobody waits
        self._refuse_requests()

    def refusal(self, action: str) -> WrongContext:
        """The error for a request to a task that has finished or is stopping."""
        reason = "it is stopping" if self.stopped is None else "it has finished"
        return WrongContext(f"{action} {self.task.id!r}", reason)

    def _refuse_requests(self) -> None:
        for request in self.requests:
            if not request.done.done():
                request.done.set_exception(self.refusal(request.action))
        self.requests.clear()


def apply_run(state: TaskState, record: RunRecord) -> TaskState:
    """The state after a run has ended; a run that lost its lease does not count."""
    match record.status:
        case RunStatus.SUCCESS:
            return structs.replace(
                state,
                last_run_ms=record.started_ms,
                last_success_ms=record.finished_ms,
                last_error=None,
            )
        case RunStatus.FAILED:
            return structs.replace(
                state,
                last_run_ms=record.started_ms,
                last_error=record.error,
                failed=state.failed + 1,
            )
        case RunStatus.CANCELLED:
            return structs.replace(state, last_run_ms=record.started_ms)
        case RunStatus.LOST:
            return state


def apply_refusal(plan: TaskPlan, state: TaskState, last_decided_ms: int | None) -> TaskState:
    """The state after a guard has refused a run, which counts as skipped.

    If it would have been the last run, decided at `last_decided_ms`, there is a next one again.
    """
    after = structs.replace(state, ran=state.ran - 1, skipped=state.skipped + 1)
    if after.next_ms is not None or last_decided_ms is None or plan.is_spent(after):
        return after
    return structs.replace(after, next_ms=plan.rule.next_ms(last_decided_ms))


def _cancel_once(run: asyncio.Task[None]) -> None:
    if not run.cancelling():  # a second cancellation would interrupt its cleanup
        run.cancel()


class SchedulerContext:
    """What all tasks of a scheduler share: the clock, the queue of due tasks, the observers."""

    def __init__(self, clock: Clock, observers: ObserverList, zone: tzinfo) -> None:
        self.clock = clock
        self.observers = observers
        self.zone = zone
        self.due: DueQueue[ActiveTask] = DueQueue()
        self._wakeup = asyncio.Event()
        self._wall_ms = clock.now_ms()
        self._steady_ms = clock.steady_ms()

    def schedule(self, active: ActiveTask, at_ms: int | None = 0) -> None:
        """Look at a task at once, at an instant, or not again if that is None."""
        self.due.set(active, at_ms)
        self._wakeup.set()

    def wake(self) -> None:
        """End `wait` at once."""
        self._wakeup.set()

    async def wait(self) -> int:
        """Wait until a task is due, until `wake`, or for a second at most.

        Returns by how many ms the clock was set since the last call.
        """
        now_ms = self.clock.now_ms()
        next_ms = self.due.next_ms()
        if next_ms is not None and next_ms <= now_ms:
            await asyncio.sleep(0)  # lets the started runs make progress
        else:
            latest_ms = now_ms + _CHECK_CLOCK_MS
            until_ms = latest_ms if next_ms is None else min(next_ms, latest_ms)
            alarm = self.clock.call_at(until_ms, self._wakeup.set)
            try:
                await self._wakeup.wait()
            finally:
                alarm.cancel()
        self._wakeup.clear()
        return self._measure_jump()

    def note_restored(self, active: ActiveTask, restored: RestoredTask) -> None:
        """Take over the restored state of a task, and report it."""
        previous_ms, state = restored.previous_next_ms, restored.state
        active.plan, active.state, active.is_loaded = restored.plan, state, True
        facts: Any = {"task_id": state.task_id, "fired": state.fired, "next_ms": state.next_ms}
        notify = self.observers.notify
        if restored.source is Source.REPAIRED:
            notify(StateRepaired(problem=restored.problem, previous_next_ms=previous_ms, **facts))
        elif restored.source is Source.CHANGED:
            notify(ScheduleChanged(previous_next_ms=previous_ms, **facts))
        notify(StateLoaded(source=restored.source, **facts))

    def note_skip(self, active: ActiveTask, skip: Skip) -> None:
        """Report that occurrences were skipped."""
        active.last_skip_reason = skip.reason
        if not self.observers.is_empty:
            self.observers.notify(
                RunSkipped(
                    task_id=active.task.id,
                    at_ms=skip.first_ms,
                    last_ms=skip.last_ms,
                    count=skip.count,
                    manual=skip.manual,
                    reason=skip.reason,
                    fired=active.state.fired,
                )
            )

    def note_hold(self, active: ActiveTask, held: Waiting) -> None:
        """Report that an occurrence waits for the active run."""
        if not self.observers.is_empty:
            facts: Any = {"at_ms": held.at_ms, "catch_up": held.catch_up}
            self.observers.notify(
                RunQueued(task_id=active.task.id, fired=active.state.fired, **facts)
            )

    def note_end(self, active: ActiveTask, record: RunRecord) -> None:
        """Keep the record of a run that has ended, and report it."""
        active.add_record(record)
        if not self.observers.is_empty:
            self.observers.notify(
                RunCompleted(
                    task_id=active.task.id,
                    at_ms=record.at_ms,
                    catch_up=record.catch_up,
                    manual=record.manual,
                    fired=active.state.fired,
                    status=record.status,
                    error=record.error,
                )
            )

    def _measure_jump(self) -> int:
        wall_ms, steady_ms = self.clock.now_ms(), self.clock.steady_ms()
        by_ms = (wall_ms - self._wall_ms) - (steady_ms - self._steady_ms)
        self._wall_ms, self._steady_ms = wall_ms, steady_ms
        if abs(by_ms) < _JUMP_MS:
            return 0
        self.observers.notify(ClockJumped(by_ms=by_ms))
        return by_ms
