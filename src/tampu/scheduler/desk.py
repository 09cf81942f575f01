"""What all parts of one scheduler share."""

import asyncio
from datetime import tzinfo
from typing import Any, Final

from tampu.scheduler.agenda import Agenda
from tampu.scheduler.clock import Clock
from tampu.scheduler.course import Course
from tampu.scheduler.decision import Skip
from tampu.scheduler.events import (
    ClockJumped,
    RunCompleted,
    RunQueued,
    RunSkipped,
    ScheduleChanged,
    Source,
    StateLoaded,
    StateRepaired,
)
from tampu.scheduler.observer import Telling
from tampu.scheduler.opening import Opened
from tampu.scheduler.run import RunRecord
from tampu.wire.task_state import Waiting

_LOOK_MS: Final = 1000  # how long a clock that was set may go unnoticed
_JUMP_MS: Final = 1000  # less than that is a clock that is being slowed or hurried


class Desk:
    """The clock, the agenda and the observers of a scheduler, and the wait for the next turn."""

    def __init__(self, clock: Clock, telling: Telling, zone: tzinfo) -> None:
        self.clock = clock
        self.telling = telling
        self.zone = zone
        self.agenda: Agenda[Course] = Agenda()
        self._waking = asyncio.Event()
        self._wall_ms = clock.now_ms()
        self._steady_ms = clock.steady_ms()

    def call(self, course: Course, at_ms: int | None = 0) -> None:
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

    def skipped(self, course: Course, skip: Skip) -> None:
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

    def held(self, course: Course, one: Waiting) -> None:
        """Tell that an occurrence waits for the run that is active."""
        if self.telling.anybody:
            facts: Any = {"at_ms": one.at_ms, "catch_up": one.catch_up, "fired": course.state.fired}
            self.telling.tell(RunQueued(task_id=course.task.id, **facts))

    def completed(self, course: Course, record: RunRecord) -> None:
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

    def opened(self, course: Course, found: Opened) -> None:
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
