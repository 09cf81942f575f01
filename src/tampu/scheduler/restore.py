"""From the stored state of a task to its state now. Pure: the time is an argument."""

from typing import Final

from msgspec import Struct, structs

from tampu.errors import DecodeError
from tampu.scheduler.decision import TaskPlan
from tampu.scheduler.events import Source
from tampu.scheduler.stores.store import Loaded
from tampu.timing import Aligned, At
from tampu.wire.task_state import TaskState

_SKEW_MS: Final = 60_000  # how far the clocks of machines that share a store may differ
_CORRECTION_MS: Final = 3 * 3_600_000  # a clock that is set back by more was wrong before


class RestoredTask(Struct, frozen=True, kw_only=True):
    """A task's plan with its anchor, its state, and the problem with the stored state, if any."""

    plan: TaskPlan
    state: TaskState
    source: Source
    problem: str = ""
    previous_next_ms: int | None = None


def restore_task(plan: TaskPlan, loaded: Loaded, now_ms: int) -> RestoredTask:
    """The plan and the state of a task that is added now."""
    if loaded is None:
        return _start(plan, TaskState(task_id=plan.task_id), now_ms, source=Source.NEW)
    if isinstance(loaded, DecodeError):
        fresh = _start(plan, TaskState(task_id=plan.task_id), now_ms, source=Source.REPAIRED)
        return structs.replace(fresh, problem=str(loaded))
    state = structs.replace(loaded, task_id=plan.task_id)
    if not state.fingerprint:  # a state of cloudiful-scheduler has none
        state = structs.replace(state, fingerprint=plan.fingerprint, anchor_ms=state.next_ms)
    if state.fingerprint != plan.fingerprint:
        changed = _start(plan, state, now_ms, source=Source.CHANGED)
        return structs.replace(changed, previous_next_ms=state.next_ms)
    if state.next_ms is None:
        return _restore_ended(plan, state, now_ms)
    plan, state = plan.with_anchor(state.anchor_ms), plan.limit(state, now_ms)
    restored = RestoredTask(plan=plan, state=state, source=Source.RESTORED)
    return adjust_to_clock(plan, state, now_ms) or restored


def adjust_to_clock(plan: TaskPlan, state: TaskState, now_ms: int) -> RestoredTask | None:
    """The task with an earlier next instant, if the clock was set back; else None.

    As in Debian's cron: a rule that follows elapsed time continues by the new time. Times of day
    that have passed do not come again, unless the clock was set back by more than three hours.
    """
    next_ms = state.next_ms
    if next_ms is None or next_ms - now_ms <= _SKEW_MS or _listed_instants(plan) is not None:
        return None
    first_ms = plan.rule.next_ms(now_ms)
    ahead_ms = 0 if first_ms is None else next_ms - first_ms
    if ahead_ms <= (_SKEW_MS if plan.rule.follows_elapsed_time else _CORRECTION_MS):
        return None
    return RestoredTask(
        plan=plan,
        # The other two are instants of the old time, and mean nothing in the new one.
        state=structs.replace(state, next_ms=first_ms, resumed_ms=None, stands_in_ms=None),
        source=Source.REPAIRED,
        problem="the clock was set back",
        previous_next_ms=next_ms,
    )


def _restore_ended(plan: TaskPlan, state: TaskState, now_ms: int) -> RestoredTask:
    """A task without a next occurrence: it has ended, or its state is wrong."""
    restarted = _start(plan, state, now_ms, source=Source.REPAIRED)
    if restarted.state.next_ms is None or plan.is_spent(state):
        return RestoredTask(plan=plan, state=state, source=Source.RESTORED)
    problem = "there was no next occurrence, but the schedule has more"
    return structs.replace(restarted, problem=problem)


def _start(plan: TaskPlan, state: TaskState, now_ms: int, *, source: Source) -> RestoredTask:
    """The task with its next occurrence computed from now."""
    anchored = plan.with_anchor(now_ms)
    fresh = structs.replace(
        state,
        fingerprint=plan.fingerprint,
        next_ms=_first_ms(anchored, state, now_ms),
        anchor_ms=now_ms,
    )
    return RestoredTask(plan=anchored, state=plan.limit(fresh, now_ms), source=source)


def _first_ms(plan: TaskPlan, state: TaskState, now_ms: int) -> int | None:
    """The first instant from now on. Of listed instants, also past ones that are still open."""
    instants = _listed_instants(plan)
    if not instants:
        return plan.rule.next_ms(now_ms)
    if not state.fingerprint:
        return plan.rule.next_ms(min(now_ms, instants[0] - 1))
    return plan.rule.next_ms(now_ms if state.next_ms is None else min(now_ms, state.next_ms - 1))


def _listed_instants(plan: TaskPlan) -> tuple[int, ...] | None:
    """The instants of an `At` rule; None for other rules."""
    rule = plan.rule.rule if isinstance(plan.rule, Aligned) else plan.rule
    return rule.instants_ms if isinstance(rule, At) else None
