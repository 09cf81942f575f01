"""Whole schedulers that share their tasks: one of them runs each occurrence."""

import asyncio
from typing import Final

import pytest
import redis

from tampu.errors import OptionError
from tampu.scheduler import (
    RunCompleted,
    RunQueued,
    RunStarted,
    RunStatus,
    ScheduleChanged,
    SkipReason,
    Source,
    StateDeleted,
    StateLoaded,
    StopReason,
)
from tampu.scheduler.redis_guard import LeaseOptions
from tampu.timing import At, Cron, Every, Missed, Overlap, Rule
from tampu.util.clock import now_ms
from tampu.wire.keys import TaskKeys, shared_task_keys
from tests.schedulers import (
    SHORT_LEASE,
    TASK,
    WAIT_S,
    Member,
    RunLog,
    Team,
    grid,
    is_unbroken,
    make_task,
    read_shared_state,
    soon,
    stop_all,
)
from tests.waiting import wait_until

LONG: Final[LeaseOptions] = {"lease": "5m"}
KEYS = shared_task_keys(TaskKeys(), TASK)


def skipped_instants(members: list[Member], reason: SkipReason) -> list[int]:
    return sorted(at_ms for member in members for at_ms in member.log.skipped(reason))


class TestWrongClocks:
    @pytest.mark.parametrize(
        ("rule", "count"), [(grid("100ms"), 15), (Cron("* * * * * *"), 3)], ids=["every", "cron"]
    )
    async def test_each_occurrence_runs_once_and_is_counted_once(
        self, team: Team, rule: Rule, count: int
    ) -> None:
        runs, began_ms = RunLog(lasts_s=0.005), now_ms()
        members = await team.join_two(rule, runs)
        await runs.wait_for(count)
        await stop_all(*members)
        ran = runs.instants()
        assert is_unbroken(rule, ran)
        assert ran[0] > began_ms - 1000, "by the server's clock, and not by one of theirs"
        assert ran[-1] <= now_ms()
        state = await read_shared_state(team.url)
        assert (state.fired, state.ran, state.skipped, state.failed) == (len(ran), len(ran), 0, 0)
        assert state.next_ms == rule.next_ms(ran[-1])
        assert not [done for done in runs.done if done.replayed]

    async def test_every_scheduler_runs_some_occurrences(self, team: Team) -> None:
        runs, rule = RunLog(lasts_s=0.01), grid("50ms")
        members = {
            name: await team.join_shared(name, make_task(name, rule, runs)) for name in "abc"
        }
        await wait_until(
            lambda: all(runs.instants(name) for name in members),
            within=WAIT_S,
            sentence="each scheduler has run something",
        )
        await stop_all(*members.values())
        assert is_unbroken(rule, runs.instants())

    async def test_failed_runs_are_counted_in_the_shared_state(self, team: Team) -> None:
        rule = grid("50ms")

        def fail(run: object) -> None:
            del run
            raise KeyError("x")

        members = [await team.join_shared(name, make_task(name, rule, fail)) for name in "ab"]
        await wait_until(
            lambda: sum(len(member.log.of(RunCompleted)) for member in members) >= 6,
            within=WAIT_S,
            sentence="some runs have failed",
        )
        await stop_all(*members)
        events = [event for member in members for event in member.log.of(RunCompleted)]
        assert {event.status for event in events} == {RunStatus.FAILED}
        state = await read_shared_state(team.url)
        assert (state.fired, state.failed) == (len(events), len(events))
        assert state.last_error == "KeyError: 'x'"


class TestEnd:
    async def test_max_runs_counts_the_runs_of_all_schedulers(self, team: Team) -> None:
        runs, rule = RunLog(lasts_s=0.005), grid("50ms")
        members = await team.join_two(rule, runs, max_runs=7)
        for member in members:
            report = await member.finish()
            assert (report.stopped, report.state.ran) == (StopReason.TERMINAL, 7)
        assert len(runs.instants()) == 7
        assert is_unbroken(rule, runs.instants())

    async def test_a_task_that_ends_ends_in_all_schedulers(self, team: Team) -> None:
        runs, rule = RunLog(), At(*soon(3))
        members = await team.join_two(rule, runs)
        for member in members:
            report = await member.finish()
            assert (report.stopped, report.state.fired) == (StopReason.TERMINAL, 3)
        assert runs.instants() == list(rule.instants_ms)
        state = await read_shared_state(team.url)
        assert state.next_ms is None

    async def test_the_end_of_the_last_run_elsewhere_is_noticed_before_the_lease_expires(
        self, team: Team
    ) -> None:
        runs, rule = RunLog(), At(*soon(1))
        runs.gate.clear()
        first = await team.join_shared("a", make_task("a", rule, runs), lease=LONG)
        await wait_until(lambda: runs.active == 1, within=WAIT_S, sentence="the run has started")
        second = await team.join_shared("b", make_task("b", rule, runs), lease=LONG)
        runs.gate.set()
        for member in (first, second):
            assert (await member.finish()).stopped is StopReason.TERMINAL
        assert len(runs.done) == 1

    @pytest.mark.parametrize("limit", [None, 3])
    async def test_a_task_that_is_deleted_at_its_end_does_not_start_again(
        self, team: Team, admin: redis.Redis, limit: int | None
    ) -> None:
        runs = RunLog()
        rule = At(*soon(3)) if limit is None else grid("50ms")
        members = [
            await team.join_shared(
                name,
                make_task(name, rule, runs, max_fires=limit),
                lease=SHORT_LEASE,
                keep_ended=False,
            )
            for name in "abc"
        ]
        for member in members:
            report = await member.finish()
            assert (report.stopped, report.state.ran) == (StopReason.TERMINAL, 3)
            assert len(member.log.of(StateDeleted)) == 1
        assert len(runs.done) == 3
        assert is_unbroken(rule, runs.instants())

    async def test_a_new_scheduler_may_start_a_deleted_task_again(self, team: Team) -> None:
        runs, rule = RunLog(), grid("50ms")
        for lap in (1, 2):
            task = make_task("a", rule, runs, max_runs=2)
            member = await team.join_shared("a", task, keep_ended=False)
            await member.finish()
            assert member.log.of(StateLoaded)[0].source is Source.NEW
            assert len(runs.done) == 2 * lap
        assert len(set(runs.instants())) == 4

    async def test_a_server_that_lost_its_data_gets_the_task_again(
        self, team: Team, admin: redis.Redis
    ) -> None:
        runs = RunLog()
        members = [
            await team.join_shared(name, make_task(name, grid("50ms"), runs), lease=SHORT_LEASE)
            for name in "ab"
        ]
        await runs.wait_for(3)
        admin.flushall()
        await runs.wait_for(len(runs.done) + 5)
        assert len(set(runs.instants())) == len(runs.done)
        assert all(member.handle.report().stopped is None for member in members)


class TestRequests:
    async def test_a_pause_applies_to_all_schedulers(self, team: Team) -> None:
        runs, rule = RunLog(), grid("50ms")
        ahead, behind = await team.join_two(rule, runs)
        await runs.wait_for(2)
        assert await ahead.handle.pause()
        assert not await behind.handle.pause(), "it is already paused"
        await wait_until(lambda: runs.active == 0, within=WAIT_S, sentence="no run is active")
        count = len(runs.started)
        await asyncio.sleep(0.5)  # ten instants pass, and nothing may happen
        assert len(runs.started) == count
        assert await behind.handle.resume()
        assert not await ahead.handle.resume()
        await runs.wait_for(count + 12)
        await stop_all(ahead, behind)
        assert is_unbroken(rule, runs.instants())

    async def test_a_triggered_run_runs_once(self, team: Team) -> None:
        runs = RunLog()
        members = await team.join_two(At(*soon(1, in_ms=60_000)), runs)
        for member in members:
            assert await member.handle.trigger_now()
            await member.wait_for(RunCompleted)  # or the next run would overlap it
        await stop_all(*members)
        assert [done.manual for done in runs.done] == [True, True]
        state = await read_shared_state(team.url)
        assert (state.fired, state.ran, state.asked) == (0, 2, None)

    async def test_two_requests_at_once_give_one_run(self, team: Team) -> None:
        runs = RunLog()
        ahead, behind = await team.join_two(At(*soon(1, in_ms=60_000)), runs)
        await ahead.handle.pause()
        assert await ahead.handle.trigger_now()
        assert not await behind.handle.trigger_now()
        assert runs.started == []
        await behind.handle.resume()
        await runs.wait_for(1)
        await stop_all(ahead, behind)
        assert len(runs.done) == 1


class TestOverlap:
    async def test_queue_one_waits_for_the_run_of_another_scheduler(self, team: Team) -> None:
        runs = RunLog()
        runs.gate.clear()
        options = {"overlap": Overlap.QUEUE_ONE, "missed": Missed.ONCE.within(grace=0)}
        members = await team.join_two(grid("50ms"), runs, **options)
        await wait_until(
            lambda: len(skipped_instants(members, SkipReason.QUEUE_FULL)) >= 2,
            within=WAIT_S,
            sentence="two occurrences were skipped",
        )
        queued = [event.at_ms for member in members for event in member.log.of(RunQueued)]
        assert (len(runs.started), len(queued)) == (1, 1)
        first_ms = runs.started[0]
        runs.gate.set()
        await runs.wait_for(2)
        await stop_all(*members)
        assert runs.instants()[:2] == [first_ms, queued[0]]
        assert not set(runs.instants()) & set(skipped_instants(members, SkipReason.QUEUE_FULL))

    async def test_skip_drops_an_occurrence_while_another_scheduler_runs_one(
        self, team: Team
    ) -> None:
        runs = RunLog()
        runs.gate.clear()
        members = await team.join_two(grid("50ms"), runs, missed=Missed.ONCE.within(grace=0))
        await wait_until(
            lambda: len(skipped_instants(members, SkipReason.OVERLAP)) >= 2,
            within=WAIT_S,
            sentence="two occurrences were skipped",
        )
        assert len(runs.started) == 1
        runs.gate.set()
        await runs.wait_for(1)
        await stop_all(*members)
        assert not set(runs.instants()) & set(skipped_instants(members, SkipReason.OVERLAP))

    @pytest.mark.parametrize("overlap", [Overlap.ALLOW, Overlap.CANCEL_RUNNING])
    async def test_an_overlap_that_is_not_supported_is_refused_by_name(
        self, team: Team, overlap: Overlap
    ) -> None:
        task = make_task("a", grid(), RunLog(), overlap=overlap, missed=Missed.ONCE)
        with pytest.raises(OptionError, match="overlap"):
            await team.join_shared("a", task)


class TestTwoRules:
    async def test_the_rule_of_the_scheduler_that_started_later_is_used(self, team: Team) -> None:
        # Both are longer than a lease: a task that is started again at each look never runs.
        runs = RunLog()
        old = await team.join_shared("old", make_task("old", Every("1s"), runs), lease=SHORT_LEASE)
        new = await team.join_shared(
            "new", make_task("new", Every("900ms"), runs), lease=SHORT_LEASE
        )
        await new.wait_for(RunStarted, 2)
        await stop_all(old, new)
        assert [event.task_id for event in new.log.of(ScheduleChanged)] == ["t"]
        assert old.log.of(ScheduleChanged) == []
        assert {done.owner for done in runs.done} == {"new"}

    async def test_the_older_rule_is_used_again_when_the_newer_scheduler_has_stopped(
        self, team: Team
    ) -> None:
        runs = RunLog()
        old = await team.join_shared(
            "old", make_task("old", Every("200ms"), runs), lease=SHORT_LEASE
        )
        new = await team.join_shared(
            "new", make_task("new", Every("100ms"), runs), lease=SHORT_LEASE
        )
        await new.wait_for(RunStarted)
        await stop_all(new)
        await old.wait_for(RunStarted)
        await stop_all(old)
        assert len(old.log.of(ScheduleChanged)) == 1
