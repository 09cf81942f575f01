"""Whole schedulers that share their tasks: each occurrence is run by one of them."""

import asyncio
from typing import Final

import pytest
import redis

from tampu.errors import OptionError
from tampu.scheduler import (
    RunCompleted,
    RunQueued,
    RunStatus,
    SkipReason,
    Source,
    StateDeleted,
    StateLoaded,
    StopReason,
)
from tampu.scheduler.guard import LeaseOptions
from tampu.timing import At, Cron, Missed, Overlap, Rule
from tampu.util.clock import now_ms
from tampu.wire.keys import TaskKeys, shared_task_keys
from tests.schedulers import (
    SHORT,
    TASK,
    WITHIN,
    Deeds,
    Member,
    Team,
    coming,
    grid,
    shared_state,
    stopped,
    task_of,
    unbroken,
)
from tests.waiting import wait_until

LONG: Final[LeaseOptions] = {"lease": "5m"}
KEYS = shared_task_keys(TaskKeys(), TASK)


def skipped(members: list[Member], reason: SkipReason) -> list[int]:
    return sorted(at_ms for member in members for at_ms in member.journal.skipped(reason))


class TestSkew:
    @pytest.mark.parametrize(
        ("rule", "count"), [(grid("100ms"), 15), (Cron("* * * * * *"), 3)], ids=["every", "cron"]
    )
    async def test_each_occurrence_runs_once_and_is_counted_once(
        self, team: Team, rule: Rule, count: int
    ) -> None:
        deeds, began_ms = Deeds(lasts_s=0.005), now_ms()
        members = await team.two(rule, deeds)
        await deeds.until(count)
        await stopped(*members)
        ran = deeds.instants()
        assert unbroken(rule, ran)
        assert ran[0] > began_ms - 1000, "by the server's clock, not by one of theirs"
        assert ran[-1] <= now_ms()
        state = await shared_state(team.url)
        assert (state.fired, state.ran, state.skipped, state.failed) == (len(ran), len(ran), 0, 0)
        assert state.next_ms == rule.next_ms(ran[-1])
        assert not [done for done in deeds.done if done.replayed]

    async def test_all_members_run_some_of_many_tasks(self, team: Team) -> None:
        deeds, rule = Deeds(lasts_s=0.01), grid("50ms")
        members = {name: await team.sharing(name, task_of(name, rule, deeds)) for name in "abc"}
        await wait_until(
            lambda: all(deeds.instants(name) for name in members),
            within=WITHIN,
            sentence="each has run something",
        )
        await stopped(*members.values())
        assert unbroken(rule, deeds.instants())

    async def test_runs_that_fail_are_counted_by_all(self, team: Team) -> None:
        rule = grid("50ms")

        def failing(run: object) -> None:
            raise KeyError("x")

        members = [await team.sharing(name, task_of(name, rule, failing)) for name in "ab"]
        await wait_until(
            lambda: sum(len(member.journal.of(RunCompleted)) for member in members) >= 6,
            within=WITHIN,
            sentence="some have failed",
        )
        await stopped(*members)
        told = [event for member in members for event in member.journal.of(RunCompleted)]
        assert {event.status for event in told} == {RunStatus.FAILED}
        state = await shared_state(team.url)
        assert (state.fired, state.failed) == (len(told), len(told))
        assert state.last_error == "KeyError: 'x'"


class TestEnd:
    async def test_the_limit_of_runs_is_one_for_all(self, team: Team) -> None:
        deeds, rule = Deeds(lasts_s=0.005), grid("50ms")
        members = await team.two(rule, deeds, max_runs=7)
        for member in members:
            report = await member.end()
            assert (report.stopped, report.state.ran) == (StopReason.TERMINAL, 7)
        assert len(deeds.instants()) == 7
        assert unbroken(rule, deeds.instants())

    async def test_a_schedule_that_ends_ends_for_all(self, team: Team) -> None:
        deeds, rule = Deeds(), At(*coming(3))
        members = await team.two(rule, deeds)
        for member in members:
            report = await member.end()
            assert (report.stopped, report.state.fired) == (StopReason.TERMINAL, 3)
        assert deeds.instants() == list(rule.instants_ms)
        state = await shared_state(team.url)
        assert state.next_ms is None

    async def test_the_end_of_the_last_run_elsewhere_is_known_long_before_a_lease_is_over(
        self, team: Team
    ) -> None:
        deeds, rule = Deeds(), At(*coming(1))
        deeds.gate.clear()
        first = await team.sharing("a", task_of("a", rule, deeds), lease=LONG)
        await wait_until(lambda: deeds.inside == 1, within=WITHIN, sentence="it runs")
        second = await team.sharing("b", task_of("b", rule, deeds), lease=LONG)
        deeds.gate.set()
        for member in (first, second):
            assert (await member.end()).stopped is StopReason.TERMINAL
        assert len(deeds.done) == 1

    @pytest.mark.parametrize("limit", [None, 3])
    async def test_one_that_is_deleted_at_its_end_does_not_begin_anew(
        self, team: Team, admin: redis.Redis, limit: int | None
    ) -> None:
        deeds = Deeds()
        rule = At(*coming(3)) if limit is None else grid("50ms")
        members = [
            await team.sharing(
                name, task_of(name, rule, deeds, max_runs=limit), lease=SHORT, keep_ended=False
            )
            for name in "abc"
        ]
        for member in members:
            report = await member.end()
            assert (report.stopped, report.state.fired) == (StopReason.TERMINAL, 3)
            assert len(member.journal.of(StateDeleted)) == 1
        assert len(deeds.done) == 3
        assert unbroken(rule, deeds.instants())

    async def test_a_new_scheduler_may_begin_it_anew_behind_its_deletion(self, team: Team) -> None:
        deeds, rule = Deeds(), grid("50ms")
        for lap in (1, 2):
            task = task_of("a", rule, deeds, max_runs=2)
            member = await team.sharing("a", task, keep_ended=False)
            await member.end()
            assert member.journal.of(StateLoaded)[0].source is Source.NEW
            assert len(deeds.done) == 2 * lap
        assert len(set(deeds.instants())) == 4

    async def test_a_server_that_has_forgotten_all_gets_the_task_again(
        self, team: Team, admin: redis.Redis
    ) -> None:
        deeds = Deeds()
        members = [
            await team.sharing(name, task_of(name, grid("50ms"), deeds), lease=SHORT)
            for name in "ab"
        ]
        await deeds.until(3)
        admin.flushall()
        await deeds.until(len(deeds.done) + 5)
        assert len(set(deeds.instants())) == len(deeds.done)
        assert all(member.handle.report().stopped is None for member in members)


class TestWishes:
    async def test_a_pause_by_one_is_a_pause_of_all(self, team: Team) -> None:
        deeds, rule = Deeds(), grid("50ms")
        ahead, behind = await team.two(rule, deeds)
        await deeds.until(2)
        assert await ahead.handle.pause()
        assert not await behind.handle.pause(), "it is paused already"
        await wait_until(lambda: deeds.inside == 0, within=WITHIN, sentence="nothing runs")
        count = len(deeds.began)
        await asyncio.sleep(0.5)  # ten instants pass: time itself is the subject
        assert len(deeds.began) == count
        assert await behind.handle.resume()
        assert not await ahead.handle.resume()
        await deeds.until(count + 12)
        await stopped(ahead, behind)
        assert unbroken(rule, deeds.instants())

    async def test_a_run_that_was_asked_for_runs_once(self, team: Team) -> None:
        deeds = Deeds()
        members = await team.two(At(*coming(1, in_ms=60_000)), deeds)
        for member in members:
            assert await member.handle.trigger_now()
            await member.until(RunCompleted)  # or the next one would overlap it
        await stopped(*members)
        assert [done.manual for done in deeds.done] == [True, True]
        state = await shared_state(team.url)
        assert (state.fired, state.ran, state.asked) == (0, 2, None)

    async def test_who_asks_while_another_has_asked_gets_one_run(self, team: Team) -> None:
        deeds = Deeds()
        ahead, behind = await team.two(At(*coming(1, in_ms=60_000)), deeds)
        await ahead.handle.pause()
        assert await ahead.handle.trigger_now()
        assert not await behind.handle.trigger_now()
        assert deeds.began == []
        await behind.handle.resume()
        await deeds.until(1)
        await stopped(ahead, behind)
        assert len(deeds.done) == 1


class TestOverlap:
    async def test_one_occurrence_waits_for_the_run_of_another_scheduler(self, team: Team) -> None:
        deeds, rule = Deeds(), At(*coming(4, every_ms=50))
        deeds.gate.clear()
        members = await team.two(
            rule, deeds, overlap=Overlap.QUEUE_ONE, missed=Missed.ONCE.within(grace=0)
        )
        await wait_until(
            lambda: len(skipped(members, SkipReason.QUEUE_FULL)) == 2,
            within=WITHIN,
            sentence="the last two have found the place taken",
        )
        queued = [event.at_ms for member in members for event in member.journal.of(RunQueued)]
        assert (deeds.began, queued) == ([rule.instants_ms[0]], [rule.instants_ms[1]])
        deeds.gate.set()
        for member in members:
            report = await member.end()
            state = report.state
            assert (state.fired, state.ran, state.skipped) == (4, 2, 2)
        assert deeds.instants() == list(rule.instants_ms[:2])
        assert skipped(members, SkipReason.QUEUE_FULL) == list(rule.instants_ms[2:])

    async def test_an_occurrence_is_dropped_while_another_scheduler_runs_one(
        self, team: Team
    ) -> None:
        deeds, rule = Deeds(), At(*coming(3, every_ms=50))
        deeds.gate.clear()
        members = await team.two(rule, deeds, missed=Missed.ONCE.within(grace=0))
        await wait_until(
            lambda: len(skipped(members, SkipReason.OVERLAP)) == 2,
            within=WITHIN,
            sentence="two were dropped",
        )
        deeds.gate.set()
        for member in members:
            await member.end()
        assert deeds.instants() == list(rule.instants_ms[:1])
        assert skipped(members, SkipReason.OVERLAP) == list(rule.instants_ms[1:])

    @pytest.mark.parametrize("overlap", [Overlap.ALLOW, Overlap.CANCEL_RUNNING])
    async def test_what_cannot_be_had_together_is_refused_by_name(
        self, team: Team, overlap: Overlap
    ) -> None:
        task = task_of("a", grid(), Deeds(), overlap=overlap, missed=Missed.ONCE)
        with pytest.raises(OptionError, match="overlap"):
            await team.sharing("a", task)
