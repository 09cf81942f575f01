"""`tampu serve-time`: what happens to queues whose workers have scaled to zero."""

import json
import sqlite3
import urllib.error
import urllib.request
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import redis

from tampu import App, AppWorker, Every, NewJob, Queue, Rate
from tampu.admin.alerts import read_alerts
from tampu.consumer.options import WorkerSettings
from tampu.outbox import Outbox
from tampu.server.connect import connect
from tampu.server.lane import Lane
from tampu.standalone import TimeServer
from tampu.wire.alerts import AlertPhase
from tampu.wire.keys import QueueKeys
from tests.conftest import Start
from tests.contract.cli import tampu
from tests.contract.flow_runs import FlowShop
from tests.contract.worker_command import SOON, WorkerCommand, run_command
from tests.contract.workers import KEYS, QUEUE, Calls, Gate, Harness, own_tasks
from tests.servers import RunningServer, free_port
from tests.waiting import wait_until

SHOP = """\
from tampu import Alert, App, Concurrency, Every

app = App(worker={"alerts": [Alert.no_workers("default", for_=0)]})
smtp = app.limit("smtp", Concurrency(1))

@app.schedule(Every("50ms"), key="tick")
@app.task
async def tick() -> None:
    pass

@app.task(queue="mail", limits=[smtp])
async def send(to: str) -> None:
    pass
"""


OUTBOX = """\
from tampu import App
from tampu.outbox import Outbox

app = App()
outbox = Outbox(app, database="sqlite:///shop.db")

@app.task
async def pay(amount: int) -> None:
    pass
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Where the user's app is."""
    (tmp_path / "shop.py").write_text(SHOP)
    return tmp_path


async def until_waiting(queue: Queue, count: int) -> None:
    async def are_there() -> bool:
        return (await queue.counts()).waiting >= count

    await wait_until(are_there, within=SOON, sentence=f"{count} jobs wait for a worker")


def until_up(command: WorkerCommand) -> None:
    command.until(lambda: "Queues" in command.out, "it shows what it serves")


def locks(admin: redis.Redis, keys: QueueKeys = KEYS) -> set[str]:
    """Who leads the promoter and the firing of schedules."""
    found = [admin.get(keys.promoter_lock), admin.get(keys.scheduler_lock)]
    return {bytes(each).decode() for each in found if each is not None}  # type: ignore[arg-type]


# --- the command --------------------------------------------------------------------------------


@pytest.mark.every_server
async def test_without_a_worker_delayed_jobs_are_promoted_and_schedules_fire(
    running: RunningServer, home: Path
) -> None:
    with (
        run_command(running.url, home, "serve-time", "-q", QUEUE) as time,
        running.admin() as admin,
    ):
        until_up(time)
        async with Queue(QUEUE, running.url) as queue:
            await queue.add("later", delay="50ms")
            await queue.schedules.add("tick", Every("50ms"), key="tick")
            await until_waiting(queue, 4)
            assert {info.name async for info in queue.jobs()} == {"later", "tick"}
        assert len(locks(admin)) == 2
        assert time.stop() == 0
        assert locks(admin) == set(), "another one can lead at once"
        assert time.err.count("WARNING") == 0


async def test_of_an_app_it_stores_what_the_app_declares(
    running: RunningServer, home: Path
) -> None:
    with run_command(running.url, home, "serve-time", "shop:app", "--json") as time:
        time.until(lambda: time.out.endswith("}\n"), "it shows what it serves")
        shown = json.loads(time.out)
        assert (shown["queues"], shown["alerts"]) == (["default", "mail"], 1)
        async with Queue("default", running.url) as queue, Queue("mail", running.url) as mail:
            await until_waiting(queue, 2)
            assert [each.name for each in await mail.limits.list()] == ["smtp"]
        assert time.stop() == 0


async def test_it_watches_for_alerts_while_there_is_no_worker(
    running: RunningServer, home: Path
) -> None:
    with run_command(running.url, home, "serve-time", "shop:app") as time:
        time.until_logged("alert fired: Queue 'default'")
        keys = QueueKeys("default")
        async with await connect(running.url) as server, await Lane.open(server, keys.stream) as it:
            (alert,) = await read_alerts(it, keys)
        assert alert.phase is AlertPhase.FIRED


async def test_it_moves_the_rows_of_an_outbox_to_their_queue(
    running: RunningServer, home: Path
) -> None:
    database = home / "shop.db"
    (home / "bank.py").write_text(OUTBOX)
    app = App(running.url)
    outbox = Outbox(app, database=f"sqlite:///{database}")
    await outbox.create_table()
    with sqlite3.connect(database) as connection:
        outbox.add_sync(connection, "default", NewJob("pay", {"amount": 1}))
    with run_command(running.url, home, "serve-time", "bank:app") as time:
        async with Queue("default", running.url) as queue:
            await until_waiting(queue, 1)
        assert time.stop() == 0
    with sqlite3.connect(database) as connection:
        (left,) = connection.execute(f"SELECT count(*) FROM {outbox.table}").fetchone()  # noqa: S608 - ours
    assert left == 0


async def test_it_tells_its_health_and_the_metrics_of_queues_without_workers(
    running: RunningServer, home: Path
) -> None:
    port, file = free_port(), home / "alive"
    options = ["--health-port", str(port), "--health-file", str(file)]

    def read(path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
            return str(answer.read().decode())

    async with Queue(QUEUE, running.url) as queue:
        await queue.add("now")
    with run_command(running.url, home, "serve-time", *options) as time:
        time.until(file.exists, "it touches its file")
        health: dict[str, Any] = json.loads(read("/ready"))
        assert (health["ready"], health["running"]) == (True, 0)
        assert health["server_seen_s_ago"] < 10
        time.until(lambda: f'{{queue="{QUEUE}",state="waiting"}} 1' in read("/metrics"), "counts")
        assert time.stop() == 0
        assert not file.exists()


async def test_it_says_that_it_is_not_ready_while_the_server_is_away(
    start: Start, home: Path
) -> None:
    running, port = start(), free_port()

    def is_ready() -> bool:
        request = f"http://127.0.0.1:{port}/ready"
        try:
            with urllib.request.urlopen(request, timeout=20):
                return True
        except urllib.error.HTTPError as error:
            error.close()
            return False

    with run_command(running.url, home, "serve-time", "--health-port", str(port)) as time:
        until_up(time)
        time.until(is_ready, "it is ready")
        running.pause()
        try:
            time.until(lambda: not is_ready(), "it is not ready")
        finally:
            running.resume()
        time.until(is_ready, "it is ready again")
        assert time.stop() == 0


async def test_it_does_not_start_without_a_server(home: Path) -> None:
    url = f"redis://127.0.0.1:{free_port()}/0"
    with run_command(url, home, "serve-time", "-q", QUEUE) as time:
        assert time.wait() == 3
        assert "refused" in time.err


async def test_an_invalid_queue_is_refused(running: RunningServer) -> None:
    done = await tampu("serve-time", "-q", "a{b", url=running.url)
    assert (done.code, done.out) == (2, "")
    assert "a{b" in done.err


# --- what it serves -----------------------------------------------------------------------------


async def test_new_queues_of_the_server_are_found(
    running: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tampu.standalone.FIND_EVERY_S", 0.05)
    async with TimeServer(None, running.url) as time, Queue(QUEUE, running.url) as queue:
        assert time.queues == []
        await queue.add("later", delay="10ms")
        await until_waiting(queue, 1)
        assert time.queues == [QUEUE]
    assert own_tasks() == []


@pytest.mark.parametrize("is_first", [False, True])
async def test_flows_go_on_to_their_next_queue(running: RunningServer, *, is_first: bool) -> None:
    shop = FlowShop(running.url)
    async with shop.app, AsyncExitStack() as stack:
        if is_first:
            run = await shop.start_far()
        await stack.enter_async_context(TimeServer(["default", "other"], running.url))
        if not is_first:
            run = await shop.start_far()
        await until_waiting(shop.app.queue("default"), 1)
        async with AppWorker(shop.app, {"default": 10}, promote=False):
            await wait_until_done(run)
    assert own_tasks() == []


async def wait_until_done(run: Any) -> None:  # noqa: ANN401 - of any result
    async def is_done() -> bool:
        return bool((await run.info()).state.value == "done")

    await wait_until(is_done, within=SOON, sentence="the flow has ended")


async def test_jobs_with_flow_control_wait_in_their_lines_for_a_worker(
    running: RunningServer,
) -> None:
    app = App(running.url)

    @app.task(limits=[Rate("100/s")])
    async def call(number: int) -> int:
        return number

    with running.admin() as admin:
        async with app, TimeServer(["default"], running.url):
            job = await call.options(delay="10ms").enqueue(7)
            await until_waiting(app.queue(), 1)
            assert admin.xlen(QueueKeys("default").stream) == 0, "which no length of a stream shows"
            async with AppWorker(app, store_results=True):
                assert await job.result(timeout=SOON) == 7


@pytest.mark.every_server
async def test_of_two_one_leads_each_queue_and_the_other_takes_over(
    running: RunningServer,
) -> None:
    first, second = (
        TimeServer([QUEUE], running.url, settings=WorkerSettings(name=name))
        for name in ("first", "second")
    )

    async def until_leading(name: str) -> None:
        await wait_until(
            lambda: sum(f"-{name}-" in each for each in locks(admin)) == 2,
            within=SOON,
            sentence=f"the {name} leads",
        )

    with running.admin() as admin:
        async with first:
            await until_leading("first")
            await second.start()
        await until_leading("second")
        async with Queue(QUEUE, running.url) as queue:
            await queue.add_many([NewJob("later", None, delay="10ms")] * 3)
            await until_waiting(queue, 3)
        await second.stop()
        assert locks(admin) == set()
    assert own_tasks() == []


async def test_charts_go_on_while_there_is_no_worker(
    running: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tampu.consumer.history.EVERY_S", 0.1)
    async with TimeServer([QUEUE], running.url), Queue(QUEUE, running.url) as queue:
        await queue.add_many([NewJob("now", None)] * 3)

        async def is_recorded() -> bool:
            (last, *_) = reversed((await queue.history("1h")).buckets)
            return last.last is not None and last.last.waiting == 3

        await wait_until(is_recorded, within=SOON, sentence="the chart shows the waiting jobs")


# --- what KEDA reads ----------------------------------------------------------------------------


async def test_there_is_not_always_a_lag_to_scale_by(harness: Harness) -> None:
    await harness.queue.add_many([NewJob("work", number) for number in range(3)])
    assert harness.admin.xinfo_groups(KEYS.stream) == [], "there was no worker yet"
    await harness.start_worker(Calls())
    await harness.until_settled()
    await harness.workers[0].stop()
    jobs = await harness.queue.add_many([NewJob("work", number) for number in range(3)])
    await harness.queue.job(jobs[1].id).cancel()
    (group,) = harness.admin.xinfo_groups(KEYS.stream)
    assert (group["lag"], harness.admin.xlen(KEYS.stream)) == (None, 2), "a waiting job has gone"


async def test_the_length_of_the_stream_counts_waiting_and_running_jobs(
    harness: Harness,
) -> None:
    gate, queue, stream = Gate(), harness.queue, KEYS.stream
    jobs = await queue.add_many([NewJob("work", number) for number in range(6)])
    await queue.job(jobs[3].id).cancel()
    assert harness.admin.xlen(stream) == 5
    worker = await harness.start_worker(gate, concurrency=2)
    await gate.until(2)
    assert harness.admin.xlen(stream) == 5, "as many as before: they run or wait"
    gate.open.set()
    await harness.until_settled()
    assert harness.admin.xlen(stream) == 0
    await worker.stop()
    harness.hold_as_peer(harness.add_entry({"d": b"x"}), deliveries=1, peer="t-gone")
    assert harness.admin.xlen(stream) == 1, "what a dead worker holds counts too"
    harness.admin.delete(stream)
