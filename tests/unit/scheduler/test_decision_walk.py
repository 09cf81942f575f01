"""Decisions over random sequences of events: no occurrence is lost, none comes twice."""

from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tampu.scheduler.decision import Hold, Run, Skip, TaskPlan, Wait, decide
from tampu.scheduler.events import SkipReason
from tampu.timing import At, Cron, Every, Missed, MissedKind, Overlap, Rule, TimeWindow
from tampu.util.clock import instant
from tampu.wire.task_state import TaskState, Waiting
from tests.effort import cases
from tests.unit.scheduler.plans import MINUTE, SECOND, START_MS, anchored_plan, new_state

rules: st.SearchStrategy[Rule] = st.one_of(
    st.integers(1, 90).map(Every),
    st.sampled_from(["* * * * *", "*/7 * * * * *", "1,2,30 * * * *"]).map(Cron),
    st.lists(st.integers(-300, 900), max_size=20).map(
        lambda seconds: At(*(instant(START_MS + n * SECOND) for n in seconds))
    ),
)
policies = st.builds(
    lambda make, grace, more: make().within(
        grace=grace, **({} if make() == Missed.SKIP else {"catch_up": grace + more})
    ),
    st.sampled_from([lambda: Missed.SKIP, lambda: Missed.ONCE, lambda: Missed.all(max=3)]),
    st.integers(0, 100),
    st.integers(0, 500),
)
windows = st.none() | st.sampled_from(
    [
        TimeWindow(segments=[("00:00", "00:04"), ("00:06", "00:08")]),
        TimeWindow(days="sun"),
    ]
)


@st.composite
def plans(draw: st.DrawFn) -> TaskPlan:
    missed = draw(policies)
    overlaps = [
        overlap
        for overlap in Overlap
        if overlap is not Overlap.CANCEL_RUNNING or missed.kind is not MissedKind.ALL
    ]
    rule, window = draw(rules), draw(windows)
    return anchored_plan(
        rule,
        missed=missed,
        overlap=draw(st.sampled_from(overlaps)),
        window=window,
        align=window is not None and draw(st.booleans()),
        max_runs=draw(st.none() | st.integers(0, 6)),
        max_fires=draw(st.none() | st.integers(0, 12)),
        jitter=draw(st.none() | st.just(1)),
    )


@dataclass
class Walk:
    """A task, the events that happen to it, and everything that was decided for it."""

    plan: TaskPlan
    state: TaskState
    now_ms: int = START_MS
    running: int = 0
    fired: list[int] = field(default_factory=list)  # in the order of the decisions
    dequeued: list[int] = field(default_factory=list)
    asked: int = 0
    manual: int = 0

    def step(self) -> None:
        """Decide until the task has to wait."""
        for _ in range(5000):
            decision = decide(self.plan, self.state, self.now_ms, running=self.running)
            if isinstance(decision, Wait):
                self._check_wait(decision)
                return
            self._record(decision)
            self._check_counts(decision.state)
            self.state = decision.state
        raise AssertionError("the decisions never end")

    def _record(self, decision: Run | Skip | Hold) -> None:
        manual = decision.manual if isinstance(decision, Skip) else decision.occurrence.manual
        if manual:
            self.manual += 1
        elif self.state.queued is not None and decision.state.queued is None:
            self.dequeued.append(self.state.queued.at_ms)
        else:
            self.fired += self._instants(decision)
            assert decision.state.next_ms is None or decision.state.next_ms > self.fired[-1]
        if isinstance(decision, Run):
            self._check_run(decision)
            self.running = 1 if decision.cancels else self.running + 1

    def _instants(self, decision: Run | Skip | Hold) -> list[int]:
        if not isinstance(decision, Skip):
            return [decision.occurrence.at_ms]
        found = [decision.first_ms]
        while found[-1] < decision.last_ms:
            found.append(self.plan.rule.next_ms(found[-1]) or 0)
        assert found[-1] == decision.last_ms
        assert len(found) == decision.count
        return found

    def _check_run(self, decision: Run) -> None:
        occurrence = decision.occurrence
        assert occurrence.manual or self.now_ms >= self.plan.start_ms(occurrence.at_ms)
        if self.plan.overlap not in {Overlap.ALLOW, Overlap.CANCEL_RUNNING}:
            assert not self.running
        if self.plan.window is not None and not occurrence.manual:
            assert self.plan.window.contains_ms(self.now_ms)

    def _check_counts(self, state: TaskState) -> None:
        queued = state.queued is not None
        assert state.fired == len(self.fired)
        assert state.ran + state.skipped + queued == state.fired + self.manual
        assert self.plan.max_runs is None or state.ran <= self.plan.max_runs
        assert self.plan.max_fires is None or state.fired <= self.plan.max_fires

    def _check_wait(self, wait: Wait) -> None:
        if wait.until_ms is not None:
            assert wait.until_ms > self.now_ms
        elif self.state.next_ms is not None:
            assert self.running or self.state.paused_ms is not None


def _pass_time(walk: Walk, by: int) -> None:
    walk.now_ms += by * SECOND // 3


def _end_run(walk: Walk, by: int) -> None:
    walk.running = max(0, walk.running - by % 2)


def _pause(walk: Walk, by: int) -> None:
    if walk.state.paused_ms is None:
        walk.state = replace(walk.state, paused_ms=walk.now_ms)
    _pass_time(walk, by)


def _resume(walk: Walk, by: int) -> None:
    del by
    if walk.state.paused_ms is not None:
        walk.state = replace(walk.state, paused_ms=None, resumed_ms=walk.now_ms)


def _ask(walk: Walk, by: int) -> None:
    del by
    if walk.state.asked is None:
        walk.state = replace(walk.state, asked=Waiting(walk.now_ms, manual=True))
        walk.asked += 1


steps = st.lists(
    st.tuples(
        st.sampled_from([_pass_time, _pass_time, _pass_time, _end_run, _pause, _resume, _ask]),
        st.integers(0, 600),
    ),
    max_size=40,
)


@settings(max_examples=cases(400), deadline=None)
@given(plan=plans(), events=steps)
def test_every_occurrence_is_accounted_for_exactly_once(
    plan: TaskPlan, events: list[tuple[Callable[[Walk, int], None], int]]
) -> None:
    walk = Walk(plan, new_state(plan))
    first_ms = walk.state.next_ms
    for do, by in events:
        do(walk, by)
        walk.step()
    assert walk.fired == _expected(plan, first_ms, walk)
    assert len(walk.dequeued) == len(set(walk.dequeued))
    assert walk.manual + (walk.state.asked is not None) == walk.asked


def _expected(plan: TaskPlan, first_ms: int | None, walk: Walk) -> list[int]:
    """All instants of the rule up to the next occurrence, or up to the limit of the task."""
    found: list[int] = []
    at_ms = first_ms
    end_ms = walk.state.next_ms
    while at_ms is not None and (at_ms < end_ms if end_ms is not None else at_ms <= walk.now_ms):
        found.append(at_ms)
        at_ms = plan.rule.next_ms(at_ms)
    if end_ms is None and plan.is_spent(walk.state):  # later instants are above the limit
        found = found[: walk.state.fired]
    return found


@settings(max_examples=cases(100), deadline=None)
@given(plan=plans(), by_ms=st.integers(0, 20 * MINUTE))
def test_the_same_arguments_give_the_same_decision(plan: TaskPlan, by_ms: int) -> None:
    state = new_state(plan)
    now_ms = START_MS + by_ms
    assert decide(plan, state, now_ms) == decide(plan, state, now_ms)


@settings(max_examples=cases(200), deadline=None)
@given(rule=rules, by_ms=st.integers(0, 20 * MINUTE))
def test_without_other_reasons_skipped_occurrences_are_missed(rule: Rule, by_ms: int) -> None:
    plan = anchored_plan(rule)
    state = new_state(plan)
    decision = decide(plan, state, START_MS + by_ms)
    if isinstance(decision, Skip):
        assert decision.reason is SkipReason.MISSED
        kept = decide(plan, decision.state, START_MS + by_ms)
        assert isinstance(kept, Run)
        assert kept.occurrence.catch_up
