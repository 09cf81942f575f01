"""The tasks that a scheduler runs: how each stands, and what they share."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from datetime import tzinfo
from typing import Any, Final, TypeAlias

from msgspec import Struct, structs

from tampu.errors import WrongContext
from tampu.scheduler.clock import Agenda, Clock
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


class Granted(Struct, frozen=True):
    """What a wish makes of a state; without an event it was so already."""

    state: TaskState
    event: Event | None


Grant: TypeAlias = Callable[[TaskState, int], Granted]


class StateRequest(Struct, frozen=True):
    """Something that is to become of a task's state, and who waits for it."""

    what: str
    grant: Grant
    done: asyncio.Future[bool]

    def answer(self, granted: bool) -> None:  # noqa: FBT001 - it is the answer
        """Tell who waits, if anybody still does."""
        if not self.done.done():
            self.done.set_result(granted)


class ActiveTask:
    """How a task stands, what of it runs, and what is wished of it."""

    def __init__(self, task: ScheduledTask[Any], plan: TaskPlan, *, history: int) -> None:
        self.task = task
        self.drawn = plan  # without the anchor that its state may have
        self.plan = plan
        self.state = TaskState(task_id=task.id)
        self.is_open = False  # its state has been loaded
        self.turn_ms: int | None = None  # in the agenda
        self.running = 0
        self.runs: dict[int, asyncio.Task[None]] = {}  # by the id of what their functions got
        self.wishes: list[StateRequest] = []
        self.closed_ms: int | None = None  # when the last run was decided on that left no next
        self.stopping: StopReason | None = None
        self.is_hurried = False  # what runs is cancelled, and so is what begins yet
        self.stopped: StopReason | None = None
        self.last_skip_reason: SkipReason | None = None
        self.ended: asyncio.Future[TaskReport] = asyncio.get_running_loop().create_future()
        self._history: deque[RunRecord] = deque(maxlen=history)

    def note(self, record: RunRecord) -> None:
        """Keep the record of a run that is over."""
        self._history.append(record)

    def cancel_runs(self, runs: Iterable[asyncio.Task[None]]) -> None:
        """Cancel runs, each behind its first step: one that never began could not tell its end."""
        loop = asyncio.get_running_loop()
        for run in runs:
            loop.call_soon(_cancel_once, run)

    def hurry(self) -> None:
        """Cancel all runs, those that were decided on and have yet to begin as well."""
        self.is_hurried = True
        self.cancel_runs(self.runs.values())

    def report(self) -> TaskReport:
        """What there is to say of the task."""
        return TaskReport(
            task_id=self.task.id,
            state=self.state,
            history=tuple(self._history),
            last_skip_reason=self.last_skip_reason,
            stopped=self.stopped,
        )

    def end(self, reason: StopReason) -> None:
        """Nothing more comes of it; those who wait are told."""
        self.stopped = reason
        if not self.ended.done():
            self.ended.set_result(self.report())
        self._refuse_wishes()

    def fail(self, error: BaseException) -> None:
        """As `end`, by an error that those who wait get."""
        self.stopped = StopReason.FAILED
        if not self.ended.done():
            self.ended.set_exception(error)
            self.ended.exception()  # it is raised where it is waited for, if anybody does
        self._refuse_wishes()

    def _refuse_wishes(self) -> None:
        for wish in self.wishes:
            if not wish.done.done():
                wish.done.set_exception(out_of_place(wish.what))
        self.wishes.clear()


def out_of_place(what: str) -> WrongContext:
    """What is raised to who wishes something of a task that is over or stopping."""
    return WrongContext(what, "the task has finished")


def completed(state: TaskState, record: RunRecord) -> TaskState:
    """The state once a run of it is over; one that lost its lease does not count."""
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


def refused(plan: TaskPlan, state: TaskState, closed_ms: int | None) -> TaskState:
    """The state once a guard has refused a run: it did not run after all.

    If it was to be the last one, decided on at `closed_ms`, there is a next occurrence again.
    """
    after = structs.replace(state, ran=state.ran - 1, skipped=state.skipped + 1)
    if after.next_ms is not None or closed_ms is None or plan.spent(after):
        return after
    return structs.replace(after, next_ms=plan.rule.next_ms(closed_ms))


def _cancel_once(run: asyncio.Task[None]) -> None:
    if not run.cancelling():  # a second time would break into what it does to end well
        run.cancel()


_LOOK_MS: Final = 1000  # how long a clock that was set may go unnoticed
_JUMP_MS: Final = 1000  # less than that is a clock that is being slowed or hurried


class SchedulerContext:
    """The clock, the agenda and the observers of a scheduler, and the wait for the next turn."""

    def __init__(self, clock: Clock, telling: ObserverList, zone: tzinfo) -> None:
        self.clock = clock
        self.telling = telling
        self.zone = zone
        self.agenda: Agenda[ActiveTask] = Agenda()
        self._waking = asyncio.Event()
        self._wall_ms = clock.now_ms()
        self._steady_ms = clock.steady_ms()

    def call(self, course: ActiveTask, at_ms: int | None = 0) -> None:
        """Give a task its next turn: at once, at an instant, or None for none."""
        self.agenda.set(course, at_ms)
        self._waking.set()

    def wake(self) -> None:
        """End the wait for the next turn."""
        self._waking.set()

    async def wait(self) -> int:
        """Until the next turn, until somebody is called, or to look at the clock.

        By how many ms the clock was set meanwhile.
        """
        now_ms = self.clock.now_ms()
        next_ms = self.agenda.next_ms()
        if next_ms is not None and next_ms <= now_ms:
            await asyncio.sleep(0)  # what was started gets its turn as well
        else:
            until_ms = now_ms + _LOOK_MS if next_ms is None else min(next_ms, now_ms + _LOOK_MS)
            alarm = self.clock.call_at(until_ms, self._waking.set)
            try:
                await self._waking.wait()
            finally:
                alarm.cancel()
        self._waking.clear()
        return self._look_at_clock()

    def skipped(self, course: ActiveTask, skip: Skip) -> None:
        """Note and tell that occurrences did not run."""
        course.last_skip_reason = skip.reason
        if self.telling.anybody:
            self.telling.tell(
                RunSkipped(
                    task_id=course.task.id,
                    at_ms=skip.first_ms,
                    last_ms=skip.last_ms,
                    count=skip.count,
                    manual=skip.manual,
                    reason=skip.reason,
                    fired=course.state.fired,
                )
            )

    def held(self, course: ActiveTask, one: Waiting) -> None:
        """Tell that an occurrence waits for the run that is active."""
        if self.telling.anybody:
            facts: Any = {"at_ms": one.at_ms, "catch_up": one.catch_up, "fired": course.state.fired}
            self.telling.tell(RunQueued(task_id=course.task.id, **facts))

    def completed(self, course: ActiveTask, record: RunRecord) -> None:
        """Note and tell that a run is over."""
        course.note(record)
        if self.telling.anybody:
            self.telling.tell(
                RunCompleted(
                    task_id=course.task.id,
                    at_ms=record.at_ms,
                    catch_up=record.catch_up,
                    manual=record.manual,
                    fired=course.state.fired,
                    status=record.status,
                    error=record.error,
                )
            )

    def opened(self, course: ActiveTask, found: RestoredTask) -> None:
        """Note and tell how a task stands that was added."""
        previous_ms, state = found.previous_next_ms, found.state
        course.plan, course.state, course.is_open = found.plan, state, True
        facts: Any = {"task_id": state.task_id, "fired": state.fired, "next_ms": state.next_ms}
        tell = self.telling.tell
        if found.source is Source.REPAIRED:
            tell(StateRepaired(problem=found.problem, previous_next_ms=previous_ms, **facts))
        elif found.source is Source.CHANGED:
            tell(ScheduleChanged(previous_next_ms=previous_ms, **facts))
        tell(StateLoaded(source=found.source, **facts))

    def _look_at_clock(self) -> int:
        wall_ms, steady_ms = self.clock.now_ms(), self.clock.steady_ms()
        by_ms = (wall_ms - self._wall_ms) - (steady_ms - self._steady_ms)
        self._wall_ms, self._steady_ms = wall_ms, steady_ms
        if abs(by_ms) < _JUMP_MS:
            return 0
        self.telling.tell(ClockJumped(by_ms=by_ms))
        return by_ms
