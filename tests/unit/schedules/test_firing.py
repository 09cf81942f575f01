"""What becomes of a schedule that is due, with a clock turned by hand."""

from itertools import count
from typing import Any

import pytest

from tampu import Backoff, Cron, Every, Missed, Overlap, ScheduleSettings, TimeWindow
from tampu.schedules.firing import DueSchedule, FireDecision, decide_fires, make_firing
from tampu.schedules.storing import NewSchedule, StoredSchedule, read_schedule
from tampu.server.scripts.schedules import Armed, Firing
from tampu.util.clock import instant
from tampu.wire.entry import decode_member
from tampu.wire.envelope import decode_envelope
from tampu.wire.extras import decode_extras
from tampu.wire.schedule import EveryPattern, ScheduleSpec, encode_spec, slot_of_payload

DAY_MS = 86_400_000
DUE_MS = 20_000 * DAY_MS  # a midnight
S = 1000


def repeat(rule: Every | Cron | None = None, **options: Any) -> StoredSchedule:  # noqa: ANN401
    """A schedule that is armed for `DUE_MS`."""
    rule = rule or Every(10, anchor=instant(DUE_MS))
    want = NewSchedule("tick", rule, b"\x07", ScheduleSettings(**options))
    written = want.encode(None, DUE_MS - 1)
    assert written.next_ms == DUE_MS
    return read_schedule(written.spec, written.own)


def ruled(schedule: StoredSchedule, late_ms: int, *, held_ms: int | None = None) -> FireDecision:
    return decide_fires(DueSchedule(schedule, DUE_MS, held_ms), DUE_MS + late_ms)


def fired(schedule: StoredSchedule, late_ms: int) -> Firing:
    standing, ids = DueSchedule(schedule, DUE_MS), (f"id-{number}" for number in count())
    return make_firing(standing, Armed(b"k", b"%d" % DUE_MS), DUE_MS + late_ms, ids=ids)


class TestOnTime:
    @pytest.mark.parametrize("missed", [Missed.SKIP, Missed.ONCE, Missed.all()])
    def test_one_instant_fires_under_every_policy(self, missed: Missed) -> None:
        ruling = ruled(repeat(missed=missed), 3)
        assert ruling == FireDecision(fires=[DUE_MS], next_ms=DUE_MS + 10 * S)

    def test_lateness_does_not_shift_the_grid(self) -> None:
        assert ruled(repeat(), 9_999).next_ms == DUE_MS + 10 * S

    def test_a_peers_interval_counts_from_its_next_fire(self) -> None:
        spec = ScheduleSpec(
            key="k", job_name="j", pattern=EveryPattern(700), slot=slot_of_payload(b"\xc0")
        )
        ruling = ruled(read_schedule(encode_spec(spec), None), 1500)
        assert list(ruling.fires) == [DUE_MS, DUE_MS + 700, DUE_MS + 1400]
        assert ruling.next_ms == DUE_MS + 2100


class TestMissed:
    def test_skip_fires_none_and_counts_them(self) -> None:
        ruling = ruled(repeat(missed=Missed.SKIP.within(grace=1)), 300 * 10 * S + 5 * S)
        assert ruling == FireDecision(fires=[], missed=301, next_ms=DUE_MS + 301 * 10 * S)

    def test_once_fires_the_latest(self) -> None:
        ruling = ruled(repeat(missed=Missed.ONCE.within(grace=1)), 35 * S)
        assert ruling == FireDecision(fires=[DUE_MS + 30 * S], missed=3, next_ms=DUE_MS + 40 * S)

    def test_all_fires_up_to_its_number(self) -> None:
        ruling = ruled(repeat(missed=Missed.all(max=3).within(grace=1)), 55 * S)
        assert [(at - DUE_MS) // S for at in ruling.fires] == [30, 40, 50]
        assert ruling.missed == 3

    def test_more_than_a_thousand_go_on_in_the_next_decision(self) -> None:
        schedule = repeat(missed=Missed.all(max=5000))
        ruling = ruled(schedule, 20_000 * S)
        assert len(ruling.fires) == 1000
        assert ruling.next_ms == DUE_MS + 1000 * 10 * S

    def test_large_jobs_go_on_in_the_next_decision_too(self) -> None:
        rule = Every(10, anchor=instant(DUE_MS))
        window = TimeWindow(segments=[("00:00:30", "00:10:00")])
        want = NewSchedule(
            "tick",
            rule,
            b"\xc6" + (2**20).to_bytes(4, "big") + bytes(2**20),
            ScheduleSettings(window=window),
        )
        written = want.encode(None, DUE_MS - 1)
        schedule = read_schedule(written.spec, written.own)
        first = ruled(schedule, 55 * S)
        assert (first.fires, first.outside) == ([], 3)
        assert first.next_ms == DUE_MS + 30 * S
        second = decide_fires(DueSchedule(schedule, DUE_MS + 30 * S), DUE_MS + 75 * S)
        assert [(at - DUE_MS) // S for at in second.fires] == [30, 40, 50]
        assert (second.outside, second.next_ms) == (0, DUE_MS + 60 * S)


class TestBounds:
    def test_the_last_instant_before_the_end_is_the_last(self) -> None:
        schedule = repeat(end=instant(DUE_MS + 15 * S))
        assert ruled(schedule, 1).next_ms == DUE_MS + 10 * S
        late = ruled(schedule, 40 * S)
        assert late == FireDecision(fires=[DUE_MS, DUE_MS + 10 * S], next_ms=None)

    def test_missed_fires_after_the_end_are_not_counted(self) -> None:
        schedule = repeat(missed=Missed.SKIP.within(grace=1), end=instant(DUE_MS + 15 * S))
        assert ruled(schedule, 500 * S) == FireDecision(fires=[], missed=2, next_ms=None)

    def test_once_fires_the_latest_before_the_end(self) -> None:
        schedule = repeat(missed=Missed.ONCE.within(grace=1), end=instant(DUE_MS + 15 * S))
        assert list(ruled(schedule, 500 * S).fires) == [DUE_MS + 10 * S]

    def test_a_schedule_armed_after_its_end_is_over(self) -> None:
        schedule = repeat(end=instant(DUE_MS))
        assert decide_fires(DueSchedule(schedule, DUE_MS + 1), DUE_MS + 2) == FireDecision()


class TestWindow:
    def test_instants_outside_are_counted_and_do_not_fire(self) -> None:
        schedule = repeat(window=TimeWindow(segments=[("00:00:00", "00:00:20")]))
        ruling = ruled(schedule, 45 * S)
        assert list(ruling.fires) == [DUE_MS, DUE_MS + 10 * S]
        assert (ruling.outside, ruling.missed, ruling.next_ms) == (3, 0, DUE_MS + 50 * S)


class TestQueueOne:
    WAITS = repeat(overlap=Overlap.QUEUE_ONE)

    def test_instants_are_taken_one_at_a_time(self) -> None:
        assert ruled(self.WAITS, 25 * S) == FireDecision(fires=(DUE_MS,), next_ms=DUE_MS + 10 * S)

    def test_the_one_that_waited_fires_however_late_and_the_others_are_counted(self) -> None:
        ruling = ruled(self.WAITS, 600 * S, held_ms=DUE_MS)
        assert ruling == FireDecision(fires=(DUE_MS,), overlapped=60, next_ms=DUE_MS + 610 * S)

    def test_a_decision_for_another_instant_does_not_count(self) -> None:
        ruling = ruled(self.WAITS, 600 * S, held_ms=DUE_MS - 10 * S)
        assert ruling.fires[0] == DUE_MS + 540 * S

    def test_those_outside_the_window_before_it_are_counted_at_once(self) -> None:
        window = TimeWindow(segments=[("00:00:20", "00:01:00")])
        ruling = ruled(repeat(overlap=Overlap.QUEUE_ONE, window=window), 45 * S)
        assert ruling == FireDecision(fires=(DUE_MS + 20 * S,), outside=2, next_ms=DUE_MS + 30 * S)


class TestJobs:
    def test_a_job_knows_its_instant_its_schedule_and_its_options(self) -> None:
        schedule = repeat(attempts=3, backoff=Backoff.fixed(1), timeout=9, limit=5)
        firing = fired(schedule, 25 * S)
        assert [new.at_ms for new in firing.fires] == [DUE_MS, DUE_MS + 10 * S, DUE_MS + 20 * S]
        assert [new.job_id for new in firing.fires] == ["id-0", "id-1", "id-2"]
        second = firing.fires[1]
        envelope, extras = decode_envelope(second.body), decode_extras(second.extras)
        assert (envelope.id, envelope.payload, envelope.attempt) == ("id-1", b"\x07", 0)
        assert envelope.created_at_ms == DUE_MS + 25 * S
        assert envelope.retry is not None
        assert envelope.retry.max_attempts == 3
        assert (extras.scheduled_at_ms, extras.timeout_ms) == (DUE_MS + 10 * S, 9 * S)
        assert extras.schedule_key == "tick::every:10000"
        assert (second.name, second.due_ms, firing.limit) == (b"tick", None, 5)

    @pytest.mark.parametrize("late_ms", [0, 5 * S])
    def test_a_job_expires_so_long_after_it_was_fired(self, late_ms: int) -> None:
        (new,) = fired(repeat(expires=60, missed=Missed.ONCE), late_ms).fires
        assert decode_extras(new.extras).deadline_ms == DUE_MS + late_ms + 60 * S

    def test_a_delayed_job_expires_so_long_after_it_is_due(self) -> None:
        (new,) = fired(repeat(jitter=10, expires=60), 0).fires
        assert new.due_ms is not None
        assert decode_extras(decode_member(new.body).extras).deadline_ms == new.due_ms + 60 * S

    def test_jitter_delays_a_job_and_leaves_its_instant(self) -> None:
        (new,) = fired(repeat(jitter=10), 0).fires
        assert new.due_ms is not None
        assert 0 < new.due_ms - DUE_MS < 10 * S
        member = decode_member(new.body)
        assert member.name == "tick"
        assert decode_extras(member.extras).scheduled_at_ms == DUE_MS

    def test_jitter_is_the_same_whoever_fires(self) -> None:
        first, second = (fired(repeat(jitter=10), 0).fires[0] for _ in range(2))
        assert first.due_ms == second.due_ms

    def test_a_job_that_is_late_by_more_than_its_jitter_is_not_delayed(self) -> None:
        (new,) = fired(repeat(jitter=1), 5 * S).fires
        assert new.due_ms is None

    def test_jitter_never_reaches_the_next_instant(self) -> None:
        schedule = repeat(Cron("* * * * * *"), jitter="1h")
        (new,) = fired(schedule, 0).fires
        assert new.due_ms is None or new.due_ms < DUE_MS + S
