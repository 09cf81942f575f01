"""From what is stored of a task to how it stands now. Pure: the time is an argument."""

from msgspec import Struct, structs

from tampu.errors import DecodeError
from tampu.scheduler.decision import bounded
from tampu.scheduler.events import Source
from tampu.scheduler.plan import Plan
from tampu.scheduler.store import Loaded
from tampu.timing import Aligned, At
from tampu.wire.task_state import TaskState


class Opened(Struct, frozen=True, kw_only=True):
    """A task's plan, anchored, and its state; what was wrong with what was stored, if anything."""

    plan: Plan
    state: TaskState
    source: Source
    problem: str = ""
    previous_next_ms: int | None = None


def opened(plan: Plan, loaded: Loaded, now_ms: int) -> Opened:
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
    return Opened(plan=anchored, state=bounded(plan, state, now_ms), source=Source.RESTORED)


def _without_next(plan: Plan, state: TaskState, now_ms: int) -> Opened:
    """One that has ended, or ought not to have."""
    again = _new(plan, state, now_ms, source=Source.REPAIRED)
    if again.state.next_ms is None or plan.spent(state):
        return Opened(plan=plan, state=state, source=Source.RESTORED)
    return structs.replace(again, problem="nothing was to come, and the schedule has more")


def _new(plan: Plan, state: TaskState, now_ms: int, *, source: Source) -> Opened:
    """Armed for the first instant from now on."""
    anchored = plan.anchored(now_ms)
    fresh = structs.replace(
        state,
        fingerprint=plan.fingerprint,
        next_ms=_first_ms(anchored, state, now_ms),
        anchor_ms=now_ms,
    )
    return Opened(plan=anchored, state=bounded(plan, fresh, now_ms), source=source)


def _first_ms(plan: Plan, state: TaskState, now_ms: int) -> int | None:
    """Instants that were given one by one, and that nobody has seen to, are missed if past."""
    rule = plan.rule.rule if isinstance(plan.rule, Aligned) else plan.rule
    if not isinstance(rule, At) or not rule.instants_ms:
        return plan.rule.next_ms(now_ms)
    if not state.fingerprint:
        return plan.rule.next_ms(min(now_ms, rule.instants_ms[0] - 1))
    return plan.rule.next_ms(now_ms if state.next_ms is None else min(now_ms, state.next_ms - 1))
