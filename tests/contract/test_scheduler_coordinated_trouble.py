"""Whole schedulers that share their tasks, in trouble: nothing is lost, and none counts twice."""

import asyncio

import pytest
import redis

from tampu.errors import AccessDenied
from tampu.scheduler import (
    CoordinatedStore,
    RedisStore,
    RunCompleted,
    RunSkipped,
    RunStatus,
    Source,
    StateLoaded,
    StopReason,
    StoreDegraded,
    StoreRecovered,
    TaskRun,
    TaskStopped,
)
from tampu.timing import At
from tests.proxy import Proxy
from tests.schedulers import (
    SHORT,
    WITHIN,
    Deeds,
    Team,
    coming,
    denying,
    find,
    full,
    grid,
    lose,
    shared_state,
    stopped,
    task_of,
    unbroken,
)
from tests.waiting import wait_until


class TestTakingOver:
    async def test_what_a_plain_store_left_is_gone_on_from(self, team: Team) -> None:
        deeds, rule = Deeds(), grid("50ms")
        alone = await team.join("alone", task_of("alone", rule, deeds), store=RedisStore(team.url))
        await deeds.until(3)
        await stopped(alone)
        count = len(deeds.done)
        members = await team.two(rule, deeds)
        for member in members:
            loaded = member.journal.of(StateLoaded)[0]
            assert loaded.source is Source.RESTORED
            assert loaded.fired >= count
        await deeds.until(count + 3)
        await stopped(*members)
        assert unbroken(rule, deeds.instants())
        assert not [done for done in deeds.done if done.replayed]
        state = await shared_state(team.url)
        assert state.fired == state.ran == len(deeds.done)

    async def test_a_run_whose_owner_has_lost_the_server_is_run_again_and_counts_once(
        self, team: Team, proxy: Proxy
    ) -> None:
        deeds, rule = Deeds(), At(*coming(1))
        deeds.gate.clear()
        cut_off = await team.sharing("cut", task_of("cut", rule, deeds), lease=SHORT, url=proxy.url)
        await wait_until(lambda: deeds.inside == 1, within=WITHIN, sentence="it runs")
        lose(proxy)
        heir = await team.sharing("heir", task_of("heir", rule, deeds), lease=SHORT)
        await wait_until(lambda: deeds.cancelled == 1, within=WITHIN, sentence="it is cancelled")
        deeds.gate.set()
        report = await heir.end()
        assert [(done.who, done.replayed) for done in deeds.done] == [("heir", True)]
        assert (report.state.fired, report.state.ran) == (1, 1)
        find(proxy)
        report = await cut_off.end()
        assert [record.status for record in report.history] == [RunStatus.LOST]
        assert report.state.ran == 1

    async def test_a_run_that_was_lost_is_waited_for_while_the_others_go_on(
        self, team: Team, proxy: Proxy
    ) -> None:
        deeds, rule = Deeds(), At(*coming(3))
        began, cleaned = asyncio.Event(), asyncio.Event()

        async def slow_to_end(run: TaskRun[str]) -> None:
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                await cleaned.wait()

        task = task_of("cut", rule, slow_to_end)
        cut_off = await team.sharing("cut", task, lease=SHORT, url=proxy.url)
        await asyncio.wait_for(began.wait(), WITHIN)
        lose(proxy)
        heir = await team.sharing("heir", task_of("heir", rule, deeds), lease=SHORT)
        report = await heir.end()
        assert deeds.instants() == list(rule.instants_ms)
        find(proxy)
        await wait_until(
            lambda: cut_off.state == report.state,
            within=WITHIN,
            sentence="the one that was cut off has learned that it is over",
        )
        assert cut_off.handle.report().stopped is None
        cleaned.set()
        report = await cut_off.end()
        assert [record.status for record in report.history] == [RunStatus.LOST]
        kinds = [type(event) for event in cut_off.journal.events]
        assert kinds.count(TaskStopped) == 1
        assert kinds[-2:] == [RunCompleted, TaskStopped]


class TestTrouble:
    async def test_connections_that_are_cut_lose_and_double_nothing(
        self, team: Team, proxy: Proxy
    ) -> None:
        deeds, rule = Deeds(lasts_s=0.002), grid("50ms")
        members = [
            await team.sharing(name, task_of(name, rule, deeds), url=url)
            for name, url in (("cut", proxy.url), ("whole", team.url))
        ]
        for lap in range(1, 11):
            await deeds.until(3 * lap)
            proxy.cut()
        await deeds.until(len(deeds.done) + 3)
        await stopped(*members)
        assert proxy.accepted > 5
        assert unbroken(rule, deeds.instants())
        assert not [done for done in deeds.done if done.replayed]
        state = await shared_state(team.url)
        assert state.fired == state.ran == len(deeds.done)

    async def test_one_whose_replies_come_late_claims_nothing_that_is_done(
        self, team: Team, proxy: Proxy
    ) -> None:
        deeds, rule = Deeds(), grid("50ms")
        members = [
            await team.sharing(name, task_of(name, rule, deeds), url=url)
            for name, url in (("late", proxy.url), ("quick", team.url))
        ]
        proxy.latency_s = 0.05
        await deeds.until(40)
        await stopped(*members)
        assert unbroken(rule, deeds.instants())
        assert not [done for done in deeds.done if done.replayed]

    async def test_replies_that_are_lost_lose_and_double_nothing(
        self, team: Team, proxy: Proxy
    ) -> None:
        deeds, rule = Deeds(lasts_s=0.02), grid("50ms")
        member = await team.sharing("a", task_of("a", rule, deeds), url=proxy.url)
        for lap in range(1, 5):
            # That of a claim, or of what comes behind a run.
            await wait_until(
                lambda lap=lap: deeds.inside == lap % 2,  # type: ignore[misc]
                within=WITHIN,
                sentence="a run is active, or none",
            )
            if not deeds.inside:
                await shared_state(team.url)
            before = proxy.swallowed
            proxy.lost_reply = b":1\r\n"  # "it is stored", "it is yours"
            await wait_until(
                lambda before=before: proxy.swallowed > before,  # type: ignore[misc]
                within=WITHIN,
                sentence="a reply was lost",
            )
            proxy.lost_reply = None
            await deeds.until(4 * lap)
        await stopped(member)
        assert unbroken(rule, deeds.instants())
        assert not [done for done in deeds.done if done.replayed]
        state = await shared_state(team.url)
        assert state.fired == state.ran == len(deeds.done)

    async def test_a_store_that_fails_in_its_own_way_loses_the_run_and_it_is_run_again(
        self, team: Team
    ) -> None:
        class Stumbling(CoordinatedStore):
            stumbles = 1

            async def renew(self, task_id: str, token: str) -> bool:
                if self.stumbles:
                    self.stumbles -= 1
                    raise ZeroDivisionError("in the store")
                return await super().renew(task_id, token)

        deeds, store = Deeds(), Stumbling(team.url, **SHORT)
        member = await team.join("one", task_of("one", At(*coming(1)), deeds), store=store)
        await member.until(RunCompleted, 2)
        await member.end()
        ended = [event.status for event in member.journal.of(RunCompleted)]
        assert ended == [RunStatus.LOST, RunStatus.SUCCESS]
        assert [done.replayed for done in deeds.done] == [False, True]

    async def test_a_server_that_is_away_is_told_once_and_nothing_is_lost(
        self, team: Team, proxy: Proxy
    ) -> None:
        deeds, rule = Deeds(), grid("100ms")
        member = await team.sharing("a", task_of("a", rule, deeds), lease=SHORT, url=proxy.url)
        await deeds.until(2)
        lose(proxy)
        await member.until(StoreDegraded)
        count = len(deeds.done)
        find(proxy)
        await member.until(StoreRecovered)
        await deeds.until(count + 5)
        await stopped(member)
        kinds = [
            type(event)
            for event in member.journal.events
            if isinstance(event, StoreDegraded | StoreRecovered)
        ]
        assert kinds == [StoreDegraded, StoreRecovered]
        told = {done.at_ms for done in deeds.done}
        assert unbroken(rule, sorted(told))

    async def test_at_the_memory_limit_all_goes_on(self, team: Team, admin: redis.Redis) -> None:
        deeds, rule = Deeds(), grid("50ms")
        members = await team.two(rule, deeds)
        with full(admin):
            await deeds.until(6)
            await stopped(*members)
        assert unbroken(rule, deeds.instants())
        for member in members:
            assert not member.journal.of(StoreDegraded)
            assert not member.journal.of(RunSkipped)

    async def test_access_that_is_denied_ends_it(self, team: Team, admin: redis.Redis) -> None:
        deeds = Deeds()
        with denying(admin, team.url) as (url, deny):
            member = await team.sharing("a", task_of("a", grid("50ms"), deeds), url=url)
            await deeds.until(1)
            deny()
            with pytest.raises(AccessDenied):
                await member.end()
            assert member.handle.report().stopped is StopReason.FAILED
