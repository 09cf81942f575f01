"""Plans and states for decisions; the time is a number."""

from datetime import UTC, datetime, timedelta
from typing import NamedTuple, TypedDict, Unpack, cast

from tampu.scheduler.decision import Decision, Hold, Run, Skip, TaskPlan, Wait, decide, plan_task
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
    """Keyword options of a `ScheduledTask`."""

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


def limit_option(name: str, count: int) -> TaskOptions:
    """`max_runs` or `max_fires`, by name."""
    return cast("TaskOptions", {name: count})


def nothing(run: object) -> None:
    del run


def make_plan(rule: Rule, /, *, tz: str = "UTC", **options: Unpack[TaskOptions]) -> TaskPlan:
    """The plan of a task "t", without an anchor."""
    return plan_task(ScheduledTask("t", rule, nothing, **options), tz)


def anchored_plan(rule: Rule, /, *, tz: str = "UTC", **options: Unpack[TaskOptions]) -> TaskPlan:
    """The plan of a task "t"; an interval counts from the start."""
    return make_plan(rule, tz=tz, **options).with_anchor(START_MS)


def new_state(plan: TaskPlan, now_ms: int = START_MS) -> TaskState:
    """The state of a task without a stored state."""
    return restore_task(plan, None, now_ms).state


class Decisions(NamedTuple):
    """Everything that was decided for a task until it had to wait."""

    decisions: list[Run | Skip | Hold]
    state: TaskState
    until_ms: int | None
    running: int

    @property
    def runs(self) -> list[int]:
        return [each.occurrence.at_ms for each in self.decisions if isinstance(each, Run)]

    @property
    def skips(self) -> list[Skip]:
        return [each for each in self.decisions if isinstance(each, Skip)]

    @property
    def held(self) -> list[int]:
        return [each.occurrence.at_ms for each in self.decisions if isinstance(each, Hold)]


def decide_all(plan: TaskPlan, state: TaskState, now_ms: int, *, running: int = 0) -> Decisions:
    """Decide until the task has to wait; runs that start do not end."""
    decisions: list[Run | Skip | Hold] = []
    for _ in range(100_000):
        decision: Decision = decide(plan, state, now_ms, running=running)
        if isinstance(decision, Wait):
            return Decisions(decisions, state, decision.until_ms, running)
        if isinstance(decision, Run):
            running += 1
        state = decision.state
        decisions.append(decision)
    raise AssertionError("the decisions never end")


def ms(count: int) -> timedelta:
    """A number of milliseconds."""
    return timedelta(milliseconds=count)
