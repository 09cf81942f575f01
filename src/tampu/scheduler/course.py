"""One task in the hands of a scheduler."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from msgspec import Struct, structs

from tampu.errors import WrongContext
from tampu.scheduler.events import Event, RunStatus, SkipReason, StopReason
from tampu.scheduler.plan import Plan
from tampu.scheduler.report import Report
from tampu.scheduler.run import RunRecord
from tampu.scheduler.task import ScheduledTask
from tampu.wire.task_state import TaskState


class Granted(Struct, frozen=True):
    """What a wish makes of a state; without an event it was so already."""

    state: TaskState
    event: Event | None


Grant: TypeAlias = Callable[[TaskState, int], Granted]


class Wish(Struct, frozen=True):
    """Something that is to become of a task's state, and who waits for it."""

    what: str
    grant: Grant
    done: asyncio.Future[bool]

    def answer(self, granted: bool) -> None:  # noqa: FBT001 - it is the answer
        """Tell who waits, if anybody still does."""
        if not self.done.done():
            self.done.set_result(granted)


class Course:
    """How a task stands, what of it runs, and what is wished of it."""

    def __init__(self, task: ScheduledTask[Any], plan: Plan, *, history: int) -> None:
        self.task = task
        self.drawn = plan  # without the anchor that its state may have
        self.plan = plan
        self.state = TaskState(task_id=task.id)
        self.is_open = False  # its state has been loaded
        self.turn_ms: int | None = None  # in the agenda
        self.running = 0
        self.runs: dict[int, asyncio.Task[None]] = {}  # by the id of what their functions got
        self.wishes: list[Wish] = []
        self.closed_ms: int | None = None  # when the last run was decided on that left no next
        self.stopping: StopReason | None = None
        self.is_hurried = False  # what runs is cancelled, and so is what begins yet
        self.stopped: StopReason | None = None
        self.last_skip_reason: SkipReason | None = None
        self.ended: asyncio.Future[Report] = asyncio.get_running_loop().create_future()
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

    def report(self) -> Report:
        """What there is to say of the task."""
        return Report(
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


def refused(plan: Plan, state: TaskState, closed_ms: int | None) -> TaskState:
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
