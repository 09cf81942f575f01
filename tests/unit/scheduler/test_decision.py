"""What is decided for a task: one occurrence at a time, windows, overlaps, limits."""

import pytest
from msgspec.structs import replace

from tampu.scheduler.decision import Hold, Run, Skip, TaskPlan, Wait, bounded, decide, is_over
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
    new_state,
    plan_for,
    turn,
)

PLAN = plan_for(Every("1m"))
FIRST, SECOND_ONE, THIRD = (START_MS + n * MINUTE for n in (1, 2, 3))


class TestOneOccurrence:
    def test_before_it_is_due_there_is_nothing_to_do_but_wait(self) -> None:
        assert decide(PLAN, new_state(PLAN), FIRST - 1) == Wait(FIRST)

    def test_at_its_instant_it_runs_and_the_next_one_is_a_step_of_the_grid_away(self) -> None:
        decision = decide(PLAN, new_state(PLAN), FIRST)
        assert isinstance(decision, Run)
        assert decision.occurrence == Waiting(FIRST)
        assert not decision.cancels
        after = decision.state
        assert (after.next_ms, after.fired, after.ran, after.skipped) == (SECOND_ONE, 1, 1, 0)

    def test_lateness_does_not_shift_the_grid(self) -> None:
        decision = decide(PLAN, new_state(PLAN), FIRST + 40 * SECOND)
        assert isinstance(decision, Run)
        assert decision.occurrence == Waiting(FIRST)
        assert decision.state.next_ms == SECOND_ONE

    def test_a_schedule_that_has_ended_waits_for_nothing(self) -> None:
        plan = plan_for(At(START))
        state = new_state(plan, START_MS - 1)
        ran = turn(plan, state, START_MS)
        assert ran.runs == [START_MS]
        assert ran.until_ms is None
        assert is_over(ran.state)

    def test_it_is_not_over_while_something_waits(self) -> None:
        state = TaskState(task_id="t")
        assert is_over(state)
        assert not is_over(replace(state, next_ms=1))
        assert not is_over(replace(state, queued=Waiting(1)))
        assert not is_over(replace(state, asked=Waiting(1, manual=True)))

    def test_cron_goes_on_from_the_occurrence_and_not_from_now(self) -> None:
        plan = plan_for(Cron("*/5 * * * *"), missed=Missed.all())
        state = new_state(plan)
        assert turn(plan, state, START_MS + 5 * MINUTE + 30 * SECOND).state.next_ms == (
            START_MS + 10 * MINUTE
        )


class TestGrace:
    LATE = FIRST + 10 * SECOND

    @pytest.mark.parametrize("policy", [Missed.SKIP, Missed.ONCE, Missed.all()])
    def test_what_is_no_later_than_the_grace_is_on_time(self, policy: Missed) -> None:
        plan = plan_for(Every("1m"), missed=policy.within(grace="10s"))
        decision = decide(plan, new_state(plan), self.LATE)
        assert isinstance(decision, Run)
        assert decision.occurrence == Waiting(FIRST, catch_up=False)

    @pytest.mark.parametrize("policy", [Missed.ONCE, Missed.all()])
    def test_what_is_later_is_caught_up_with(self, policy: Missed) -> None:
        plan = plan_for(Every("1m"), missed=policy.within(grace="10s"))
        decision = decide(plan, new_state(plan), self.LATE + 1)
        assert isinstance(decision, Run)
        assert decision.occurrence == Waiting(FIRST, catch_up=True)

    def test_what_is_later_is_dropped_under_skip(self) -> None:
        plan = plan_for(Every("1m"), missed=Missed.SKIP.within(grace="10s"))
        decision = decide(plan, new_state(plan), self.LATE + 1)
        assert isinstance(decision, Skip)
        assert (decision.reason, decision.count) == (SkipReason.MISSED, 1)
        assert (decision.first_ms, decision.last_ms) == (FIRST, FIRST)
        assert decision.state.next_ms == SECOND_ONE

    def test_without_any_grace_a_millisecond_is_late(self) -> None:
        plan = plan_for(Every("1m"), missed=Missed.SKIP.within(grace=0))
        assert turn(plan, new_state(plan), FIRST).runs == [FIRST]
        assert turn(plan, new_state(plan), FIRST + 1).runs == []


class TestWindow:
    NIGHT = TimeWindow(segments=[("22:00", "06:00")])

    def test_it_is_open_or_not_when_the_run_would_begin(self) -> None:
        plan = plan_for(Every("1h"), window=TimeWindow(segments=[("00:30", "01:30")]))
        state = new_state(plan)
        assert turn(plan, state, START_MS + HOUR).runs == [START_MS + HOUR]
        late = plan_for(
            Every("1h"),
            window=TimeWindow(segments=[("00:30", "01:30")]),
            missed=Missed.ONCE.within(grace="45m"),
        )
        [skip] = turn(late, state, START_MS + HOUR + 30 * MINUTE).skips
        assert skip.reason is SkipReason.OUTSIDE_WINDOW, "it was due inside, and now is outside"

    def test_what_lies_outside_is_behind_us_and_counts_as_skipped(self) -> None:
        plan = plan_for(Every("1h"), window=TimeWindow(segments=[("12:00", "13:00")]))
        decision = decide(plan, new_state(plan), START_MS + HOUR)
        assert isinstance(decision, Skip)
        after = decision.state
        assert (after.fired, after.ran, after.skipped) == (1, 0, 1)
        assert after.next_ms == START_MS + 2 * HOUR

    def test_it_holds_its_start_and_not_its_end(self) -> None:
        plan = plan_for(Every("1h"), window=TimeWindow(segments=[("01:00", "02:00")]))
        ran = [at for n in range(1, 4) for at in self._runs_at(plan, n)]
        assert ran == [START_MS + HOUR]

    def test_past_midnight_it_belongs_to_the_day_before(self) -> None:
        window = TimeWindow(days="fri", segments=[("22:00", "06:00")])
        plan = plan_for(Every("1h"), window=window)  # the start is a Saturday's midnight
        ran = [n for n in range(1, 30) if self._runs_at(plan, n)]
        assert ran == [1, 2, 3, 4, 5]

    def test_one_of_another_zone_goes_by_that(self) -> None:
        own = TimeWindow(tz="Asia/Tokyo", segments=[("10:00", "11:00")])
        left = TimeWindow(segments=[("10:00", "11:00")])
        assert self._runs_at(plan_for(Every("1h"), window=own, tz="Europe/Berlin"), 1)
        assert self._runs_at(plan_for(Every("1h"), window=left, tz="Asia/Tokyo"), 1)
        assert not self._runs_at(plan_for(Every("1h"), window=left, tz="Europe/Berlin"), 1)

    @staticmethod
    def _runs_at(plan: TaskPlan, hour: int) -> list[int]:
        at_ms = START_MS + hour * HOUR
        return turn(plan, new_state(plan, at_ms - HOUR), at_ms).runs

    def test_one_that_waited_is_held_against_it_again(self) -> None:
        window = TimeWindow(segments=[("00:00", "00:02")])
        plan = plan_for(Every("1m"), window=window, overlap=Overlap.QUEUE_ONE)
        held = turn(plan, new_state(plan), FIRST, running=1)
        assert held.held == [FIRST]
        [skip] = turn(plan, held.state, SECOND_ONE, running=0).skips[:1]
        assert (skip.reason, skip.first_ms) == (SkipReason.OUTSIDE_WINDOW, FIRST)
        assert skip.state.queued is None
        assert turn(plan, held.state, SECOND_ONE - 1).runs == [FIRST]

    def test_who_asks_for_a_run_gets_it_outside_too(self) -> None:
        plan = plan_for(Every("1h"), window=TimeWindow(segments=[("12:00", "13:00")]))
        asked = replace(new_state(plan), asked=Waiting(START_MS, manual=True))
        assert turn(plan, asked, START_MS).runs == [START_MS]


class TestJitter:
    def test_a_run_waits_for_its_own_moment_and_keeps_its_instant(self) -> None:
        plan = plan_for(Every("1h"), jitter="10m")
        state = new_state(plan)
        due_ms = START_MS + HOUR
        late_ms = offset_ms("t", due_ms, 10 * MINUTE)
        assert 0 < late_ms < 10 * MINUTE
        assert decide(plan, state, due_ms) == Wait(due_ms + late_ms)
        assert decide(plan, state, due_ms + late_ms - 1) == Wait(due_ms + late_ms)
        decision = decide(plan, state, due_ms + late_ms)
        assert isinstance(decision, Run)
        assert decision.occurrence == Waiting(due_ms, catch_up=False)

    def test_it_is_not_taken_from_the_grace(self) -> None:
        plan = plan_for(Every("1h"), jitter="1h", missed=Missed.SKIP.within(grace=0))
        state = new_state(plan)
        for hour in range(1, 25):
            starts_ms = plan.starts_ms(START_MS + hour * HOUR)
            done = turn(plan, state, starts_ms)
            assert done.runs == [START_MS + hour * HOUR]
            state = done.state

    def test_it_never_reaches_the_next_instant(self) -> None:
        plan = plan_for(Cron("0,1 * * * *"), jitter="30m")
        for hour in range(50):
            at_ms = START_MS + hour * HOUR
            assert at_ms <= plan.starts_ms(at_ms) < at_ms + MINUTE
        last = plan_for(At(START), jitter="30m")
        assert START_MS <= last.starts_ms(START_MS) < START_MS + 30 * MINUTE


class TestOverlap:
    def test_skip_drops_it(self) -> None:
        decision = decide(PLAN, new_state(PLAN), FIRST, running=1)
        assert isinstance(decision, Skip)
        assert (decision.reason, decision.first_ms) == (SkipReason.OVERLAP, FIRST)
        assert (decision.state.fired, decision.state.skipped) == (1, 1)
        assert decision.state.next_ms == SECOND_ONE

    def test_allow_runs_it_beside(self) -> None:
        plan = plan_for(Every("1m"), overlap=Overlap.ALLOW)
        decision = decide(plan, new_state(plan), FIRST, running=3)
        assert isinstance(decision, Run)
        assert not decision.cancels

    def test_cancel_running_says_so_only_if_something_runs(self) -> None:
        plan = plan_for(Every("1m"), overlap=Overlap.CANCEL_RUNNING)
        for running in (0, 1, 2):
            decision = decide(plan, new_state(plan), FIRST, running=running)
            assert isinstance(decision, Run)
            assert decision.cancels is (running > 0)

    def test_queue_one_keeps_the_first_and_drops_later_ones(self) -> None:
        plan = plan_for(Every("1m"), overlap=Overlap.QUEUE_ONE)
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

    def test_one_that_was_late_when_it_was_queued_still_is_when_it_runs(self) -> None:
        plan = plan_for(Every("1h"), overlap=Overlap.QUEUE_ONE)
        held = turn(plan, new_state(plan), START_MS + HOUR + 2 * MINUTE, running=1)
        [run] = turn(plan, held.state, START_MS + HOUR + 3 * MINUTE).decisions
        assert isinstance(run, Run)
        assert run.occurrence == Waiting(START_MS + HOUR, catch_up=True)

    @pytest.mark.parametrize("overlap", [Overlap.SKIP, Overlap.QUEUE_ONE])
    def test_replaying_all_is_one_after_the_other(self, overlap: Overlap) -> None:
        plan = plan_for(Every("1m"), overlap=overlap, missed=Missed.all())
        now_ms = START_MS + 3 * MINUTE + SECOND
        state, ran = new_state(plan), []
        for _ in range(3):
            done = turn(plan, state, now_ms)
            assert (len(done.runs), done.skips) == (1, [])
            ran += done.runs
            state = done.state
            assert decide(plan, state, now_ms, running=1) == Wait(
                None if len(ran) < 3 else START_MS + 4 * MINUTE
            )
        assert ran == [FIRST, SECOND_ONE, THIRD]

    def test_replaying_all_beside_each_other_is_for_allow(self) -> None:
        plan = plan_for(Every("1m"), overlap=Overlap.ALLOW, missed=Missed.all())
        done = turn(plan, new_state(plan), THIRD + SECOND)
        assert done.runs == [FIRST, SECOND_ONE, THIRD]
        assert done.running == 3


class TestAsked:
    """By `trigger_now`."""

    ASKED = Waiting(START_MS + 5, manual=True)

    def _state(self, plan: TaskPlan) -> TaskState:
        return replace(new_state(plan), asked=self.ASKED)

    @pytest.mark.parametrize("overlap", Overlap)
    def test_it_runs_at_once_and_does_not_move_the_next_instant(self, overlap: Overlap) -> None:
        plan = plan_for(Every("1m"), overlap=overlap)
        decision = decide(plan, self._state(plan), START_MS + 5)
        assert isinstance(decision, Run)
        assert decision.occurrence == self.ASKED
        assert not decision.cancels
        after = decision.state
        assert (after.asked, after.next_ms, after.fired, after.ran) == (None, FIRST, 0, 1)

    def test_while_one_runs_skip_drops_it(self) -> None:
        decision = decide(PLAN, self._state(PLAN), START_MS + 5, running=1)
        assert isinstance(decision, Skip)
        assert (decision.reason, decision.manual) == (SkipReason.OVERLAP, True)
        assert decision.first_ms == decision.last_ms == START_MS + 5
        assert (decision.state.asked, decision.state.skipped, decision.state.fired) == (None, 1, 0)

    def test_while_one_runs_queue_one_lets_it_wait(self) -> None:
        plan = plan_for(Every("1m"), overlap=Overlap.QUEUE_ONE)
        state = self._state(plan)
        assert decide(plan, state, START_MS + 5, running=1) == Wait(FIRST)
        held = turn(plan, state, FIRST, running=1)
        assert (held.held, held.state.asked) == ([FIRST], self.ASKED)
        first = turn(plan, held.state, FIRST + 1)
        assert first.runs == [FIRST], "the occurrence came first"
        assert turn(plan, first.state, FIRST + 2).runs == [START_MS + 5]

    def test_while_one_runs_allow_and_cancel_running_do_as_for_any_other(self) -> None:
        for overlap, cancels in ((Overlap.ALLOW, False), (Overlap.CANCEL_RUNNING, True)):
            plan = plan_for(Every("1m"), overlap=overlap)
            decision = decide(plan, self._state(plan), START_MS + 5, running=1)
            assert isinstance(decision, Run)
            assert decision.cancels is cancels

    def test_it_waits_while_the_task_is_paused(self) -> None:
        paused = replace(self._state(PLAN), paused_ms=START_MS + 1)
        assert decide(PLAN, paused, FIRST) == Wait(None)

    def test_it_counts_as_a_run_and_ends_what_may_have_no_more(self) -> None:
        plan = plan_for(Every("1m"), max_runs=1)
        done = turn(plan, self._state(plan), START_MS + 5)
        assert done.runs == [START_MS + 5]
        assert done.state.next_ms is None

    def test_beyond_the_last_run_there_is_none(self) -> None:
        plan = plan_for(Every("1m"), max_runs=1, overlap=Overlap.ALLOW)
        state = replace(self._state(plan), ran=1, next_ms=None)
        decision = decide(plan, state, START_MS + 5, running=1)
        assert isinstance(decision, Skip)
        assert (decision.reason, decision.manual) == (SkipReason.MAX_RUNS, True)


class TestBounded:
    def test_what_is_to_come_is_left_alone_while_there_is_more(self) -> None:
        plan = plan_for(Every("1d"), max_runs=3, max_fires=5)
        state = TaskState(task_id="t", next_ms=START_MS + DAY, ran=2, fired=4)
        assert bounded(plan, state, START_MS) is state
        assert bounded(plan, replace(state, ran=3), START_MS).next_ms is None
        assert bounded(plan, replace(state, fired=5), START_MS).next_ms is None

    def test_one_that_is_due_and_may_not_run_is_told_first(self) -> None:
        plan = plan_for(Every("1m"), max_runs=3)
        state = TaskState(task_id="t", next_ms=FIRST, ran=3)
        assert bounded(plan, state, FIRST) is state
