"""Decisions for a task: one occurrence at a time, windows, overlaps, limits."""

import pytest
from msgspec.structs import replace

from tampu.scheduler.decision import Hold, Run, Skip, TaskPlan, Wait, decide, is_over
from tampu.scheduler.events import SkipReason
from tampu.timing import At, Cron, Every, Missed, Overlap, TimeWindow, offset_ms
from tampu.wire.task_state import TaskState, Waiting
from tests.unit.scheduler.plans import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    START,
    START_MS,
    anchored_plan,
    decide_all,
    new_state,
)

PLAN = anchored_plan(Every("1m"))
FIRST, SECOND_ONE, THIRD = (START_MS + n * MINUTE for n in (1, 2, 3))


class TestOneOccurrence:
    def test_a_task_waits_until_its_occurrence_is_due(self) -> None:
        assert decide(PLAN, new_state(PLAN), FIRST - 1) == Wait(FIRST)

    def test_a_due_occurrence_runs_and_the_next_one_is_on_the_grid(self) -> None:
        decision = decide(PLAN, new_state(PLAN), FIRST)
        assert isinstance(decision, Run)
        assert decision.occurrence == Waiting(FIRST)
        assert not decision.cancels
        after = decision.state
        assert (after.next_ms, after.fired, after.ran, after.skipped) == (SECOND_ONE, 1, 1, 0)

    def test_a_late_run_does_not_shift_the_grid(self) -> None:
        decision = decide(PLAN, new_state(PLAN), FIRST + 40 * SECOND)
        assert isinstance(decision, Run)
        assert decision.occurrence == Waiting(FIRST)
        assert decision.state.next_ms == SECOND_ONE

    def test_a_task_that_has_ended_waits_for_nothing(self) -> None:
        plan = anchored_plan(At(START))
        state = new_state(plan, START_MS - 1)
        ran = decide_all(plan, state, START_MS)
        assert ran.runs == [START_MS]
        assert ran.until_ms is None
        assert is_over(ran.state)

    def test_a_task_with_a_waiting_run_is_not_over(self) -> None:
        state = TaskState(task_id="t")
        assert is_over(state)
        assert not is_over(replace(state, next_ms=1))
        assert not is_over(replace(state, queued=Waiting(1)))
        assert not is_over(replace(state, asked=Waiting(1, manual=True)))

    def test_the_next_cron_instant_counts_from_the_occurrence(self) -> None:
        plan = anchored_plan(Cron("*/5 * * * *"), missed=Missed.all())
        state = new_state(plan)
        assert decide_all(plan, state, START_MS + 5 * MINUTE + 30 * SECOND).state.next_ms == (
            START_MS + 10 * MINUTE
        )


class TestGrace:
    LATE = FIRST + 10 * SECOND

    @pytest.mark.parametrize("policy", [Missed.SKIP, Missed.ONCE, Missed.all()])
    def test_an_occurrence_within_the_grace_is_on_time(self, policy: Missed) -> None:
        plan = anchored_plan(Every("1m"), missed=policy.within(grace="10s"))
        decision = decide(plan, new_state(plan), self.LATE)
        assert isinstance(decision, Run)
        assert decision.occurrence == Waiting(FIRST, catch_up=False)

    @pytest.mark.parametrize("policy", [Missed.ONCE, Missed.all()])
    def test_an_occurrence_after_the_grace_catches_up(self, policy: Missed) -> None:
        plan = anchored_plan(Every("1m"), missed=policy.within(grace="10s"))
        decision = decide(plan, new_state(plan), self.LATE + 1)
        assert isinstance(decision, Run)
        assert decision.occurrence == Waiting(FIRST, catch_up=True)

    def test_skip_drops_an_occurrence_after_the_grace(self) -> None:
        plan = anchored_plan(Every("1m"), missed=Missed.SKIP.within(grace="10s"))
        decision = decide(plan, new_state(plan), self.LATE + 1)
        assert isinstance(decision, Skip)
        assert (decision.reason, decision.count) == (SkipReason.MISSED, 1)
        assert (decision.first_ms, decision.last_ms) == (FIRST, FIRST)
        assert decision.state.next_ms == SECOND_ONE

    def test_without_a_grace_one_millisecond_is_late(self) -> None:
        plan = anchored_plan(Every("1m"), missed=Missed.SKIP.within(grace=0))
        assert decide_all(plan, new_state(plan), FIRST).runs == [FIRST]
        assert decide_all(plan, new_state(plan), FIRST + 1).runs == []


class TestWindow:
    NIGHT = TimeWindow(segments=[("22:00", "06:00")])

    def test_the_window_is_checked_when_the_run_would_start(self) -> None:
        plan = anchored_plan(Every("1h"), window=TimeWindow(segments=[("00:30", "01:30")]))
        state = new_state(plan)
        assert decide_all(plan, state, START_MS + HOUR).runs == [START_MS + HOUR]
        late = anchored_plan(
            Every("1h"),
            window=TimeWindow(segments=[("00:30", "01:30")]),
            missed=Missed.ONCE.within(grace="45m"),
        )
        [skip] = decide_all(late, state, START_MS + HOUR + 30 * MINUTE).skips
        assert skip.reason is SkipReason.OUTSIDE_WINDOW, (
            "it was due inside the window, and is late outside of it"
        )

    def test_an_occurrence_outside_the_window_counts_as_skipped(self) -> None:
        plan = anchored_plan(Every("1h"), window=TimeWindow(segments=[("12:00", "13:00")]))
        decision = decide(plan, new_state(plan), START_MS + HOUR)
        assert isinstance(decision, Skip)
        after = decision.state
        assert (after.fired, after.ran, after.skipped) == (1, 0, 1)
        assert after.next_ms == START_MS + 2 * HOUR

    def test_the_window_includes_its_start_and_excludes_its_end(self) -> None:
        plan = anchored_plan(Every("1h"), window=TimeWindow(segments=[("01:00", "02:00")]))
        ran = [at for n in range(1, 4) for at in self._runs_at(plan, n)]
        assert ran == [START_MS + HOUR]

    def test_a_segment_past_midnight_belongs_to_the_day_before(self) -> None:
        window = TimeWindow(days="fri", segments=[("22:00", "06:00")])
        plan = anchored_plan(Every("1h"), window=window)  # START is midnight on a Saturday
        ran = [n for n in range(1, 30) if self._runs_at(plan, n)]
        assert ran == [1, 2, 3, 4, 5]

    def test_a_window_uses_its_own_zone_or_that_of_the_scheduler(self) -> None:
        zoned = TimeWindow(tz="Asia/Tokyo", segments=[("10:00", "11:00")])
        without = TimeWindow(segments=[("10:00", "11:00")])
        assert self._runs_at(anchored_plan(Every("1h"), window=zoned, tz="Europe/Berlin"), 1)
        assert self._runs_at(anchored_plan(Every("1h"), window=without, tz="Asia/Tokyo"), 1)
        assert not self._runs_at(anchored_plan(Every("1h"), window=without, tz="Europe/Berlin"), 1)

    @staticmethod
    def _runs_at(plan: TaskPlan, hour: int) -> list[int]:
        at_ms = START_MS + hour * HOUR
        return decide_all(plan, new_state(plan, at_ms - HOUR), at_ms).runs

    def test_the_window_is_checked_again_for_an_occurrence_that_waited(self) -> None:
        window = TimeWindow(segments=[("00:00", "00:02")])
        plan = anchored_plan(Every("1m"), window=window, overlap=Overlap.QUEUE_ONE)
        held = decide_all(plan, new_state(plan), FIRST, running=1)
        assert held.held == [FIRST]
        [skip] = decide_all(plan, held.state, SECOND_ONE, running=0).skips[:1]
        assert (skip.reason, skip.first_ms) == (SkipReason.OUTSIDE_WINDOW, FIRST)
        assert skip.state.queued is None
        assert decide_all(plan, held.state, SECOND_ONE - 1).runs == [FIRST]

    def test_a_triggered_run_ignores_the_window(self) -> None:
        plan = anchored_plan(Every("1h"), window=TimeWindow(segments=[("12:00", "13:00")]))
        asked = replace(new_state(plan), asked=Waiting(START_MS, manual=True))
        assert decide_all(plan, asked, START_MS).runs == [START_MS]


class TestJitter:
    def test_a_run_waits_for_its_jitter_and_keeps_its_instant(self) -> None:
        plan = anchored_plan(Every("1h"), jitter="10m")
        state = new_state(plan)
        due_ms = START_MS + HOUR
        late_ms = offset_ms("t", due_ms, 10 * MINUTE)
        assert 0 < late_ms < 10 * MINUTE
        assert decide(plan, state, due_ms) == Wait(due_ms + late_ms)
        assert decide(plan, state, due_ms + late_ms - 1) == Wait(due_ms + late_ms)
        decision = decide(plan, state, due_ms + late_ms)
        assert isinstance(decision, Run)
        assert decision.occurrence == Waiting(due_ms, catch_up=False)

    def test_jitter_is_added_to_the_grace(self) -> None:
        plan = anchored_plan(Every("1h"), jitter="1h", missed=Missed.SKIP.within(grace=0))
        state = new_state(plan)
        for hour in range(1, 25):
            start_ms = plan.start_ms(START_MS + hour * HOUR)
            done = decide_all(plan, state, start_ms)
            assert done.runs == [START_MS + hour * HOUR]
            state = done.state

    def test_jitter_never_reaches_the_next_instant(self) -> None:
        plan = anchored_plan(Cron("0,1 * * * *"), jitter="30m")
        for hour in range(50):
            at_ms = START_MS + hour * HOUR
            assert at_ms <= plan.start_ms(at_ms) < at_ms + MINUTE
        last = anchored_plan(At(START), jitter="30m")
        assert START_MS <= last.start_ms(START_MS) < START_MS + 30 * MINUTE


class TestOverlap:
    def test_skip_drops_the_occurrence(self) -> None:
        decision = decide(PLAN, new_state(PLAN), FIRST, running=1)
        assert isinstance(decision, Skip)
        assert (decision.reason, decision.first_ms) == (SkipReason.OVERLAP, FIRST)
        assert (decision.state.fired, decision.state.skipped) == (1, 1)
        assert decision.state.next_ms == SECOND_ONE

    def test_allow_runs_it_at_the_same_time(self) -> None:
        plan = anchored_plan(Every("1m"), overlap=Overlap.ALLOW)
        decision = decide(plan, new_state(plan), FIRST, running=3)
        assert isinstance(decision, Run)
        assert not decision.cancels

    def test_cancel_running_cancels_only_if_a_run_is_active(self) -> None:
        plan = anchored_plan(Every("1m"), overlap=Overlap.CANCEL_RUNNING)
        for running in (0, 1, 2):
            decision = decide(plan, new_state(plan), FIRST, running=running)
            assert isinstance(decision, Run)
            assert decision.cancels is (running > 0)

    def test_queue_one_keeps_the_first_occurrence_and_drops_later_ones(self) -> None:
        plan = anchored_plan(Every("1m"), overlap=Overlap.QUEUE_ONE)
        held = decide(plan, new_state(plan), FIRST, running=1)
        assert isinstance(held, Hold)
        assert held.occurrence == Waiting(FIRST)
        state = held.state
        assert (state.queued, state.fired, state.ran, state.skipped) == (Waiting(FIRST), 1, 0, 0)
        assert state.next_ms == SECOND_ONE
        assert decide(plan, state, FIRST, running=1) == Wait(SECOND_ONE)
        full = decide(plan, state, SECOND_ONE, running=1)
        assert isinstance(full, Skip)
        assert (full.reason, full.first_ms) == (SkipReason.QUEUE_FULL, SECOND_ONE)
        assert full.state.queued == Waiting(FIRST)
        idle = decide(plan, full.state, SECOND_ONE + SECOND)
        assert isinstance(idle, Run)
        assert idle.occurrence == Waiting(FIRST)
        after = idle.state
        assert (after.queued, after.fired, after.ran, after.skipped) == (None, 2, 1, 1)

    def test_an_occurrence_that_was_queued_late_still_catches_up(self) -> None:
        plan = anchored_plan(Every("1h"), overlap=Overlap.QUEUE_ONE)
        held = decide_all(plan, new_state(plan), START_MS + HOUR + 2 * MINUTE, running=1)
        [run] = decide_all(plan, held.state, START_MS + HOUR + 3 * MINUTE).decisions
        assert isinstance(run, Run)
        assert run.occurrence == Waiting(START_MS + HOUR, catch_up=True)

    @pytest.mark.parametrize("overlap", [Overlap.SKIP, Overlap.QUEUE_ONE])
    def test_missed_runs_come_one_after_the_other(self, overlap: Overlap) -> None:
        plan = anchored_plan(Every("1m"), overlap=overlap, missed=Missed.all())
        now_ms = START_MS + 3 * MINUTE + SECOND
        state, ran = new_state(plan), []
        for _ in range(3):
            done = decide_all(plan, state, now_ms)
            assert (len(done.runs), done.skips) == (1, [])
            ran += done.runs
            state = done.state
            assert decide(plan, state, now_ms, running=1) == Wait(
                None if len(ran) < 3 else START_MS + 4 * MINUTE
            )
        assert ran == [FIRST, SECOND_ONE, THIRD]

    def test_missed_runs_overlap_if_that_is_allowed(self) -> None:
        plan = anchored_plan(Every("1m"), overlap=Overlap.ALLOW, missed=Missed.all())
        done = decide_all(plan, new_state(plan), THIRD + SECOND)
        assert done.runs == [FIRST, SECOND_ONE, THIRD]
        assert done.running == 3


class TestTriggered:
    """A run that `trigger_now` asked for."""

    ASKED = Waiting(START_MS + 5, manual=True)

    def _state(self, plan: TaskPlan) -> TaskState:
        return replace(new_state(plan), asked=self.ASKED)

    @pytest.mark.parametrize("overlap", Overlap)
    def test_it_runs_at_once_and_the_next_instant_stays(self, overlap: Overlap) -> None:
        plan = anchored_plan(Every("1m"), overlap=overlap)
        decision = decide(plan, self._state(plan), START_MS + 5)
        assert isinstance(decision, Run)
        assert decision.occurrence == self.ASKED
        assert not decision.cancels
        after = decision.state
        assert (after.asked, after.next_ms, after.fired, after.ran) == (None, FIRST, 0, 1)

    def test_skip_drops_it_while_a_run_is_active(self) -> None:
        decision = decide(PLAN, self._state(PLAN), START_MS + 5, running=1)
        assert isinstance(decision, Skip)
        assert (decision.reason, decision.manual) == (SkipReason.OVERLAP, True)
        assert decision.first_ms == decision.last_ms == START_MS + 5
        assert (decision.state.asked, decision.state.skipped, decision.state.fired) == (None, 1, 0)

    def test_queue_one_lets_it_wait_while_a_run_is_active(self) -> None:
        plan = anchored_plan(Every("1m"), overlap=Overlap.QUEUE_ONE)
        state = self._state(plan)
        assert decide(plan, state, START_MS + 5, running=1) == Wait(FIRST)
        held = decide_all(plan, state, FIRST, running=1)
        assert (held.held, held.state.asked) == ([FIRST], self.ASKED)
        first = decide_all(plan, held.state, FIRST + 1)
        assert first.runs == [FIRST], "the scheduled occurrence comes first"
        assert decide_all(plan, first.state, FIRST + 2).runs == [START_MS + 5]

    def test_allow_and_cancel_running_treat_it_like_any_other_run(self) -> None:
        for overlap, cancels in ((Overlap.ALLOW, False), (Overlap.CANCEL_RUNNING, True)):
            plan = anchored_plan(Every("1m"), overlap=overlap)
            decision = decide(plan, self._state(plan), START_MS + 5, running=1)
            assert isinstance(decision, Run)
            assert decision.cancels is cancels

    def test_it_waits_while_the_task_is_paused(self) -> None:
        paused = replace(self._state(PLAN), paused_ms=START_MS + 1)
        assert decide(PLAN, paused, FIRST) == Wait(None)

    def test_it_counts_towards_max_runs(self) -> None:
        plan = anchored_plan(Every("1m"), max_runs=1)
        done = decide_all(plan, self._state(plan), START_MS + 5)
        assert done.runs == [START_MS + 5]
        assert done.state.next_ms is None

    def test_it_is_skipped_after_the_last_run(self) -> None:
        plan = anchored_plan(Every("1m"), max_runs=1, overlap=Overlap.ALLOW)
        state = replace(self._state(plan), ran=1, next_ms=None)
        decision = decide(plan, state, START_MS + 5, running=1)
        assert isinstance(decision, Skip)
        assert (decision.reason, decision.manual) == (SkipReason.MAX_RUNS, True)


class TestLimit:
    def test_the_next_occurrence_stays_until_a_limit_is_reached(self) -> None:
        plan = anchored_plan(Every("1d"), max_runs=3, max_fires=5)
        state = TaskState(task_id="t", next_ms=START_MS + DAY, ran=2, fired=4)
        assert plan.limit(state, START_MS) is state
        assert plan.limit(replace(state, ran=3), START_MS).next_ms is None
        assert plan.limit(replace(state, fired=5), START_MS).next_ms is None

    def test_an_occurrence_that_is_already_due_stays(self) -> None:
        plan = anchored_plan(Every("1m"), max_runs=3)
        state = TaskState(task_id="t", next_ms=FIRST, ran=3)
        assert plan.limit(state, FIRST) is state
