"""Flows whose jobs fail: who learns it when, and how they go on; flows that are cancelled."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import redis

from tampu import EncodeError, Flow, FlowRun, JobCancelled, JobFailed, WrongContext
from tampu.flows.storing import StartContext
from tampu.server.connect import Server
from tampu.server.lane import Lane
from tampu.server.scripts.flows import start_flow
from tampu.wire.entry import encode_member
from tampu.wire.keys import QueueKeys
from tests.contract.flows import FlowApp
from tests.contract.workers import SOON
from tests.servers import RunningServer
from tests.waiting import wait_until

MANY = 30_000


@pytest.fixture
def flows(running: RunningServer) -> FlowApp:
    return FlowApp(running)


@pytest.fixture
def flow(flows: FlowApp) -> Flow:
    return flows.app.flow("a flow")


async def ran(flows: FlowApp, *what: object) -> None:
    await wait_until(
        lambda: set(what) <= set(flows.ran), within=SOON, sentence=f"{what} have started"
    )


# --- dead letters -------------------------------------------------------------------------------


@pytest.mark.every_server
@pytest.mark.parametrize("is_elsewhere", [False, True])
async def test_whoever_waits_learns_of_a_failure_while_others_go_on(
    flows: FlowApp, flow: Flow, *, is_elsewhere: bool
) -> None:
    bad = flow.add(flows.refuse_there if is_elsewhere else flows.refuse, 7)
    flow.add(flows.hold, 1)
    total = flow.add(flows.add_up, numbers=[bad.value])
    async with flows.at_work():
        run = await flow.start(result=total)
        with pytest.raises(JobFailed, match="no 7") as failed:
            await run.result(SOON)
        assert failed.value.error_type == "ValueError"
        info = await flows.info(run)
        assert (info.state.value, info.ended_at) == ("running", None)
        assert info.failure is not None
        assert info.failure.message == "no 7"
        flows.goes_on.set()
        info = await flows.ends(run, "failed")
        assert [(each.state.value, each.missing) for each in info.nodes] == [
            ("failed", ()),
            ("done", ()),
            ("waiting", (0,)),
        ]


@pytest.mark.every_server
@pytest.mark.parametrize("is_elsewhere", [False, True])
async def test_replaying_a_dead_letter_finishes_the_flow(
    flows: FlowApp, flow: Flow, *, is_elsewhere: bool
) -> None:
    bad = flow.map(flows.refuse_there if is_elsewhere else flows.refuse, [1, 2, 3])
    run_result = flow.add(flows.add_up, bad)
    async with flows.at_work():
        run = await flow.start(result=run_result)
        await flows.ends(run, "failed")
        flows.fails = False
        dead = (flows.other if is_elsewhere else flows.home).dead
        assert await dead.replay() == 3
        await wait_until(
            lambda: has_no_failure(flows, run), within=SOON, sentence="its home knows of it"
        )
        assert await run.result(SOON) == 6
        info = await flows.ends(run, "done")
        assert (info.failure, info.failed) == (None, 0)
        assert flows.ran.count("sum") == 1
        assert await dead.peek() == []


@pytest.mark.every_server
async def test_a_flow_is_retried_in_all_of_its_queues(
    flows: FlowApp, flow: Flow, admin: redis.Redis
) -> None:
    here, there = flow.map(flows.refuse, [1, 2]), flow.add(flows.refuse_there, 3)
    total = flow.add(flows.add_up, numbers=[*here.value, there.value])
    async with flows.at_work():
        run = await flow.start(result=total)
        await flows.ends(run, "failed")
        assert await run.retry() == 3
        await wait_until(
            lambda: has_letters(flows, run, 6), within=SOON, sentence="each is dead once more"
        )
        await flows.ends(run, "failed")
        flows.fails = False
        await flows.home.dead.purge(ids=[(await flows.home.dead.peek(1))[0].dead_id])
        assert await run.retry() == 2, "one letter is deleted"
        await flows.ends(run, "failed")
        assert await run.retry() == 0
    assert "sum" not in flows.ran
    assert [key for key in admin.scan_iter(f"*{run.id}*") if admin.ttl(key) == -1] == []


async def has_no_failure(flows: FlowApp, run: FlowRun[Any]) -> bool:
    info = await flows.info(run)
    return info.failure is None


async def has_letters(flows: FlowApp, run: FlowRun[Any], runs: int) -> bool:
    """Whether so many jobs have run, and the flow knows all dead letters that there are."""
    both = (flows.home, flows.other)
    letters = [each.dead_id for queue in both for each in await queue.dead.peek()]
    known = await flows.home.flows.dead_letters(run.id)
    return len(flows.ran) == runs and sorted(
        each for ids in known.values() for each in ids
    ) == sorted(letters)


async def test_the_failure_of_the_result_is_one_of_the_flow_even_if_it_is_handled(
    flows: FlowApp, flow: Flow
) -> None:
    bad = flow.add(flows.refuse, 7)
    text = flow.add(flows.one_outcome, bad.outcome)
    async with flows.at_work():
        run = await flow.start(result=bad)
        with pytest.raises(JobFailed, match="no 7"):
            await run.result(SOON)
        info = await flows.ends(run, "failed")
        assert info.nodes[text.number].done == 1
        flows.fails = False
        assert await run.retry() == 1
        assert await run.result(SOON) == 7
        await flows.ends(run, "done")


async def test_a_node_that_cannot_run_fails_the_flow_at_its_end(flows: FlowApp, flow: Flow) -> None:
    bad = flow.add(flows.refuse, 7)
    flow.add(flows.one_outcome, bad.outcome)
    never = flow.add(flows.double, bad)
    async with flows.at_work():
        run = await flow.start(result=never)
        with pytest.raises(JobFailed, match="could not run"):
            await run.result(SOON)
        flows.fails = False
        assert await run.retry() == 1
        assert await run.result(SOON) == 14


# --- fail_fast ----------------------------------------------------------------------------------


@pytest.mark.every_server
async def test_what_has_not_started_waits_when_one_job_has_failed_and_goes_on_with_a_retry(
    flows: FlowApp,
) -> None:
    flow = flows.app.flow("a flow", fail_fast=True)
    bad = flow.add(flows.refuse, 7)
    held = [flow.map(task, range(10)) for task in (flows.hold, flows.hold_there)]
    total = flow.add(flows.add_up, numbers=[bad.value, *held[0].value, *held[1].value])
    async with flows.at_work(concurrency=3):
        run = await flow.start(result=total)
        with pytest.raises(JobFailed, match="no 7"):
            await run.result(SOON)
        flows.goes_on.set()
        info = await flows.ends(run, "failed")
        assert info.done < 20, "some were taken out"
        assert info.failed == 1
        flows.fails = False
        assert await run.retry() == 1
        assert await run.result(SOON) == 7 + 2 * sum(range(10))
        info = await flows.ends(run, "done")
        assert (info.done, info.failed) == (22, 0)
    started = [each for each in flows.ran if str(each).startswith("hold")]
    assert len(started) == 20, "each of them has started once"


# --- cancelling ---------------------------------------------------------------------------------


@pytest.mark.every_server
async def test_a_flow_that_is_cancelled_stops_in_all_of_its_queues(
    flows: FlowApp, flow: Flow, admin: redis.Redis
) -> None:
    here, there = flow.map(flows.hold, range(50)), flow.map(flows.hold_there, range(50, 100))
    flow.add(flows.add_up, here)
    flow.add(flows.count_outcomes, there.outcomes)
    async with flows.at_work(concurrency=2):
        run = await flow.start(result=here)
        await wait_until(lambda: len(flows.ran) >= 4, within=SOON, sentence="some run")
        assert await run.cancel()
        with pytest.raises(JobCancelled):
            await run.result(SOON)
        await flows.ends(run, "cancelled")
        assert not await run.cancel()
        assert await run.retry() == 0
        assert len(flows.ran) <= 4, "nothing else has started"
        counts = [await queue.counts() for queue in (flows.home, flows.other)]
        assert [(each.waiting, each.active) for each in counts] == [(0, 0), (0, 0)]
    assert [key for key in admin.scan_iter(f"*{run.id}*") if admin.ttl(key) == -1] == []


async def test_a_flow_that_is_done_cannot_be_cancelled_and_a_failed_one_can(
    flows: FlowApp, flow: Flow
) -> None:
    bad = flows.app.flow("bad")
    async with flows.at_work():
        good_run = await flow.start(result=flow.add(flows.double, 1))
        bad_run = await bad.start(result=bad.add(flows.refuse, 1))
        assert await good_run.result(SOON) == 2
        await flows.ends(bad_run, "failed")
        assert not await good_run.cancel()
        assert await bad_run.cancel()
        with pytest.raises(JobCancelled):
            await bad_run.result(SOON)
        await flows.ends(bad_run, "cancelled")


# --- oddities -----------------------------------------------------------------------------------


@pytest.mark.every_server
async def test_a_start_that_is_sent_twice_starts_one_flow(
    flows: FlowApp, flow: Flow, server: Server
) -> None:
    flow.add(flows.double, 1)
    keys = QueueKeys("default")
    stored = flow._store(StartContext("0" * 26, "default", 0, {}), None)
    async with await Lane.open(server, keys.stream) as lane, flows.app:
        assert await start_flow(lane, keys, stored)
        assert not await start_flow(lane, keys, stored)
        assert (await flows.home.counts()).waiting == 1


@pytest.mark.every_server
async def test_a_map_over_what_is_no_list_stops_the_flow(flows: FlowApp, flow: Flow) -> None:
    number = flow.add(flows.double, 1)
    jobs = flow.map(flows.double, number)  # type: ignore[call-overload]
    async with flows.at_work():
        run: FlowRun[Any] = await flow.start(result=jobs)
        with pytest.raises(JobFailed, match="a list"):
            await run.result(SOON)
        await flows.ends(run, "cancelled")


async def test_a_flow_fails_with_the_failure_that_nobody_takes_care_of(
    flows: FlowApp, flow: Flow
) -> None:
    handled = flow.add(flows.refuse, 1)
    flow.add(flows.one_outcome, handled.outcome)
    flow.add(flows.refuse, 2).after(handled)
    async with flows.at_work():
        run = await flow.start()
        with pytest.raises(JobFailed, match="no 2"):
            await run.result(SOON)


@pytest.mark.every_server
async def test_a_flow_with_very_many_jobs_taken_out_goes_on(
    flows: FlowApp, flow: Flow, admin: redis.Redis
) -> None:
    flow.add(flows.double, 1)
    async with flows.app:
        run = await flow.start()
        key = QueueKeys("default").flow(run.id)
        entries: Any = admin.xrange(QueueKeys("default").stream)
        fields = entries[0][1]
        member = encode_member(fields[b"n"].decode(), fields[b"d"])
        admin.hset(key, mapping={"halt": "1", "live": 0})
        many: dict[Any, Any] = {f"0.{number}": b"1 " + member for number in range(MANY)}
        admin.hset(key + b":parked", mapping=many)
        async with asyncio.timeout(SOON):
            assert await flows.home.flows.resume(run.id)
        assert admin.exists(key + b":parked") == 0
        assert admin.xlen(QueueKeys("default").stream) == MANY + 1


async def test_a_job_of_a_map_has_no_batch_to_add_to(flows: FlowApp, flow: Flow) -> None:
    seen: list[str] = []

    @flows.app.task(attempts=1)
    async def add_one(number: int) -> None:
        try:
            async with flows.app.own_batch() as batch:
                await batch.add(flows.double, number)
        except WrongContext as error:
            seen.append(str(error))

    flow.map(add_one, [1])
    async with flows.at_work():
        await (await flow.start()).result(SOON)
    assert len(seen) == 1
    assert "it is none" in seen[0]
    assert "double" not in str(flows.ran)


async def test_a_default_is_encoded_as_arguments_are(flows: FlowApp, flow: Flow) -> None:
    bad = flow.add(flows.refuse, 1)
    with pytest.raises(EncodeError, match="default"):
        bad.default(object())
    last = flow.add(flows.words, bad.default(Path("a bc")))  # type: ignore[call-overload]
    async with flows.at_work():
        assert await (await flow.start(result=last)).result(SOON) == ["a", "bc"]
