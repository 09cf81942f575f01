"""How a task stands when it is added: new, restored, changed or repaired."""

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
from tests.unit.scheduler.plans import DAY, HOUR, MINUTE, SECOND, START, START_MS, limited, turn
from tests.unit.scheduler.plans import plan_of_task as plan

CORRUPT = DecodeError("task state", "it is not JSON")


def at(*hours: float) -> At:
    return At(*(START + timedelta(hours=n) for n in hours))


def new(given: TaskPlan, now_ms: int = START_MS) -> RestoredTask:
    return restore_task(given, None, now_ms)


class TestNew:
    def test_an_interval_begins_now_and_fires_first_when_it_has_passed(self) -> None:
        found = new(plan(Every("5s")), START_MS + 123)
        assert found.source is Source.NEW
        assert found.state.next_ms == START_MS + 5123
        assert found.state.anchor_ms == START_MS + 123
        assert found.plan.rule == Every("5s", anchor=instant(START_MS + 123))

    def test_an_interval_with_an_anchor_keeps_to_that_grid(self) -> None:
        anchor = START - timedelta(days=1000)
        found = new(plan(Every("1h", anchor=anchor)), START_MS + MINUTE)
        assert found.state.next_ms == START_MS + HOUR

    def test_a_staggered_interval_has_a_phase_by_its_id_whenever_it_begins(self) -> None:
        firsts = {
            new(plan(Every("1h"), stagger=True), START_MS + n).state.next_ms for n in (0, 1, 999)
        }
        assert len(firsts) == 1
        by_text = new(plan(Every("1h"), stagger="t")).state.next_ms
        assert firsts == {by_text}, "the id is the seed unless one is given"
        assert new(plan(Every("1h"), stagger="other")).state.next_ms != by_text

    def test_cron_fires_at_its_next_match_in_the_schedulers_zone_or_its_own(self) -> None:
        nine = Cron("0 9 * * *")
        assert new(plan(nine)).state.next_ms == START_MS + 9 * HOUR
        assert new(plan(nine, tz="Asia/Tokyo")).state.next_ms == START_MS + DAY
        own = Cron("0 9 * * *", tz="UTC")
        assert new(plan(own, tz="Asia/Tokyo")).state.next_ms == START_MS + 9 * HOUR

    def test_an_aligned_interval_fires_first_at_the_opening(self) -> None:
        window = TimeWindow(segments=[("09:00", "17:00")])
        found = new(plan(Every("1h"), window=window, align=True), START_MS + MINUTE)
        assert found.state.next_ms == START_MS + 9 * HOUR
        anchored = found.plan.rule.next_ms(START_MS + 9 * HOUR)
        assert anchored == START_MS + 9 * HOUR + MINUTE, "the grid begins when the task was added"

    def test_instants_that_are_past_are_missed_and_not_forgotten(self) -> None:
        assert new(plan(at(-2, -1, 1))).state.next_ms == START_MS - 2 * HOUR
        assert new(plan(at(1, 2))).state.next_ms == START_MS + HOUR
        assert new(plan(at(0))).state.next_ms == START_MS

    def test_no_instants_at_all_are_nothing_to_come(self) -> None:
        found = new(plan(At()))
        assert (found.source, found.state.next_ms) == (Source.NEW, None)

    @pytest.mark.parametrize("limit", ["max_runs", "max_fires"])
    def test_a_limit_of_none_leaves_nothing_to_come(self, limit: str) -> None:
        assert new(plan(Every("5s"), **limited(limit, 0))).state.next_ms is None

    def test_nothing_has_been_counted_yet(self) -> None:
        state = new(plan(Every("5s"))).state
        assert state.task_id == "t"
        assert (state.fired, state.ran, state.skipped, state.failed) == (0, 0, 0, 0)
        assert (state.last_run_at, state.last_success_at, state.last_error) == (None, None, None)


RULES = [Every("1h"), Cron("0 * * * *"), at(1, 2, 3, 30), Every("1h", anchor=START)]


class TestRestored:
    @pytest.mark.parametrize("rule", RULES, ids=repr)
    def test_it_goes_on_from_what_was_stored(self, rule: Rule) -> None:
        given = plan(rule)
        stored = replace(
            new(given).state, fired=7, ran=5, skipped=2, failed=1, last_error="E: x", next_ms=5
        )
        found = restore_task(given, stored, START_MS + 10 * HOUR)
        assert found.source is Source.RESTORED
        assert found.state == stored
        assert (found.problem, found.previous_next_ms) == ("", None)

    def test_the_grid_of_an_interval_is_where_it_was(self) -> None:
        given = plan(Every("1h"))
        stored = new(given, START_MS + 7).state
        found = restore_task(given, stored, START_MS + DAY)
        assert found.plan.rule.next_ms(START_MS + DAY) == START_MS + DAY + 7

    def test_what_waits_and_what_is_paused_is_kept(self) -> None:
        given = plan(Every("1h"))
        stored = replace(
            new(given).state,
            queued=Waiting(1),
            asked=Waiting(2, manual=True),
            paused_ms=3,
            stands_in_ms=4,
        )
        assert restore_task(given, stored, START_MS).state == stored

    def test_a_schedule_that_has_ended_stays_so(self) -> None:
        given = plan(at(-2, -1))
        stored = replace(new(given).state, next_ms=None, fired=2, ran=1, skipped=1)
        found = restore_task(given, stored, START_MS)
        assert (found.source, found.state) == (Source.RESTORED, stored)

    @pytest.mark.parametrize("rule", RULES[:2], ids=repr)
    @pytest.mark.parametrize(("limit", "count"), [("max_runs", "ran"), ("max_fires", "fired")])
    def test_one_that_has_had_all_it_may_have_stays_ended(
        self, rule: Rule, limit: str, count: str
    ) -> None:
        given = plan(rule, **limited(limit, 3))
        stored = replace(new(given).state, next_ms=None, **{count: 3})
        found = restore_task(given, stored, START_MS)
        assert (found.source, found.state.next_ms) == (Source.RESTORED, None)

    def test_a_limit_that_was_lowered_ends_it(self) -> None:
        stored = replace(new(plan(Every("1h"))).state, ran=3, fired=5)
        assert restore_task(plan(Every("1h"), max_runs=3), stored, START_MS).state.next_ms is None
        assert restore_task(plan(Every("1h"), max_fires=5), stored, START_MS).state.next_ms is None
        kept = restore_task(plan(Every("1h"), max_runs=4, max_fires=6), stored, START_MS)
        assert kept.state.next_ms == stored.next_ms

    def test_a_window_or_a_policy_that_was_changed_does_not_change_the_schedule(self) -> None:
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
    def test_another_schedule_is_noticed(self, before: TaskPlan, after: TaskPlan) -> None:
        stored = replace(new(before, START_MS - DAY).state, fired=3, ran=2, skipped=1)
        found = restore_task(after, stored, START_MS)
        assert found.source is Source.CHANGED
        assert found.previous_next_ms == stored.next_ms
        assert found.state.fingerprint == after.fingerprint != before.fingerprint
        assert (found.state.fired, found.state.ran, found.state.skipped) == (3, 2, 1)
        again = restore_task(after, found.state, START_MS + 1)
        assert again.source is Source.RESTORED

    def test_the_next_instant_is_counted_from_now(self) -> None:
        stored = new(plan(Every("1h")), START_MS - DAY).state
        found = restore_task(plan(Every("5s")), stored, START_MS)
        assert found.state.next_ms == START_MS + 5 * SECOND
        assert found.plan.rule.next_ms(START_MS) == START_MS + 5 * SECOND

    def test_instants_that_were_added_and_seen_by_nobody_are_missed(self) -> None:
        stored = replace(new(plan(at(-5, -2))).state, next_ms=START_MS - 2 * HOUR)
        found = restore_task(plan(at(-5, -3, -1, 1)), stored, START_MS)
        assert found.state.next_ms == START_MS - HOUR, "from the one that was to come"

    def test_instants_that_follow_a_list_that_had_ended_are_those_to_come(self) -> None:
        stored = replace(new(plan(at(-5))).state, next_ms=None, fired=1)
        found = restore_task(plan(at(-5, -3, 1)), stored, START_MS)
        assert (found.source, found.state.next_ms) == (Source.CHANGED, START_MS + HOUR)

    def test_instants_in_place_of_none_at_all(self) -> None:
        stored = new(plan(At())).state
        assert restore_task(plan(at(1)), stored, START_MS).state.next_ms == START_MS + HOUR
        gone = restore_task(plan(At()), new(plan(at(1))).state, START_MS)
        assert (gone.source, gone.state.next_ms) == (Source.CHANGED, None)

    def test_what_was_paused_stays_so_and_what_waited_waits(self) -> None:
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
    def test_what_cannot_be_read_begins_anew(self, rule: Rule, next_ms: int) -> None:
        found = restore_task(plan(rule), CORRUPT, START_MS)
        assert found.source is Source.REPAIRED
        assert found.problem == str(CORRUPT)
        assert found.state == new(plan(rule)).state
        assert found.state.next_ms == next_ms

    @pytest.mark.parametrize("rule", [Every("1h"), Cron("0 * * * *"), at(-1, 1)], ids=repr)
    def test_one_that_lost_what_is_to_come_gets_it_back(self, rule: Rule) -> None:
        stored = replace(new(plan(rule), START_MS - DAY).state, next_ms=None, fired=7, ran=3)
        found = restore_task(plan(rule), stored, START_MS)
        assert found.source is Source.REPAIRED
        assert "nothing was to come" in found.problem
        assert found.state.next_ms == START_MS + HOUR
        assert (found.state.fired, found.state.ran) == (7, 3)

    @pytest.mark.parametrize(("limit", "count"), [("max_runs", "ran"), ("max_fires", "fired")])
    def test_one_whose_limit_was_raised_after_its_end_goes_on(self, limit: str, count: str) -> None:
        stored = replace(new(plan(Every("1h"))).state, next_ms=None, **{count: 3})
        found = restore_task(plan(Every("1h"), **limited(limit, 5)), stored, START_MS + DAY)
        assert found.state.next_ms == START_MS + DAY + HOUR
        assert getattr(found.state, count) == 3


class TestLegacy:
    """States that say nothing of their schedule: those of cloudiful-scheduler."""

    def _stored(self, next_run_at: str | None, count: int = 4) -> TaskState:
        spelled = "null" if next_run_at is None else f'"{next_run_at}"'
        body = f'{{"job_id":"t","trigger_count":{count},"next_run_at":{spelled}}}'
        return decode_peer_state(body.encode())

    @pytest.mark.parametrize("rule", [Every("1h"), Cron("0 * * * *"), at(-1, 0.5)], ids=repr)
    def test_it_goes_on_at_the_instant_that_was_stored(self, rule: Rule) -> None:
        found = restore_task(plan(rule), self._stored("2026-10-24T00:30:00Z"), START_MS)
        assert found.source is Source.RESTORED
        assert found.state.next_ms == START_MS + 30 * MINUTE
        assert found.state.fired == 4
        assert found.state.fingerprint == plan(rule).fingerprint, "a later change is noticed"

    def test_the_grid_of_an_interval_goes_through_that_instant(self) -> None:
        found = restore_task(plan(Every("1h")), self._stored("2026-10-24T00:30:00Z"), START_MS)
        assert found.plan.rule.next_ms(START_MS + 30 * MINUTE) == START_MS + 90 * MINUTE
        again = restore_task(plan(Every("1h")), found.state, START_MS + DAY)
        assert again.plan.rule == found.plan.rule

    def test_an_interval_without_one_is_repaired(self) -> None:
        found = restore_task(plan(Every("1h")), self._stored(None), START_MS)
        assert (found.source, found.state.next_ms) == (Source.REPAIRED, START_MS + HOUR)
        assert found.state.fired == 4

    def test_one_that_had_ended_by_its_limit_stays_so(self) -> None:
        found = restore_task(plan(Every("1h"), max_fires=4), self._stored(None), START_MS)
        assert (found.source, found.state.next_ms) == (Source.RESTORED, None)

    def test_instants_that_are_all_past_are_not_missed_once_more(self) -> None:
        found = restore_task(plan(at(-3, -2)), self._stored(None, 2), START_MS)
        assert (found.source, found.state.next_ms) == (Source.RESTORED, None)


class TestSetBack:
    """The clock shows less than it did when the state was stored."""

    def _found(self, given: TaskPlan, *, by_ms: int) -> RestoredTask:
        stored = new(given).state
        return restore_task(given, stored, START_MS - by_ms)

    def test_an_interval_goes_on_by_the_new_time_on_its_grid(self) -> None:
        found = self._found(plan(Every("1m")), by_ms=5 * MINUTE + 1)
        assert (found.source, found.problem) == (Source.REPAIRED, "the clock was set back")
        assert found.state.next_ms == START_MS - 5 * MINUTE
        assert found.previous_next_ms == START_MS + MINUTE
        assert found.plan.rule == Every("1m", anchor=START)

    def test_a_pause_that_lies_ahead_now_is_over(self) -> None:
        given = plan(Every("1m"), missed=Missed.SKIP)
        stored = replace(new(given).state, resumed_ms=START_MS + 30 * SECOND)
        found = restore_task(given, stored, START_MS - HOUR)
        done = turn(found.plan, found.state, START_MS - HOUR + MINUTE + SECOND)
        assert done.runs == [START_MS - HOUR + MINUTE], "a second late is on time"

    def test_a_minute_may_be_between_two_machines(self) -> None:
        for given in (plan(Every("1s")), plan(Cron("* * * * * *"))):
            found = self._found(given, by_ms=59 * SECOND)
            assert found.source is Source.RESTORED
            assert found.state.next_ms == START_MS + SECOND

    def test_wall_times_were_had_unless_the_clock_was_wrong_by_hours(self) -> None:
        nine = plan(Cron("0,30 * * * *"))  # star in the hour: by the time that passes
        assert self._found(nine, by_ms=2 * HOUR).source is Source.REPAIRED
        fixed = plan(Cron("0 0-23 * * *"))
        assert self._found(fixed, by_ms=2 * HOUR).source is Source.RESTORED
        wrong = self._found(fixed, by_ms=5 * HOUR)
        assert (wrong.source, wrong.state.next_ms) == (Source.REPAIRED, START_MS - 4 * HOUR)

    def test_instants_that_were_had_do_not_come_again(self) -> None:
        given = plan(at(-5, -3, 1))
        stored = replace(new(given).state, next_ms=START_MS + HOUR, fired=2)
        found = restore_task(given, stored, START_MS - DAY)
        assert (found.source, found.state) == (Source.RESTORED, stored)
