"""Whole schedulers with one guard: each occurrence runs once, even if their clocks are wrong."""

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
    SHORT_LEASE,
    TASK,
    WAIT_S,
    Member,
    RunLog,
    Team,
    cut_off_server,
    full_memory,
    grid,
    instants_between,
    is_unbroken,
    make_task,
    read_stored_state,
    reconnect,
    soon,
)
from tests.waiting import wait_until

LASTS_MS = 3000
RUN_BY_OTHERS = (SkipReason.DONE, SkipReason.CONTENDED)
KEYS = guard_keys(DEFAULT_GUARD_PREFIX, TASK)


def first_ms(member: Member) -> int:
    next_ms = member.log.of(StateLoaded)[0].next_ms
    assert next_ms is not None
    return next_ms


class TestWrongClocks:
    @pytest.mark.parametrize("skews_s", [(-5, 5), (-5, 0, 5)], ids=["two", "three"])
    @pytest.mark.parametrize("rule", [grid(), Cron("* * * * * *")], ids=["every", "cron"])
    async def test_each_occurrence_runs_once(
        self, team: Team, rule: Rule, skews_s: tuple[int, ...]
    ) -> None:
        runs = RunLog(lasts_s=0.005)
        # The slowest clock starts first, so the others have missed occurrences at once.
        members = [
            await team.join_guarded(
                str(skew_s), make_task(str(skew_s), rule, runs), RedisStore(team.url), skew_s=skew_s
            )
            for skew_s in skews_s
        ]
        begin_ms = first_ms(members[0])
        expected = instants_between(rule, begin_ms, begin_ms + LASTS_MS)

        def is_past(member: Member) -> bool:
            handled = runs.instants(member.name) + member.log.skipped(*RUN_BY_OTHERS)
            own = instants_between(rule, first_ms(member), expected[-1])
            return set(own) <= set(handled)

        await wait_until(
            lambda: all(is_past(member) for member in members) and len(runs.done) > len(expected),
            within=WAIT_S,
            sentence="all schedulers have handled the last occurrence",
        )
        ran = runs.instants()
        assert [at_ms for at_ms in ran if at_ms <= expected[-1]] == expected
        assert len(set(ran)) == len(ran)
        for member in members:
            # A run of one was refused to the others, and nobody missed any.
            assert {event.reason for event in member.log.of(RunSkipped)} <= set(RUN_BY_OTHERS)
            refused = member.log.skipped(*RUN_BY_OTHERS)
            assert not set(refused) & set(runs.instants(member.name))
            assert member.state.skipped == len(refused)

    async def test_a_scheduler_with_an_old_state_repeats_nothing(self, team: Team) -> None:
        runs, rule = RunLog(), grid("50ms")
        store = MemoryStore()
        ahead = await team.join_guarded("ahead", make_task("ahead", rule, runs), store)
        (old,) = await store.load([TASK])
        assert isinstance(old, TaskState) and old.next_ms is not None
        await runs.wait_for(10)
        ahead.handle.cancel()
        await ahead.handle.wait()
        ran = runs.instants()
        await store.save([old])
        behind = await team.join_guarded("behind", make_task("behind", rule, runs), store)
        await runs.wait_for(len(ran) + 3)
        assert behind.log.skipped(SkipReason.DONE) == [at for at in ran if at >= old.next_ms]
        assert len(set(runs.instants())) == len(runs.done)
        assert is_unbroken(rule, runs.instants())

    async def test_every_occurrence_runs_on_one_of_two_schedulers(self, team: Team) -> None:
        runs = RunLog()
        rule = At(*soon(6))
        members = [
            await team.join_guarded(name, make_task(name, rule, runs, max_runs=6), MemoryStore())
            for name in "ab"
        ]
        for member in members:
            report = await member.finish()
            assert report.state.fired == 6
            assert report.state.ran == len(runs.instants(member.name))
        assert runs.instants() == list(rule.instants_ms)

    async def test_a_refused_run_does_not_count_towards_max_runs(self, team: Team) -> None:
        runs = RunLog()
        rule = At(*soon(3))
        for name in "abc":
            task = make_task(name, rule, runs, max_runs=1)
            member = await team.join_guarded(name, task, MemoryStore())
            report = await member.finish()
            assert len(runs.instants(name)) == report.state.ran == 1
        assert runs.instants() == list(rule.instants_ms)


class TestResource:
    async def test_tasks_with_the_same_resource_never_overlap(self, team: Team) -> None:
        runs, rule = RunLog(lasts_s=0.02), grid("40ms")
        exclusive: Any = {"resource": "printer", "scope": Scope.RESOURCE}
        members = [
            await team.join_guarded(
                name,
                make_task(name, rule, runs, id=name, **exclusive),
                RedisStore(team.url),
                skew_s=skew_s,
            )
            for name, skew_s in (("a", -5), ("b", 5), ("c", 0))
        ]
        await wait_until(
            lambda: (
                all(len(runs.instants(member.name)) >= 3 for member in members)
                and any(member.log.skipped(SkipReason.CONTENDED) for member in members)
            ),
            within=WAIT_S,
            sentence="each has run and was refused",
        )
        assert runs.most_active == 1
        for member in members:
            ran, refused = runs.instants(member.name), member.log.skipped(SkipReason.CONTENDED)
            assert not set(ran) & set(refused)

    async def test_tasks_with_occurrence_scope_may_overlap(self, team: Team) -> None:
        runs, rule = RunLog(), At(*soon(1))
        runs.gate.clear()
        for name in "ab":
            await team.join_guarded(
                name, make_task(name, rule, runs, id=name), RedisStore(team.url)
            )
        await wait_until(lambda: runs.active == 2, within=WAIT_S, sentence="both runs are active")
        runs.gate.set()
        await runs.wait_for(2)


class TestLostLease:
    async def test_a_lost_lease_cancels_the_run_and_its_result_does_not_count(
        self, team: Team, admin: redis.Redis
    ) -> None:
        runs, rule = RunLog(), At(*soon(1))
        runs.gate.clear()
        member = await team.join_guarded(
            "a", make_task("a", rule, runs), RedisStore(team.url), lease=SHORT_LEASE
        )
        await wait_until(lambda: runs.active == 1, within=WAIT_S, sentence="the run has started")
        admin.delete(KEYS.held)
        report = await member.finish()
        assert (runs.cancelled, runs.done) == (1, [])
        assert [record.status for record in report.history] == [RunStatus.LOST]
        assert [event.status for event in member.log.of(RunCompleted)] == [RunStatus.LOST]
        assert len(member.log.of(LeaseLost)) == 1
        state = await read_stored_state(RedisStore(team.url))
        assert state is not None
        assert (state.last_success_ms, state.last_run_ms) == (None, None)

    async def test_the_result_of_a_function_that_ignores_the_cancellation_does_not_count(
        self, team: Team, admin: redis.Redis
    ) -> None:
        started = asyncio.Event()

        async def stubborn(run: TaskRun[str]) -> None:
            del run
            started.set()
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

        member = await team.join_guarded(
            "a", make_task("a", At(*soon(1)), stubborn), MemoryStore(), lease=SHORT_LEASE
        )
        await asyncio.wait_for(started.wait(), WAIT_S)
        admin.delete(KEYS.held)
        report = await member.finish()
        assert [record.status for record in report.history] == [RunStatus.LOST]
        assert report.state.last_success_ms is None

    async def test_an_outage_that_is_longer_than_the_lease_loses_it(
        self, team: Team, proxy: Proxy
    ) -> None:
        runs = RunLog()
        runs.gate.clear()
        guard = RedisGuard(proxy.url, **SHORT_LEASE)
        task = make_task("a", At(*soon(1)), runs)
        member = await team.join("a", task, store=MemoryStore(), guard=guard)
        await wait_until(lambda: runs.active == 1, within=WAIT_S, sentence="the run has started")
        cut_off_server(proxy)
        report = await member.finish()
        assert member.log.of(LeaseRenewFailed)
        assert [record.status for record in report.history] == [RunStatus.LOST]
        assert runs.cancelled == 1


class TestFaults:
    async def test_nothing_runs_while_the_guard_is_unreachable(
        self, team: Team, proxy: Proxy
    ) -> None:
        runs, rule = RunLog(), grid("100ms")
        guard = RedisGuard(proxy.url, **SHORT_LEASE)
        store = RedisStore(team.url)
        member = await team.join("a", make_task("a", rule, runs), store=store, guard=guard)
        await runs.wait_for(2)
        cut_off_server(proxy)
        await wait_until(
            lambda: len(member.log.skipped(SkipReason.GUARD_UNREACHABLE)) >= 2,
            within=WAIT_S,
            sentence="occurrences are skipped",
        )
        before = len(runs.done)
        reconnect(proxy)
        await runs.wait_for(before + 3)
        unreachable = member.log.skipped(SkipReason.GUARD_UNREACHABLE)
        handled = sorted(runs.instants() + unreachable + member.log.skipped(*RUN_BY_OTHERS))
        assert is_unbroken(rule, handled), "each occurrence has run or was reported"
        assert not member.log.of(StoreDegraded)

    async def test_a_guard_may_be_unreachable_at_the_start(self, team: Team, proxy: Proxy) -> None:
        runs = RunLog()
        cut_off_server(proxy)
        guard = RedisGuard(proxy.url, **SHORT_LEASE)
        task = make_task("a", grid("100ms"), runs)
        member = await team.join("a", task, store=MemoryStore(), guard=guard)
        await wait_until(
            lambda: member.log.skipped(SkipReason.GUARD_UNREACHABLE) != [],
            within=60,
            sentence="an occurrence is skipped",
        )
        reconnect(proxy)
        await runs.wait_for(2)

    async def test_at_the_memory_limit_runs_continue_if_their_states_are_elsewhere(
        self, team: Team, admin: redis.Redis
    ) -> None:
        runs, rule = RunLog(), grid("100ms")
        members = [
            await team.join_guarded(name, make_task(name, rule, runs), MemoryStore())
            for name in "ab"
        ]
        with full_memory(admin):
            await runs.wait_for(5)
        ran = runs.instants()
        assert is_unbroken(rule, ran)
        for member in members:
            assert {event.reason for event in member.log.of(RunSkipped)} <= set(RUN_BY_OTHERS)

    async def test_at_the_memory_limit_states_wait_and_nothing_is_lost(
        self, team: Team, admin: redis.Redis
    ) -> None:
        runs, rule = RunLog(), grid("100ms")
        members = [
            await team.join_guarded(name, make_task(name, rule, runs), RedisStore(team.url))
            for name in "ab"
        ]
        with full_memory(admin):
            for member in members:
                await member.wait_for(StoreDegraded)
            count = len(runs.done)
        await runs.wait_for(count + 5)
        for member in members:
            await member.wait_for(StoreRecovered)
            assert len(member.log.of(StoreDegraded)) == 1
        ran = runs.instants()
        assert is_unbroken(rule, ran)

    async def test_a_later_occurrence_cancels_a_run_that_holds_a_lease(self, team: Team) -> None:
        runs = RunLog()
        runs.gate.clear()
        options = {"overlap": Overlap.CANCEL_RUNNING, "missed": Missed.ONCE, "max_runs": 2}
        task = make_task("a", grid("200ms"), runs, **options)
        member = await team.join_guarded("a", task, RedisStore(team.url))
        await wait_until(
            lambda: len(runs.started) == 2, within=WAIT_S, sentence="both runs have started"
        )
        runs.gate.set()
        report = await member.finish()
        statuses = [record.status for record in report.history]
        assert statuses == [RunStatus.CANCELLED, RunStatus.SUCCESS]
        assert len(member.log.of(LeaseAcquired)) == 2
