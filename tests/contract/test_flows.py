"""Flows: what travels along their edges, on one queue and on several."""

import asyncio
from typing import Any

import pytest
import redis

from tampu import App, Flow, FlowRun, JobFailed, Node, OptionError, ResultTimeout, RunState
from tampu.errors import ConnectionLost
from tampu.server.lane import Lane
from tampu.server.scripts import flows as flow_scripts
from tampu.server.scripts.flows import Growth
from tampu.services import relay
from tampu.wire.keys import QueueKeys
from tests.contract.apps import working
from tests.contract.flows import OTHER, FlowApp
from tests.contract.workers import SOON
from tests.servers import RunningServer
from tests.waiting import wait_until


@pytest.fixture
def flows(running: RunningServer) -> FlowApp:
    return FlowApp(running)


@pytest.fixture
def flow(flows: FlowApp) -> Flow:
    return flows.app.flow("a flow")


async def value_of(flows: FlowApp, flow: Flow, node: Node[Any]) -> object:
    async with flows.at_work():
        run = await flow.start(result=node)
        found = await run.result(SOON)
        info = await flows.ends(run, "done")
        progress = await run.progress()
    assert info.name == "a flow"
    assert not progress.is_growing
    assert (progress.jobs, progress.done + progress.failed) == (info.jobs, info.jobs)
    return found


# --- values -------------------------------------------------------------------------------------


@pytest.mark.every_server
async def test_results_travel_along_edges(flows: FlowApp, flow: Flow) -> None:
    first = flow.add(flows.double, 1)
    second = flow.add(flows.double, first)
    assert await value_of(flows, flow, flow.add(flows.pair, second, first.value)) == [4, 2]


async def test_values_stand_in_keywords_and_inside_of_lists(flows: FlowApp, flow: Flow) -> None:
    one = flow.add(flows.double, 1)
    some = flow.map(flows.double, [10, 20])
    total = flow.add(
        flows.add_up, numbers=[one.value, *some.value, 100, one.value], extra=one.value
    )
    assert await value_of(flows, flow, total) == 2 + 20 + 40 + 100 + 2 + 2


@pytest.mark.every_server
async def test_a_map_over_a_result_and_one_over_its_results(flows: FlowApp, flow: Flow) -> None:
    words = flow.add(flows.words, "a bcd ef")
    sizes = flow.map(flows.size, words, weight=10)
    doubled = flow.map(flows.double, sizes)
    assert await value_of(flows, flow, doubled) == [20, 60, 40]


@pytest.mark.every_server
@pytest.mark.parametrize("text", [None, ""])
async def test_a_map_over_nothing_is_done_at_once(
    flows: FlowApp, flow: Flow, text: str | None
) -> None:
    items: Any = [] if text is None else flow.add(flows.words, text)
    sizes = flow.map(flows.size, items)
    assert await value_of(flows, flow, flow.add(flows.add_up, sizes, extra=5)) == 5
    assert flows.ran == ["sum"]


async def test_a_map_over_outcomes(flows: FlowApp, flow: Flow) -> None:
    jobs = flow.map(flows.refuse, [1, 2])
    texts = flow.map(flows.one_outcome, jobs.outcomes)
    assert await value_of(flows, flow, texts) == ["retries_exhausted"] * 2


async def test_jobs_of_a_map_that_wait_for_another_node(flows: FlowApp, flow: Flow) -> None:
    late = flow.add(flows.double, 50)
    pairs = flow.map(flows.pair, [1, 2, 3], late.value)
    assert await value_of(flows, flow, pairs) == [[1, 100], [2, 100], [3, 100]]


@pytest.mark.every_server
async def test_outcomes_and_defaults_stand_in_for_failures(flows: FlowApp, flow: Flow) -> None:
    bad, good = flow.add(flows.refuse, 7), flow.add(flows.double, 7)
    texts = [flow.add(flows.one_outcome, each.outcome) for each in (bad, good)]
    counts = flow.add(flows.count_outcomes, flow.map(flows.refuse, range(3)).outcomes)
    pair = flow.add(flows.pair, bad.default(-1), good.default(-1).value)
    ends = flow.add(flows.note, {"texts": [each.value for each in texts], "counts": counts.value})
    ends.after(pair)
    assert await value_of(flows, flow, pair) == [-1, 14]
    assert flows.ran[-1] == {"texts": ["retries_exhausted", "14"], "counts": [0, 3]}


async def test_order_without_values(flows: FlowApp, flow: Flow) -> None:
    bad, good = flow.add(flows.refuse, 1), flow.add(flows.double, 1)
    after = flow.add(flows.note, "after").after(bad, good)
    needs = flow.add(flows.note, "needs").needs(good, after)
    flow.add(flows.one_outcome, bad.outcome)
    await value_of(flows, flow, needs)
    assert flows.ran.index("after") > max(flows.ran.index("refuse 1"), flows.ran.index(1))
    assert flows.ran.index("needs") > flows.ran.index("after")


async def test_a_map_tolerates_a_share_of_failures(flows: FlowApp, flow: Flow) -> None:
    jobs = flow.map(flows.mostly, range(10)).tolerate(0.1)
    assert await value_of(flows, flow, flow.add(flows.add_up, jobs)) == 45 - 3


async def test_one_failure_more_than_is_tolerated_fails_the_flow(
    flows: FlowApp, flow: Flow
) -> None:
    jobs = flow.map(flows.mostly, [1, 3, 3]).tolerate(0.5)
    async with flows.at_work():
        run = await flow.start(result=flow.add(flows.add_up, jobs))
        with pytest.raises(JobFailed, match="three"):
            await run.result(SOON)
        assert (await flows.ends(run, "failed")).failed == 2


async def test_a_map_grows_from_the_results_that_there_were_when_it_began(
    flows: FlowApp, flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = flow.map(flows.refuse_three, [1, 3, 5, 7, 9]).tolerate(0.5)
    copies = flow.map(flows.double, jobs)
    grow, calls, runs_again = flow_scripts.grow_map, list[int](), asyncio.Event()

    async def stumble(lane: Lane, keys: QueueKeys, growth: Growth) -> int:
        if growth.node == copies.number:
            calls.append(growth.node)
        if len(calls) == 2:
            calls.append(0)
            await runs_again.wait()
            raise ConnectionLost("test", "it was cut")
        return await grow(lane, keys, growth)

    monkeypatch.setattr(relay, "_MOST_A_CALL", 2)
    monkeypatch.setattr(relay, "grow_map", stumble)
    async with flows.at_work():
        run = await flow.start(result=copies)
        await wait_until(lambda: len(calls) == 3, within=SOON, sentence="it has begun to grow")
        flows.fails = False
        assert await flows.home.dead.replay() == 1

        async def is_done() -> bool:
            return (await flows.info(run)).nodes[jobs.number].done == 5

        await wait_until(is_done, within=SOON, sentence="the job that was tolerated is done")
        runs_again.set()
        assert await run.result(SOON) == [2, 10, 14, 18]


@pytest.mark.every_server
async def test_results_are_read_by_reference(flows: FlowApp, flow: Flow) -> None:
    jobs = flow.map(flows.double, range(450))  # more than a page
    total = flow.add(flows.read_all, jobs.results)
    assert await value_of(flows, flow, total) == 2 * sum(range(450))


@pytest.mark.every_server
async def test_nodes_that_many_share_run_once(flows: FlowApp, flow: Flow) -> None:
    top = flow.add(flows.double, 1)
    left, right = flow.add(flows.double, top), flow.add(flows.pair, top, top.value)
    bottom = flow.add(flows.add_up, numbers=[left.value, *right.value, top.value])
    again = flow.add(flows.add_up, numbers=[left.value, bottom.value, bottom.value])
    assert await value_of(flows, flow, again) == 4 + 20
    assert flows.ran.count(1) == 1


# --- queues -------------------------------------------------------------------------------------


@pytest.mark.every_server
async def test_jobs_of_another_queue(flows: FlowApp, flow: Flow) -> None:
    sizes = flow.map(flows.size_there, flow.add(flows.words, "a bcd"))
    total = flow.add(flows.add_up_there, sizes, label="x")
    assert await value_of(flows, flow, total) == {"x": 4}
    assert (await counts_of(flows)) == []


async def counts_of(flows: FlowApp) -> list[str]:
    """What is left to do."""
    async with flows.app:
        both = (flows.home, flows.other)
        counts = [(each.name, await each.counts()) for each in both]
    return [name for name, each in counts if each.waiting or each.active or each.delayed]


@pytest.mark.every_server
async def test_the_home_of_a_flow_may_have_no_jobs_of_its_own(flows: FlowApp) -> None:
    flow = flows.app.flow("a flow", queue="home-of-flows")
    total = flow.add(flows.add_up, flow.map(flows.size_there, ["a", "bcd"]))
    async with flows.at_work(), working(flows.app, {"home-of-flows": 1}):
        run = await flow.start(result=total)
        assert await run.result(SOON) == 4
        assert run.queue == "home-of-flows"
        same = flows.app.flow_run(run.id, queue=run.queue)
        assert await same.result(SOON) == 4


async def test_an_app_whose_tasks_are_all_elsewhere_keeps_its_flows_there(
    running: RunningServer,
) -> None:
    app = App(running.url)

    @app.task(queue=OTHER)
    async def double(number: int) -> int:
        return 2 * number

    async with working(app):
        flow = app.flow()
        run = await flow.start(result=flow.add(double, flow.add(double, 1)))
        assert run.queue == OTHER
        assert await run.result(SOON) == 4
        assert await app.flow_run(run.id).result(SOON) == 4


# --- following and keeping ----------------------------------------------------------------------


@pytest.mark.every_server
async def test_completed_jobs_are_followed_from_a_cursor_on(flows: FlowApp, flow: Flow) -> None:
    nodes = flow.map(flows.double, range(20))
    last = flow.map(flows.hold, [1])
    async with flows.at_work():
        run = await flow.start()
        completed, found = run.completed(nodes), dict[int, int]()
        async for number, value in completed:
            found[number] = value
            if len(found) == 7:
                break
        rest = {n: v async for n, v in run.completed(nodes, after=completed.cursor)}
        assert not found.keys() & rest.keys(), "none comes twice"
        assert found | rest == {number: 2 * number for number in range(20)}
        with pytest.raises(OptionError, match="cursor"):
            await anext(aiter(run.completed(nodes, after="x")))
        flows.goes_on.set()
        assert [value async for _, value in run.completed(last)] == [1]


@pytest.mark.every_server
async def test_all_keys_of_a_flow_that_has_ended_expire(
    flows: FlowApp, flow: Flow, admin: redis.Redis
) -> None:
    flow.add(flows.add_up, flow.map(flows.double, range(3)))
    flow.add(flows.add_up_there, flow.map(flows.size_there, ["a"]), label="x")
    flow.add(flows.one_outcome, flow.add(flows.refuse, 1).outcome)
    async with flows.at_work():
        run = await flow.start()
        await flows.ends(run, "done")
        await wait_until(
            lambda: lasting(admin, run) == [], within=SOON, sentence="all of its keys expire"
        )
        for key in admin.scan_iter(f"*{run.id}*"):
            admin.delete(key)
        assert await run.info() is None
        assert not await run.cancel()
        assert await run.retry() == 0
        with pytest.raises(OptionError, match=run.id):
            await run.progress()
        with pytest.raises(ResultTimeout):
            await run.result(0.1)
        assert await flows.home.flows.newest() == []


def lasting(admin: redis.Redis, run: FlowRun[Any]) -> list[bytes]:
    return [key for key in admin.scan_iter(f"*{run.id}*") if admin.ttl(key) == -1]


async def test_flows_are_listed_and_unknown_ones_are_not_there(flows: FlowApp) -> None:
    async with flows.app:
        runs = []
        for name in ("one", "two", "three"):
            flow = flows.app.flow(name)
            flow.add(flows.double, 1)
            runs.append(await flow.start())
        newest = await flows.home.flows.newest(2)
        assert [each.name for each in newest] == ["three", "two"]
        assert [each.name for each in await flows.home.flows.newest(5, after=2)] == ["one"]
        assert {each.state for each in newest} == {RunState.RUNNING}
        unknown = flows.app.flow_run(runs[0].id[::-1])
        assert await unknown.info() is None
        assert not await unknown.cancel()


async def test_another_program_gets_the_results_of_a_map(flows: FlowApp, flow: Flow) -> None:
    jobs = flow.map(flows.double, [1, 2])
    async with flows.at_work():
        run = await flow.start(result=jobs)
        assert await flows.app.flow_run(run.id).result(SOON) == [2, 4]
