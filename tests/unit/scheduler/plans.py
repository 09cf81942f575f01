"""Plans and states for decisions, by a clock that is a number."""

from datetime import UTC, datetime, timedelta
from typing import NamedTuple, TypedDict, Unpack, cast

from tampu.scheduler.decision import Decision, Hold, Run, Skip, TaskPlan, Wait, decide, plan_of
from tampu.scheduler.restore import restore_task
from tampu.scheduler.task import ScheduledTask
from tampu.timing import Missed, Overlap, Rule, TimeWindow
from tampu.util.clock import Duration
from tampu.wire.task_state import TaskState

START = datetime(2026, 10, 24, tzinfo=UTC)  # a Saturday
START_MS = int(START.timestamp() * 1000)
SECOND = 1000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR


class TaskOptions(TypedDict, total=False):
    """What may be said of a task."""

    deps: object
    window: TimeWindow | None
    align: bool
    missed: Missed
    overlap: Overlap
    max_runs: int | None
    max_fires: int | None
    blocking: bool
    stagger: bool | str
    jitter: Duration | None


def limited(limit: str, count: int) -> TaskOptions:
    """One of the two limits, by its name."""
    return cast("TaskOptions", {limit: count})


def nothing(run: object) -> None:
    del run


def plan_of_task(rule: Rule, /, *, tz: str = "UTC", **options: Unpack[TaskOptions]) -> TaskPlan:
    """The plan of a task "t" that has not begun yet."""
    return plan_of(ScheduledTask("t", rule, nothing, **options), tz)


def plan_for(rule: Rule, /, *, tz: str = "UTC", **options: Unpack[TaskOptions]) -> TaskPlan:
    """The same; its grid, if it has one, begins at the start."""
    return plan_of_task(rule, tz=tz, **options).with_anchor(START_MS)


def new_state(plan: TaskPlan, now_ms: int = START_MS) -> TaskState:
    """Of a task that nobody has seen before."""
    return restore_task(plan, None, now_ms).state


class Turn(NamedTuple):
    """All that was decided for a task until it had to wait."""

    decisions: list[Run | Skip | Hold]
    state: TaskState
    until_ms: int | None
    running: int

    @property
    def runs(self) -> list[int]:
        return [one.occurrence.at_ms for one in self.decisions if isinstance(one, Run)]

    @property
    def skips(self) -> list[Skip]:
        return [one for one in self.decisions if isinstance(one, Skip)]

    @property
    def held(self) -> list[int]:
        return [one.occurrence.at_ms for one in self.decisions if isinstance(one, Hold)]


def turn(plan: TaskPlan, state: TaskState, now_ms: int, *, running: int = 0) -> Turn:
    """Ask until there is nothing more to do; a run that is begun goes on."""
    decisions: list[Run | Skip | Hold] = []
    for _ in range(100_000):
        decision: Decision = decide(plan, state, now_ms, running=running)
        if isinstance(decision, Wait):
            return Turn(decisions, state, decision.until_ms, running)
        if isinstance(decision, Run):
            running += 1
        state = decision.state
        decisions.append(decision)
    raise AssertionError("it never comes to an end")


def ms(count: int) -> timedelta:
    """So many milliseconds."""
    return timedelta(milliseconds=count)
