"""From what is stored of a task to how it stands now. Pure: the time is an argument."""

from typing import Final

from msgspec import Struct, structs

from tampu.errors import DecodeError
from tampu.scheduler.decision import TaskPlan, bounded
from tampu.scheduler.events import Source
from tampu.scheduler.stores.store import Loaded
from tampu.timing import Aligned, At
from tampu.wire.task_state import TaskState

_SKEW_MS: Final = 60_000  # between the clocks of machines that share a store
_CORRECTED_MS: Final = 3 * 3_600_000  # a clock set back by more was wrong before


class RestoredTask(Struct, frozen=True, kw_only=True):
    """A task's plan, anchored, and its state; what was wrong with what was stored, if anything."""

    plan: TaskPlan
    state: TaskState
    source: Source
    problem: str = ""
    previous_next_ms: int | None = None


def restore_task(plan: TaskPlan, loaded: Loaded, now_ms: int) -> RestoredTask:
    """How a task stands that is added now."""
    if loaded is None:
        return _new(plan, TaskState(task_id=plan.task_id), now_ms, source=Source.NEW)
    if isinstance(loaded, DecodeError):
        fresh = _new(plan, TaskState(task_id=plan.task_id), now_ms, source=Source.REPAIRED)
        return structs.replace(fresh, problem=str(loaded))
    state = structs.replace(loaded, task_id=plan.task_id)
    if not state.fingerprint:  # a peer's, or nobody wrote it down
        state = structs.replace(state, fingerprint=plan.fingerprint, anchor_ms=state.next_ms)
    if state.fingerprint != plan.fingerprint:
        changed = _new(plan, state, now_ms, source=Source.CHANGED)
        return structs.replace(changed, previous_next_ms=state.next_ms)
    if state.next_ms is None:
        return _without_next(plan, state, now_ms)
    anchored = plan.anchored(state.anchor_ms)
    found = RestoredTask(plan=anchored, state=bounded(plan, state, now_ms), source=Source.RESTORED)
    return set_back(anchored, found.state, now_ms) or found


def set_back(plan: TaskPlan, state: TaskState, now_ms: int) -> RestoredTask | None:
    """A task that waits for an instant behind the next one, since the clock was set back; or None.

    As Debian's cron has it: what goes by the time that passes goes on by the new time. What names
    wall times has had them, unless the clock was set back by more than three hours.
    """
    next_ms = state.next_ms
    if next_ms is None or next_ms - now_ms <= _SKEW_MS or _instants(plan) is not None:
        return None
    first_ms = plan.rule.next_ms(now_ms)
    ahead_ms = 0 if first_ms is None else next_ms - first_ms
    if ahead_ms <= (_SKEW_MS if plan.rule.goes_on else _CORRECTED_MS):
        return None
    return RestoredTask(
        plan=plan,
        # What was paused or stood in for others by the old time says nothing of the new one.
        state=structs.replace(state, next_ms=first_ms, resumed_ms=None, stands_in_ms=None),
        source=Source.REPAIRED,
        problem="the clock was set back",
        previous_next_ms=next_ms,
    )


def _without_next(plan: TaskPlan, state: TaskState, now_ms: int) -> RestoredTask:
    """One that has ended, or ought not to have."""
    again = _new(plan, state, now_ms, source=Source.REPAIRED)
    if again.state.next_ms is None or plan.spent(state):
        return RestoredTask(plan=plan, state=state, source=Source.RESTORED)
    return structs.replace(again, problem="nothing was to come, and the schedule has more")


def _new(plan: TaskPlan, state: TaskState, now_ms: int, *, source: Source) -> RestoredTask:
    """Armed for the first instant from now on."""
    anchored = plan.anchored(now_ms)
    fresh = structs.replace(
        state,
        fingerprint=plan.fingerprint,
        next_ms=_first_ms(anchored, state, now_ms),
        anchor_ms=now_ms,
    )
    return RestoredTask(plan=anchored, state=bounded(plan, fresh, now_ms), source=source)


def _first_ms(plan: TaskPlan, state: TaskState, now_ms: int) -> int | None:
    """Instants that were given one by one, and that nobody has seen to, are missed if past."""
    instants = _instants(plan)
    if not instants:
        return plan.rule.next_ms(now_ms)
    if not state.fingerprint:
        return plan.rule.next_ms(min(now_ms, instants[0] - 1))
    return plan.rule.next_ms(now_ms if state.next_ms is None else min(now_ms, state.next_ms - 1))


def _instants(plan: TaskPlan) -> tuple[int, ...] | None:
    """The instants of a rule that has them one by one."""
    rule = plan.rule.rule if isinstance(plan.rule, Aligned) else plan.rule
    return rule.instants_ms if isinstance(rule, At) else None
