"""Notices of alerts on their way to a webhook, a task or a job."""

import asyncio
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from tampu import Alert, AlertNotice, App, NotifyJob, NotifyWebhook, Router
from tampu.server.lane import Lane
from tampu.services.notify import JobSender
from tampu.wire.alerts import SAMPLE_NOTICE, AlertPhase, encode_alert
from tests.contract.alerts import NO_WORKERS, SLOW, Switch, states
from tests.contract.apps import working
from tests.contract.workers import QUEUE, SOON, Calls, Harness
from tests.servers import RunningServer
from tests.waiting import wait_until

HIDDEN = "s3cret-path"
pytestmark = pytest.mark.usefixtures("quick_alerts")


class Hook(BaseHTTPRequestHandler):
    """Answers with the first of the answers that are left, and keeps what was posted."""

    answers: list[int]
    posted: list[tuple[str, dict[str, str], bytes]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.posted.append((self.path, dict(self.headers), body))
        status = self.answers.pop(0) if self.answers else 204
        self.send_response(status)
        if 300 <= status < 400:
            self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def listening(*answers: int) -> Iterator[tuple[str, type[Hook]]]:
    """A server on this machine that answers so, then with 204."""
    hook = type("OneHook", (Hook,), {"answers": [*answers], "posted": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), hook)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/{HIDDEN}?token=t0ken", hook
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class TestDelivering:
    async def test_a_webhook_gets_notices_until_it_takes_them_and_never_follows_a_redirect(
        self, harness: Harness, switch: Switch, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        with listening(500, 302, 404) as (url, hook):
            notify = NotifyWebhook(url, allowed_hosts=["127.0.0.1"])
            await harness.start_worker(Calls(), alerts=[NO_WORKERS], notify=notify)
            await switch.on()
            await wait_until(lambda: len(hook.posted) == 4, within=SOON, sentence="it is posted")
            await switch.off()
            await wait_until(lambda: len(hook.posted) == 5, within=SOON, sentence="and its end")
            await wait_until(
                lambda: not harness.admin.xlen(SLOW.alert_notices),
                within=SOON,
                sentence="nothing is left to deliver",
            )
        paths = {path for path, _, _ in hook.posted}
        assert paths == {f"/{HIDDEN}?token=t0ken"}
        told = [json.loads(body) for _, _, body in hook.posted]
        assert [each["state"] for each in told] == ["fired"] * 4 + ["resolved"]
        assert len({each["id"] for each in told}) == 2
        assert hook.posted[0][1]["Idempotency-Key"] == told[0]["id"]
        lines = [each for each in caplog.messages if "webhook" in each]
        assert lines == [
            "cannot deliver notices to webhook http://127.0.0.1 (queue 'slow'), retrying: "
            "it answered 500",
            "notices for webhook http://127.0.0.1 (queue 'slow') are delivered again",
        ]
        everything = caplog.text + str([vars(each) for each in caplog.records])
        for secret in (HIDDEN, "t0ken", "hunter2"):
            assert secret not in everything

    async def test_a_task_gets_the_notice_as_a_value(
        self, running: RunningServer, switch: Switch
    ) -> None:
        app = App(running.url, alerts=[NO_WORKERS], notify="on_alert")
        told: list[AlertNotice] = []

        @app.task(queue=QUEUE)
        async def on_alert(alert: AlertNotice) -> None:
            told.append(alert)

        async with working(app):
            await switch.on()
            await wait_until(lambda: len(told) == 1, within=SOON, sentence="the task is told")
        assert told[0].state is AlertPhase.FIRED
        assert told[0].since <= told[0].at

    async def test_a_task_of_a_router_can_be_given_itself_and_is_told_on_its_own_queue(
        self, running: RunningServer, switch: Switch
    ) -> None:
        router, told = Router(queue="operations"), asyncio.Event()

        @router.task
        async def on_alert(alert: dict[str, object]) -> None:
            assert alert["state"] == "fired"
            told.set()

        app = App(running.url, alerts=[NO_WORKERS, Alert.eviction()], notify=[on_alert])
        app.include(router)
        async with working(app, {"operations": 1}):
            await switch.on()
            await asyncio.wait_for(told.wait(), SOON)

    @pytest.mark.every_server
    async def test_a_notice_that_two_leaders_deliver_adds_one_job(
        self, running: RunningServer, slow: Lane
    ) -> None:
        for _ in range(2):
            assert await JobSender(slow, SLOW, "on_alert")(SAMPLE_NOTICE) is None
        with running.admin() as admin:
            assert admin.xlen(SLOW.stream) == 1

    async def test_a_notifier_that_fails_does_not_hold_up_another(
        self, harness: Harness, switch: Switch
    ) -> None:
        calls = Calls()
        broken = NotifyWebhook("http://127.0.0.1:9/", allowed_hosts=["127.0.0.1"])
        notify = (broken, NotifyJob("on_alert", queue=QUEUE))
        await harness.start_worker(calls, alerts=[NO_WORKERS], notify=notify)
        await switch.on()
        await calls.until(1)
        await switch.off()
        await calls.until(2)
        assert states(calls) == ["fired", "resolved"]

    async def test_old_and_malformed_notices_are_dropped_and_those_of_others_stay(
        self, harness: Harness, switch: Switch, caplog: pytest.LogCaptureFixture
    ) -> None:
        packed = encode_alert(SAMPLE_NOTICE)
        harness.admin.xadd(SLOW.alert_notices, {"n": 0, "d": packed}, id="1-0")
        harness.admin.xadd(SLOW.alert_notices, {"n": 0, "d": b"\xc1"})
        kept = [harness.admin.xadd(SLOW.alert_notices, fields) for fields in ({"n": 7}, {"x": 1})]
        calls = Calls()
        await harness.start_worker(calls, alerts=[NO_WORKERS], notify="on_alert")
        await switch.on()
        await calls.until(1)
        await wait_until(
            lambda: [each for each, _ in harness.admin.xrange(SLOW.alert_notices)] == kept,
            within=SOON,
            sentence="only the notices of other notifiers are left",
        )
        assert states(calls) == ["fired"]
        lines = [each for each in caplog.messages if "job 'on_alert'" in each]
        assert [line.partition(" for ")[0] for line in lines] == [
            "gave up notices",
            "dropped a notice",
        ]
