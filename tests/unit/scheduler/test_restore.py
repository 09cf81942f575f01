"""The state of a task when it is added: new, restored, changed or repaired."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from tampu.errors import DecodeError
from tampu.scheduler.decision import TaskPlan
from tampu.scheduler.events import Source
from tampu.scheduler.restore import RestoredTask, restore_task
from tampu.timing import At, Cron, Every, Missed, Rule, TimeWindow
from tampu.util.clock import instant
from tampu.wire.task_state import TaskState, Waiting, decode_peer_state
from tests.unit.scheduler.plans import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    START,
    START_MS,
    decide_all,
    limit_option,
)
from tests.unit.scheduler.plans import make_plan as plan

CORRUPT = DecodeError("task state", "it is not JSON")


def at(*hours: float) -> At:
    return At(*(START + timedelta(hours=n) for n in hours))


def new(given: TaskPlan, now_ms: int = START_MS) -> RestoredTask:
    return restore_task(given, None, now_ms)


class TestNew:
    def test_an_interval_starts_now_and_first_fires_one_interval_later(self) -> None:
        found = new(plan(Every("5s")), START_MS + 123)
        assert found.source is Source.NEW
        assert found.state.next_ms == START_MS + 5123
        assert found.state.anchor_ms == START_MS + 123
        assert found.plan.rule == Every("5s", anchor=instant(START_MS + 123))

    def test_an_interval_with_an_anchor_uses_that_grid(self) -> None:
        anchor = START - timedelta(days=1000)
        found = new(plan(Every("1h", anchor=anchor)), START_MS + MINUTE)
        assert found.state.next_ms == START_MS + HOUR

    def test_a_staggered_interval_has_the_same_phase_whenever_it_starts(self) -> None:
        firsts = {
            new(plan(Every("1h"), stagger=True), START_MS + n).state.next_ms for n in (0, 1, 999)
        }
        assert len(firsts) == 1
        by_text = new(plan(Every("1h"), stagger="t")).state.next_ms
        assert firsts == {by_text}, "the id is the default seed"
        assert new(plan(Every("1h"), stagger="other")).state.next_ms != by_text

    def test_a_cron_rule_uses_its_own_zone_or_that_of_the_scheduler(self) -> None:
        nine = Cron("0 9 * * *")
        assert new(plan(nine)).state.next_ms == START_MS + 9 * HOUR
        assert new(plan(nine, tz="Asia/Tokyo")).state.next_ms == START_MS + DAY
        zoned = Cron("0 9 * * *", tz="UTC")
        assert new(plan(zoned, tz="Asia/Tokyo")).state.next_ms == START_MS + 9 * HOUR

    def test_an_aligned_interval_first_fires_at_the_opening(self) -> None:
        window = TimeWindow(segments=[("09:00", "17:00")])
        found = new(plan(Every("1h"), window=window, align=True), START_MS + MINUTE)
        assert found.state.next_ms == START_MS + 9 * HOUR
        anchored = found.plan.rule.next_ms(START_MS + 9 * HOUR)
        assert anchored == START_MS + 9 * HOUR + MINUTE, "the grid starts when the task is added"

    def test_listed_instants_in_the_past_are_due(self) -> None:
        assert new(plan(at(-2, -1, 1))).state.next_ms == START_MS - 2 * HOUR
        assert new(plan(at(1, 2))).state.next_ms == START_MS + HOUR
        assert new(plan(at(0))).state.next_ms == START_MS

    def test_an_empty_list_has_no_next_instant(self) -> None:
        found = new(plan(At()))
        assert (found.source, found.state.next_ms) == (Source.NEW, None)

    @pytest.mark.parametrize("limit", ["max_runs", "max_fires"])
    def test_a_limit_of_0_has_no_next_instant(self, limit: str) -> None:
        assert new(plan(Every("5s"), **limit_option(limit, 0))).state.next_ms is None

    def test_a_new_state_has_no_counts(self) -> None:
        state = new(plan(Every("5s"))).state
        assert state.task_id == "t"
        assert (state.fired, state.ran, state.skipped, state.failed) == (0, 0, 0, 0)
        assert (state.last_run_at, state.last_success_at, state.last_error) == (None, None, None)


RULES = [Every("1h"), Cron("0 * * * *"), at(1, 2, 3, 30), Every("1h", anchor=START)]


class TestRestored:
    @pytest.mark.parametrize("rule", RULES, ids=repr)
    def test_a_stored_state_is_continued(self, rule: Rule) -> None:
        given = plan(rule)
        stored = replace(
            new(given).state, fired=7, ran=5, skipped=2, failed=1, last_error="E: x", next_ms=5
        )
        found = restore_task(given, stored, START_MS + 10 * HOUR)
        assert found.source is Source.RESTORED
        assert found.state == stored
        assert (found.problem, found.previous_next_ms) == ("", None)

    def test_an_interval_keeps_its_grid(self) -> None:
        given = plan(Every("1h"))
        stored = new(given, START_MS + 7).state
        found = restore_task(given, stored, START_MS + DAY)
        assert found.plan.rule.next_ms(START_MS + DAY) == START_MS + DAY + 7

    def test_waiting_runs_and_a_pause_are_kept(self) -> None:
        given = plan(Every("1h"))
        stored = replace(
            new(given).state,
            queued=Waiting(1),
            asked=Waiting(2, manual=True),
            paused_ms=3,
            stands_in_ms=4,
        )
        assert restore_task(given, stored, START_MS).state == stored

    def test_a_task_that_has_ended_stays_ended(self) -> None:
        given = plan(at(-2, -1))
        stored = replace(new(given).state, next_ms=None, fired=2, ran=1, skipped=1)
        found = restore_task(given, stored, START_MS)
        assert (found.source, found.state) == (Source.RESTORED, stored)

    @pytest.mark.parametrize("rule", RULES[:2], ids=repr)
    @pytest.mark.parametrize(("limit", "count"), [("max_runs", "ran"), ("max_fires", "fired")])
    def test_a_task_that_has_reached_its_limit_stays_ended(
        self, rule: Rule, limit: str, count: str
    ) -> None:
        given = plan(rule, **limit_option(limit, 3))
        stored = replace(new(given).state, next_ms=None, **{count: 3})
        found = restore_task(given, stored, START_MS)
        assert (found.source, found.state.next_ms) == (Source.RESTORED, None)

    def test_a_lowered_limit_ends_the_task(self) -> None:
        stored = replace(new(plan(Every("1h"))).state, ran=3, fired=5)
        assert restore_task(plan(Every("1h"), max_runs=3), stored, START_MS).state.next_ms is None
        assert restore_task(plan(Every("1h"), max_fires=5), stored, START_MS).state.next_ms is None
        kept = restore_task(plan(Every("1h"), max_runs=4, max_fires=6), stored, START_MS)
        assert kept.state.next_ms == stored.next_ms

    def test_a_changed_window_or_policy_does_not_change_the_schedule(self) -> None:
        stored = new(plan(Every("1h"))).state
        other = plan(Every("1h"), window=TimeWindow(days="mon"), jitter="1m", max_runs=9)
        assert restore_task(other, stored, START_MS).source is Source.RESTORED


class TestChanged:
    @pytest.mark.parametrize(
        ("before", "after"),
        [
            (plan(Every("1h")), plan(Every("2h"))),
            (plan(Every("1h")), plan(Every("1h", anchor=START))),
            (plan(Every("1h")), plan(Every("1h"), stagger=True)),
            (plan(Every("1h"), stagger="a"), plan(Every("1h"), stagger="b")),
            (plan(Every("1h")), plan(Cron("0 * * * *"))),
            (plan(Cron("0 9 * * *")), plan(Cron("1 9 * * *"))),
            (plan(Cron("0 9 * * *")), plan(Cron("0 9 * * *"), tz="Asia/Tokyo")),
            (plan(at(1, 2)), plan(at(1, 3))),
            (
                plan(Every("1h"), window=TimeWindow(days="mon"), align=True),
                plan(Every("1h"), window=TimeWindow(days="tue"), align=True),
            ),
            (plan(Every("1h")), plan(Every("1h"), window=TimeWindow(days="mon"), align=True)),
        ],
    )
    def test_a_changed_rule_is_noticed(self, before: TaskPlan, after: TaskPlan) -> None:
        stored = replace(new(before, START_MS - DAY).state, fired=3, ran=2, skipped=1)
        found = restore_task(after, stored, START_MS)
        assert found.source is Source.CHANGED
        assert found.previous_next_ms == stored.next_ms
        assert found.state.fingerprint == after.fingerprint != before.fingerprint
        assert (found.state.fired, found.state.ran, found.state.skipped) == (3, 2, 1)
        again = restore_task(after, found.state, START_MS + 1)
        assert again.source is Source.RESTORED

    def test_the_next_instant_of_a_changed_rule_counts_from_now(self) -> None:
        stored = new(plan(Every("1h")), START_MS - DAY).state
        found = restore_task(plan(Every("5s")), stored, START_MS)
        assert found.state.next_ms == START_MS + 5 * SECOND
        assert found.plan.rule.next_ms(START_MS) == START_MS + 5 * SECOND

    def test_instants_added_after_the_stored_next_one_are_due(self) -> None:
        stored = replace(new(plan(at(-5, -2))).state, next_ms=START_MS - 2 * HOUR)
        found = restore_task(plan(at(-5, -3, -1, 1)), stored, START_MS)
        assert found.state.next_ms == START_MS - HOUR, "from the stored next instant on"

    def test_of_instants_added_to_an_ended_list_only_future_ones_are_due(self) -> None:
        stored = replace(new(plan(at(-5))).state, next_ms=None, fired=1)
        found = restore_task(plan(at(-5, -3, 1)), stored, START_MS)
        assert (found.source, found.state.next_ms) == (Source.CHANGED, START_MS + HOUR)

    def test_a_list_may_be_filled_or_emptied(self) -> None:
        stored = new(plan(At())).state
        assert restore_task(plan(at(1)), stored, START_MS).state.next_ms == START_MS + HOUR
        emptied = restore_task(plan(At()), new(plan(at(1))).state, START_MS)
        assert (emptied.source, emptied.state.next_ms) == (Source.CHANGED, None)

    def test_a_changed_rule_keeps_a_pause_and_a_waiting_run(self) -> None:
        stored = replace(new(plan(Every("1h"))).state, paused_ms=5, queued=Waiting(6))
        state = restore_task(plan(Every("2h")), stored, START_MS).state
        assert (state.paused_ms, state.queued) == (5, Waiting(6))


class TestRepaired:
    @pytest.mark.parametrize(
        ("rule", "next_ms"),
        [
            (Every("1h"), START_MS + HOUR),
            (Cron("30 * * * *"), START_MS + 30 * MINUTE),
            (at(1), START_MS + HOUR),
        ],
        ids=repr,
    )
    def test_an_unreadable_state_is_replaced_by_a_new_one(self, rule: Rule, next_ms: int) -> None:
        found = restore_task(plan(rule), CORRUPT, START_MS)
        assert found.source is Source.REPAIRED
        assert found.problem == str(CORRUPT)
        assert found.state == new(plan(rule)).state
        assert found.state.next_ms == next_ms

    @pytest.mark.parametrize("rule", [Every("1h"), Cron("0 * * * *"), at(-1, 1)], ids=repr)
    def test_a_state_without_its_next_instant_gets_it_back(self, rule: Rule) -> None:
        stored = replace(new(plan(rule), START_MS - DAY).state, next_ms=None, fired=7, ran=3)
        found = restore_task(plan(rule), stored, START_MS)
        assert found.source is Source.REPAIRED
        assert found.problem == "there was no next occurrence, but the schedule has more"
        assert found.state.next_ms == START_MS + HOUR
        assert (found.state.fired, found.state.ran) == (7, 3)

    @pytest.mark.parametrize(("limit", "count"), [("max_runs", "ran"), ("max_fires", "fired")])
    def test_a_task_whose_limit_is_raised_continues(self, limit: str, count: str) -> None:
        stored = replace(new(plan(Every("1h"))).state, next_ms=None, **{count: 3})
        found = restore_task(plan(Every("1h"), **limit_option(limit, 5)), stored, START_MS + DAY)
        assert found.state.next_ms == START_MS + DAY + HOUR
        assert getattr(found.state, count) == 3


class TestPeerStates:
    """States of cloudiful-scheduler, which do not name their schedule."""

    def _stored(self, next_run_at: str | None, count: int = 4) -> TaskState:
        text = "null" if next_run_at is None else f'"{next_run_at}"'
        body = f'{{"job_id":"t","trigger_count":{count},"next_run_at":{text}}}'
        return decode_peer_state(body.encode())

    @pytest.mark.parametrize("rule", [Every("1h"), Cron("0 * * * *"), at(-1, 0.5)], ids=repr)
    def test_the_stored_next_instant_is_kept(self, rule: Rule) -> None:
        found = restore_task(plan(rule), self._stored("2026-10-24T00:30:00Z"), START_MS)
        assert found.source is Source.RESTORED
        assert found.state.next_ms == START_MS + 30 * MINUTE
        assert found.state.fired == 4
        assert found.state.fingerprint == plan(rule).fingerprint, "a later change is noticed"

    def test_the_grid_of_an_interval_passes_through_that_instant(self) -> None:
        found = restore_task(plan(Every("1h")), self._stored("2026-10-24T00:30:00Z"), START_MS)
        assert found.plan.rule.next_ms(START_MS + 30 * MINUTE) == START_MS + 90 * MINUTE
        again = restore_task(plan(Every("1h")), found.state, START_MS + DAY)
        assert again.plan.rule == found.plan.rule

    def test_an_interval_without_a_next_instant_is_repaired(self) -> None:
        found = restore_task(plan(Every("1h")), self._stored(None), START_MS)
        assert (found.source, found.state.next_ms) == (Source.REPAIRED, START_MS + HOUR)
        assert found.state.fired == 4

    def test_a_task_that_reached_its_limit_stays_ended(self) -> None:
        found = restore_task(plan(Every("1h"), max_fires=4), self._stored(None), START_MS)
        assert (found.source, found.state.next_ms) == (Source.RESTORED, None)

    def test_a_list_of_past_instants_stays_ended(self) -> None:
        found = restore_task(plan(at(-3, -2)), self._stored(None, 2), START_MS)
        assert (found.source, found.state.next_ms) == (Source.RESTORED, None)


class TestSetBack:
    """The clock is behind the time at which the state was stored."""

    def _restore_earlier(self, given: TaskPlan, *, by_ms: int) -> RestoredTask:
        stored = new(given).state
        return restore_task(given, stored, START_MS - by_ms)

    def test_an_interval_continues_by_the_new_time_on_its_grid(self) -> None:
        found = self._restore_earlier(plan(Every("1m")), by_ms=5 * MINUTE + 1)
        assert (found.source, found.problem) == (Source.REPAIRED, "the clock was set back")
        assert found.state.next_ms == START_MS - 5 * MINUTE
        assert found.previous_next_ms == START_MS + MINUTE
        assert found.plan.rule == Every("1m", anchor=START)

    def test_a_pause_that_ended_in_the_future_has_no_effect(self) -> None:
        given = plan(Every("1m"), missed=Missed.SKIP)
        stored = replace(new(given).state, resumed_ms=START_MS + 30 * SECOND)
        found = restore_task(given, stored, START_MS - HOUR)
        done = decide_all(found.plan, found.state, START_MS - HOUR + MINUTE + SECOND)
        assert done.runs == [START_MS - HOUR + MINUTE], "one second late is on time"

    def test_a_difference_of_a_minute_changes_nothing(self) -> None:
        for given in (plan(Every("1s")), plan(Cron("* * * * * *"))):
            found = self._restore_earlier(given, by_ms=59 * SECOND)
            assert found.source is Source.RESTORED
            assert found.state.next_ms == START_MS + SECOND

    def test_times_of_day_come_again_only_after_more_than_three_hours(self) -> None:
        elapsed = plan(Cron("0,30 * * * *"))  # a star in the hour: it follows elapsed time
        assert self._restore_earlier(elapsed, by_ms=2 * HOUR).source is Source.REPAIRED
        fixed = plan(Cron("0 0-23 * * *"))
        assert self._restore_earlier(fixed, by_ms=2 * HOUR).source is Source.RESTORED
        wrong = self._restore_earlier(fixed, by_ms=5 * HOUR)
        assert (wrong.source, wrong.state.next_ms) == (Source.REPAIRED, START_MS - 4 * HOUR)

    def test_listed_instants_do_not_come_again(self) -> None:
        given = plan(at(-5, -3, 1))
        stored = replace(new(given).state, next_ms=START_MS + HOUR, fired=2)
        found = restore_task(given, stored, START_MS - DAY)
        assert (found.source, found.state) == (Source.RESTORED, stored)
