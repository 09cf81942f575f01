"""Alerts on real servers: each fires once and resolves once, whoever lives or dies."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tampu import (
    Alert,
    AlertNotice,
    App,
    NotifyJob,
    OptionError,
    Worker,
)
from tampu.admin.alerts import read_alerts
from tampu.consumer import alerts
from tampu.errors import ArgumentError
from tampu.server.lane import Lane
from tampu.server.scripts.alerts import AlertChange, Changed, change_alert, pending_notices
from tampu.server.scripts.workers import lead
from tampu.wire.alerts import SAMPLE_NOTICE, AlertPhase
from tampu.wire.keys import QueueKeys
from tests.contract.alert_process import TOLD, WATCHED
from tests.contract.alerts import NO_WORKERS, SLOW, Switch, states
from tests.contract.apps import working
from tests.contract.cli import tampu
from tests.contract.workers import QUEUE, SOON, Calls, Harness
from tests.servers import ROOT, RunningServer
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("quick_alerts")


class TestOnce:
    @pytest.mark.every_server
    async def test_four_workers_fire_and_resolve_an_alert_once_each(
        self, harness: Harness, switch: Switch, slow: Lane
    ) -> None:
        calls = Calls()
        for _ in range(4):
            await harness.start_worker(
                calls, alerts=[NO_WORKERS], notify=NotifyJob("on_alert", queue=QUEUE)
            )
        for round_number in range(1, 4):
            await switch.on()
            await calls.until(2 * round_number - 1)
            await switch.until(fired=1)
            await switch.off()
            await calls.until(2 * round_number)
            await switch.until(fired=0)
        assert states(calls) == ["fired", "resolved"] * 3
        told = [each["alert"] for each in calls.data]
        assert {job.name for job in calls.jobs} == {"on_alert"}
        assert [each["id"] for each in told] == [job.id for job in calls.jobs]
        assert told[0] == {
            **told[0],
            "key": "no-workers",
            "kind": "no-workers",
            "queue": WATCHED,
            "sentence": "Queue 'slow': 1 job to run and no workers.",
            "value": 1.0,
            "limit": 0.0,
        }
        assert told[1]["since"] == told[0]["since"]
        (shown,) = await read_alerts(slow, SLOW)
        assert shown.phase is AlertPhase.RESOLVED

    async def test_the_next_worker_goes_on_where_one_that_stops_has_ended(
        self, harness: Harness, switch: Switch
    ) -> None:
        calls = Calls()
        first = await harness.start_worker(calls, alerts=[NO_WORKERS], notify="on_alert")
        await switch.on()
        await switch.until(fired=1)
        await first.stop()
        assert not harness.admin.exists(SLOW.alerts_lock)
        await harness.start_worker(calls, alerts=[NO_WORKERS], notify="on_alert")
        await switch.off()
        await switch.until(fired=0)
        await calls.until(2)  # text is the name of a job on the worker's own queue
        assert states(calls) == ["fired", "resolved"]

    @pytest.mark.every_server
    async def test_a_leader_that_is_killed_loses_no_notice_and_doubles_none(
        self, running: RunningServer, switch: Switch, tmp_path: Path
    ) -> None:
        workers = [await _start_process(running, tmp_path) for _ in range(4)]
        try:
            with running.admin() as admin:
                await switch.on()
                # The one that fires the alert is killed by the command that it runs.
                await wait_until(
                    lambda: len(_told(tmp_path)) == 1, within=SOON, sentence="the alert is told of"
                )
                assert sum(each.returncode is not None for each in workers) == 1
                leader = await _leader(admin, workers)
                leader.kill()
                await leader.wait()
                await switch.off()
                await wait_until(
                    lambda: len(_told(tmp_path)) == 2, within=SOON, sentence="its end is told of"
                )
                await switch.until(fired=0)
                assert list(_told(tmp_path).values()) == ["fired", "resolved"]
                assert admin.xlen(QueueKeys(TOLD).stream) == 2
                await wait_until(
                    lambda: admin.xlen(SLOW.alert_notices) == 0,
                    within=SOON,
                    sentence="nothing is left to deliver",
                )
        finally:
            for each in workers:
                if each.returncode is None:
                    each.kill()
                await each.wait()

    async def test_an_alert_that_nobody_declares_any_more_resolves(
        self,
        harness: Harness,
        switch: Switch,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        calls = Calls()
        notify = NotifyJob("on_alert", queue=QUEUE)
        before = await harness.start_worker(calls, alerts=[NO_WORKERS], notify=notify)
        await switch.on()
        await switch.until(fired=1)
        await before.stop()
        monkeypatch.setattr(alerts, "FORGET_AFTER_S", 0.0)
        other = Alert.oldest(WATCHED, "1h")
        await harness.start_worker(calls, alerts=[other], notify=notify)
        await calls.until(2)
        assert states(calls) == ["fired", "resolved"]
        assert "no longer declared" in calls.data[1]["alert"]["sentence"]


def _told(folder: Path) -> dict[str, str]:
    """The states that the command was told of, by the ids of the notices.

    It may be told twice, if a worker dies right after it was told; the id is the same then.
    """
    path = folder / "told"
    lines = path.read_text().splitlines() if path.exists() else []
    return {each["id"]: each["state"] for each in map(json.loads, lines)}


async def _start_process(running: RunningServer, folder: Path) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.contract.alert_process", running.url, str(folder)),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), timeout=30)
    process.worker_id = line.strip()  # type: ignore[attr-defined]
    return process


async def _leader(
    admin: Any,  # noqa: ANN401 - a redis client
    workers: list[asyncio.subprocess.Process],
) -> asyncio.subprocess.Process:
    """The process that leads now."""
    alive = {each.worker_id: each for each in workers if each.returncode is None}  # type: ignore[attr-defined]
    await wait_until(
        lambda: admin.get(SLOW.alerts_lock) in alive, within=SOON, sentence="another one leads"
    )
    return alive[admin.get(SLOW.alerts_lock)]


class TestChanging:
    CHANGE = AlertChange(key=b"k", before=None, after=b"1", notice=SAMPLE_NOTICE, notifiers=2)

    @pytest.mark.every_server
    async def test_a_change_needs_the_lead_and_the_state_that_was_read(self, slow: Lane) -> None:
        change = self.CHANGE
        assert await change_alert(slow, SLOW, change, holder=b"a") is Changed.NOT_LEADING
        assert await lead(slow, SLOW.alerts_lock, holder=b"a", ttl_s=100)
        assert await change_alert(slow, SLOW, change, holder=b"b") is Changed.NOT_LEADING
        assert await change_alert(slow, SLOW, change, holder=b"a") is Changed.DONE
        # Sent again after a lost reply: done already, and told of once.
        assert await change_alert(slow, SLOW, change, holder=b"a") is Changed.DONE
        found = await pending_notices(slow, SLOW, count=10)
        assert [each.notifier for each in found] == [0, 1]
        outdated = AlertChange(key=b"k", before=b"0", after=b"2")
        assert await change_alert(slow, SLOW, outdated, holder=b"a") is Changed.OUTDATED
        over = AlertChange(key=b"k", before=b"1", after=None)
        assert await change_alert(slow, SLOW, over, holder=b"a") is Changed.DONE

    @pytest.mark.every_server
    async def test_a_server_that_is_full_still_changes_alerts(
        self, running: RunningServer, slow: Lane
    ) -> None:
        assert await lead(slow, SLOW.alerts_lock, holder=b"a", ttl_s=100)
        with running.admin() as admin:
            admin.config_set("maxmemory", 1)
            try:
                changed = await change_alert(slow, SLOW, self.CHANGE, holder=b"a")
            finally:
                admin.config_set("maxmemory", 0)
            assert changed is Changed.DONE
            assert admin.ttl(SLOW.alerts) > 0
            assert admin.ttl(SLOW.alert_notices) > 0


class TestDeclaring:
    async def test_a_task_that_cannot_take_a_notice_is_refused(self) -> None:
        app = App(alerts=[NO_WORKERS], notify="on_alert")

        @app.task
        async def on_alert(text: str) -> None:
            pass

        with pytest.raises(ArgumentError, match="on_alert"):
            async with working(app):
                pass

    async def test_a_task_that_does_not_exist_is_refused(self) -> None:
        app = App(alerts=[NO_WORKERS], notify="on_alrt")

        @app.task
        async def on_alert(alert: AlertNotice) -> None:
            pass

        with pytest.raises(OptionError, match="the app has no such task; it has on_alert"):
            async with working(app):
                pass

    def test_without_alerts_there_is_nothing_to_tell(self) -> None:
        with pytest.raises(OptionError, match="no alerts"):
            App(notify="on_alert")
        with pytest.raises(OptionError, match="no alerts"):
            Worker(QUEUE, Calls(), notify="on_alert")

    def test_the_same_key_twice_is_refused(self) -> None:
        with pytest.raises(OptionError, match="have this key"):
            Worker(QUEUE, Calls(), alerts=[Alert.eviction(), Alert.eviction(queue=QUEUE)])


async def test_the_command_line_shows_what_has_fired_and_what_has_resolved(
    running: RunningServer, harness: Harness, switch: Switch
) -> None:
    nothing = await tampu("alerts", url=running.url)
    assert (nothing.code, nothing.lines) == (0, ["No alert has fired within a day."])
    await harness.start_worker(Calls(), alerts=[NO_WORKERS])
    await switch.on()
    await switch.until(fired=1)
    fired = await tampu("alerts", url=running.url, columns=120)
    assert fired.lines[1].split()[:3] == ["fired", "slow", "no-workers"]
    assert fired.lines[1].endswith("Queue 'slow': 1 job to run and no workers.")
    told = (await tampu("alerts", WATCHED, "--json", url=running.url)).json
    (active,) = told["active"]
    assert (active["key"], active["phase"], told["resolved"]) == ("no-workers", "fired", [])
    await switch.off()
    await switch.until(fired=0)
    told = (await tampu("alerts", "--json", url=running.url)).json
    assert (told["active"], told["resolved"][0]["phase"]) == ([], "resolved")
    missing = await tampu("alerts", "nowhere", url=running.url)
    assert missing.code != 0
