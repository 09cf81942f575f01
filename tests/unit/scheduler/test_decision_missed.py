"""Decisions about occurrences that are due together: missed, paused, or above a limit."""

import pytest
from msgspec.structs import replace

from tampu.scheduler.decision import Run, Skip, TaskPlan, Wait, decide, is_over
from tampu.scheduler.events import SkipReason
from tampu.timing import At, Cron, Every, Missed, Overlap, Rule
from tampu.util.clock import instant
from tampu.wire.task_state import TaskState, Waiting
from tests.unit.scheduler.plans import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    START_MS,
    anchored_plan,
    decide_all,
    limit_option,
    new_state,
)
from tests.unit.timing.daemon import CountingRule

MISSED, PAUSED = SkipReason.MISSED, SkipReason.PAUSED
FIVE_MS = START_MS + 5 * HOUR
NOW_MS = FIVE_MS + 30 * MINUTE  # five are due, the latest since half an hour


def hours(*numbers: int) -> list[int]:
    return [START_MS + n * HOUR for n in numbers]


def spans(skips: list[Skip]) -> list[tuple[SkipReason, int, int, int]]:
    return [(skip.reason, skip.first_ms, skip.last_ms, skip.count) for skip in skips]


class TestOnce:
    PLAN = anchored_plan(Every("1h"))

    def test_the_latest_occurrence_runs_and_the_others_are_one_skip(self) -> None:
        done = decide_all(self.PLAN, new_state(self.PLAN), NOW_MS)
        assert spans(done.skips) == [(MISSED, *hours(1, 4), 4)]
        assert [type(each) for each in done.decisions] == [Skip, Run]
        assert isinstance(done.decisions[1], Run)
        assert done.decisions[1].occurrence == Waiting(FIVE_MS, catch_up=True)
        state = done.state
        assert (state.fired, state.ran, state.skipped) == (5, 1, 4)
        assert state.next_ms == START_MS + 6 * HOUR

    def test_the_run_catches_up_even_if_it_is_on_time(self) -> None:
        done = decide_all(self.PLAN, new_state(self.PLAN), FIVE_MS)
        assert isinstance(done.decisions[-1], Run)
        assert done.decisions[-1].occurrence == Waiting(FIVE_MS, catch_up=True)

    def test_the_run_after_it_does_not_catch_up(self) -> None:
        state = decide_all(self.PLAN, new_state(self.PLAN), NOW_MS).state
        [run] = decide_all(self.PLAN, state, START_MS + 6 * HOUR).decisions
        assert isinstance(run, Run)
        assert not run.occurrence.catch_up

    def test_occurrences_older_than_the_catch_up_window_are_dropped(self) -> None:
        plan = anchored_plan(Every("1h"), missed=Missed.ONCE.within(grace=0, catch_up="30m"))
        assert decide_all(plan, new_state(plan), NOW_MS).runs == hours(5)
        done = decide_all(plan, new_state(plan), NOW_MS + 1)
        assert spans(done.skips) == [(MISSED, *hours(1, 5), 5)]
        assert (done.runs, done.state.next_ms) == ([], START_MS + 6 * HOUR)

    def test_the_latest_is_dropped_too_while_a_run_is_active(self) -> None:
        done = decide_all(self.PLAN, new_state(self.PLAN), NOW_MS, running=1)
        assert spans(done.skips) == [
            (MISSED, *hours(1, 4), 4),
            (SkipReason.OVERLAP, *hours(5, 5), 1),
        ]


class TestSkip:
    def test_the_latest_occurrence_runs_if_it_is_within_the_grace(self) -> None:
        plan = anchored_plan(Every("1h"), missed=Missed.SKIP.within(grace="30m"))
        done = decide_all(plan, new_state(plan), NOW_MS)
        assert done.runs == hours(5)
        assert spans(done.skips) == [(MISSED, *hours(1, 4), 4)]
        done = decide_all(plan, new_state(plan), NOW_MS + 1)
        assert done.runs == []
        assert spans(done.skips) == [(MISSED, *hours(1, 5), 5)]

    def test_only_the_latest_of_several_within_the_grace_runs(self) -> None:
        plan = anchored_plan(Every("1s"), missed=Missed.SKIP)
        done = decide_all(plan, new_state(plan), START_MS + 3 * SECOND)
        assert done.runs == [START_MS + 3 * SECOND]
        assert [skip.count for skip in done.skips] == [2]


class TestAll:
    def _plan(self, missed: Missed, rule: Rule | None = None) -> TaskPlan:
        return anchored_plan(rule or Every("1h"), missed=missed, overlap=Overlap.ALLOW)

    def test_each_occurrence_runs_in_order_and_late_ones_catch_up(self) -> None:
        plan = self._plan(Missed.all())
        done = decide_all(plan, new_state(plan), FIVE_MS)
        assert done.runs == hours(1, 2, 3, 4, 5)
        late = [each.occurrence.catch_up for each in done.decisions if isinstance(each, Run)]
        assert late == [True, True, True, True, False]
        assert done.skips == []

    def test_the_oldest_above_the_maximum_are_dropped(self) -> None:
        plan = self._plan(Missed.all(max=2))
        done = decide_all(plan, new_state(plan), NOW_MS)
        assert done.runs == hours(4, 5)
        assert spans(done.skips) == [(MISSED, *hours(1, 3), 3)]

    def test_occurrences_on_time_do_not_count_towards_the_maximum(self) -> None:
        plan = self._plan(Missed.all(max=2))
        assert decide_all(plan, new_state(plan), FIVE_MS).runs == hours(3, 4, 5)

    def test_occurrences_older_than_the_catch_up_window_are_dropped(self) -> None:
        plan = self._plan(Missed.all().within(catch_up="2h"))
        done = decide_all(plan, new_state(plan), NOW_MS)
        assert done.runs == hours(4, 5)
        assert spans(done.skips) == [(MISSED, *hours(1, 3), 3)]

    def test_nothing_runs_if_all_occurrences_are_too_old(self) -> None:
        plan = self._plan(Missed.all().within(catch_up="10m"))
        done = decide_all(plan, new_state(plan), NOW_MS)
        assert (done.runs, done.until_ms) == ([], START_MS + 6 * HOUR)
        assert spans(done.skips) == [(MISSED, *hours(1, 5), 5)]

    def test_occurrences_that_become_due_while_it_catches_up_follow(self) -> None:
        plan = anchored_plan(Every("1h"), missed=Missed.all(max=3))
        ran: list[int] = []
        state, now_ms = new_state(plan), NOW_MS
        while now_ms < NOW_MS + 3 * HOUR:  # each run takes 40 minutes
            done = decide_all(plan, state, now_ms)
            state, ran = done.state, ran + done.runs
            now_ms += 40 * MINUTE
        assert ran == hours(3, 4, 5, 6, 7)

    def test_listed_instants_and_cron_rules_catch_up_too(self) -> None:
        at = At(*(instant(START_MS + n * HOUR) for n in (1, 2, 4)))
        plan = self._plan(Missed.all(), at)
        assert decide_all(plan, new_state(plan), NOW_MS).runs == hours(1, 2, 4)
        plan = self._plan(Missed.all(), Cron("0 1-3 * * *"))
        assert decide_all(plan, new_state(plan), NOW_MS).runs == hours(1, 2, 3)


class TestLimits:
    def test_max_runs_counts_runs_and_not_skipped_occurrences(self) -> None:
        plan = anchored_plan(Every("1h"), max_runs=2)
        state = decide_all(plan, new_state(plan), FIVE_MS).state
        assert (state.fired, state.ran, state.next_ms) == (5, 1, START_MS + 6 * HOUR)
        state = decide_all(plan, state, START_MS + 6 * HOUR, running=1).state
        assert (state.ran, state.next_ms) == (1, START_MS + 7 * HOUR)
        done = decide_all(plan, state, START_MS + 7 * HOUR)
        assert (done.state.ran, done.until_ms) == (2, None)
        assert is_over(done.state)

    def test_max_fires_counts_occurrences_whether_they_ran_or_not(self) -> None:
        plan = anchored_plan(Every("1h"), max_fires=2)
        state = decide_all(plan, new_state(plan), START_MS + HOUR, running=1).state
        assert (state.fired, state.skipped, state.next_ms) == (1, 1, START_MS + 2 * HOUR)
        state = decide_all(plan, state, START_MS + 2 * HOUR).state
        assert (state.fired, state.ran, state.next_ms) == (2, 1, None)

    @pytest.mark.parametrize(
        ("missed", "runs"),
        [(Missed.SKIP, []), (Missed.ONCE, [3]), (Missed.all(), [1, 2, 3])],
        ids=["skip", "once", "all"],
    )
    def test_no_more_than_max_fires_occurrences_fire(self, missed: Missed, runs: list[int]) -> None:
        plan = anchored_plan(Every("1h"), missed=missed, max_fires=3, overlap=Overlap.ALLOW)
        done = decide_all(plan, new_state(plan), NOW_MS)
        assert done.runs == hours(*runs)
        assert done.state.fired == 3
        assert sum(skip.count for skip in done.skips) == 3 - len(runs)
        assert is_over(done.state)

    def test_with_one_fire_left_the_first_occurrence_fires(self) -> None:
        plan = anchored_plan(Every("1h"), max_fires=1)
        done = decide_all(plan, new_state(plan), NOW_MS)
        assert (done.runs, done.skips, done.state.fired) == (hours(1), [], 1)
        assert is_over(done.state)

    def test_due_occurrences_above_max_runs_are_skipped(self) -> None:
        plan = anchored_plan(Every("1h"), missed=Missed.all(), max_runs=2, overlap=Overlap.ALLOW)
        done = decide_all(plan, new_state(plan), NOW_MS)
        assert done.runs == hours(1, 2)
        assert spans(done.skips) == [(SkipReason.MAX_RUNS, *hours(3, 5), 3)]
        assert (done.state.fired, done.state.ran, done.state.skipped) == (5, 2, 3)
        assert is_over(done.state)

    def _plan_with_limits(self, *, max_runs: int, max_fires: int) -> TaskPlan:
        return anchored_plan(
            Every("1h"),
            missed=Missed.all(),
            overlap=Overlap.ALLOW,
            max_runs=max_runs,
            max_fires=max_fires,
        )

    def test_the_limit_that_is_reached_first_ends_the_task(self) -> None:
        plan = self._plan_with_limits(max_runs=2, max_fires=3)
        done = decide_all(plan, new_state(plan), NOW_MS)
        assert done.runs == hours(1, 2)
        assert spans(done.skips) == [(SkipReason.MAX_RUNS, *hours(3, 3), 1)]
        assert done.state.fired == 3
        plan = self._plan_with_limits(max_runs=3, max_fires=2)
        done = decide_all(plan, new_state(plan), NOW_MS)
        assert (done.runs, done.skips) == (hours(1, 2), [])
        assert is_over(done.state)

    @pytest.mark.parametrize("limit", ["max_runs", "max_fires"])
    def test_a_limit_of_0_ends_the_task_at_once(self, limit: str) -> None:
        plan = anchored_plan(Every("1h"), **limit_option(limit, 0))
        assert is_over(new_state(plan))

    def test_a_queued_occurrence_is_skipped_after_the_last_run(self) -> None:
        plan = anchored_plan(Every("1h"), max_runs=1, overlap=Overlap.QUEUE_ONE)
        state = replace(new_state(plan), ran=1, queued=Waiting(START_MS))
        [skip] = decide_all(plan, state, START_MS).decisions
        assert isinstance(skip, Skip)
        assert (skip.reason, skip.count) == (SkipReason.MAX_RUNS, 1)
        assert skip.state.queued is None


class TestPause:
    def _resumed_state(self, plan: TaskPlan, *, pause_ms: int, resume_ms: int) -> TaskState:
        paused = replace(new_state(plan, pause_ms), paused_ms=pause_ms)
        assert decide(plan, paused, resume_ms) == Wait(None), "a paused task does nothing"
        return replace(paused, paused_ms=None, resumed_ms=resume_ms)

    @pytest.mark.parametrize(
        ("missed", "runs"),
        [(Missed.SKIP, []), (Missed.ONCE, [29]), (Missed.all(max=2), [28, 29])],
        ids=["skip", "once", "all"],
    )
    def test_the_missed_policy_applies_without_the_grace(
        self, missed: Missed, runs: list[int]
    ) -> None:
        plan = anchored_plan(Every("1s"), missed=missed, overlap=Overlap.ALLOW)
        resume_ms = START_MS + 29 * SECOND + 500  # well within the grace
        state = self._resumed_state(plan, pause_ms=START_MS, resume_ms=resume_ms)
        done = decide_all(plan, state, resume_ms)
        assert done.runs == [START_MS + n * SECOND for n in runs]
        assert [(skip.reason, skip.count) for skip in done.skips] == [(PAUSED, 29 - len(runs))]

    def test_the_first_run_after_a_pause_catches_up(self) -> None:
        plan = anchored_plan(Every("1m"))
        resume_ms = START_MS + 61 * SECOND
        state = self._resumed_state(plan, pause_ms=START_MS, resume_ms=resume_ms)
        [run] = decide_all(plan, state, resume_ms).decisions
        assert isinstance(run, Run)
        assert run.occurrence == Waiting(START_MS + MINUTE, catch_up=True)

    def test_an_occurrence_at_the_moment_of_resuming_is_on_time(self) -> None:
        plan = anchored_plan(Every("1m"), missed=Missed.SKIP)
        state = self._resumed_state(plan, pause_ms=START_MS, resume_ms=START_MS + MINUTE)
        for late_ms in (0, 1, 20 * SECOND):
            [run] = decide_all(plan, state, START_MS + MINUTE + late_ms).decisions
            assert isinstance(run, Run)
            assert not run.occurrence.catch_up

    def test_occurrences_after_the_pause_are_missed_and_not_paused(self) -> None:
        plan = anchored_plan(Every("1h"))
        state = self._resumed_state(plan, pause_ms=START_MS, resume_ms=START_MS + 2 * HOUR + 1)
        done = decide_all(plan, state, NOW_MS)  # the scheduler was down for three hours
        assert spans(done.skips) == [(PAUSED, *hours(1, 2), 2), (MISSED, *hours(3, 4), 2)]
        assert done.runs == hours(5)

    def test_an_occurrence_at_the_moment_of_resuming_is_missed_and_not_paused(self) -> None:
        plan = anchored_plan(Every("1h"))
        state = self._resumed_state(plan, pause_ms=START_MS, resume_ms=START_MS + 2 * HOUR)
        done = decide_all(plan, state, NOW_MS)
        assert spans(done.skips) == [(PAUSED, *hours(1, 1), 1), (MISSED, *hours(2, 4), 3)]

    def test_a_pause_without_occurrences_skips_nothing(self) -> None:
        plan = anchored_plan(Every("1h"))
        state = self._resumed_state(plan, pause_ms=START_MS, resume_ms=START_MS + MINUTE)
        assert decide(plan, state, START_MS + MINUTE) == Wait(START_MS + HOUR)
        assert decide_all(plan, state, START_MS + HOUR).skips == []


class TestOutage:
    """A year without a scheduler, at a thousand occurrences per second."""

    YEAR_MS = START_MS + 365 * DAY

    @pytest.mark.parametrize(
        ("missed", "kept"),
        [(Missed.SKIP, 1), (Missed.ONCE, 1), (Missed.all(), 60_001 + 100)],
        ids=["skip", "once", "all"],
    )
    def test_the_missed_occurrences_are_one_skip(self, missed: Missed, kept: int) -> None:
        plan = anchored_plan(Every("1ms"), missed=missed)
        decision = self._decide(plan, new_state(plan))
        assert isinstance(decision, Skip)
        assert decision.count == 365 * DAY - kept
        run = self._decide(plan, decision.state)
        assert isinstance(run, Run)
        assert run.occurrence == Waiting(self.YEAR_MS - kept + 1, catch_up=True)

    @pytest.mark.parametrize(
        "missed", [Missed.SKIP, Missed.ONCE, Missed.all()], ids=["skip", "once", "all"]
    )
    def test_a_task_that_ends_during_the_outage_is_one_skip(self, missed: Missed) -> None:
        plan = anchored_plan(Every("1ms"), missed=missed, max_fires=10**9)
        decision = self._decide(plan, new_state(plan))
        assert isinstance(decision, Skip)
        assert decision.count == decision.state.fired == 10**9
        assert decision.last_ms == START_MS + 10**9
        assert is_over(decision.state)

    def _decide(self, plan: TaskPlan, state: TaskState) -> object:
        """Decide, with few calls of the rule."""
        counting = CountingRule(plan.rule)
        decision = decide(replace(plan, rule=counting), state, self.YEAR_MS)
        assert len(counting.calls) < 200
        return decision
