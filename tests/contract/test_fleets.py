"""Fleets: many queues in one worker, and many workers on one queue, at a constant cost."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from statistics import median
from typing import Any

import msgspec
import pytest

from tampu import App, AppWorker, Job, Queue, Worker
from tampu.consumer.engine import Engine
from tampu.consumer.handler import handlers_by_name
from tampu.consumer.history import EVERY_S
from tampu.consumer.options import WorkerSettings
from tampu.consumer.queue_config import QueueConfig, new_consumer
from tampu.consumer.runners.local import make_plans
from tampu.consumer.watch import MOST_WATCHERS
from tampu.util.clock import now_ms
from tampu.wire.entry import encode_member
from tampu.wire.envelope import Envelope, encode_envelope
from tampu.wire.extras import NO_EXTRAS
from tampu.wire.keys import QueueKeys
from tampu.wire.result import NOTICE_FIELD, encode_notice, encode_result
from tests.contract.workers import GROUP, KEYS, QUEUE, SOON, Calls, Gate, Harness, connections
from tests.proxy import Proxy
from tests.servers import RunningServer
from tests.waiting import wait_until

QUEUES = 20
STOP_LIMIT_S = 10.0


# --- many queues --------------------------------------------------------------------------------


def app_with(url: str, queues: int) -> App:
    app = App(url)
    for number in range(queues):
        app.task(name=f"task-{number}", queue=f"queue-{number}")(lambda: None)
    return app


@pytest.mark.every_server
async def test_the_queues_of_a_worker_share_connections(running: RunningServer) -> None:
    with running.admin() as admin:
        before = connections(admin)
        async with AppWorker(app_with(running.url, QUEUES)):
            for number in range(QUEUES):
                keys = QueueKeys(f"queue-{number}")
                await wait_until(
                    partial(admin.exists, keys.promoter_lock),
                    within=SOON,
                    sentence="the services work",
                )
            assert connections(admin) - before <= QUEUES + 6


async def test_an_idle_queue_costs_few_commands(running: RunningServer) -> None:
    with running.admin() as admin:
        async with AppWorker(app_with(running.url, QUEUES)):
            await wait_until(
                lambda: len(admin.keys("*:tampu:m:60:*")) >= QUEUES,
                within=60,
                sentence="all queues have recorded how they are",
            )
            began, commands = time.monotonic(), admin.info("stats")["total_commands_processed"]
            await asyncio.sleep(EVERY_S)  # time itself is the subject
            spent = admin.info("stats")["total_commands_processed"] - commands
            assert spent / (time.monotonic() - began) / QUEUES <= 9  # 7.5 in a longer run


async def test_every_queue_of_a_worker_runs_its_jobs(running: RunningServer) -> None:
    app = App(running.url)
    seen: list[int] = []

    def note(number: int) -> None:
        seen.append(number)

    for number in range(QUEUES):
        app.task(name=f"task-{number}", queue=f"queue-{number}")(note)
    async with app, AppWorker(app):
        for number in range(QUEUES):
            await app.queue(f"queue-{number}").add(f"task-{number}", {"number": number}, delay=0.05)
        await wait_until(lambda: len(seen) == QUEUES, within=SOON, sentence="all have run")
    assert sorted(seen) == list(range(QUEUES))


@pytest.mark.every_server
async def test_the_queues_of_an_app_share_connections(running: RunningServer) -> None:
    app = App(running.url)
    with running.admin() as admin:
        before = connections(admin)
        async with app:
            jobs = {f"queue-{n}": await app.queue(f"queue-{n}").add("job") for n in range(QUEUES)}
            assert connections(admin) - before == 1
            waiting = [asyncio.create_task(job.result(timeout=SOON)) for job in jobs.values()]
            await wait_until(
                lambda: len(blocked_streams(admin)) == 1, within=SOON, sentence="one read for all"
            )
            assert connections(admin) - before == 2
            for queue, job in jobs.items():
                finish(running, queue, job.id)
            assert await asyncio.gather(*waiting) == [None] * QUEUES


def blocked_streams(admin: Any) -> list[str]:  # noqa: ANN401 - a redis client
    """The connections that block in a read of streams."""
    clients = admin.client_list()
    return [each["id"] for each in clients if each["cmd"] == "xread" and "b" in each["flags"]]


def finish(running: RunningServer, queue: str, job_id: str) -> None:
    """Store a result and a notice, as a worker does."""
    keys = QueueKeys(queue)
    with running.admin() as admin:
        admin.set(keys.result(job_id), encode_result(None, max_bytes=9))
        admin.xadd(keys.notices, {NOTICE_FIELD: encode_notice([job_id])})


async def test_a_handler_that_blocks_the_loop_loses_no_lease_on_other_queues(
    running: RunningServer,
) -> None:
    app = App(running.url)
    runs: list[str] = []

    @app.task(queue="blocking")
    async def block() -> None:
        time.sleep(3)  # noqa: ASYNC251 - that is the point

    @app.task(queue="waiting")
    async def wait() -> None:
        runs.append("here")
        await asyncio.sleep(4)

    async def elsewhere(job: Job[Any]) -> None:
        del job
        runs.append("elsewhere")

    def live() -> None:
        asyncio.run(work())

    async def work() -> None:
        async with Worker("waiting", elsewhere, running.url, lease=1):
            await asyncio.to_thread(stopping.wait)

    stopping = threading.Event()
    async with app, AppWorker(app, lease=1, store_results=True):
        job = await wait.enqueue()
        await wait_until(lambda: runs == ["here"], within=SOON, sentence="it runs")
        thread = threading.Thread(target=live)
        thread.start()
        await block.enqueue()
        await job.result(timeout=SOON)
        stopping.set()
        await asyncio.to_thread(thread.join)
    assert runs == ["here"]


# --- many workers -------------------------------------------------------------------------------


@pytest.fixture
def short_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that blocks on the stream notices soon that the fleet has grown."""
    monkeypatch.setattr("tampu.consumer.reader.BLOCK_MS", 300)


def config(handler: Callable[[Job[Any]], Awaitable[object]]) -> QueueConfig:
    settings = WorkerSettings(concurrency=1, events=False, lease=1)
    return QueueConfig(
        KEYS, new_consumer(None), settings, plans=make_plans(handlers_by_name(handler), settings)
    )


@asynccontextmanager
async def fleet(
    harness: Harness, handler: Callable[[Job[Any]], Awaitable[object]], size: int
) -> AsyncIterator[Engine]:
    """Workers of one queue that know of each other."""
    configs = [config(handler) for _ in range(size)]
    engine = await Engine.open(configs, harness.running.url, None, on_drain=lambda: None)
    try:
        yield engine
    finally:
        await engine.close(0)


def blocked(harness: Harness, command: str) -> int:
    """How many connections block in a command."""
    clients = harness.admin.client_list()
    return sum(each["cmd"] == command and "b" in each["flags"] for each in clients)


async def until_calm(harness: Harness, size: int) -> None:
    """Return when a few workers watch the stream and the others sleep."""
    await wait_until(
        lambda: (
            blocked(harness, "xreadgroup") == MOST_WATCHERS
            and blocked(harness, "blpop") >= size - MOST_WATCHERS
        ),
        within=SOON,
        sentence="a few watch",
    )


@pytest.mark.every_server
@pytest.mark.usefixtures("short_reads")
async def test_few_workers_of_a_large_fleet_block_on_the_stream(harness: Harness) -> None:
    calls = Calls()
    async with fleet(harness, calls, 30):
        await until_calm(harness, 30)
        for number in range(50):
            await harness.queue.add("a", number)
        await calls.until(50)
    assert sorted(calls.data) == list(range(50))


@pytest.mark.every_server
@pytest.mark.usefixtures("short_reads")
async def test_workers_without_room_call_those_that_sleep(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tampu.consumer.watch._SLEEP_S", 600.0)
    gate = Gate()
    async with fleet(harness, gate, 30):
        await until_calm(harness, 30)
        for _ in range(30):
            await harness.queue.add("a")
        # Each has one slot. Nobody looks at the stream unasked within five minutes.
        await wait_until(lambda: gate.inside == 30, within=SOON, sentence="all of them work")
        gate.open.set()
        await harness.until_settled()


@pytest.mark.usefixtures("short_reads")
async def test_a_large_fleet_takes_up_a_flood(harness: Harness) -> None:
    calls = Calls()
    async with fleet(harness, calls, 30):
        await until_calm(harness, 30)
        await harness.queue.add_each("a", range(5000))
        await calls.until(5000)
        await harness.until_settled()
    assert sorted(calls.data) == list(range(5000))


@pytest.mark.usefixtures("short_reads")
async def test_a_watcher_that_stops_is_replaced(harness: Harness) -> None:
    calls = Calls()
    async with fleet(harness, calls, 10):
        async with fleet(harness, calls, 10):
            await until_calm(harness, 20)
        await until_calm(harness, 10)
        await harness.queue.add("a", 1)
        await calls.until(1)


async def test_a_small_fleet_needs_no_places(harness: Harness) -> None:
    async with fleet(harness, Calls(), MOST_WATCHERS):
        await wait_until(
            lambda: blocked(harness, "xreadgroup") == MOST_WATCHERS, within=SOON, sentence="all"
        )
        await harness.queue.add("a")
        await harness.until_settled()
        assert harness.admin.exists(KEYS.watchers) == 0


async def test_a_worker_among_many_looks_at_them_seldom(harness: Harness) -> None:
    harness.admin.xgroup_create(KEYS.stream, GROUP, "0", mkstream=True)
    with harness.admin.pipeline(transaction=False) as others:
        for number in range(400):
            name = f"t-other-{number}"
            others.xgroup_createconsumer(KEYS.stream, GROUP, name)
            others.set(KEYS.worker(name.encode()), b"alive", px=60_000)
        others.execute()
    await harness.start_worker(Calls(), lease=0.6)  # it could look ten times a second
    await wait_until(lambda: harness.calls("xinfo|consumers") > 0, within=SOON, sentence="a look")
    harness.reset_calls()
    await asyncio.sleep(3)  # time itself is the subject
    assert harness.calls("xinfo|consumers") <= 6  # by chance 0.3
    harness.admin.delete(*(KEYS.worker(f"t-other-{n}".encode()) for n in range(400)))
    await harness.start_worker(Calls(), lease=0.6)
    await wait_until(
        lambda: len(harness.consumers()) == 2, within=SOON, sentence="the others are removed"
    )


# --- peers --------------------------------------------------------------------------------------


async def test_a_producer_that_sends_no_wakeups_is_noticed(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ChasquiMQ's: only its first delayed job waits until the promoter looks unasked."""
    monkeypatch.setattr("tampu.services.leader._LOOK_S", 10.0)
    late_s: list[float] = []

    async def handler(job: Job[Any]) -> None:
        late_s.append(time.time() - job.data)

    def add_as_peer() -> None:
        due_ms = now_ms() + 20
        payload = msgspec.msgpack.encode(due_ms / 1000)
        envelope = encode_envelope(Envelope(f"j{due_ms}", payload, now_ms(), 0, None))
        harness.admin.zadd(KEYS.delayed, {encode_member("a", envelope, NO_EXTRAS): due_ms})

    await harness.start_worker(handler)
    await wait_until(
        lambda: bool(harness.admin.exists(KEYS.promoter_lock)), within=SOON, sentence="it leads"
    )
    for number in range(8):
        add_as_peer()
        await wait_until(lambda: len(late_s) == number + 1, within=SOON, sentence="it ran")  # noqa: B023
    assert median(late_s[1:]) < 2


# --- stopping -----------------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", ["stopped", "frozen", "unreachable"])
async def test_stopping_does_not_wait_for_a_server_that_is_away(
    running: RunningServer, trouble: str
) -> None:
    gate = Gate()
    async with Proxy(running.port) as proxy:
        worker = Worker(QUEUE, gate, proxy.url, store_results=True)
        await worker.start()
        with running.admin() as admin:
            await wait_until(
                lambda: bool(admin.exists(KEYS.scheduler_lock)), within=SOON, sentence="it leads"
            )
        async with Queue(QUEUE, running.url) as queue:
            await queue.add("a")
            await wait_until(lambda: gate.inside == 1, within=SOON, sentence="a job runs")
        try:
            if trouble == "stopped":
                running.kill()
                proxy.cut()
            elif trouble == "frozen":
                running.pause()
            else:
                proxy.hold_requests = proxy.hold_replies = True
            began = time.monotonic()
            await worker.stop(0)
            assert time.monotonic() - began <= STOP_LIMIT_S
        finally:
            if trouble == "stopped":
                running.restart()
            elif trouble == "frozen":
                running.resume()
