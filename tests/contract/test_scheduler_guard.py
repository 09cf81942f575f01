"""Whole schedulers under one guard: each occurrence runs once, whatever their clocks say."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest
import redis

from tampu.scheduler import (
    LeaseAcquired,
    LeaseLost,
    LeaseRenewFailed,
    MemoryStore,
    RedisGuard,
    RedisStore,
    RunCompleted,
    RunSkipped,
    RunStatus,
    Scope,
    SkipReason,
    StateLoaded,
    StoreDegraded,
    StoreRecovered,
    TaskRun,
    TaskState,
)
from tampu.timing import At, Cron, Missed, Overlap, Rule
from tampu.wire.keys import DEFAULT_GUARD_PREFIX, guard_keys
from tests.proxy import Proxy
from tests.schedulers import (
    SHORT,
    TASK,
    WITHIN,
    Deeds,
    Member,
    Team,
    coming,
    find,
    full,
    grid,
    instants,
    lose,
    stored_state,
    task_of,
    unbroken,
)
from tests.waiting import wait_until

LASTS_MS = 3000
THEIRS = (SkipReason.DONE, SkipReason.CONTENDED)
KEYS = guard_keys(DEFAULT_GUARD_PREFIX, TASK)


def first_ms(member: Member) -> int:
    next_ms = member.journal.of(StateLoaded)[0].next_ms
    assert next_ms is not None
    return next_ms


class TestSkew:
    @pytest.mark.parametrize("skews_s", [(-5, 5), (-5, 0, 5)], ids=["two", "three"])
    @pytest.mark.parametrize("rule", [grid(), Cron("* * * * * *")], ids=["every", "cron"])
    async def test_each_occurrence_runs_once_in_all(
        self, team: Team, rule: Rule, skews_s: tuple[int, ...]
    ) -> None:
        deeds = Deeds(lasts_s=0.005)
        # The one that is behind begins: so the others have all to make up for at once.
        members = [
            await team.guarded(
                str(skew_s), task_of(str(skew_s), rule, deeds), RedisStore(team.url), skew_s=skew_s
            )
            for skew_s in skews_s
        ]
        begin_ms = first_ms(members[0])
        expected = instants(rule, begin_ms, begin_ms + LASTS_MS)

        def is_past(member: Member) -> bool:
            seen = deeds.instants(member.name) + member.journal.skipped(*THEIRS)
            own = instants(rule, first_ms(member), expected[-1])
            return set(own) <= set(seen)

        await wait_until(
            lambda: all(is_past(member) for member in members) and len(deeds.done) > len(expected),
            within=WITHIN,
            sentence="all of them are past the last occurrence",
        )
        ran = deeds.instants()
        assert [at_ms for at_ms in ran if at_ms <= expected[-1]] == expected
        assert len(set(ran)) == len(ran)
        for member in members:
            # What one ran the others were refused, and nobody missed any.
            assert {event.reason for event in member.journal.of(RunSkipped)} <= set(THEIRS)
            refused = member.journal.skipped(*THEIRS)
            assert not set(refused) & set(deeds.instants(member.name))
            assert member.state.skipped == len(refused)

    async def test_one_that_starts_from_an_old_state_runs_nothing_again(self, team: Team) -> None:
        deeds, rule = Deeds(), grid("50ms")
        store = MemoryStore()
        ahead = await team.guarded("ahead", task_of("ahead", rule, deeds), store)
        (old,) = await store.load([TASK])
        assert isinstance(old, TaskState) and old.next_ms is not None
        await deeds.until(10)
        ahead.handle.cancel()
        await ahead.handle.wait()
        ran = deeds.instants()
        await store.save([old])
        behind = await team.guarded("behind", task_of("behind", rule, deeds), store)
        await deeds.until(len(ran) + 3)
        assert behind.journal.skipped(SkipReason.DONE) == [at for at in ran if at >= old.next_ms]
        assert len(set(deeds.instants())) == len(deeds.done)
        assert unbroken(rule, deeds.instants())

    async def test_all_runs_are_had_though_others_run_some_of_them(self, team: Team) -> None:
        deeds = Deeds()
        rule = At(*coming(6))
        members = [
            await team.guarded(name, task_of(name, rule, deeds, max_runs=6), MemoryStore())
            for name in "ab"
        ]
        for member in members:
            report = await member.end()
            assert report.state.fired == 6
            assert report.state.ran == len(deeds.instants(member.name))
        assert deeds.instants() == list(rule.instants_ms)

    async def test_a_run_that_is_refused_does_not_use_up_the_runs_of_a_task(
        self, team: Team
    ) -> None:
        deeds = Deeds()
        rule = At(*coming(3))
        for name in "abc":
            task = task_of(name, rule, deeds, max_runs=1)
            member = await team.guarded(name, task, MemoryStore())
            report = await member.end()
            assert len(deeds.instants(name)) == report.state.ran == 1
        assert deeds.instants() == list(rule.instants_ms)


class TestResource:
    async def test_two_tasks_on_one_resource_never_overlap(self, team: Team) -> None:
        deeds, rule = Deeds(lasts_s=0.02), grid("40ms")
        on_house: Any = {"resource": "house", "scope": Scope.RESOURCE}
        members = [
            await team.guarded(
                name,
                task_of(name, rule, deeds, id=name, **on_house),
                RedisStore(team.url),
                skew_s=skew_s,
            )
            for name, skew_s in (("a", -5), ("b", 5), ("c", 0))
        ]
        await wait_until(
            lambda: (
                all(len(deeds.instants(member.name)) >= 3 for member in members)
                and any(member.journal.skipped(SkipReason.CONTENDED) for member in members)
            ),
            within=WITHIN,
            sentence="each has run, and has been kept from it",
        )
        assert deeds.most_inside == 1
        for member in members:
            ran, refused = deeds.instants(member.name), member.journal.skipped(SkipReason.CONTENDED)
            assert not set(ran) & set(refused)

    async def test_tasks_of_occurrence_scope_run_beside_each_other(self, team: Team) -> None:
        deeds, rule = Deeds(), At(*coming(1))
        deeds.gate.clear()
        for name in "ab":
            await team.guarded(name, task_of(name, rule, deeds, id=name), RedisStore(team.url))
        await wait_until(lambda: deeds.inside == 2, within=WITHIN, sentence="both run")
        deeds.gate.set()
        await deeds.until(2)


class TestLostLease:
    async def test_it_cancels_the_run_and_what_came_of_it_does_not_count(
        self, team: Team, admin: redis.Redis
    ) -> None:
        deeds, rule = Deeds(), At(*coming(1))
        deeds.gate.clear()
        member = await team.guarded(
            "a", task_of("a", rule, deeds), RedisStore(team.url), lease=SHORT
        )
        await wait_until(lambda: deeds.inside == 1, within=WITHIN, sentence="it runs")
        admin.delete(KEYS.held)
        report = await member.end()
        assert (deeds.cancelled, deeds.done) == (1, [])
        assert [record.status for record in report.history] == [RunStatus.LOST]
        assert [event.status for event in member.journal.of(RunCompleted)] == [RunStatus.LOST]
        assert len(member.journal.of(LeaseLost)) == 1
        state = await stored_state(RedisStore(team.url))
        assert state is not None
        assert (state.last_success_ms, state.last_run_ms) == (None, None)

    async def test_a_function_that_goes_on_all_the_same_is_fenced(
        self, team: Team, admin: redis.Redis
    ) -> None:
        began = asyncio.Event()

        async def stubborn(run: TaskRun[str]) -> None:
            del run
            began.set()
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

        member = await team.guarded(
            "a", task_of("a", At(*coming(1)), stubborn), MemoryStore(), lease=SHORT
        )
        await asyncio.wait_for(began.wait(), WITHIN)
        admin.delete(KEYS.held)
        report = await member.end()
        assert [record.status for record in report.history] == [RunStatus.LOST]
        assert report.state.last_success_ms is None

    async def test_a_guard_that_is_away_for_longer_than_the_lease_loses_it(
        self, team: Team, proxy: Proxy
    ) -> None:
        deeds = Deeds()
        deeds.gate.clear()
        guard = RedisGuard(proxy.url, **SHORT)
        task = task_of("a", At(*coming(1)), deeds)
        member = await team.join("a", task, store=MemoryStore(), guard=guard)
        await wait_until(lambda: deeds.inside == 1, within=WITHIN, sentence="it runs")
        lose(proxy)
        report = await member.end()
        assert member.journal.of(LeaseRenewFailed)
        assert [record.status for record in report.history] == [RunStatus.LOST]
        assert deeds.cancelled == 1


class TestTrouble:
    async def test_a_guard_that_is_away_lets_nothing_run_and_comes_back(
        self, team: Team, proxy: Proxy
    ) -> None:
        deeds, rule = Deeds(), grid("100ms")
        guard = RedisGuard(proxy.url, **SHORT)
        store = RedisStore(team.url)
        member = await team.join("a", task_of("a", rule, deeds), store=store, guard=guard)
        await deeds.until(2)
        lose(proxy)
        await wait_until(
            lambda: len(member.journal.skipped(SkipReason.GUARD_AWAY)) >= 2,
            within=WITHIN,
            sentence="occurrences are left out",
        )
        before = len(deeds.done)
        find(proxy)
        await deeds.until(before + 3)
        away = member.journal.skipped(SkipReason.GUARD_AWAY)
        told = sorted(deeds.instants() + away + member.journal.skipped(*THEIRS))
        assert unbroken(rule, told), "each of them has run or is told of"
        assert not member.journal.of(StoreDegraded)

    async def test_a_guard_that_is_away_from_the_start_is_found_later(
        self, team: Team, proxy: Proxy
    ) -> None:
        deeds = Deeds()
        lose(proxy)
        guard = RedisGuard(proxy.url, **SHORT)
        task = task_of("a", grid("100ms"), deeds)
        member = await team.join("a", task, store=MemoryStore(), guard=guard)
        await wait_until(
            lambda: member.journal.skipped(SkipReason.GUARD_AWAY) != [],
            within=10,
            sentence="it is told within the time that a call may take",
        )
        find(proxy)
        await deeds.until(2)

    async def test_at_the_memory_limit_runs_go_on_if_their_states_are_elsewhere(
        self, team: Team, admin: redis.Redis
    ) -> None:
        deeds, rule = Deeds(), grid("100ms")
        members = [
            await team.guarded(name, task_of(name, rule, deeds), MemoryStore()) for name in "ab"
        ]
        with full(admin):
            await deeds.until(5)
        ran = deeds.instants()
        assert unbroken(rule, ran)
        for member in members:
            assert {event.reason for event in member.journal.of(RunSkipped)} <= set(THEIRS)

    async def test_at_the_memory_limit_states_wait_and_nothing_is_lost(
        self, team: Team, admin: redis.Redis
    ) -> None:
        deeds, rule = Deeds(), grid("100ms")
        members = [
            await team.guarded(name, task_of(name, rule, deeds), RedisStore(team.url))
            for name in "ab"
        ]
        with full(admin):
            for member in members:
                await member.until(StoreDegraded)
            count = len(deeds.done)
        await deeds.until(count + 5)
        for member in members:
            await member.until(StoreRecovered)
            assert len(member.journal.of(StoreDegraded)) == 1
        ran = deeds.instants()
        assert unbroken(rule, ran)

    async def test_a_later_occurrence_cancels_a_run_under_its_lease(self, team: Team) -> None:
        deeds, rule = Deeds(), At(*coming(2, every_ms=200))
        deeds.gate.clear()
        task = task_of("a", rule, deeds, overlap=Overlap.CANCEL_RUNNING, missed=Missed.ONCE)
        member = await team.guarded("a", task, RedisStore(team.url))
        await wait_until(lambda: len(deeds.began) == 2, within=WITHIN, sentence="both have begun")
        deeds.gate.set()
        report = await member.end()
        statuses = [record.status for record in report.history]
        assert statuses == [RunStatus.CANCELLED, RunStatus.SUCCESS]
        assert len(member.journal.of(LeaseAcquired)) == 2
