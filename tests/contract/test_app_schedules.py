"""Schedules that an app declares: stored, fired, and no longer declared."""

from typing import Any

import pytest

from tampu import (
    App,
    Cron,
    Every,
    Router,
)
from tests.contract.apps import working
from tests.contract.workers import SOON
from tests.servers import RunningServer
from tests.waiting import wait_until


@pytest.fixture
def app(running: RunningServer) -> App:
    return App(running.url)


class TestSchedules:
    async def test_two_workers_store_them_once(self, app: App) -> None:
        @app.schedule(Every("1h"), args={"n": 5}, attempts=3)
        async def hourly(n: int) -> int:
            return n

        async with working(app):
            (first,) = await app.queue().schedules.list()
        async with working(app), working(app):
            (again,) = await app.queue().schedules.list()
        assert (again.key, again.name, again.data) == ("hourly", "hourly", {"n": 5})
        assert again.next_at == first.next_at
        assert again.settings.attempts == 3

    async def test_a_changed_rule_replaces_the_old_one(self, running: RunningServer) -> None:
        for rule in (Cron("0 9 * * *"), Cron("0 10 * * *")):
            app = App(running.url)
            app.schedule(rule)(app.task(name="tick")(lambda: None))
            async with working(app):
                (stored,) = await app.queue().schedules.list()
            assert stored.rule == rule

    async def test_they_fire_jobs_for_the_task(self, app: App) -> None:
        fired: list[Any] = []

        @app.schedule(Every("50ms"), args={"to": "ada"}, key="often")
        @app.task
        def greet(to: str, times: int = 1) -> None:
            fired.append((to, times))

        async with working(app):
            await wait_until(lambda: len(fired) >= 2, within=SOON, sentence="it fires")
        assert fired[:2] == [("ada", 1)] * 2

    async def test_one_that_is_no_longer_declared_is_reported(
        self, running: RunningServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        old, new = App(running.url), App(running.url)
        old.schedule(Every("1h"), key="nightly report")(old.task(name="report")(lambda: None))
        for app in (old, new):
            app.schedule(Every("1h"))(app.task(name="tick")(lambda: None))
        async with working(old):
            await old.queue().schedules.add("tick", Every("2h"), key="by hand")
        assert caplog.messages == []
        async with working(new):
            assert len(await new.queue().schedules.list()) == 3
        (told,) = caplog.messages
        assert told.startswith("schedule 'nightly report' of queue 'default' still fires, but ")
        assert "tampu schedule rm default 'nightly report'" in told
        (record,) = caplog.records
        assert record.__dict__["schedule"] == "nightly report"

    async def test_one_that_is_no_longer_declared_can_be_removed(
        self, running: RunningServer
    ) -> None:
        old, new = App(running.url), App(running.url, prune_schedules=True)
        old.schedule(Every("1h"))(old.task(name="report")(lambda: None))
        new.task(name="tick")(lambda: None)
        async with working(old):
            await old.queue().schedules.add("tick", Every("2h"), key="by hand")
            await old.queue().schedules.pause("report")  # a paused one is removed, too
        async with working(new):
            (stored,) = await new.queue().schedules.list()
        assert (stored.key, stored.declared_by) == ("by hand", None)

    async def test_those_of_another_program_stay(
        self, running: RunningServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        other, own = App(running.url), App(running.url, prune_schedules=True)
        report = other.task(name="report")(lambda: None)
        report.__module__ = "shop.reports"
        other.schedule(Every("1h"))(report)
        own.task(name="tick")(lambda: None)
        async with working(other):
            pass
        async with working(own):
            (stored,) = await own.queue().schedules.list()
        assert (stored.key, caplog.messages) == ("report", [])
        assert str(stored.declared_by).startswith("shop.reports.")

    async def test_those_of_a_router_are_stored_by_a_worker_of_their_queue(self, app: App) -> None:
        router = Router(queue="routed")
        router.schedule(Every("1h"))(router.task(name="tick")(lambda: None))
        app.include(router)
        async with working(app, {"default": 1}):
            assert await app.queue("routed").schedules.list() == []
        async with working(app):
            (stored,) = await app.queue("routed").schedules.list()
        assert stored.key == "tick"
