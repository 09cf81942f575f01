"""Observers are told of everything, in order, and cannot do any harm. A12, A15."""

import asyncio
import logging
from typing import Any

import pytest

from tampu.scheduler import (
    ClockJumped,
    Event,
    LogObserver,
    RunCompleted,
    RunSkipped,
    RunStarted,
    RunStatus,
    SkipReason,
    Source,
    StateLoaded,
    StateRepaired,
    StopReason,
    TaskRun,
    TaskStopped,
)
from tampu.timing import At, Cron, Every, Missed, Overlap, TimeWindow
from tampu.util.clock import instant
from tests.unit.scheduler.clocks import Function, House, Notes, ended, minutes, task
from tests.unit.scheduler.plans import HOUR, MINUTE, SECOND, START, START_MS, ms, nothing

pytestmark = pytest.mark.usefixtures("nothing_is_left")


class TestOrder:
    async def test_a12_the_life_of_a_task_in_order(self) -> None:
        house = House()
        running = await house.run_beside(task(nothing, max_runs=1))
        await house.turn(MINUTE)
        await ended(running)
        assert house.notes.events == [
            StateLoaded(task_id="t", source=Source.NEW, fired=0, next_ms=START_MS + MINUTE),
            RunStarted(task_id="t", at_ms=START_MS + MINUTE, fired=1),
            RunCompleted(
                task_id="t",
                at_ms=START_MS + MINUTE,
                fired=1,
                status=RunStatus.SUCCESS,
                error=None,
            ),
            TaskStopped(task_id="t", reason=StopReason.TERMINAL, fired=1),
        ]

    async def test_a12_a_failed_run_is_told_with_its_error(self) -> None:
        def fails(run: object) -> None:
            del run
            raise ValueError("no")

        house = House()
        running = await house.run_beside(task(fails, max_runs=1))
        await house.turn(MINUTE)
        await ended(running)
        [done] = house.notes.all_of(RunCompleted)
        assert (done.status, done.error) == (RunStatus.FAILED, "ValueError: no")

    async def test_a12_pause_ask_and_queue_have_events_of_their_own(self) -> None:
        function, house = Function(), House()
        async with house.scheduler as scheduler:
            handle = scheduler.add(task(function, overlap=Overlap.QUEUE_ONE))
            await house.turn(2 * MINUTE)
            await handle.trigger_now()
            await handle.pause()
            await handle.resume()
            handle.cancel()
            function.let_go()
        assert house.notes.kinds == [
            "StateLoaded",
            "RunStarted",
            "RunQueued",
            "RunAsked",
            "TaskPaused",
            "TaskResumed",
            "RunCompleted",
            "TaskStopped",
        ]

    async def test_a15_2_every_occurrence_ends_in_one_event(self) -> None:
        function = Function()
        house = House()
        window = TimeWindow(segments=[("00:00", "00:05"), ("00:07", "00:30")])
        each = task(function, window=window, overlap=Overlap.QUEUE_ONE, max_fires=20)
        running = await house.run_beside(each)
        await house.turn(3 * MINUTE)  # one runs, one waits, one is too many
        function.let_go()
        await house.idle()
        function.let_go()
        await house.turn(3 * MINUTE)  # one runs, two lie outside
        function.let_go()
        await house.leap(9 * MINUTE)  # and eight of nine are missed
        function.let_go()
        handle = house.scheduler.handle("t")
        await handle.pause()
        await house.turn(2 * MINUTE)
        await handle.resume()
        while not running.done():
            function.let_go()
            await house.turn(MINUTE)
        report = await ended(running)
        told = sorted(
            [event.at_ms for event in house.notes.all_of(RunCompleted)]
            + [
                event.at_ms + n * MINUTE
                for event in house.notes.all_of(RunSkipped)
                for n in range(event.count)
            ]
        )
        assert told == [START_MS + n * MINUTE for n in range(1, 21)]
        assert {reason for reason, _, _ in house.notes.skipped} == {
            SkipReason.QUEUE_FULL,
            SkipReason.OUTSIDE_WINDOW,
            SkipReason.MISSED,
            SkipReason.PAUSED,
        }
        state = report.state
        assert (state.fired, state.ran + state.skipped) == (20, 20)

    async def test_a15_2_what_came_too_late_for_the_last_run_is_told(self) -> None:
        house = House()
        each = task(nothing, missed=Missed.all(), overlap=Overlap.ALLOW, max_runs=1)
        running = await house.run_beside(each)
        await house.leap(3 * MINUTE)
        await ended(running)
        assert house.notes.skipped == [(SkipReason.MAX_RUNS, 2 * MINUTE, 2)]
        assert house.notes.all_of(RunSkipped)[0].last_ms == START_MS + 3 * MINUTE


class Raises:
    def __init__(self, kind: type[BaseException]) -> None:
        self.told = 0
        self._kind = kind

    def on_event(self, event: Event) -> None:
        self.told += 1
        raise self._kind(type(event).__name__)


class TestObservers:
    @pytest.mark.parametrize("kind", [RuntimeError, asyncio.CancelledError])
    async def test_one_that_raises_is_logged_once_and_harms_nobody(
        self, caplog: pytest.LogCaptureFixture, kind: type[BaseException]
    ) -> None:
        raises = Raises(kind)
        house = House(observers=[raises])
        running = await house.run_beside(task(nothing, max_runs=3))
        with caplog.at_level(logging.WARNING, "tampu.scheduler"):
            await house.turn(3 * MINUTE)
        report = await ended(running)
        assert report.state.ran == 3
        assert raises.told == len(house.notes.events) == 8, "both are told of everything"
        failures = [r for r in caplog.records if "observer" in r.message]
        assert len(failures) <= 1, "the first time was before, when the state was loaded"

    async def test_each_is_told_in_the_order_given(self) -> None:
        order: list[str] = []

        class Named:
            def __init__(self, name: str) -> None:
                self.name = name

            def on_event(self, event: Event) -> None:
                order.append(f"{self.name} {type(event).__name__}")

        house = House(observers=[Named("a"), Named("b")])
        running = await house.run_beside(task(nothing, At()))
        await ended(running)
        assert order == ["a StateLoaded", "b StateLoaded", "a TaskStopped", "b TaskStopped"]

    async def test_nobody_has_to_listen(self) -> None:
        house = House()
        seen: list[TaskRun[Any]] = []
        silent = House(turned=house.clock)
        silent.scheduler = type(silent.scheduler)(clock=silent.clock)
        running = await silent.run_beside(task(seen.append, max_runs=2))
        await silent.leap(2 * MINUTE)
        await silent.turn(MINUTE)
        report = await ended(running)
        assert (len(seen), report.last_skip_reason) == (2, SkipReason.MISSED)


@pytest.mark.parametrize(
    ("event", "level"),
    [
        (StateLoaded(task_id="t", source=Source.NEW, fired=0, next_ms=1), logging.INFO),
        (TaskStopped(task_id="t", reason=StopReason.TERMINAL, fired=0), logging.INFO),
        (ClockJumped(by_ms=5000), logging.WARNING),
        (RunStarted(task_id="t", at_ms=1), logging.DEBUG),
        (RunSkipped(task_id="t", at_ms=1, last_ms=1, reason=SkipReason.MISSED), logging.DEBUG),
    ],
    ids=lambda given: type(given).__name__,
)
def test_a12_the_log_has_a_level_for_each_kind(
    event: Event, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "tampu.scheduler"):
        LogObserver().on_event(event)
    [record] = caplog.records
    assert (record.levelno, record.message) == (level, type(event).__name__)
    assert "event_task_id" in vars(record) or "event_by_ms" in vars(record)
    caplog.clear()
    with caplog.at_level(logging.ERROR, "tampu.scheduler"):
        LogObserver().on_event(event)
    assert caplog.records == []


class TestClock:
    """The wall clock is set while the scheduler waits."""

    async def test_a_jump_forwards_is_noticed_and_what_it_left_out_is_missed(self) -> None:
        house = House()
        async with house.scheduler as scheduler:
            scheduler.add(task(nothing))
            await house.turn(30 * SECOND)
            house.clock.set(instant(house.clock.now_ms() + HOUR))
            await house.turn(SECOND)
            assert house.notes.all_of(ClockJumped) == [ClockJumped(by_ms=HOUR)]
            assert house.notes.begun == minutes([60]), "within a second, not in half an hour"
            assert house.notes.skipped == [(SkipReason.MISSED, MINUTE, 59)]

    async def test_after_a_small_jump_backwards_nothing_comes_twice(self) -> None:
        house = House()
        async with house.scheduler as scheduler:
            scheduler.add(task(nothing))
            await house.turn(2 * MINUTE)
            house.clock.set(instant(house.clock.now_ms() - 30 * SECOND))
            await house.turn(SECOND)
            assert house.notes.all_of(ClockJumped) == [ClockJumped(by_ms=-30 * SECOND)]
            await house.turn(3 * MINUTE)
        assert house.notes.begun == minutes([1, 2, 3, 4])

    async def test_after_a_jump_backwards_wall_times_that_were_had_do_not_come_again(self) -> None:
        house = House()
        async with house.scheduler as scheduler:
            scheduler.add(task(nothing, Cron("10 0,1,2,3,4 * * *")))
            await house.leap(HOUR + 10 * MINUTE)
            house.clock.set(instant(house.clock.now_ms() - HOUR))
            await house.leap(SECOND)
            await house.leap(2 * HOUR)
        assert house.notes.ended == [HOUR + 10 * MINUTE, 2 * HOUR + 10 * MINUTE]

    async def test_after_a_jump_backwards_an_interval_goes_on_by_the_new_time(self) -> None:
        house = House()
        async with house.scheduler as scheduler:
            scheduler.add(task(nothing))
            await house.leap(HOUR)
            house.clock.set(instant(house.clock.now_ms() - 50 * MINUTE))
            await house.turn(MINUTE + SECOND)
        assert house.notes.begun == minutes([60, 11]), "it is not silent for 50 minutes"
        [repaired] = house.notes.all_of(StateRepaired)
        assert repaired.problem == "the clock was set back"
        assert repaired.previous_next_ms == START_MS + HOUR + MINUTE

    async def test_a_jump_while_a_run_is_active_is_noticed_too(self) -> None:
        function, house = Function(), House()
        async with house.scheduler as scheduler:
            scheduler.add(task(function))
            await house.turn(MINUTE)
            house.clock.set(instant(house.clock.now_ms() - 10 * MINUTE))
            await house.turn(SECOND)
            assert house.notes.all_of(ClockJumped) == [ClockJumped(by_ms=-10 * MINUTE)]
            function.let_go()

    async def test_time_that_just_passes_is_no_jump(self) -> None:
        house = House()
        async with house.scheduler as scheduler:
            scheduler.add(task(nothing, Every("1h")))
            await house.leap(3 * HOUR)
            house.clock.set(instant(house.clock.now_ms() + 999))
            await house.turn(SECOND)
        assert house.notes.all_of(ClockJumped) == []


def test_a_manual_clock_stands_still_until_it_is_turned() -> None:
    house = Notes()
    clock = House().clock
    clock.call_at(START_MS + 10, lambda: house.on_event(ClockJumped(by_ms=1)))
    cancelled = clock.call_at(START_MS + 5, lambda: house.on_event(ClockJumped(by_ms=2)))
    assert clock.next_alarm_ms == START_MS + 5
    cancelled.cancel()
    assert clock.next_alarm_ms == START_MS + 10
    clock.turn(ms(9))
    assert (house.events, clock.now_ms(), clock.steady_ms()) == ([], START_MS + 9, 9)
    clock.set(instant(clock.now_ms() + HOUR))
    assert house.events == []
    clock.turn(ms(1))
    assert house.events == [ClockJumped(by_ms=1)]
    assert [clock.next_alarm_ms, clock.steady_ms()] == [None, 10]
    assert clock.now_ms() == int(START.timestamp() * 1000) + HOUR + 10
