"""What to do next for a task. Pure: the plan, the state and the time are arguments."""

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
    """The options of a task that decide when it runs, in the scheduler's time zone."""

    task_id: str
    rule: Rule
    fingerprint: str  # of everything that the instants depend on
    window: TimeWindow | None
    missed: Missed
    overlap: Overlap
    max_runs: int | None
    max_fires: int | None
    jitter_ms: int

    def with_anchor(self, at_ms: int | None) -> "TaskPlan":
        """A copy whose interval counts from `at_ms`, if it has no anchor."""
        return self if at_ms is None else structs.replace(self, rule=self.rule.with_anchor(at_ms))

    def start_ms(self, at_ms: int) -> int:
        """When an occurrence is to run: its instant and its jitter."""
        if not self.jitter_ms:
            return at_ms
        next_ms = self.rule.next_ms(at_ms)
        spread = self.jitter_ms if next_ms is None else min(self.jitter_ms, next_ms - at_ms)
        return at_ms + offset_ms(self.task_id, at_ms, spread)

    def has_all_runs(self, state: TaskState) -> bool:
        """Whether the task has had `max_runs` runs."""
        return self.max_runs is not None and state.ran >= self.max_runs

    def has_all_fires(self, state: TaskState) -> bool:
        """Whether the task has had `max_fires` occurrences."""
        return self.max_fires is not None and state.fired >= self.max_fires

    def is_spent(self, state: TaskState) -> bool:
        """Whether the task has reached one of its two limits."""
        # Both are written out again, because this is called for each run.
        return (self.max_runs is not None and state.ran >= self.max_runs) or (
            self.max_fires is not None and state.fired >= self.max_fires
        )

    def limit(self, state: TaskState, now_ms: int) -> TaskState:
        """The state without a next occurrence, if the task has reached a limit.

        An occurrence that is already due stays, so that it is reported as skipped; but not if
        `max_fires` excludes it.
        """
        next_ms = state.next_ms
        if next_ms is None or not self.is_spent(state):
            return state
        if next_ms <= now_ms and not self.has_all_fires(state):
            return state
        return structs.replace(state, next_ms=None)


def plan_task(task: ScheduledTask[object], tz: str) -> TaskPlan:
    """The plan of a task in a scheduler of this time zone."""
    window = None if task.window is None else task.window.with_zone(tz)
    rule = task.rule.with_zone(tz)
    if task.stagger is not False and isinstance(rule, Every):
        rule = rule.stagger(task.stagger if isinstance(task.stagger, str) else task.id)
    if task.align and window is not None:
        rule = Aligned(rule, window)
    return TaskPlan(
        task_id=task.id,
        rule=rule,
        fingerprint=blake2b(_rule_text(rule).encode(), digest_size=8).hexdigest(),
        window=window,
        missed=task.missed,
        overlap=task.overlap,
        max_runs=task.max_runs,
        max_fires=task.max_fires,
        jitter_ms=0 if task.jitter is None else to_ms("jitter", task.jitter),
    )


def _rule_text(rule: Rule) -> str:
    """The text of a fingerprint. Stored states depend on it, so it must not change."""
    match rule:
        case Every(interval_ms=interval_ms, anchor_ms=anchor_ms):
            return f"every {interval_ms} {anchor_ms}"
        case Cron(text=text, tz=tz):
            return f"cron {text} {tz}"
        case At(instants_ms=instants_ms):
            return f"at {instants_ms}"
        case Aligned(rule=inner, window=window):
            return f"{_rule_text(inner)} {window!r}"
        case _:
            return repr(rule)


class Run(Struct, frozen=True, gc=False):
    """Run an occurrence; cancel the active runs first if `cancels`."""

    state: TaskState
    occurrence: Waiting
    cancels: bool = False


class Skip(Struct, frozen=True, gc=False):
    """Skip `count` occurrences, from `first_ms` to `last_ms`."""

    state: TaskState
    reason: SkipReason
    first_ms: int
    last_ms: int
    count: int = 1
    manual: bool = False


class Hold(Struct, frozen=True, gc=False):
    """Keep an occurrence until the active run ends."""

    state: TaskState
    occurrence: Waiting


class Wait(Struct, frozen=True, gc=False):
    """Do nothing until `until_ms`; None: until a run ends or a request comes."""

    until_ms: int | None


Decision: TypeAlias = Run | Skip | Hold | Wait
"""`state` is the state of the task afterwards."""
_WAIT = Wait(None)


def decide(plan: TaskPlan, state: TaskState, now_ms: int, *, running: int = 0) -> Decision:
    """The next thing to do for a task. Ask again until the answer is `Wait`."""
    if state.paused_ms is not None:
        return _WAIT
    if state.queued is not None and not running:
        return _decide_queued(plan, state, state.queued, now_ms=now_ms)
    if state.asked is not None:
        decision = _decide_asked(plan, state, now_ms, running=running)
        if decision is not None:
            return decision
    return _decide_next(plan, state, now_ms, running=running)


def is_over(state: TaskState) -> bool:
    """Whether nothing is left to run."""
    return state.next_ms is None and state.queued is None and state.asked is None


def _decide_next(plan: TaskPlan, state: TaskState, now_ms: int, *, running: int) -> Decision:
    due_ms = state.next_ms
    if due_ms is None:
        return _WAIT
    start_ms = plan.start_ms(due_ms)
    if start_ms > now_ms:
        return Wait(start_ms)
    if running and plan.missed.kind is MissedKind.ALL and plan.overlap is not Overlap.ALLOW:
        return _WAIT  # missed occurrences run one after the other, and none is dropped
    return _DueTask(plan, state, due_ms, now_ms).decide(running)


def _decide_queued(plan: TaskPlan, state: TaskState, queued: Waiting, *, now_ms: int) -> Decision:
    after = structs.replace(state, queued=None)
    if plan.has_all_runs(state):
        return _skip_waiting(after, SkipReason.MAX_RUNS, queued)
    if plan.window is not None and not plan.window.contains_ms(now_ms):
        return _skip_waiting(after, SkipReason.OUTSIDE_WINDOW, queued)
    return Run(plan.limit(structs.replace(after, ran=state.ran + 1), now_ms), queued)


def _decide_asked(
    plan: TaskPlan, state: TaskState, now_ms: int, *, running: int
) -> Run | Skip | None:
    """A run by `trigger_now`: outside the schedule, and outside the window too."""
    asked = state.asked
    if asked is None or (running and plan.overlap is Overlap.QUEUE_ONE):
        return None
    after = structs.replace(state, asked=None)
    if plan.has_all_runs(state):
        return _skip_waiting(after, SkipReason.MAX_RUNS, asked)
    if running and plan.overlap is Overlap.SKIP:
        return _skip_waiting(after, SkipReason.OVERLAP, asked)
    cancels = running > 0 and plan.overlap is Overlap.CANCEL_RUNNING
    return Run(plan.limit(structs.replace(after, ran=state.ran + 1), now_ms), asked, cancels)


def _skip_waiting(state: TaskState, reason: SkipReason, waiting: Waiting) -> Skip:
    after = structs.replace(state, skipped=state.skipped + 1)
    return Skip(after, reason, waiting.at_ms, waiting.at_ms, manual=waiting.manual)


class _DueTask(Struct, frozen=True, gc=False):
    """A task whose next occurrence is due."""

    plan: TaskPlan
    state: TaskState
    due_ms: int
    now_ms: int

    def decide(self, running: int) -> Decision:
        """Skip what is missed; then run, hold or skip the occurrence that is due."""
        plan, state, due_ms = self.plan, self.state, self.due_ms
        if plan.is_spent(state):
            return self._skip_before(SkipReason.MAX_RUNS, self._limited_rule(), None)
        next_ms = plan.rule.next_ms(due_ms)
        several = next_ms is not None and next_ms <= self.now_ms
        late = self.now_ms - due_ms > self._grace_ms()
        if (several or late) and (missed := self._skip_missed()):
            return missed
        if plan.window is not None and not plan.window.contains_ms(self.now_ms):
            return self._skip_due(SkipReason.OUTSIDE_WINDOW, next_ms)
        if running and plan.overlap is Overlap.SKIP:
            return self._skip_due(SkipReason.OVERLAP, next_ms)
        occurrence = Waiting(due_ms, several or late or state.stands_in_ms == due_ms)
        if running and plan.overlap is Overlap.QUEUE_ONE:
            return self._hold(occurrence, next_ms)
        after = structs.replace(state, next_ms=next_ms, fired=state.fired + 1, ran=state.ran + 1)
        cancels = running > 0 and plan.overlap is Overlap.CANCEL_RUNNING
        return Run(plan.limit(after, self.now_ms), occurrence, cancels)

    def _skip_missed(self) -> Skip | None:
        """Skip everything before the oldest occurrence that runs; None if that one is due."""
        rule = self._limited_rule()
        keep_ms = self._oldest_kept_ms(rule)
        if keep_ms == self.due_ms:
            return None
        resumed_ms = self.state.resumed_ms
        if resumed_ms is None or self.due_ms >= resumed_ms:
            return self._skip_before(SkipReason.MISSED, rule, keep_ms)
        # Only those before `resumed_ms` were paused. The others are skipped as missed later.
        unpaused_ms = rule.next_ms(resumed_ms - 1)
        if unpaused_ms is not None and unpaused_ms <= (self.now_ms if keep_ms is None else keep_ms):
            keep_ms = unpaused_ms
        return self._skip_before(SkipReason.PAUSED, rule, keep_ms)

    def _oldest_kept_ms(self, rule: Rule) -> int | None:
        """The oldest occurrence that the missed policy runs; None if it runs none."""
        missed, now_ms = self.plan.missed, self.now_ms
        grace_ms = self._grace_ms()
        if missed.kind is MissedKind.ALL:
            catch_up_ms = max(missed.catch_up_ms, grace_ms)
            policy = Missed(missed.kind, missed.max, grace_ms, catch_up_ms)
            return first_fire(rule, policy, due_ms=self.due_ms, now_ms=now_ms)
        latest_ms = rule.latest_ms(self.due_ms, now_ms)
        if latest_ms is None:
            latest_ms = self.due_ms
        once = missed.kind is MissedKind.ONCE
        allowed_ms = max(missed.catch_up_ms, grace_ms) if once else grace_ms
        return latest_ms if now_ms - latest_ms <= allowed_ms else None

    def _grace_ms(self) -> int:
        """How late an occurrence may be and still be on time; a paused one is never on time."""
        grace_ms = self.plan.missed.grace_ms + self.plan.jitter_ms
        resumed_ms = self.state.resumed_ms
        if resumed_ms is None:
            return grace_ms
        return min(grace_ms, max(0, self.now_ms - resumed_ms))

    def _limited_rule(self) -> Rule:
        """The rule up to the last occurrence that `max_fires` allows."""
        rule, due_ms, max_fires = self.plan.rule, self.due_ms, self.plan.max_fires
        if max_fires is None:
            return rule
        low_ms, high_ms = due_ms, self.now_ms
        while low_ms < high_ms:  # a binary search for the first instant with all that are left
            middle_ms = (low_ms + high_ms) // 2
            if 1 + rule.count_between(due_ms, middle_ms) >= max_fires - self.state.fired:
                high_ms = middle_ms
            else:
                low_ms = middle_ms + 1
        return Until(rule, low_ms)

    def _skip_before(self, reason: SkipReason, rule: Rule, keep_ms: int | None) -> Skip:
        """Skip all due occurrences before `keep_ms`, or all of them if that is None."""
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
        return Skip(self.plan.limit(after, self.now_ms), reason, self.due_ms, last_ms, count)

    def _skip_due(self, reason: SkipReason, next_ms: int | None) -> Skip:
        state = self.state
        after = structs.replace(
            state, next_ms=next_ms, fired=state.fired + 1, skipped=state.skipped + 1
        )
        return Skip(self.plan.limit(after, self.now_ms), reason, self.due_ms, self.due_ms)

    def _hold(self, occurrence: Waiting, next_ms: int | None) -> Decision:
        state = self.state
        if state.queued is not None:
            return self._skip_due(SkipReason.QUEUE_FULL, next_ms)
        after = structs.replace(state, next_ms=next_ms, fired=state.fired + 1, queued=occurrence)
        return Hold(self.plan.limit(after, self.now_ms), occurrence)
