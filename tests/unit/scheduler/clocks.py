"""A scheduler on a clock that is turned by hand, and what is needed to look at it."""

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

SOON = 10.0
_LOOP = "tampu-scheduler"
_CALM = 12  # turns of the loop in which nothing happens: a run's end takes fewer


class Notes:
    """An observer that writes everything down."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def on_event(self, event: Event) -> None:
        self.events.append(event)

    def all_of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.events]

    @property
    def stops(self) -> list[TaskStopped]:
        return self.all_of(TaskStopped)

    @property
    def begun(self) -> list[int]:
        """The instants of runs that began, in ms since the start."""
        return [event.at_ms - START_MS for event in self.all_of(RunStarted)]

    @property
    def ended(self) -> list[int]:
        return [event.at_ms - START_MS for event in self.all_of(RunCompleted)]

    @property
    def skipped(self) -> list[tuple[SkipReason, int, int]]:
        """Why, from when in ms since the start, and how many."""
        return [(e.reason, e.at_ms - START_MS, e.count) for e in self.all_of(RunSkipped)]


class Function:
    """A task's function that goes on until it is let go, and knows how often it was called."""

    def __init__(self) -> None:
        self.runs: list[TaskRun[Any]] = []
        self.active = 0
        self.cancelled = 0
        self._go_on = asyncio.Event()

    async def __call__(self, run: TaskRun[Any]) -> None:
        self.runs.append(run)
        self.active += 1
        try:
            await self._go_on.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.active -= 1

    def let_go(self) -> None:
        """Have those that are active end, and those that begin yet go on."""
        self._go_on.set()
        self._go_on = asyncio.Event()


class House:
    """A scheduler, its clock and an observer."""

    def __init__(
        self, *, turned: ManualClock | None = None, **options: Unpack[SchedulerOptions]
    ) -> None:
        self.notes = Notes()
        self.clock = turned or ManualClock(START)
        options["observers"] = [*options.get("observers", ()), self.notes]
        options["clock"] = self.clock
        self.scheduler = Scheduler(**options)

    async def idle(self) -> None:
        """Until the scheduler waits for its next alarm, and nothing else is ready to go on."""
        await idle(self.clock)

    async def turn(self, by_ms: int) -> None:
        """Let time pass, from alarm to alarm, and let the scheduler do its work at each."""
        clock, end_ms = self.clock, self.clock.now_ms() + by_ms
        await self.idle()
        while (alarm_ms := clock.next_alarm_ms) is not None and alarm_ms < end_ms:
            clock.turn(ms(alarm_ms - clock.now_ms()))
            await self.idle()
        clock.turn(ms(end_ms - clock.now_ms()))
        await self.idle()

    async def leap(self, by_ms: int) -> None:
        """Let time pass in one go, as if the process had slept."""
        await self.idle()
        self.clock.turn(ms(by_ms))
        await self.idle()

    async def run_beside(self, task: ScheduledTask[Any]) -> "asyncio.Task[Any]":
        """Begin `run`, and go on when the scheduler waits for the task's first instant."""
        running = asyncio.ensure_future(self.scheduler.run(task))
        await asyncio.sleep(0)
        await self.idle()
        return running


async def idle(clock: ManualClock) -> None:
    """Until nothing happens without a turn of this clock; also if the scheduler has ended."""
    calm = 0
    async with asyncio.timeout(SOON):
        while calm < _CALM:
            await asyncio.sleep(0)
            busy = clock.next_alarm_ms is None and _LOOP in map(
                asyncio.Task.get_name, asyncio.all_tasks()
            )
            calm = 0 if busy else calm + 1


async def ended(running: "asyncio.Future[E]") -> E:
    """What comes of something that is about to end."""
    return await asyncio.wait_for(running, SOON)


def task(
    function: Callable[[TaskRun[Any]], object],
    rule: Rule | None = None,
    *,
    id: str = "t",
    **options: Unpack[TaskOptions],
) -> ScheduledTask[Any]:
    """A task that runs each minute unless it is told otherwise."""
    return ScheduledTask(id, rule or Every("1m"), function, **options)


def minutes(numbers: Iterable[int]) -> list[int]:
    return [n * MINUTE for n in numbers]
