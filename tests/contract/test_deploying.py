"""The access rules that the page about the server prints: with them, and no more, all works."""

import asyncio
import re
import shlex
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.utils import str_if_bytes

from tampu import (
    AccessDenied,
    App,
    AppWorker,
    Backoff,
    CancelState,
    EventKind,
    Every,
    Job,
    JobFailed,
    JobState,
    Queue,
    QueueEvents,
    Worker,
    chain,
)
from tampu.admin.health import Grade, examine, judge_server
from tampu.admin.queues import purge_jobs, queue_names, remove_queue, summarise_queue
from tampu.scheduler import Lease, RedisGuard, RedisStore, Scope, Slot
from tampu.server.connect import connect
from tampu.server.dialect import USED
from tampu.server.lane import Lane
from tampu.wire.keys import EVERY_QUEUE
from tests.contract.workers import KEYS, QUEUE, SOON, Harness
from tests.guide.pages import GUIDE, block_of
from tests.servers import ROOT, RunningServer
from tests.stores import state_of
from tests.topology import cluster
from tests.waiting import wait_until

pytestmark = pytest.mark.every_version

PAGE = GUIDE / "server.md"
USER = "tampu"
CALL = re.compile(r"redis\.p?call\('([A-Z]+)'")


def printed(heading: str) -> list[str]:
    """The words that the page prints under a heading, behind ACL SETUSER and the user's name."""
    words = shlex.split(block_of(PAGE, heading, "sh").replace("\\\n", " "))
    assert words[1:4] == ["ACL", "SETUSER", USER]
    return words[4:]


def unknown(admin: redis.Redis) -> set[str]:
    """Those of the newer commands that the server does not know."""
    known = admin.execute_command("ACL", "CAT", "stream")
    known += admin.execute_command("ACL", "CAT", "blocking")
    return {"xackdel", "waitaof"} - {str_if_bytes(name) for name in known}


def allow(admin: redis.Redis, *headings: str) -> None:
    """Make the user of the page; what a server is too old for is left out, as the page says."""
    words = [word for heading in headings for word in printed(heading)]
    too_new = {f"+{name}" for name in unknown(admin)}
    admin.execute_command("ACL", "SETUSER", USER, *(word for word in words if word not in too_new))
    admin.script_flush()  # to load scripts needs a permission too
    admin.execute_command("ACL", "LOG", "RESET")


@contextmanager
def user_of(running: RunningServer, *headings: str) -> Iterator[str]:
    """The server's URL for that user; what the user was refused fails the test."""
    with running.admin() as admin:
        allow(admin, "Permissions", "Newer servers", *headings)
        try:
            yield f"redis://{USER}:PASSWORD@127.0.0.1:{running.port}/0"
            assert admin.execute_command("ACL", "LOG") == []
        finally:
            admin.acl_deluser(USER)


@pytest.fixture
def url(running: RunningServer) -> Iterator[str]:
    with user_of(running) as made:
        yield made


async def work(job: Job[Any]) -> object:
    if job.data == "twice" and job.attempt == 1:
        raise ValueError("not yet")
    if job.data == "never":
        raise ValueError("never")
    return job.data


def test_the_acl_rule_covers_the_commands_and_keys_that_tampu_uses() -> None:
    rule = printed("Permissions")
    granted = {word[1:] for word in rule if word.startswith("+")}
    assert granted == {name.lower() for name in USED} | {"ping", "select"}
    assert [word for word in rule if word.startswith("~")] == [f"~{EVERY_QUEUE.decode()}"]


def test_the_rules_hold_every_command_that_a_script_calls() -> None:
    lua = (ROOT / "src/tampu/server/lua").rglob("*.lua")
    called = {name.lower() for path in lua for name in CALL.findall(path.read_text("utf-8"))}
    granted = {word[1:] for word in printed("Permissions") + printed("Newer servers")}
    assert "xadd" in called
    assert called - granted == set()


async def test_a_user_with_the_rule_adds_and_runs_jobs(url: str) -> None:
    async with Queue(QUEUE, url, events=True) as queue, QueueEvents(QUEUE, url) as events:
        async with Worker(
            QUEUE, work, url, store_results=True, attempts=2, backoff=Backoff.fixed("10ms")
        ):
            jobs = await queue.add_each("work", [1, "twice"])
            jobs.append(await queue.add("work", 2, delay="10ms", job_id="once"))
            assert [await job.result(timeout=SOON) for job in jobs] == [1, "twice", 2]
            with pytest.raises(JobFailed):
                await (await queue.add("work", "never")).result(timeout=SOON)
        told = await asyncio.wait_for(anext(aiter(events)), SOON)
        assert told.name == "work"
        assert await queue.results([jobs[0].id]) == {jobs[0].id: 1}


async def test_a_user_with_the_rule_runs_flows(url: str) -> None:
    app = App(url, default_queue=QUEUE)

    @app.task(attempts=1)
    async def half(number: int) -> int:
        if number % 2:
            raise ValueError
        return number // 2

    @app.task
    async def add_up(numbers: list[int]) -> int:
        return sum(numbers)

    async with app, AppWorker(app):
        flow = app.flow()
        total = flow.add(add_up, flow.map(half, [2, 4, 5]).tolerate(0.5))
        run = await flow.start(result=total)
        assert await run.result(timeout=SOON) == 3
        assert [each.id for each in await app.queue().flows.newest()] == [run.id]
        failing = await app.flow().add(half, 1).flow.start()
        with pytest.raises(JobFailed):
            await failing.result(timeout=SOON)
        assert await failing.retry() == 1
        job = await chain(half.call(8), half).enqueue()
        assert await job.result(timeout=SOON) == 2


async def test_a_user_with_the_rule_tends_jobs(url: str) -> None:
    async with Queue(QUEUE, url) as queue:
        for name in ("a", "b", "c"):
            await queue.add("work", name, delay="1h", job_id=name)
        assert await queue.job("a").cancel() is CancelState.CANCELLED
        assert await queue.job("b").reschedule(delay="2h")
        assert await queue.job("c").run_now()
        async with Worker(QUEUE, {"other": work}, url):
            await wait_until(lambda: _is_buried(queue), within=SOON, sentence="it is buried")
        assert await queue.dead.replay() == 1
        assert await queue.dead.purge(everything=True) == 0
        assert (await queue.counts()).waiting == 1


async def test_a_user_with_the_rule_asks_about_jobs_and_stops_them(url: str) -> None:
    started = asyncio.Event()

    async def hang(job: Job[Any]) -> None:
        started.set()
        await asyncio.sleep(3600)

    async with Queue(QUEUE, url, events=True) as queue, Worker(QUEUE, hang, url):
        running = await queue.add("work", job_id="runs")
        await queue.add("work", delay="1h", job_id="later")
        await asyncio.wait_for(started.wait(), SOON)
        assert (await queue.job("nope").info()).state is JobState.UNKNOWN
        for newest_first in (False, True):
            listed = [info.id async for info in queue.jobs(newest_first=newest_first)]
            assert listed == ["runs", "later"]
        assert await queue.pause()
        assert await running.cancel() is CancelState.CANCELLING
        assert [event.kind async for event in running.events()][-1] is EventKind.CANCELLED
        assert await queue.resume()
        assert (await queue.drain(timeout=SOON)).active == 0


async def _is_buried(queue: Queue) -> bool:
    return len(await queue.dead.peek()) == 1


async def test_a_user_with_the_rule_has_schedules(url: str) -> None:
    async with Queue(QUEUE, url) as queue:
        await queue.schedules.add("tick", Every("20ms"), "tick", key="tick")
        async with Worker(QUEUE, work, url):
            await wait_until(lambda: _has_fired(queue), within=SOON, sentence="it has fired")
        assert await queue.schedules.pause("tick")
        assert await queue.schedules.resume("tick")
        await queue.schedules.trigger("tick")
        assert await queue.schedules.remove("tick")


async def _has_fired(queue: Queue) -> bool:
    (schedule,) = await queue.schedules.list()
    return schedule.counts.fired > 1


async def test_a_user_with_the_rule_takes_over_from_the_dead(url: str, harness: Harness) -> None:
    job = await harness.queue.add("work", 1)
    (entry,) = harness.admin.xrange(KEYS.stream)
    harness.hold_as_peer(entry[0], deliveries=1)
    async with Worker(QUEUE, work, url, store_results=True, lease=1):
        assert await job.result(timeout=SOON) == 1


async def test_a_user_with_the_rule_looks_at_queues_and_removes_them(url: str) -> None:
    async with Queue(QUEUE, url) as queue:
        await queue.add("work", 1)
    async with await connect(url) as server:
        async with await Lane.open(server, KEYS.stream) as lane:
            assert (await summarise_queue(lane, KEYS)).counts.waiting == 1
            assert (await purge_jobs(lane, KEYS)).waiting == 1
        assert await queue_names(server) == [QUEUE]
        assert await remove_queue(server, KEYS) > 0


async def test_a_user_with_the_doctor_rule_sees_every_finding(running: RunningServer) -> None:
    with user_of(running, "For tampu doctor") as url:
        async with await connect(url) as server:
            found = judge_server(await examine(server))
    assert {each.check for each in found if each.grade is not Grade.OK} == {"persistence"}
    assert "no persistence" in next(e.sentence for e in found if e.check == "persistence")


async def test_a_user_with_the_rule_of_the_scheduler_keeps_states(running: RunningServer) -> None:
    with user_of(running, "For the in-process scheduler") as url:
        store, guard = RedisStore(url), RedisGuard(url)
        await store.open()
        await guard.open()
        await store.save([state_of("t", 1)])
        assert await store.load(["t", "u"]) == [state_of("t", 1), None]
        lease = await guard.acquire(Slot("t", "house", Scope.RESOURCE, 0))
        assert isinstance(lease, Lease)
        assert await guard.release(lease)
        await guard.close()
        await store.close()


async def test_a_user_with_the_rule_of_a_cluster_adds_and_runs_jobs(binary: Path) -> None:
    with cluster(binary) as built, ExitStack() as stack:
        for node in built.masters:
            stack.enter_context(user_of(node, "In a cluster"))
        url = built.url.replace("://", f"://{USER}:PASSWORD@")
        async with Queue(QUEUE, url) as queue, Worker(QUEUE, work, url, store_results=True):
            assert await (await queue.add("work", 1)).result(timeout=SOON) == 1


async def test_a_rule_for_one_queue_refuses_the_others(url: str, running: RunningServer) -> None:
    with running.admin() as admin:
        admin.execute_command("ACL", "SETUSER", USER, "resetkeys", f"~{{chasqui:{QUEUE}}}:*")
        async with Queue(QUEUE, url) as queue, Queue("other", url) as other:
            await queue.add("work", 1)
            with pytest.raises(AccessDenied):
                await other.add("work", 1)
        admin.execute_command("ACL", "LOG", "RESET")
