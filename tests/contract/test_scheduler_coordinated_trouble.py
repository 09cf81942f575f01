"""Whole schedulers that share their tasks, with faults: no run is lost, none counts twice."""

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
    SHORT_LEASE,
    WAIT_S,
    RunLog,
    Team,
    cut_off_server,
    full_memory,
    grid,
    is_unbroken,
    make_task,
    read_shared_state,
    reconnect,
    revocable_access,
    soon,
    stop_all,
)
from tests.waiting import wait_until


class TestTakeover:
    async def test_the_state_of_a_plain_store_is_continued(self, team: Team) -> None:
        runs, rule = RunLog(), grid("50ms")
        plain = await team.join("plain", make_task("plain", rule, runs), store=RedisStore(team.url))
        await runs.wait_for(3)
        await stop_all(plain)
        count = len(runs.done)
        members = await team.join_two(rule, runs)
        for member in members:
            loaded = member.log.of(StateLoaded)[0]
            assert loaded.source is Source.RESTORED
            assert loaded.fired >= count
        await runs.wait_for(count + 3)
        await stop_all(*members)
        assert is_unbroken(rule, runs.instants())
        assert not [done for done in runs.done if done.replayed]
        state = await read_shared_state(team.url)
        assert state.fired == state.ran == len(runs.done)

    async def test_a_run_whose_owner_is_disconnected_is_repeated_and_counts_once(
        self, team: Team, proxy: Proxy
    ) -> None:
        runs, rule = RunLog(), At(*soon(1))
        runs.gate.clear()
        disconnected = await team.join_shared(
            "cut", make_task("cut", rule, runs), lease=SHORT_LEASE, url=proxy.url
        )
        await wait_until(lambda: runs.active == 1, within=WAIT_S, sentence="the run has started")
        cut_off_server(proxy)
        successor = await team.join_shared(
            "successor", make_task("successor", rule, runs), lease=SHORT_LEASE
        )
        await wait_until(
            lambda: runs.cancelled == 1, within=WAIT_S, sentence="the run is cancelled"
        )
        runs.gate.set()
        report = await successor.finish()
        assert [(done.owner, done.replayed) for done in runs.done] == [("successor", True)]
        assert (report.state.fired, report.state.ran) == (1, 1)
        reconnect(proxy)
        report = await disconnected.finish()
        assert [record.status for record in report.history] == [RunStatus.LOST]
        assert report.state.ran == 1

    async def test_a_lost_run_is_awaited_while_the_others_continue(
        self, team: Team, proxy: Proxy
    ) -> None:
        runs, rule = RunLog(), At(*soon(3))
        started, cleaned = asyncio.Event(), asyncio.Event()

        async def slow_to_end(run: TaskRun[str]) -> None:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                await cleaned.wait()

        task = make_task("cut", rule, slow_to_end)
        disconnected = await team.join_shared("cut", task, lease=SHORT_LEASE, url=proxy.url)
        await asyncio.wait_for(started.wait(), WAIT_S)
        cut_off_server(proxy)
        successor = await team.join_shared(
            "successor", make_task("successor", rule, runs), lease=SHORT_LEASE
        )
        report = await successor.finish()
        assert runs.instants() == list(rule.instants_ms)
        reconnect(proxy)
        await wait_until(
            lambda: disconnected.state == report.state,
            within=WAIT_S,
            sentence="the disconnected scheduler knows that the task has ended",
        )
        assert disconnected.handle.report().stopped is None
        cleaned.set()
        report = await disconnected.finish()
        assert [record.status for record in report.history] == [RunStatus.LOST]
        kinds = [type(event) for event in disconnected.log.events]
        assert kinds.count(TaskStopped) == 1
        assert kinds[-2:] == [RunCompleted, TaskStopped]


class TestFaults:
    async def test_broken_connections_lose_and_repeat_nothing(
        self, team: Team, proxy: Proxy
    ) -> None:
        runs, rule = RunLog(lasts_s=0.002), grid("50ms")
        members = [
            await team.join_shared(name, make_task(name, rule, runs), url=url)
            for name, url in (("cut", proxy.url), ("whole", team.url))
        ]
        for lap in range(1, 11):
            await runs.wait_for(3 * lap)
            proxy.cut()
        await runs.wait_for(len(runs.done) + 3)
        await stop_all(*members)
        assert proxy.accepted > 5
        assert is_unbroken(rule, runs.instants())
        assert not [done for done in runs.done if done.replayed]
        state = await read_shared_state(team.url)
        assert state.fired == state.ran == len(runs.done)

    async def test_a_scheduler_with_late_replies_claims_nothing_that_is_done(
        self, team: Team, proxy: Proxy
    ) -> None:
        runs, rule = RunLog(), grid("50ms")
        members = [
            await team.join_shared(name, make_task(name, rule, runs), url=url)
            for name, url in (("late", proxy.url), ("quick", team.url))
        ]
        proxy.latency_s = 0.05
        await runs.wait_for(40)
        await stop_all(*members)
        assert is_unbroken(rule, runs.instants())
        assert not [done for done in runs.done if done.replayed]

    async def test_lost_replies_lose_and_repeat_nothing(self, team: Team, proxy: Proxy) -> None:
        runs, rule = RunLog(lasts_s=0.02), grid("50ms")
        member = await team.join_shared("a", make_task("a", rule, runs), url=proxy.url)
        for lap in range(1, 5):
            # The reply of a claim, or of a completion.
            await wait_until(
                lambda lap=lap: runs.active == lap % 2,  # type: ignore[misc]
                within=WAIT_S,
                sentence="a run is active, or none is",
            )
            if not runs.active:
                await read_shared_state(team.url)
            before = proxy.swallowed
            proxy.lost_reply = b":1\r\n"  # "stored" or "claimed"
            await wait_until(
                lambda before=before: proxy.swallowed > before,  # type: ignore[misc]
                within=WAIT_S,
                sentence="a reply was lost",
            )
            proxy.lost_reply = None
            await runs.wait_for(4 * lap)
        await stop_all(member)
        assert is_unbroken(rule, runs.instants())
        assert not [done for done in runs.done if done.replayed]
        state = await read_shared_state(team.url)
        assert state.fired == state.ran == len(runs.done)

    async def test_an_unexpected_error_of_the_store_loses_the_run_and_it_is_repeated(
        self, team: Team
    ) -> None:
        class FailingStore(CoordinatedStore):
            failures_left = 1

            async def renew(self, task_id: str, token: str) -> bool:
                if self.failures_left:
                    self.failures_left -= 1
                    raise ZeroDivisionError("in the store")
                return await super().renew(task_id, token)

        runs, store = RunLog(), FailingStore(team.url, **SHORT_LEASE)
        member = await team.join("one", make_task("one", At(*soon(1)), runs), store=store)
        await member.wait_for(RunCompleted, 2)
        await member.finish()
        ended = [event.status for event in member.log.of(RunCompleted)]
        assert ended == [RunStatus.LOST, RunStatus.SUCCESS]
        assert [done.replayed for done in runs.done] == [False, True]

    async def test_an_outage_is_reported_once_and_nothing_is_lost(
        self, team: Team, proxy: Proxy
    ) -> None:
        runs, rule = RunLog(), grid("100ms")
        member = await team.join_shared(
            "a", make_task("a", rule, runs), lease=SHORT_LEASE, url=proxy.url
        )
        await runs.wait_for(2)
        cut_off_server(proxy)
        await member.wait_for(StoreDegraded)
        count = len(runs.done)
        reconnect(proxy)
        await member.wait_for(StoreRecovered)
        await runs.wait_for(count + 5)
        await stop_all(member)
        kinds = [
            type(event)
            for event in member.log.events
            if isinstance(event, StoreDegraded | StoreRecovered)
        ]
        assert kinds == [StoreDegraded, StoreRecovered]
        assert is_unbroken(rule, sorted({done.at_ms for done in runs.done}))

    async def test_schedulers_continue_at_the_memory_limit(
        self, team: Team, admin: redis.Redis
    ) -> None:
        runs, rule = RunLog(), grid("50ms")
        members = await team.join_two(rule, runs)
        with full_memory(admin):
            await runs.wait_for(6)
            await stop_all(*members)
        assert is_unbroken(rule, runs.instants())
        for member in members:
            assert not member.log.of(StoreDegraded)
            assert not member.log.of(RunSkipped)

    async def test_denied_access_ends_the_task(self, team: Team, admin: redis.Redis) -> None:
        runs = RunLog()
        with revocable_access(admin, team.url) as (url, deny):
            member = await team.join_shared("a", make_task("a", grid("50ms"), runs), url=url)
            await runs.wait_for(1)
            deny()
            with pytest.raises(AccessDenied):
                await member.finish()
            assert member.handle.report().stopped is StopReason.FAILED
