"""Whole schedulers on each kind of store: restarts, ends and store_events."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from tampu.errors import AccessDenied
from tampu.scheduler import (
    RedisStore,
    ResilientStore,
    RunQueued,
    Scheduler,
    Source,
    SqliteStore,
    StateDeleted,
    StateLoaded,
    StopReason,
    Store,
    StoreDegraded,
    StoreRecovered,
)
from tampu.timing import Every, Missed, Overlap
from tests.proxy import Proxy
from tests.schedulers import (
    WAIT_S,
    EventLog,
    Member,
    RunLog,
    Team,
    cut_off_server,
    grid,
    is_unbroken,
    leftover_tasks,
    make_task,
    read_stored_state,
    reconnect,
    revocable_access,
)
from tests.servers import RunningServer
from tests.waiting import wait_until

MakeStore = Callable[[], Store]
OUTAGE_S = 1.0
SHORT_TIMEOUT = "1s"


@pytest.fixture(params=["redis", "resilient", "sqlite"])
def make_store(request: pytest.FixtureRequest, running: RunningServer, tmp_path: Path) -> MakeStore:
    """A function that makes stores with the same states."""
    kinds: dict[str, MakeStore] = {
        "redis": lambda: RedisStore(running.url),
        "resilient": lambda: ResilientStore(RedisStore(running.url)),
        "sqlite": lambda: SqliteStore(tmp_path / "states"),
    }
    return kinds[request.param]


class TestRestart:
    async def test_a_new_scheduler_continues_where_the_last_one_stopped(
        self, team: Team, make_store: MakeStore
    ) -> None:
        runs, rule = RunLog(), Every("50ms")  # its grid starts with the first scheduler
        first = await team.join("first", make_task("first", rule, runs), store=make_store())
        await runs.wait_for(3)
        before = await first.stop()
        assert await read_stored_state(make_store()) == before
        second = await team.join("second", make_task("second", rule, runs), store=make_store())
        (loaded,) = second.log.of(StateLoaded)
        assert (loaded.source, loaded.fired, loaded.next_ms) == (
            Source.RESTORED,
            before.fired,
            before.next_ms,
        )
        await runs.wait_for(before.fired + 3)
        after = await second.stop()
        assert after.anchor_ms is not None
        assert is_unbroken(rule.with_anchor(after.anchor_ms), runs.instants())
        assert after.fired == after.ran == len(runs.done)

    async def test_a_pause_survives_a_restart(self, team: Team, make_store: MakeStore) -> None:
        runs, rule = RunLog(), grid("50ms")
        first = await team.join("first", make_task("first", rule, runs), store=make_store())
        assert await first.handle.pause()
        await first.stop()
        count = len(runs.done)
        second = await team.join("second", make_task("second", rule, runs), store=make_store())
        assert not await second.handle.pause(), "it is already paused"
        assert len(runs.started) == count
        assert await second.handle.resume()
        await runs.wait_for(count + 2)

    async def test_a_queued_occurrence_survives_a_restart(
        self, team: Team, make_store: MakeStore
    ) -> None:
        runs, rule = RunLog(), grid("100ms")
        runs.gate.clear()
        queueing = {"overlap": Overlap.QUEUE_ONE, "missed": Missed.ONCE}
        first = await team.join(
            "first", make_task("first", rule, runs, **queueing), store=make_store()
        )
        await first.wait_for(RunQueued)
        first.handle.cancel()
        runs.gate.set()
        state = await first.stop()
        assert state.queued is not None
        assert len(runs.done) == 1
        second = await team.join(
            "second", make_task("second", rule, runs, **queueing), store=make_store()
        )
        await runs.wait_for(2)
        assert runs.done[1].at_ms == state.queued.at_ms
        assert (await second.stop()).ran == len(runs.done)


class TestEnd:
    async def test_the_state_of_a_task_that_has_ended_is_kept(
        self, team: Team, make_store: MakeStore
    ) -> None:
        runs = RunLog()
        for name in ("first", "second"):
            task = make_task(name, grid("50ms"), runs, max_runs=2)
            member = await team.join(name, task, store=make_store())
            report = await member.finish()
            assert report.stopped is StopReason.TERMINAL
            assert await read_stored_state(make_store()) == report.state
        assert len(runs.done) == 2

    async def test_the_state_of_a_task_that_has_ended_is_deleted_without_keep_ended(
        self, team: Team, make_store: MakeStore
    ) -> None:
        runs = RunLog()
        task = make_task("a", grid("50ms"), runs, max_fires=2)
        member = await team.join("a", task, store=make_store(), keep_ended=False)
        await member.finish()
        assert len(member.log.of(StateDeleted)) == 1
        assert len(runs.done) == 2
        assert await read_stored_state(make_store()) is None

    async def test_the_state_of_a_stopped_task_is_not_deleted(
        self, team: Team, make_store: MakeStore
    ) -> None:
        runs = RunLog()
        task = make_task("a", grid("50ms"), runs)
        member = await team.join("a", task, store=make_store(), keep_ended=False)
        await runs.wait_for(1)
        state = await member.stop()
        assert await read_stored_state(make_store()) == state


class TestOutage:
    async def test_with_a_plain_store_runs_wait_and_none_is_lost(
        self, team: Team, proxy: Proxy
    ) -> None:
        runs, rule = RunLog(), grid("100ms")
        store = RedisStore(proxy.url, timeout=SHORT_TIMEOUT)
        member = await team.join("a", make_task("a", rule, runs), store=store)
        await runs.wait_for(3)
        cut_off_server(proxy)
        await member.wait_for(StoreDegraded)
        count = len(runs.started)
        await asyncio.sleep(OUTAGE_S)  # ten instants pass, and nothing may happen
        state = await read_stored_state(RedisStore(team.url))
        assert state is not None
        assert len(runs.started) == count
        assert state.fired >= count, "nothing runs that is not stored as done"
        reconnect(proxy)
        await runs.wait_for(count + round(OUTAGE_S / 0.1))
        await member.stop()
        assert is_unbroken(rule, runs.instants())
        assert store_events(member) == [StoreDegraded, StoreRecovered]
        state = await read_stored_state(RedisStore(team.url))
        assert state is not None
        assert state.fired == state.ran == len(runs.done)

    async def test_with_a_resilient_store_runs_continue_and_are_written_back(
        self, team: Team, proxy: Proxy
    ) -> None:
        runs, rule = RunLog(), grid("100ms")
        store = ResilientStore(RedisStore(proxy.url, timeout=SHORT_TIMEOUT), retry_every="100ms")
        member = await team.join("a", make_task("a", rule, runs), store=store)
        await runs.wait_for(3)
        cut_off_server(proxy)
        await member.wait_for(StoreDegraded)
        stale = await read_stored_state(RedisStore(team.url))
        count = len(runs.done)
        await runs.wait_for(count + 10)
        assert await read_stored_state(RedisStore(team.url)) == stale
        reconnect(proxy)
        await member.wait_for(StoreRecovered)
        state = await member.stop()
        assert store_events(member) == [StoreDegraded, StoreRecovered]
        (recovered,) = member.log.of(StoreRecovered)
        assert (recovered.written >= 1, recovered.kept) == (True, 0)
        assert is_unbroken(rule, runs.instants())
        assert await read_stored_state(RedisStore(team.url)) == state

    async def test_a_server_may_be_unreachable_at_the_start(self, team: Team, proxy: Proxy) -> None:
        runs, log = RunLog(), EventLog()
        cut_off_server(proxy)
        store = RedisStore(proxy.url, timeout=SHORT_TIMEOUT)
        async with Scheduler(store=store, observers=[log]) as scheduler:
            scheduler.add(make_task("a", grid("50ms"), runs))
            await wait_until(
                lambda: log.of(StoreDegraded) != [],
                within=WAIT_S,
                sentence="the outage is reported",
            )
            assert log.of(StateLoaded) == []
            reconnect(proxy)
            await runs.wait_for(2)

    @pytest.mark.parametrize("kind", ["redis", "resilient"])
    async def test_a_scheduler_can_stop_during_an_outage(self, proxy: Proxy, kind: str) -> None:
        runs, log = RunLog(), EventLog()
        inner = RedisStore(proxy.url, timeout=SHORT_TIMEOUT)
        store = inner if kind == "redis" else ResilientStore(inner)
        async with asyncio.timeout(WAIT_S):
            async with Scheduler(store=store, observers=[log]) as scheduler:
                scheduler.add(make_task("a", grid("50ms"), runs))
                await runs.wait_for(2)
                cut_off_server(proxy)
                await wait_until(
                    lambda: log.of(StoreDegraded) != [],
                    within=WAIT_S,
                    sentence="the outage is reported",
                )
        assert leftover_tasks() == set()


class TestDeniedAccess:
    @pytest.mark.parametrize("kind", ["redis", "resilient"])
    async def test_run_raises_the_error(self, team: Team, admin: redis.Redis, kind: str) -> None:
        with revocable_access(admin, team.url) as (url, revoke):
            inner, runs = RedisStore(url), RunLog()
            store = inner if kind == "redis" else ResilientStore(inner)
            running = asyncio.create_task(
                Scheduler(store=store).run(make_task("a", grid("50ms"), runs))
            )
            await runs.wait_for(1)
            revoke()
            with pytest.raises(AccessDenied):
                await asyncio.wait_for(running, WAIT_S)
        assert leftover_tasks() == set()

    async def test_active_runs_are_cancelled(self, team: Team, admin: redis.Redis) -> None:
        runs = RunLog()
        runs.gate.clear()
        with revocable_access(admin, team.url) as (url, revoke):
            task = make_task("a", grid("50ms"), runs, overlap=Overlap.ALLOW)
            running = asyncio.create_task(Scheduler(store=RedisStore(url)).run(task))
            await wait_until(
                lambda: runs.active >= 2, within=WAIT_S, sentence="some runs are active"
            )
            revoke()
            with pytest.raises(AccessDenied):
                await asyncio.wait_for(running, WAIT_S)
        assert (runs.active, runs.done) == (0, [])
        assert leftover_tasks() == set()

    async def test_a_wrong_password_ends_serve_before_anything_runs(self, team: Team) -> None:
        runs = RunLog()
        async with Scheduler(store=RedisStore(team.url.replace("//", "//nobody:pw@"))) as scheduler:
            handle = scheduler.add(make_task("a", grid("50ms"), runs))
            with pytest.raises(AccessDenied):
                await asyncio.wait_for(scheduler.serve(), WAIT_S)
            assert handle.report().stopped is StopReason.FAILED
        assert runs.started == []


def store_events(member: Member) -> list[type[object]]:
    """The events about the store, in order."""
    kinds = StoreDegraded | StoreRecovered
    return [type(event) for event in member.log.events if isinstance(event, kinds)]
