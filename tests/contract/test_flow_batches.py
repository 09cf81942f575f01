"""Chains and batches; flow control, processes and batch tasks in flows."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import redis
from msgspec import Raw

from tampu import (
    App,
    AppWorker,
    Batch,
    Concurrency,
    Flow,
    Job,
    JobBatch,
    JobCancelled,
    JobFailed,
    OptionError,
    Priority,
    Worker,
    WrongContext,
    chain,
)
from tampu.wire.keys import QueueKeys
from tampu.wire.payload import encode_payload
from tests.contract.apps import dead, working
from tests.contract.flows import OTHER, FlowApp
from tests.contract.workers import SOON
from tests.servers import RunningServer
from tests.waiting import wait_until


@pytest.fixture
def flows(running: RunningServer) -> Iterator[FlowApp]:
    made = FlowApp(running)
    yield made
    made.app.close_sync()


# --- chains -------------------------------------------------------------------------------------


@pytest.mark.every_server
async def test_each_step_of_a_chain_gets_the_result_of_the_one_before(flows: FlowApp) -> None:
    async with flows.at_work():
        job = await chain(flows.words.call("a bcd"), flows.count, flows.double).enqueue()
        assert await job.result(SOON) == 4
        longer = flows.double.call(1).then(flows.pair, 10).then(flows.add_up, extra=100)
        assert await (await longer.enqueue()).result(SOON) == 112


@pytest.mark.every_server
async def test_a_chain_stops_at_a_step_that_is_buried_and_goes_on_when_that_is_replayed(
    flows: FlowApp,
) -> None:
    async with flows.at_work():
        job = await chain(flows.double.call(1), flows.refuse, flows.double).enqueue()
        with pytest.raises(JobFailed, match="no 2"):
            await job.result(SOON)
        (letter,) = await dead(flows.app)
        flows.fails = False
        assert await flows.home.dead.replay(ids=[letter.dead_id]) == 1
        assert await job.result(SOON) == 4
    assert flows.ran == [1, "refuse 2", "refuse 2", 2]


# --- batches ------------------------------------------------------------------------------------


@pytest.mark.every_server
async def test_a_batch_calls_when_all_are_done_and_when_all_have_ended(flows: FlowApp) -> None:
    success, complete = flows.note.call("success"), flows.note.call("complete")
    async with flows.at_work():
        async with flows.app.batch(on_success=success, on_complete=complete) as batch:
            for number in range(1200):  # more than one call
                await batch.add(flows.double, number)
        await batch.run.result(SOON)
        progress = await batch.run.progress()
        assert (progress.done, progress.failed, progress.is_growing) == (1202, 0, False)
    assert set(flows.ran) == {*range(1200), "success", "complete"}
    assert len(flows.ran) == 1202


async def test_a_batch_of_another_queue(flows: FlowApp) -> None:
    async with flows.at_work():
        async with flows.app.batch(on_complete=flows.note.call("complete"), queue=OTHER) as batch:
            await batch.add(flows.size_there, "abc")
            with pytest.raises(OptionError, match="'default', and the batch of queue 'other'"):
                await batch.add(flows.double, 1)
        await batch.run.result(SOON)
        assert (await batch.run.progress()).done == 2
    assert batch.run.queue == OTHER
    assert flows.ran == ["complete"]


async def test_a_batch_with_a_failure_is_complete_and_succeeds_after_a_retry(
    flows: FlowApp,
) -> None:
    success, complete = flows.note.call("success"), flows.note.call("complete")
    async with flows.at_work():
        async with flows.app.batch(on_success=success, on_complete=complete) as batch:
            await batch.add(flows.refuse, 1)
            await batch.add(flows.double, 2)
        await flows.ends(batch.run, "failed")
        assert "complete" in flows.ran
        assert "success" not in flows.ran
        flows.fails = False
        assert await batch.run.retry() == 1
        await flows.ends(batch.run, "done")
    assert [flows.ran.count(each) for each in ("complete", "success")] == [1, 1]


async def test_an_empty_batch_is_complete_at_once(flows: FlowApp) -> None:
    async with flows.at_work():
        async with flows.app.batch(on_success=flows.note.call("success")) as batch:
            pass
        await batch.run.result(SOON)
    assert flows.ran == ["success"]


async def test_jobs_of_a_batch_run_while_others_are_added(flows: FlowApp) -> None:
    async with (
        flows.at_work(),
        flows.app.batch(on_complete=flows.note.call("complete")) as batch,
    ):
        await batch.add(flows.double, 1)
        await batch.flush()
        await wait_until(lambda: flows.ran == [1], within=SOON, sentence="it runs")
        assert (await batch.run.progress()).is_growing
        await batch.add(flows.double, 2)


@pytest.mark.every_server
async def test_an_error_in_the_block_of_a_batch_cancels_it(
    flows: FlowApp, admin: redis.Redis
) -> None:
    async with flows.at_work():
        with pytest.raises(ZeroDivisionError):
            async with flows.app.batch(on_complete=flows.note.call("complete")) as batch:
                await batch.add(flows.hold, 1)
                await batch.flush()
                await wait_until(lambda: flows.ran == ["hold 1"], within=SOON, sentence="it runs")
                raise ZeroDivisionError
        with pytest.raises(JobCancelled):
            await batch.run.result(SOON)
        await flows.ends(batch.run, "cancelled")
    assert flows.ran == ["hold 1"]
    assert [key for key in admin.scan_iter(f"*{batch.run.id}*") if admin.ttl(key) == -1] == []


@pytest.mark.every_server
async def test_a_job_adds_to_its_own_batch(flows: FlowApp) -> None:
    app = flows.app

    @app.task
    async def walk(depth: int) -> None:
        async with app.own_batch() as own:
            for _ in range(2 if depth else 0):
                await own.add(walk, depth - 1)
        flows.ran.append(depth)

    async with flows.at_work():
        async with app.batch(on_success=flows.note.call("success")) as batch:
            await batch.add(walk, 3)
        await batch.run.result(SOON)
        assert (await batch.run.progress()).done == 15 + 1
        with pytest.raises(WrongContext, match="ended"):
            await batch_again(app, batch.run.id, flows)
    assert flows.ran[-1] == "success"
    assert sorted(flows.ran[:-1], key=str) == [0] * 8 + [1] * 4 + [2] * 2 + [3]


async def batch_again(app: App, flow_id: str, flows: FlowApp) -> None:
    late = app.batch()
    late._flow, late._run = None, app.flow_run(flow_id)
    await late.add(flows.double, 1)
    await late.flush()


async def test_a_job_without_a_batch_cannot_add_to_its_own(flows: FlowApp) -> None:
    app = flows.app

    @app.task(attempts=1)
    async def lost() -> None:
        async with app.own_batch():
            pass

    async with flows.at_work():
        with pytest.raises(JobFailed, match="belongs to none"):
            await (await lost.enqueue()).result(SOON)
    with pytest.raises(WrongContext, match="no job is running"):
        app.own_batch()


# --- what tasks can have ------------------------------------------------------------------------


@pytest.mark.every_server
async def test_limits_and_keys_hold_for_jobs_of_flows(running: RunningServer) -> None:
    app = App(running.url)
    now: dict[str, int] = {}
    most: dict[str, int] = {}

    @app.task(key="tenant", limits=[Concurrency(2, by="tenant")])
    async def work(number: int, tenant: str) -> int:
        now[tenant] = now.get(tenant, 0) + 1
        most[tenant] = max(most.get(tenant, 0), now[tenant])
        await asyncio.sleep(0.002)
        now[tenant] -= 1
        return number

    spans: dict[str, list[str]] = {"x": [], "y": []}

    @app.task(key=lambda given: given["item"][0], ordered=True)
    async def in_order(item: str, numbers: list[int]) -> str:
        spans[item[0]].append(f"{item} begins")
        await asyncio.sleep(0.01)
        spans[item[0]].append(f"{item} ends")
        return item

    async with working(app):
        flow = app.flow()
        some = [flow.map(work, range(20), tenant=tenant) for tenant in "ab"]
        items = ["x1", "y1", "x2", "x3"]
        ends = flow.map(in_order, items, [*some[0].value, *some[1].value])
        run = await flow.start(result=ends)
        assert await run.result(SOON) == items
    assert set(most) == {"a", "b"}
    assert max(most.values()) <= 2
    assert spans["x"] == [f"x{turn} {what}" for turn in (1, 2, 3) for what in ("begins", "ends")]
    assert spans["y"] == ["y1 begins", "y1 ends"]


@pytest.mark.every_server
async def test_an_urgent_task_of_a_flow_starts_first(running: RunningServer) -> None:
    app, ran = App(running.url), list[str]()

    @app.task
    async def usual(number: int) -> None:
        ran.append(f"usual {number}")

    @app.task(priority=Priority.HIGH)
    async def urgent() -> None:
        ran.append("urgent")

    async with app:
        flow = app.flow()
        flow.map(usual, range(5))
        flow.add(urgent)
        run = await flow.start()
        async with AppWorker(app, concurrency=1):
            await run.result(SOON)
    assert ran == ["urgent", *(f"usual {number}" for number in range(5))]


@dataclass(frozen=True)
class Row:
    number: int


async def test_tasks_that_get_many_jobs_at_once_in_a_flow(running: RunningServer) -> None:
    app, stored = App(running.url), list[int]()

    @app.task(batch=Batch(3, wait=0.01))
    async def store(rows: JobBatch[Row]) -> None:
        stored.extend(each.data.number for each in rows)

    @app.task
    async def rows_of(count: int) -> list[Row]:
        return [Row(number) for number in range(count)]

    @app.task
    async def row(number: int) -> Row:
        return Row(number)

    async with working(app):
        flow = app.flow()
        flow.map(store, [Row(number) for number in range(7)])
        flow.map(store, flow.add(rows_of, 3))
        flow.add(store, flow.add(row, 50))
        await (await flow.start()).result(SOON)
    assert sorted(stored) == sorted([*range(7), *range(3), 50])


async def test_a_worker_with_raw_payloads_gets_jobs_of_flows(running: RunningServer) -> None:
    app, seen = App(running.url), list[object]()

    @app.task
    async def double(number: int) -> int:
        return 2 * number

    async def handle(job: Job[Any]) -> Raw:
        seen.append(job.data)
        return Raw(encode_payload(21, max_bytes=100))

    async with app, Worker("default", handle, url=running.url, raw=True):
        flow: Flow = app.flow()
        run = await flow.start(result=flow.add(double, flow.add(double, 1)))
        assert await run.result(SOON) == 21
    payloads = [encode_payload({"number": number}, max_bytes=100) for number in (1, 21)]
    assert seen == payloads


@pytest.mark.every_server
async def test_a_task_with_a_weight_in_a_flow(running: RunningServer, admin: redis.Redis) -> None:
    app = App(running.url)

    @app.task(key="tenant", weight=2)
    async def work(tenant: str) -> str:
        return tenant

    async with working(app):
        flow = app.flow()
        run = await flow.start(result=flow.map(work, ["a", "b"]))
        assert await run.result(SOON) == ["a", "b"]
    weights: Any = admin.hgetall(QueueKeys("default").gate + b":weight")
    assert {key: text.split()[0] for key, text in weights.items()} == {b"a": b"2.0", b"b": b"2.0"}
