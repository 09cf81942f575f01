"""A scheduler on a manual clock, with an observer that keeps every event."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, Unpack

from tampu.scheduler import (
    Event,
    ManualClock,
    RunCompleted,
    RunSkipped,
    RunStarted,
    ScheduledTask,
    Scheduler,
    SkipReason,
    TaskRun,
    TaskStopped,
)
from tampu.scheduler.scheduler import SchedulerOptions
from tampu.timing import Every, Rule
from tests.unit.scheduler.plans import MINUTE, START, START_MS, TaskOptions, ms

E = TypeVar("E")

SOON = 60.0
_LOOP_NAME = "tampu-scheduler"
_IDLE_STEPS = 12  # steps of the event loop without an action: the end of a run takes fewer


class EventLog:
    """An observer that keeps every event."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def on_event(self, event: Event) -> None:
        self.events.append(event)

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.events]

    @property
    def stops(self) -> list[TaskStopped]:
        return self.of(TaskStopped)

    @property
    def started(self) -> list[int]:
        """The instants of the runs that started, in ms since the start."""
        return [event.at_ms - START_MS for event in self.of(RunStarted)]

    @property
    def ended(self) -> list[int]:
        return [event.at_ms - START_MS for event in self.of(RunCompleted)]

    @property
    def skipped(self) -> list[tuple[SkipReason, int, int]]:
        """The reason, the first instant in ms since the start, and the count."""
        return [(e.reason, e.at_ms - START_MS, e.count) for e in self.of(RunSkipped)]


class HeldFunction:
    """A task's function that runs until it is released, and counts its calls."""

    def __init__(self) -> None:
        self.runs: list[TaskRun[Any]] = []
        self.active = 0
        self.cancelled = 0
        self._released = asyncio.Event()

    async def __call__(self, run: TaskRun[Any]) -> None:
        self.runs.append(run)
        self.active += 1
        try:
            await self._released.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.active -= 1

    def release(self) -> None:
        """End the active calls; later calls are held again."""
        self._released.set()
        self._released = asyncio.Event()


class Harness:
    """A scheduler, its clock and an observer."""

    def __init__(
        self, *, same_clock: ManualClock | None = None, **options: Unpack[SchedulerOptions]
    ) -> None:
        self.log = EventLog()
        self.clock = same_clock or ManualClock(START)
        options["observers"] = [*options.get("observers", ()), self.log]
        options["clock"] = self.clock
        self.scheduler = Scheduler(**options)

    async def idle(self) -> None:
        """Wait until the scheduler waits for its next alarm and nothing else is ready to run."""
        calm = 0
        async with asyncio.timeout(SOON):
            while calm < _IDLE_STEPS:
                await asyncio.sleep(0)
                names = map(asyncio.Task.get_name, asyncio.all_tasks())
                busy = self.clock.next_alarm_ms is None and _LOOP_NAME in names
                calm = 0 if busy else calm + 1

    async def turn(self, by_ms: int) -> None:
        """Let time pass from alarm to alarm, and let the scheduler work at each of them."""
        clock, end_ms = self.clock, self.clock.now_ms() + by_ms
        await self.idle()
        while (alarm_ms := clock.next_alarm_ms) is not None and alarm_ms < end_ms:
            clock.turn(ms(alarm_ms - clock.now_ms()))
            await self.idle()
        clock.turn(ms(end_ms - clock.now_ms()))
        await self.idle()

    async def leap(self, by_ms: int) -> None:
        """Let time pass in one step, as if the process had slept."""
        await self.idle()
        self.clock.turn(ms(by_ms))
        await self.idle()

    async def start_run(self, task: ScheduledTask[Any]) -> "asyncio.Task[Any]":
        """Start `Scheduler.run`; return when it waits for the first instant of the task."""
        running = asyncio.ensure_future(self.scheduler.run(task))
        await asyncio.sleep(0)
        await self.idle()
        return running


async def finish(running: "asyncio.Future[E]") -> E:
    """The result of something that is about to end."""
    return await asyncio.wait_for(running, SOON)


def task(
    function: Callable[[TaskRun[Any]], object],
    rule: Rule | None = None,
    *,
    id: str = "t",
    **options: Unpack[TaskOptions],
) -> ScheduledTask[Any]:
    """A task that runs every minute unless another rule is given."""
    return ScheduledTask(id, rule or Every("1m"), function, **options)


def minutes(numbers: Iterable[int]) -> list[int]:
    return [n * MINUTE for n in numbers]
