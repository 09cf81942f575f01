"""What workers record on the server about a queue."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tampu import Bury, Job, NewJob, Retry, Snooze
from tampu.admin.browsing import slowest_attempts
from tampu.admin.history import (
    add_mark,
    failure_groups,
    measure_gauges,
    processes_of,
    read_history,
    read_marks,
    read_totals,
    read_unknown,
)
from tampu.consumer import history as recording
from tampu.consumer.recorder import Recorder
from tampu.consumer.settle import EndedAttempt, release
from tampu.errors import OptionError, ServerError
from tampu.metrics.history import RESOLUTIONS, Span
from tampu.outcome import Failed
from tampu.server.connect import connect
from tampu.server.lane import Lane
from tampu.server.scripts.history import MAX_TASKS
from tampu.server.scripts.script import Script
from tampu.wire.dead import Failure
from tampu.wire.keys import MARKS
from tests.contract.workers import GROUP, KEYS, SOON, Boom, Calls, Gate, Harness
from tests.proxy import Proxy
from tests.servers import RunningServer
from tests.unit.consumer.deliveries import delivery as make_delivery
from tests.waiting import wait_until

pytestmark = pytest.mark.every_server


@pytest.fixture
async def lane(running: RunningServer) -> AsyncIterator[Lane]:
    async with await connect(running.url) as server, await Lane.open(server, KEYS.stream) as opened:
        yield opened


@pytest.fixture
def quick_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Record ten times as often."""
    monkeypatch.setattr(recording, "EVERY_S", 1.0)


async def choose_outcome(job: Job[Any]) -> None:
    """Raise what the job's name says."""
    if job.name == "retry" and job.attempt == 1:
        raise Retry("again", after=0)
    if job.name == "bury":
        raise Bury("enough")


async def test_each_outcome_is_counted(harness: Harness, lane: Lane) -> None:
    gate = Gate()
    handlers = {"ok": Calls(), "hold": gate} | dict.fromkeys(("retry", "bury"), choose_outcome)
    worker = await harness.start_worker(handlers, attempts=3, store_results=True, concurrency=5)
    await harness.queue.add_many(
        [NewJob(name, number) for name in ("ok", "retry", "bury") for number in range(7)]
    )
    held = await harness.queue.add("hold")
    await gate.until(1)
    await held.cancel()
    await harness.until_settled()
    await worker.stop()
    tasks = (await read_totals(lane, KEYS)).tasks
    assert (tasks["ok"].done, tasks["ok"].failed, tasks["ok"].run.count) == (7, 0, 7)
    retried = tasks["retry"]
    assert (retried.done, retried.failed, retried.retried, retried.dead) == (7, 7, 7, 0)
    assert retried.run.count == 14, "each attempt has a time"
    buried = tasks["bury"]
    assert (buried.done, buried.failed, buried.retried, buried.dead) == (0, 7, 0, 7)
    assert (tasks["hold"].done, tasks["hold"].cancelled) == (0, 1)


async def test_snoozed_jobs_are_counted_as_such(harness: Harness, lane: Lane) -> None:
    seen = set()

    async def snooze_once(job: Job[Any]) -> None:
        if job.id not in seen:
            seen.add(job.id)
            raise Snooze(0.01)

    worker = await harness.start_worker(snooze_once)
    await harness.queue.add_each("later", range(5))
    await harness.until_settled()
    await worker.stop()
    figures = (await read_totals(lane, KEYS)).tasks["later"]
    assert (figures.done, figures.snoozed, figures.failed) == (5, 5, 0)


async def test_times_are_those_that_jobs_ran_and_waited(harness: Harness, lane: Lane) -> None:
    async def sleep(job: Job[Any]) -> None:
        await asyncio.sleep(0.05)

    await harness.queue.add_each("sleep", range(40))
    worker = await harness.start_worker(sleep, concurrency=10)
    await harness.until_settled()
    await worker.stop()
    figures = (await read_totals(lane, KEYS)).tasks["sleep"]
    run, wait = figures.run.quantile(0.5), figures.wait.quantile(0.99)
    assert run is not None
    assert wait is not None
    assert run > 0.045
    assert wait > 0.13, "the last ten waited for three rounds"


async def test_every_resolution_holds_the_same_counts_and_expires(
    harness: Harness, lane: Lane
) -> None:
    worker = await harness.start_worker(Calls())
    await harness.queue.add_each("x", range(30))
    await harness.until_settled()
    await worker.stop()
    for span in Span:
        assert (await read_history(lane, KEYS, span)).total.done == 30
    for resolution in RESOLUTIONS:
        keys = harness.admin.keys(KEYS.tag + b":tampu:m:%d:*" % resolution.seconds)
        assert all(0 < harness.admin.ttl(key) <= resolution.kept_s for key in keys)
        assert keys


async def test_names_beyond_the_limit_are_counted_together(harness: Harness, lane: Lane) -> None:
    worker = await harness.start_worker(Calls())
    await harness.queue.add_many([NewJob(f"name-{number}") for number in range(MAX_TASKS + 50)])
    await harness.until_settled()
    await worker.stop()
    tasks = (await read_totals(lane, KEYS)).tasks
    assert len(tasks) <= MAX_TASKS + 1
    assert tasks["other"].done >= 50
    assert sum(each.done for each in tasks.values()) == MAX_TASKS + 50


async def test_counts_of_a_full_server_are_made_up_for(harness: Harness, lane: Lane) -> None:
    gate = Gate()
    worker = await harness.start_worker(gate, events=False)
    await harness.queue.add_each("x", range(20))
    await gate.until(20)
    harness.admin.config_set("maxmemory", 1)
    try:
        gate.open.set()
        await wait_until(
            lambda: harness.admin.xlen(KEYS.stream) == 0, within=SOON, sentence="all are done"
        )
    finally:
        harness.admin.config_set("maxmemory", 0)
    await worker.stop()
    totals = await read_totals(lane, KEYS)
    assert (totals.tasks["x"].done, totals.unknown) == (20, 0)


async def test_times_that_a_full_server_refuses_are_recorded_later(
    harness: Harness, lane: Lane
) -> None:
    recorder, delivery = Recorder(lane, KEYS), make_delivery()
    attempt = EndedAttempt(delivery, Failed(Failure("ValueError", "no")), 1_000_000)
    recorder.note_attempt(attempt, release(delivery))
    harness.admin.config_set("maxmemory", 1)
    try:
        flushing = asyncio.create_task(recorder.flush())
        await asyncio.sleep(0)  # it has begun
        recorder.note_attempt(attempt, release(delivery))
        with pytest.raises(ServerError):
            await flushing
        recorder.note_attempt(attempt, release(delivery))
    finally:
        harness.admin.config_set("maxmemory", 0)
    await recorder.flush()
    (figures,) = (await read_totals(lane, KEYS)).tasks.values()
    assert figures.run.count == 3
    assert [each.count for each in await failure_groups(lane, KEYS)] == [3]


@pytest.mark.parametrize("arrives", [True, False])
async def test_jobs_whose_count_may_have_arrived_are_counted_as_unknown(
    lane: Lane, proxy: Proxy, *, arrives: bool
) -> None:
    async with await connect(proxy.url) as server, await Lane.open(server, KEYS.stream) as weak:
        recorder, batch = Recorder(weak, KEYS), [make_delivery()] * 5
        for unknown in (5, 10):
            await weak.call("PING")
            proxy.hold_replies, proxy.hold_requests = arrives, not arrives
            swallowed = proxy.swallowed
            recorder.ack_times += [1_000_000] * len(batch)
            recorder.count_acks(batch)
            await wait_until(
                lambda swallowed=swallowed: proxy.swallowed > swallowed,  # type: ignore[misc]
                within=SOON,
                sentence="the count or its reply is lost",
            )
            proxy.hold_replies = proxy.hold_requests = False
            proxy.cut()
            await wait_until(
                lambda unknown=unknown: recorder.unknown_jobs == unknown,  # type: ignore[misc]
                within=SOON,
                sentence="the worker has noticed",
            )
        await recorder.flush()
    totals = await read_totals(lane, KEYS)
    assert totals.unknown == await read_unknown(lane, KEYS) == 10
    assert sum(each.done for each in totals.tasks.values()) == (10 if arrives else 0)


async def test_a_worker_has_loaded_its_scripts_before_it_settles_anything(
    harness: Harness, lane: Lane
) -> None:
    harness.admin.script_flush()
    worker = await harness.start_worker(Calls())
    scripts = [Script(name) for name in ("ack", "finish", "retry", "bury", "close", "count")]
    digests = [each.text(lane.server.dialect).digest.decode() for each in scripts]
    assert harness.admin.script_exists(*digests) == [True] * len(scripts)
    await worker.stop()


async def test_counts_survive_forgotten_scripts(harness: Harness, lane: Lane) -> None:
    worker = await harness.start_worker({"a": Calls(), "b": Calls()})
    for _ in range(5):
        harness.admin.script_flush()
        await harness.queue.add_many([NewJob("a"), NewJob("b")] * 10)
        await harness.until_settled()
    await worker.stop()
    assert {name: each.done for name, each in (await read_totals(lane, KEYS)).tasks.items()} == {
        "a": 50,
        "b": 50,
    }


async def test_failures_are_grouped_and_the_oldest_groups_are_dropped(
    harness: Harness, lane: Lane
) -> None:
    worker = await harness.start_worker({"x": Boom(), "y": Boom(KeyError("k"))}, attempts=1)
    await harness.queue.add_many([NewJob("x")] * 5 + [NewJob("y")] * 2)
    await harness.until_settled()
    await worker.stop()
    groups = {each.error_type: each for each in await failure_groups(lane, KEYS)}
    assert {kind: each.count for kind, each in groups.items()} == {"ValueError": 5, "KeyError": 2}
    assert groups["ValueError"].message == "boom"
    assert groups["ValueError"].first_at <= groups["ValueError"].last_at
    assert await harness.queue.job(groups["KeyError"].job_id).info() is not None


@pytest.mark.usefixtures("quick_ticks")
async def test_processes_report_what_they_run(harness: Harness, lane: Lane) -> None:
    gate = Gate()
    worker = await harness.start_worker(gate, concurrency=3, version="1.2")
    job = await harness.queue.add("x")
    await gate.until(1)

    async def is_reported() -> bool:
        found = await processes_of(lane, KEYS)
        return [run.id for each in found for run in each.running] == [job.id]

    await wait_until(is_reported, within=SOON, sentence="its process reports the running job")
    (process,) = await processes_of(lane, KEYS)
    assert (process.worker, process.slots, process.busy) == (worker.id, 3, 1)
    assert process.app_version == "1.2"
    assert process.rss_bytes > 1_000_000
    gate.open.set()
    await worker.stop()
    assert await processes_of(lane, KEYS) == []


@pytest.mark.usefixtures("quick_ticks")
async def test_the_leader_records_gauges(harness: Harness, lane: Lane) -> None:
    gate = Gate()
    await harness.queue.add_each("x", range(10))
    await harness.queue.add("x", delay=600)
    worker = await harness.start_worker(gate, concurrency=2)

    async def are_recorded() -> bool:
        last = (await read_history(lane, KEYS, Span.HOUR)).buckets[-1].last
        if last is None:
            return False
        return (last.waiting + last.active, last.delayed, last.workers) == (10, 1, 1)

    await wait_until(are_recorded, within=SOON, sentence="the gauges are in the history")
    gauges = await measure_gauges(lane, KEYS, GROUP.encode())
    assert (gauges.waiting + gauges.active, gauges.slots, gauges.busy) == (10, 2, 2)
    gate.open.set()
    await worker.stop()


async def test_the_slowest_attempts_are_found_among_the_last_events(
    harness: Harness, lane: Lane
) -> None:
    others = asyncio.Semaphore(0)

    async def nap(job: Job[Any]) -> None:
        """The first to start is the last to end, however busy the machine is."""
        if job.data > 0:
            others.release()
            return
        for _ in range(12):
            await others.acquire()
        await asyncio.sleep(0.05)

    worker = await harness.start_worker({"nap": nap, "other": nap}, concurrency=20)
    jobs = await harness.queue.add_each("nap", range(12))
    await harness.queue.add("other", 12)
    await harness.until_settled()
    await worker.stop()
    slowest = await slowest_attempts(lane, KEYS, "nap")
    assert len(slowest) == 10
    assert slowest[0].job_id == jobs[0].id
    assert [each.took_s for each in slowest] == sorted((e.took_s for e in slowest), reverse=True)
    assert not any(each.failed for each in slowest)


async def test_a_worker_without_history_writes_none(harness: Harness) -> None:
    worker = await harness.start_worker(Boom(times=1), history=False, attempts=2)
    await harness.queue.add_each("x", range(3))
    await harness.until_settled()
    await worker.stop()
    assert [key for key in harness.admin.keys("*") if b":tampu:m:" in key] == []


async def test_marks_are_kept_in_order(running: RunningServer) -> None:
    async with await connect(running.url) as server, await Lane.open(server, MARKS) as lane:
        for text in ("v1.4", "v1.5 <b>"):
            await add_mark(lane, text)
        assert [each.text for each in await read_marks(lane, 0)] == ["v1.4", "v1.5 <b>"]
        for text in ("", " ", "a\nb", "x" * 201, "\x1b[31m"):
            with pytest.raises(OptionError, match="printable"):
                await add_mark(lane, text)
