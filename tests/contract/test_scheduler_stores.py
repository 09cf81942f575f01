"""Whole schedulers on each kind of store: what outlasts them, and what becomes of outages."""

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
from tampu.timing import At, Every, Missed, Overlap
from tests.proxy import Proxy
from tests.schedulers import (
    WITHIN,
    Deeds,
    Journal,
    Member,
    Team,
    coming,
    denying,
    find,
    grid,
    left_over,
    lose,
    stored_state,
    task_of,
    unbroken,
)
from tests.servers import RunningServer
from tests.waiting import wait_until

Make = Callable[[], Store]
OUTAGE_S = 3.0
QUICK = "300ms"


@pytest.fixture(params=["redis", "resilient", "sqlite"])
def make(request: pytest.FixtureRequest, running: RunningServer, tmp_path: Path) -> Make:
    """Makes stores that keep their states in one place."""
    kinds: dict[str, Make] = {
        "redis": lambda: RedisStore(running.url),
        "resilient": lambda: ResilientStore(RedisStore(running.url)),
        "sqlite": lambda: SqliteStore(tmp_path / "states"),
    }
    return kinds[request.param]


class TestRestart:
    async def test_a_new_scheduler_goes_on_where_the_last_one_stopped(
        self, team: Team, make: Make
    ) -> None:
        deeds, rule = Deeds(), Every("50ms")  # its grid begins with the first scheduler
        first = await team.join("first", task_of("first", rule, deeds), store=make())
        await deeds.until(3)
        before = await first.stop()
        assert await stored_state(make()) == before
        second = await team.join("second", task_of("second", rule, deeds), store=make())
        (told,) = second.journal.of(StateLoaded)
        facts = (told.source, told.fired, told.next_ms)
        assert facts == (Source.RESTORED, before.fired, before.next_ms)
        await deeds.until(before.fired + 3)
        after = await second.stop()
        assert after.anchor_ms is not None
        assert unbroken(rule.with_anchor(after.anchor_ms), deeds.instants())
        assert after.fired == after.ran == len(deeds.done)

    async def test_a_pause_outlasts_it(self, team: Team, make: Make) -> None:
        deeds, rule = Deeds(), grid("50ms")
        first = await team.join("first", task_of("first", rule, deeds), store=make())
        assert await first.handle.pause()
        await first.stop()
        count = len(deeds.done)
        second = await team.join("second", task_of("second", rule, deeds), store=make())
        assert not await second.handle.pause(), "it is paused already"
        assert len(deeds.began) == count
        assert await second.handle.resume()
        await deeds.until(count + 2)

    async def test_an_occurrence_that_waited_runs_behind_it(self, team: Team, make: Make) -> None:
        deeds, rule = Deeds(), At(*coming(2))
        deeds.gate.clear()
        queueing = {"overlap": Overlap.QUEUE_ONE, "missed": Missed.ONCE}
        first = await team.join("first", task_of("first", rule, deeds, **queueing), store=make())
        await first.until(RunQueued)
        first.handle.cancel()
        deeds.gate.set()
        state = await first.stop()
        assert state.queued is not None
        assert deeds.instants() == list(rule.instants_ms[:1])
        second = await team.join("second", task_of("second", rule, deeds, **queueing), store=make())
        report = await second.end()
        assert deeds.instants() == list(rule.instants_ms)
        assert (report.state.queued, report.state.ran) == (None, 2)


class TestEnd:
    async def test_the_state_of_an_ended_task_is_kept_and_ends_the_next_one(
        self, team: Team, make: Make
    ) -> None:
        deeds = Deeds()
        for name in ("first", "second"):
            task = task_of(name, grid("50ms"), deeds, max_runs=2)
            member = await team.join(name, task, store=make())
            report = await member.end()
            assert report.stopped is StopReason.TERMINAL
            assert await stored_state(make()) == report.state
        assert len(deeds.done) == 2

    async def test_it_is_deleted_if_so_wished(self, team: Team, make: Make) -> None:
        deeds = Deeds()
        task = task_of("a", grid("50ms"), deeds, max_runs=2)
        member = await team.join("a", task, store=make(), keep_ended=False)
        await member.end()
        assert [event.fired for event in member.journal.of(StateDeleted)] == [2]
        assert await stored_state(make()) is None

    async def test_one_that_is_stopped_is_not_deleted(self, team: Team, make: Make) -> None:
        deeds = Deeds()
        task = task_of("a", grid("50ms"), deeds)
        member = await team.join("a", task, store=make(), keep_ended=False)
        await deeds.until(1)
        state = await member.stop()
        assert await stored_state(make()) == state


class TestOutage:
    async def test_on_a_plain_store_runs_wait_and_none_is_lost(
        self, team: Team, proxy: Proxy
    ) -> None:
        deeds, rule = Deeds(), grid("100ms")
        store = RedisStore(proxy.url, timeout=QUICK)
        member = await team.join("a", task_of("a", rule, deeds), store=store)
        await deeds.until(3)
        lose(proxy)
        await member.until(StoreDegraded)
        count = len(deeds.began)
        await asyncio.sleep(OUTAGE_S)  # time itself is the subject
        state = await stored_state(RedisStore(team.url))
        assert state is not None
        assert len(deeds.began) == count
        assert state.fired >= count, "nothing runs that is not stored as behind us"
        find(proxy)
        await deeds.until(count + round(OUTAGE_S / 0.1))
        await member.stop()
        assert unbroken(rule, deeds.instants())
        assert outages(member) == [StoreDegraded, StoreRecovered]
        state = await stored_state(RedisStore(team.url))
        assert state is not None
        assert state.fired == state.ran == len(deeds.done)

    async def test_on_a_resilient_store_runs_go_on_and_are_written_back(
        self, team: Team, proxy: Proxy
    ) -> None:
        deeds, rule = Deeds(), grid("100ms")
        store = ResilientStore(RedisStore(proxy.url, timeout=QUICK), retry_every="100ms")
        member = await team.join("a", task_of("a", rule, deeds), store=store)
        await deeds.until(3)
        lose(proxy)
        await member.until(StoreDegraded)
        stale = await stored_state(RedisStore(team.url))
        count = len(deeds.done)
        await asyncio.sleep(OUTAGE_S)  # time itself is the subject
        assert len(deeds.done) > count + OUTAGE_S / 0.1 / 2
        assert await stored_state(RedisStore(team.url)) == stale
        find(proxy)
        await member.until(StoreRecovered)
        state = await member.stop()
        assert outages(member) == [StoreDegraded, StoreRecovered]
        (recovered,) = member.journal.of(StoreRecovered)
        assert (recovered.written >= 1, recovered.kept) == (True, 0)
        assert unbroken(rule, deeds.instants())
        assert await stored_state(RedisStore(team.url)) == state

    async def test_a_server_that_is_away_at_the_start_is_waited_for(
        self, team: Team, proxy: Proxy
    ) -> None:
        deeds, journal = Deeds(), Journal()
        lose(proxy)
        store = RedisStore(proxy.url, timeout=QUICK)
        async with Scheduler(store=store, observers=[journal]) as scheduler:
            scheduler.add(task_of("a", grid("50ms"), deeds))
            await wait_until(
                lambda: journal.of(StoreDegraded) != [], within=WITHIN, sentence="it is told"
            )
            assert journal.of(StateLoaded) == []
            find(proxy)
            await deeds.until(2)

    @pytest.mark.parametrize("kind", ["redis", "resilient"])
    async def test_one_can_stop_while_the_server_is_away(self, proxy: Proxy, kind: str) -> None:
        deeds, journal = Deeds(), Journal()
        inner = RedisStore(proxy.url, timeout=QUICK)
        store = inner if kind == "redis" else ResilientStore(inner)
        async with asyncio.timeout(WITHIN):
            async with Scheduler(store=store, observers=[journal]) as scheduler:
                scheduler.add(task_of("a", grid("50ms"), deeds))
                await deeds.until(2)
                lose(proxy)
                await wait_until(
                    lambda: journal.of(StoreDegraded) != [], within=WITHIN, sentence="it is told"
                )
        assert left_over() == set()


class TestRefusal:
    @pytest.mark.parametrize("kind", ["redis", "resilient"])
    async def test_access_that_is_denied_ends_the_run_with_the_error(
        self, team: Team, admin: redis.Redis, kind: str
    ) -> None:
        with denying(admin, team.url) as (url, deny):
            inner, deeds = RedisStore(url), Deeds()
            store = inner if kind == "redis" else ResilientStore(inner)
            running = asyncio.create_task(
                Scheduler(store=store).run(task_of("a", grid("50ms"), deeds))
            )
            await deeds.until(1)
            deny()
            with pytest.raises(AccessDenied):
                await asyncio.wait_for(running, WITHIN)
        assert left_over() == set()

    async def test_it_ends_the_runs_that_are_active_too(
        self, team: Team, admin: redis.Redis
    ) -> None:
        deeds = Deeds()
        deeds.gate.clear()
        with denying(admin, team.url) as (url, deny):
            task = task_of("a", grid("50ms"), deeds, overlap=Overlap.ALLOW)
            running = asyncio.create_task(Scheduler(store=RedisStore(url)).run(task))
            await wait_until(lambda: deeds.inside >= 2, within=WITHIN, sentence="some run")
            deny()
            with pytest.raises(AccessDenied):
                await asyncio.wait_for(running, WITHIN)
        assert (deeds.inside, deeds.done) == (0, [])
        assert left_over() == set()

    async def test_a_wrong_password_ends_it_before_anything_runs(self, team: Team) -> None:
        deeds = Deeds()
        async with Scheduler(store=RedisStore(team.url.replace("//", "//nobody:pw@"))) as scheduler:
            handle = scheduler.add(task_of("a", grid("50ms"), deeds))
            with pytest.raises(AccessDenied):
                await asyncio.wait_for(scheduler.serve(), WITHIN)
            assert handle.report().stopped is StopReason.FAILED
        assert deeds.began == []


def outages(member: Member) -> list[type[object]]:
    """What was told of the store, in order."""
    told = StoreDegraded | StoreRecovered
    return [type(event) for event in member.journal.events if isinstance(event, told)]
