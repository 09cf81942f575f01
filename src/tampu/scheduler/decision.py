"""A task's options as its decisions need them. Pure, like all that is made of them."""

from hashlib import blake2b
from typing import TypeAlias

from msgspec import Struct, structs

from tampu.scheduler.events import SkipReason
from tampu.scheduler.task import ScheduledTask
from tampu.timing import (
    Aligned,
    At,
    Cron,
    Every,
    Missed,
    MissedKind,
    Overlap,
    Rule,
    TimeWindow,
    first_fire,
    offset_ms,
)
from tampu.timing.rule import Until
from tampu.util.clock import to_ms
from tampu.wire.task_state import TaskState, Waiting


class TaskPlan(Struct, frozen=True, kw_only=True):
    """When a task is to run, by a scheduler's zone and from an anchor."""

    task_id: str
    rule: Rule
    fingerprint: str  # of all that the instants depend on
    window: TimeWindow | None
    missed: Missed
    overlap: Overlap
    max_runs: int | None
    max_fires: int | None
    jitter_ms: int

    @property
    def replays(self) -> bool:
        """Whether each missed occurrence runs, one after the other."""
        return self.missed.kind is MissedKind.ALL

    def anchored(self, at_ms: int | None) -> "TaskPlan":
        """The same, an interval's grid beginning at an instant."""
        return self if at_ms is None else structs.replace(self, rule=self.rule.anchored(at_ms))

    def starts_ms(self, at_ms: int) -> int:
        """When an occurrence is to run."""
        if not self.jitter_ms:
            return at_ms
        next_ms = self.rule.next_ms(at_ms)
        spread = self.jitter_ms if next_ms is None else min(self.jitter_ms, next_ms - at_ms)
        return at_ms + offset_ms(self.task_id, at_ms, spread)

    def has_run_enough(self, state: TaskState) -> bool:
        """Whether the task has had all its runs."""
        return self.max_runs is not None and state.ran >= self.max_runs

    def has_fired_enough(self, state: TaskState) -> bool:
        """Whether the task has had all its occurrences."""
        return self.max_fires is not None and state.fired >= self.max_fires

    def spent(self, state: TaskState) -> bool:
        """Whether the task has had all that it may have."""
        # Both spelled out: asked at each run.
        return (self.max_runs is not None and state.ran >= self.max_runs) or (
            self.max_fires is not None and state.fired >= self.max_fires
        )


def plan_of(task: ScheduledTask[object], tz: str) -> TaskPlan:
    """The plan of a task in a scheduler of this zone."""
    window = None if task.window is None else task.window.zoned(tz)
    rule = task.rule.zoned(tz)
    if task.stagger is not False and isinstance(rule, Every):
        rule = rule.staggered(task.stagger if isinstance(task.stagger, str) else task.id)
    if task.align and window is not None:
        rule = Aligned(rule, window)
    return TaskPlan(
        task_id=task.id,
        rule=rule,
        fingerprint=_fingerprint(rule),
        window=window,
        missed=task.missed,
        overlap=task.overlap,
        max_runs=task.max_runs,
        max_fires=task.max_fires,
        jitter_ms=0 if task.jitter is None else to_ms("jitter", task.jitter),
    )


def _fingerprint(rule: Rule) -> str:
    return blake2b(_spelled(rule).encode(), digest_size=8).hexdigest()


def _spelled(rule: Rule) -> str:
    match rule:
        case Every(interval_ms=interval_ms, anchor_ms=anchor_ms):
            return f"every {interval_ms} {anchor_ms}"
        case Cron(text=text, tz=tz):
            return f"cron {text} {tz}"
        case At(instants_ms=instants_ms):
            return f"at {instants_ms}"
        case Aligned(rule=inner, window=window):
            return f"{_spelled(inner)} {window!r}"
        case _:
            return repr(rule)


class Run(Struct, frozen=True, gc=False):
    """Run an occurrence; `cancels` what is running before."""

    state: TaskState
    occurrence: Waiting
    cancels: bool = False


class Skip(Struct, frozen=True, gc=False):
    """Do not run some occurrences: `count` of them, from `first_ms` to `last_ms`."""

    state: TaskState
    reason: SkipReason
    first_ms: int
    last_ms: int
    count: int = 1
    manual: bool = False


class Hold(Struct, frozen=True, gc=False):
    """Have an occurrence wait for the end of the run that is active."""

    state: TaskState
    occurrence: Waiting


class Wait(Struct, frozen=True, gc=False):
    """Nothing to do until then; None: until a run ends, or somebody asks for something."""

    until_ms: int | None


Decision: TypeAlias = Run | Skip | Hold | Wait
"""`state` is how the task stands afterwards."""
_WAIT = Wait(None)


def decide(plan: TaskPlan, state: TaskState, now_ms: int, *, running: int = 0) -> Decision:
    """The next thing to do for a task; asked again until it is to wait."""
    if state.paused_ms is not None:
        return _WAIT
    if state.queued is not None and not running:
        return _of_queued(plan, state, state.queued, now_ms=now_ms)
    if state.asked is not None:
        decision = _of_asked(plan, state, now_ms, running=running)
        if decision is not None:
            return decision
    return _of_next(plan, state, now_ms, running=running)


def is_over(state: TaskState) -> bool:
    """Whether there is nothing to come."""
    return state.next_ms is None and state.queued is None and state.asked is None


def bounded(plan: TaskPlan, state: TaskState, now_ms: int) -> TaskState:
    """The state without a next occurrence if it may have none.

    One that is due and may not run is told first; one too many is none.
    """
    next_ms = state.next_ms
    if next_ms is None or not plan.spent(state):
        return state
    if next_ms <= now_ms and not plan.has_fired_enough(state):
        return state
    return structs.replace(state, next_ms=None)


def _of_next(plan: TaskPlan, state: TaskState, now_ms: int, *, running: int) -> Decision:
    due_ms = state.next_ms
    if due_ms is None:
        return _WAIT
    starts_ms = plan.starts_ms(due_ms)
    if starts_ms > now_ms:
        return Wait(starts_ms)
    if running and plan.replays and plan.overlap is not Overlap.ALLOW:
        return _WAIT  # one after the other: nothing is dropped
    return _DueTask(plan, state, due_ms, now_ms).decision(running)


def _of_queued(plan: TaskPlan, state: TaskState, queued: Waiting, *, now_ms: int) -> Decision:
    freed = structs.replace(state, queued=None)
    if plan.has_run_enough(state):
        return _dropped(freed, SkipReason.MAX_RUNS, queued)
    if plan.window is not None and not plan.window.contains_ms(now_ms):
        return _dropped(freed, SkipReason.OUTSIDE_WINDOW, queued)
    return Run(bounded(plan, structs.replace(freed, ran=state.ran + 1), now_ms), queued)


def _of_asked(plan: TaskPlan, state: TaskState, now_ms: int, *, running: int) -> Run | Skip | None:
    """A run that somebody asked for: at any time of day, and beside the schedule."""
    asked = state.asked
    if asked is None or (running and plan.overlap is Overlap.QUEUE_ONE):
        return None  # it waits where it is
    freed = structs.replace(state, asked=None)
    if plan.has_run_enough(state):
        return _dropped(freed, SkipReason.MAX_RUNS, asked)
    if running and plan.overlap is Overlap.SKIP:
        return _dropped(freed, SkipReason.OVERLAP, asked)
    cancels = running > 0 and plan.overlap is Overlap.CANCEL_RUNNING
    return Run(bounded(plan, structs.replace(freed, ran=state.ran + 1), now_ms), asked, cancels)


def _dropped(state: TaskState, reason: SkipReason, one: Waiting) -> Skip:
    after = structs.replace(state, skipped=state.skipped + 1)
    return Skip(after, reason, one.at_ms, one.at_ms, manual=one.manual)


class _DueTask(Struct, frozen=True, gc=False):
    """A task with an occurrence that is due."""

    plan: TaskPlan
    state: TaskState
    due_ms: int
    now_ms: int

    def decision(self, running: int) -> Decision:
        """Drop what is missed; then run, hold or drop the one that is due."""
        plan, state, due_ms = self.plan, self.state, self.due_ms
        if plan.spent(state):
            return self._skip(SkipReason.MAX_RUNS, self._limited(), None)
        next_ms = plan.rule.next_ms(due_ms)
        several = next_ms is not None and next_ms <= self.now_ms
        late = self.now_ms - due_ms > self._grace_ms()
        if (several or late) and (missed := self._missed()):
            return missed
        one = Waiting(due_ms, several or late or state.stands_in_ms == due_ms)
        if plan.window is not None and not plan.window.contains_ms(self.now_ms):
            return self._pass(SkipReason.OUTSIDE_WINDOW, next_ms)
        if running and plan.overlap is Overlap.SKIP:
            return self._pass(SkipReason.OVERLAP, next_ms)
        if running and plan.overlap is Overlap.QUEUE_ONE:
            return self._hold(one, next_ms)
        after = structs.replace(state, next_ms=next_ms, fired=state.fired + 1, ran=state.ran + 1)
        cancels = running > 0 and plan.overlap is Overlap.CANCEL_RUNNING
        return Run(bounded(plan, after, self.now_ms), one, cancels)

    def _missed(self) -> Skip | None:
        """What is dropped before the occurrence that runs; None if that is the one that is due."""
        rule = self._limited()
        keep_ms = self._kept_ms(rule)
        if keep_ms == self.due_ms:
            return None
        resumed_ms = self.state.resumed_ms
        if resumed_ms is None or self.due_ms >= resumed_ms:
            return self._skip(SkipReason.MISSED, rule, keep_ms)
        later_ms = rule.next_ms(resumed_ms - 1)  # those from here on were not paused
        if later_ms is not None and later_ms <= (self.now_ms if keep_ms is None else keep_ms):
            keep_ms = later_ms
        return self._skip(SkipReason.PAUSED, rule, keep_ms)

    def _kept_ms(self, rule: Rule) -> int | None:
        """The oldest occurrence that still runs; None if none does."""
        missed, now_ms = self.plan.missed, self.now_ms
        grace_ms = self._grace_ms()
        if missed.kind is MissedKind.ALL:
            catch_up_ms = max(missed.catch_up_ms, grace_ms)
            policy = Missed(missed.kind, missed.max, grace_ms, catch_up_ms)
            return first_fire(rule, policy, due_ms=self.due_ms, now_ms=now_ms)
        latest_ms = rule.first_after_many(self.due_ms, now_ms).last_ms
        if latest_ms is None:
            latest_ms = self.due_ms
        once = missed.kind is MissedKind.ONCE
        allowed_ms = max(missed.catch_up_ms, grace_ms) if once else grace_ms
        return latest_ms if now_ms - latest_ms <= allowed_ms else None

    def _grace_ms(self) -> int:
        """How late an occurrence may be and still be on time; one that was paused is late."""
        grace_ms = self.plan.missed.grace_ms + self.plan.jitter_ms
        resumed_ms = self.state.resumed_ms
        if resumed_ms is None:
            return grace_ms
        return min(grace_ms, max(0, self.now_ms - resumed_ms))

    def _limited(self) -> Rule:
        """The rule without the occurrences that the task may not have any more."""
        rule, due_ms, max_fires = self.plan.rule, self.due_ms, self.plan.max_fires
        if max_fires is None:
            return rule
        low_ms, high_ms = due_ms, self.now_ms
        while low_ms < high_ms:  # to the first instant up to which there are as many as are left
            middle_ms = (low_ms + high_ms) // 2
            if 1 + rule.count_between(due_ms, middle_ms) >= max_fires - self.state.fired:
                high_ms = middle_ms
            else:
                low_ms = middle_ms + 1
        return Until(rule, low_ms)

    def _skip(self, reason: SkipReason, rule: Rule, keep_ms: int | None) -> Skip:
        """Drop the occurrences before the one that is kept, or all that are due."""
        end_ms = self.now_ms + 1 if keep_ms is None else keep_ms
        last_ms = rule.previous_ms(end_ms)
        count = 1 + rule.count_between(self.due_ms, end_ms - 1)
        state = self.state
        after = structs.replace(
            state,
            next_ms=self.plan.rule.next_ms(self.now_ms) if keep_ms is None else keep_ms,
            stands_in_ms=keep_ms,
            fired=state.fired + count,
            skipped=state.skipped + count,
        )
        last_ms = self.due_ms if last_ms is None else max(self.due_ms, last_ms)
        return Skip(bounded(self.plan, after, self.now_ms), reason, self.due_ms, last_ms, count)

    def _pass(self, reason: SkipReason, next_ms: int | None) -> Skip:
        state = self.state
        after = structs.replace(
            state, next_ms=next_ms, fired=state.fired + 1, skipped=state.skipped + 1
        )
        return Skip(bounded(self.plan, after, self.now_ms), reason, self.due_ms, self.due_ms)

    def _hold(self, one: Waiting, next_ms: int | None) -> Decision:
        state = self.state
        if state.queued is not None:
            return self._pass(SkipReason.QUEUE_FULL, next_ms)
        held = structs.replace(state, next_ms=next_ms, fired=state.fired + 1, queued=one)
        return Hold(bounded(self.plan, held, self.now_ms), one)
