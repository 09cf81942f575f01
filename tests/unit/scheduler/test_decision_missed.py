"""What becomes of occurrences that are due together: missed, paused, or too many."""

from time import process_time

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
    limited,
    new_state,
    plan_for,
    turn,
)

MISSED, PAUSED = SkipReason.MISSED, SkipReason.PAUSED
FIVE_MS = START_MS + 5 * HOUR
NOW_MS = FIVE_MS + 30 * MINUTE  # five are due, the latest of them half an hour ago


def hours(*numbers: int) -> list[int]:
    return [START_MS + n * HOUR for n in numbers]


def spans(skips: list[Skip]) -> list[tuple[SkipReason, int, int, int]]:
    return [(skip.reason, skip.first_ms, skip.last_ms, skip.count) for skip in skips]


class TestOnce:
    PLAN = plan_for(Every("1h"))

    def test_the_latest_of_several_runs_and_the_others_are_one_skip(self) -> None:
        done = turn(self.PLAN, new_state(self.PLAN), NOW_MS)
        assert spans(done.skips) == [(MISSED, *hours(1, 4), 4)]
        assert [type(one) for one in done.decisions] == [Skip, Run]
        assert isinstance(done.decisions[1], Run)
        assert done.decisions[1].occurrence == Waiting(FIVE_MS, catch_up=True)
        state = done.state
        assert (state.fired, state.ran, state.skipped) == (5, 1, 4)
        assert state.next_ms == START_MS + 6 * HOUR

    def test_it_makes_up_for_the_others_even_if_it_is_on_time_itself(self) -> None:
        done = turn(self.PLAN, new_state(self.PLAN), FIVE_MS)
        assert isinstance(done.decisions[-1], Run)
        assert done.decisions[-1].occurrence == Waiting(FIVE_MS, catch_up=True)

    def test_the_next_one_does_not_make_up_for_anything(self) -> None:
        state = turn(self.PLAN, new_state(self.PLAN), NOW_MS).state
        [run] = turn(self.PLAN, state, START_MS + 6 * HOUR).decisions
        assert isinstance(run, Run)
        assert not run.occurrence.catch_up

    def test_what_is_older_than_the_catch_up_window_is_dropped(self) -> None:
        plan = plan_for(Every("1h"), missed=Missed.ONCE.within(grace=0, catch_up="30m"))
        assert turn(plan, new_state(plan), NOW_MS).runs == hours(5)
        done = turn(plan, new_state(plan), NOW_MS + 1)
        assert spans(done.skips) == [(MISSED, *hours(1, 5), 5)]
        assert (done.runs, done.state.next_ms) == ([], START_MS + 6 * HOUR)

    def test_the_latest_is_dropped_too_if_a_run_is_active(self) -> None:
        done = turn(self.PLAN, new_state(self.PLAN), NOW_MS, running=1)
        assert spans(done.skips) == [
            (MISSED, *hours(1, 4), 4),
            (SkipReason.OVERLAP, *hours(5, 5), 1),
        ]


class TestSkip:
    def test_the_latest_runs_if_it_is_no_later_than_the_grace(self) -> None:
        plan = plan_for(Every("1h"), missed=Missed.SKIP.within(grace="30m"))
        done = turn(plan, new_state(plan), NOW_MS)
        assert done.runs == hours(5)
        assert spans(done.skips) == [(MISSED, *hours(1, 4), 4)]
        done = turn(plan, new_state(plan), NOW_MS + 1)
        assert done.runs == []
        assert spans(done.skips) == [(MISSED, *hours(1, 5), 5)]

    def test_of_several_within_the_grace_only_the_latest_runs(self) -> None:
        plan = plan_for(Every("1s"), missed=Missed.SKIP)
        done = turn(plan, new_state(plan), START_MS + 3 * SECOND)
        assert done.runs == [START_MS + 3 * SECOND]
        assert [skip.count for skip in done.skips] == [2]


class TestAll:
    def _plan(self, missed: Missed, rule: Rule | None = None) -> TaskPlan:
        return plan_for(rule or Every("1h"), missed=missed, overlap=Overlap.ALLOW)

    def test_each_runs_in_order_and_all_but_one_on_time_are_caught_up_with(self) -> None:
        plan = self._plan(Missed.all())
        done = turn(plan, new_state(plan), FIVE_MS)
        assert done.runs == hours(1, 2, 3, 4, 5)
        late = [one.occurrence.catch_up for one in done.decisions if isinstance(one, Run)]
        assert late == [True, True, True, True, False]
        assert done.skips == []

    def test_of_more_than_the_most_the_oldest_are_dropped(self) -> None:
        plan = self._plan(Missed.all(max=2))
        done = turn(plan, new_state(plan), NOW_MS)
        assert done.runs == hours(4, 5)
        assert spans(done.skips) == [(MISSED, *hours(1, 3), 3)]

    def test_what_is_on_time_is_not_among_the_most(self) -> None:
        plan = self._plan(Missed.all(max=2))
        assert turn(plan, new_state(plan), FIVE_MS).runs == hours(3, 4, 5)

    def test_what_is_older_than_the_catch_up_window_is_dropped(self) -> None:
        plan = self._plan(Missed.all().within(catch_up="2h"))
        done = turn(plan, new_state(plan), NOW_MS)
        assert done.runs == hours(4, 5)
        assert spans(done.skips) == [(MISSED, *hours(1, 3), 3)]

    def test_if_all_are_too_old_none_runs(self) -> None:
        plan = self._plan(Missed.all().within(catch_up="10m"))
        done = turn(plan, new_state(plan), NOW_MS)
        assert (done.runs, done.until_ms) == ([], START_MS + 6 * HOUR)
        assert spans(done.skips) == [(MISSED, *hours(1, 5), 5)]

    def test_while_it_catches_up_what_becomes_due_follows(self) -> None:
        plan = plan_for(Every("1h"), missed=Missed.all(max=3))
        ran: list[int] = []
        state, now_ms = new_state(plan), NOW_MS
        while now_ms < NOW_MS + 3 * HOUR:  # each run takes 40 minutes
            done = turn(plan, state, now_ms)
            state, ran = done.state, ran + done.runs
            now_ms += 40 * MINUTE
        assert ran == hours(3, 4, 5, 6, 7)

    def test_instants_and_cron_are_replayed_as_well(self) -> None:
        at = At(*(instant(START_MS + n * HOUR) for n in (1, 2, 4)))
        plan = self._plan(Missed.all(), at)
        assert turn(plan, new_state(plan), NOW_MS).runs == hours(1, 2, 4)
        plan = self._plan(Missed.all(), Cron("0 1-3 * * *"))
        assert turn(plan, new_state(plan), NOW_MS).runs == hours(1, 2, 3)


class TestLimits:
    def test_runs_are_counted_by_max_runs_and_not_what_was_skipped(self) -> None:
        plan = plan_for(Every("1h"), max_runs=2)
        state = turn(plan, new_state(plan), FIVE_MS).state
        assert (state.fired, state.ran, state.next_ms) == (5, 1, START_MS + 6 * HOUR)
        state = turn(plan, state, START_MS + 6 * HOUR, running=1).state
        assert (state.ran, state.next_ms) == (1, START_MS + 7 * HOUR)
        done = turn(plan, state, START_MS + 7 * HOUR)
        assert (done.state.ran, done.until_ms) == (2, None)
        assert is_over(done.state)

    def test_occurrences_are_counted_by_max_fires_run_or_not(self) -> None:
        plan = plan_for(Every("1h"), max_fires=2)
        state = turn(plan, new_state(plan), START_MS + HOUR, running=1).state
        assert (state.fired, state.skipped, state.next_ms) == (1, 1, START_MS + 2 * HOUR)
        state = turn(plan, state, START_MS + 2 * HOUR).state
        assert (state.fired, state.ran, state.next_ms) == (2, 1, None)

    @pytest.mark.parametrize(
        ("missed", "runs"),
        [(Missed.SKIP, []), (Missed.ONCE, [3]), (Missed.all(), [1, 2, 3])],
        ids=["skip", "once", "all"],
    )
    def test_of_several_due_no_more_fire_than_may(self, missed: Missed, runs: list[int]) -> None:
        plan = plan_for(Every("1h"), missed=missed, max_fires=3, overlap=Overlap.ALLOW)
        done = turn(plan, new_state(plan), NOW_MS)
        assert done.runs == hours(*runs)
        assert done.state.fired == 3
        assert sum(skip.count for skip in done.skips) == 3 - len(runs)
        assert is_over(done.state)

    def test_the_only_one_that_may_fire_is_the_first(self) -> None:
        plan = plan_for(Every("1h"), max_fires=1)
        done = turn(plan, new_state(plan), NOW_MS)
        assert (done.runs, done.skips, done.state.fired) == (hours(1), [], 1)
        assert is_over(done.state)

    def test_what_is_due_when_the_runs_are_spent_is_told(self) -> None:
        plan = plan_for(Every("1h"), missed=Missed.all(), max_runs=2, overlap=Overlap.ALLOW)
        done = turn(plan, new_state(plan), NOW_MS)
        assert done.runs == hours(1, 2)
        assert spans(done.skips) == [(SkipReason.MAX_RUNS, *hours(3, 5), 3)]
        assert (done.state.fired, done.state.ran, done.state.skipped) == (5, 2, 3)
        assert is_over(done.state)

    def _replaying(self, *, max_runs: int, max_fires: int) -> TaskPlan:
        return plan_for(
            Every("1h"),
            missed=Missed.all(),
            overlap=Overlap.ALLOW,
            max_runs=max_runs,
            max_fires=max_fires,
        )

    def test_of_both_limits_the_first_to_be_reached_ends_it(self) -> None:
        plan = self._replaying(max_runs=2, max_fires=3)
        done = turn(plan, new_state(plan), NOW_MS)
        assert done.runs == hours(1, 2)
        assert spans(done.skips) == [(SkipReason.MAX_RUNS, *hours(3, 3), 1)]
        assert done.state.fired == 3
        plan = self._replaying(max_runs=3, max_fires=2)
        done = turn(plan, new_state(plan), NOW_MS)
        assert (done.runs, done.skips) == (hours(1, 2), [])
        assert is_over(done.state)

    @pytest.mark.parametrize("limit", ["max_runs", "max_fires"])
    def test_none_at_all_may_be_said(self, limit: str) -> None:
        plan = plan_for(Every("1h"), **limited(limit, 0))
        assert is_over(new_state(plan))

    def test_one_that_waited_does_not_run_beyond_the_last(self) -> None:
        plan = plan_for(Every("1h"), max_runs=1, overlap=Overlap.QUEUE_ONE)
        state = replace(new_state(plan), ran=1, queued=Waiting(START_MS))
        [skip] = turn(plan, state, START_MS).decisions
        assert isinstance(skip, Skip)
        assert (skip.reason, skip.count) == (SkipReason.MAX_RUNS, 1)
        assert skip.state.queued is None


class TestPause:
    def _resumed(self, plan: TaskPlan, *, pause_ms: int, resume_ms: int) -> TaskState:
        paused = replace(new_state(plan, pause_ms), paused_ms=pause_ms)
        assert decide(plan, paused, resume_ms) == Wait(None), "nothing happens while it is paused"
        return replace(paused, paused_ms=None, resumed_ms=resume_ms)

    @pytest.mark.parametrize(
        ("missed", "runs"),
        [(Missed.SKIP, []), (Missed.ONCE, [29]), (Missed.all(max=2), [28, 29])],
        ids=["skip", "once", "all"],
    )
    def test_the_missed_policy_has_its_say_and_the_grace_has_not(
        self, missed: Missed, runs: list[int]
    ) -> None:
        plan = plan_for(Every("1s"), missed=missed, overlap=Overlap.ALLOW)
        resume_ms = START_MS + 29 * SECOND + 500  # well within the grace
        state = self._resumed(plan, pause_ms=START_MS, resume_ms=resume_ms)
        done = turn(plan, state, resume_ms)
        assert done.runs == [START_MS + n * SECOND for n in runs]
        assert [(skip.reason, skip.count) for skip in done.skips] == [(PAUSED, 29 - len(runs))]

    def test_the_run_after_a_pause_is_one_of_catching_up(self) -> None:
        plan = plan_for(Every("1m"))
        resume_ms = START_MS + 61 * SECOND
        state = self._resumed(plan, pause_ms=START_MS, resume_ms=resume_ms)
        [run] = turn(plan, state, resume_ms).decisions
        assert isinstance(run, Run)
        assert run.occurrence == Waiting(START_MS + MINUTE, catch_up=True)

    def test_the_occurrence_of_the_moment_of_resuming_is_on_time(self) -> None:
        plan = plan_for(Every("1m"), missed=Missed.SKIP)
        state = self._resumed(plan, pause_ms=START_MS, resume_ms=START_MS + MINUTE)
        for late_ms in (0, 1, 20 * SECOND):
            [run] = turn(plan, state, START_MS + MINUTE + late_ms).decisions
            assert isinstance(run, Run)
            assert not run.occurrence.catch_up

    def test_what_came_after_it_was_missed_and_not_paused(self) -> None:
        plan = plan_for(Every("1h"))
        state = self._resumed(plan, pause_ms=START_MS, resume_ms=START_MS + 2 * HOUR + 1)
        done = turn(plan, state, NOW_MS)  # nobody was there to decide for three hours
        assert spans(done.skips) == [(PAUSED, *hours(1, 2), 2), (MISSED, *hours(3, 4), 2)]
        assert done.runs == hours(5)

    def test_the_one_of_the_moment_of_resuming_was_not_paused(self) -> None:
        plan = plan_for(Every("1h"))
        state = self._resumed(plan, pause_ms=START_MS, resume_ms=START_MS + 2 * HOUR)
        done = turn(plan, state, NOW_MS)
        assert spans(done.skips) == [(PAUSED, *hours(1, 1), 1), (MISSED, *hours(2, 4), 3)]

    def test_without_any_in_the_pause_nothing_is_told(self) -> None:
        plan = plan_for(Every("1h"))
        state = self._resumed(plan, pause_ms=START_MS, resume_ms=START_MS + MINUTE)
        assert decide(plan, state, START_MS + MINUTE) == Wait(START_MS + HOUR)
        assert turn(plan, state, START_MS + HOUR).skips == []


class TestOutage:
    """A year without anybody there, at a thousand occurrences a second."""

    YEAR_MS = START_MS + 365 * DAY

    @pytest.mark.parametrize(
        ("missed", "kept"),
        [(Missed.SKIP, 1), (Missed.ONCE, 1), (Missed.all(), 60_001 + 100)],
        ids=["skip", "once", "all"],
    )
    def test_it_is_decided_in_under_10_ms(self, missed: Missed, kept: int) -> None:
        plan = plan_for(Every("1ms"), missed=missed)
        decision = self._decided_quickly(plan, new_state(plan))
        assert isinstance(decision, Skip)
        assert decision.count == 365 * DAY - kept
        run = self._decided_quickly(plan, decision.state)
        assert isinstance(run, Run)
        assert run.occurrence == Waiting(self.YEAR_MS - kept + 1, catch_up=True)

    @pytest.mark.parametrize(
        "missed", [Missed.SKIP, Missed.ONCE, Missed.all()], ids=["skip", "once", "all"]
    )
    def test_so_it_is_for_one_that_was_to_end_meanwhile(self, missed: Missed) -> None:
        plan = plan_for(Every("1ms"), missed=missed, max_fires=10**9)
        decision = self._decided_quickly(plan, new_state(plan))
        assert isinstance(decision, Skip)
        assert decision.count == decision.state.fired == 10**9
        assert decision.last_ms == START_MS + 10**9
        assert is_over(decision.state)

    def _decided_quickly(self, plan: TaskPlan, state: TaskState) -> object:
        began = process_time()
        decision = decide(plan, state, self.YEAR_MS)
        assert process_time() - began < 10  # walking over each of them would take hours
        return decision
