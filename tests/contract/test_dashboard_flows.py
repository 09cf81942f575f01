"""Pages of flows over a real server."""

import re
from urllib.parse import urlencode

import pytest

from tampu.app import App
from tampu.dashboard import Access
from tests.contract.apps import working
from tests.contract.flow_runs import FlowShop, wait_for_state
from tests.dashboards import HOSTILE, Visit, act, assert_harmless
from tests.servers import RunningServer

HOME = "default"


@pytest.fixture
def shop(running: RunningServer) -> FlowShop:
    return FlowShop(running.url)


def page_of(flow_id: str, queue: str = HOME) -> str:
    return f"/flow?{urlencode({'queue': queue, 'id': flow_id})}"


def states(page: str) -> dict[str, str]:
    """The state of each box of the graph, by its label."""
    found = re.findall(r'<g class="node-box (\w+)".*?<b><bdi>(.*?)</bdi>', page, re.DOTALL)
    return {label: state for state, label in found}


async def test_flows_are_listed_by_state_and_queue(visit: Visit, shop: FlowShop) -> None:
    async with working(shop.app, {HOME: 5, "other": 5}):
        done, bad = await shop.start_sum(), await shop.start_failing()
        await done.result(20)
        await wait_for_state(bad, "failed")
    elsewhere = await shop.start_far()
    client = visit()
    page = (await client.get("/flows")).text
    assert_harmless(page)
    for run in (done, bad, elsewhere):
        assert run.id in page
    failed = (await client.get("/flows?state=failed")).text
    assert (done.id in failed, bad.id in failed, elsewhere.id in failed) == (False, True, False)
    other = (await client.get("/flows?queue=other")).text
    assert (done.id in other, elsewhere.id in other) == (False, True)
    halted = (await client.get("/flows?state=halted")).text
    assert "No flow is halted" in halted
    assert (await client.get("/flows?state=x")).status_code == 400
    assert (await client.get("/flows?queue=nothing")).status_code == 404


async def test_a_flow_shows_its_graph_times_error_and_jobs(visit: Visit, shop: FlowShop) -> None:
    client = visit()
    async with working(shop.app, {HOME: 5, "other": 5}):
        done, bad = await shop.start_sum(), await shop.start_failing()
        await done.result(20)
        await wait_for_state(bad, "failed")
    page = (await client.get(page_of(done.id))).text
    assert_harmless(page)
    assert states(page) == dict.fromkeys(["fetch", "count", "merge"], "done")
    assert page.count('<path class="edge met"') == 2
    assert "3 of 3" in page
    assert len(re.findall(r'<div class="row" data-row="\d"', page)) == 3
    assert 'href="task?queue=other&amp;name=merge"' in page
    page = (await client.get(page_of(bad.id))).text
    assert states(page) == {"boom": "failed", "count": "waiting"}
    assert ("ValueError" in page, "no luck" in page) == (True, True)
    assert len(re.findall(r'<div class="row" data-row="\d"', page)) == 1
    job = re.search(r'href="(job\?queue=other&amp;dead=[^"]+)"', page)
    assert job is not None
    shown = (await client.get("/" + job[1].replace("&amp;", "&"))).text
    assert f'href="flow?queue={HOME}&amp;id={bad.id}"' in shown
    assert (await client.get(page_of("nothing"))).status_code == 404
    found = (await client.get(f"/search?q={bad.id}")).text
    assert f'href="flow?queue={HOME}&amp;id={bad.id}"' in found
    assert "Flow, failed, of" in found


async def test_a_flow_is_retried_and_cancelled(visit: Visit, shop: FlowShop) -> None:
    client = visit(access=Access.full(user="ada"))
    async with working(shop.app, {HOME: 5, "other": 5}):
        bad = await shop.start_failing()
        await wait_for_state(bad, "failed")
        shop.fails = False
        fields = {"queue": HOME, "id": bad.id}
        answer = await act(client, "/retry-flow", **fields)
        assert answer.json()["sentence"] == "The flow goes on; 1 dead letter runs again."
        assert await bad.result(20) == 7
        late = await act(client, "/retry-flow", **fields)
        assert (late.status_code, "is done" in late.json()["sentence"]) == (400, True)
        late = await act(client, "/cancel-flow", **fields)
        assert late.json()["sentence"] == "Too late: the flow has ended."
    assert "retry-flow" not in (await client.get(page_of(bad.id))).text
    run = await shop.start_sum()
    answer = await act(client, "/cancel-flow", queue=HOME, id=run.id)
    assert answer.json()["sentence"] == "The flow is cancelled."
    info = await run.info()
    assert info is not None
    assert info.state.value == "cancelled"
    audit = (await client.get("/audit")).text
    assert ("retry flow" in audit, f"flow {run.id} sum" in audit) == (True, True)


async def test_flows_of_hidden_queues_and_of_readers_are_left_alone(
    visit: Visit, shop: FlowShop
) -> None:
    run, fields = await shop.start_failing(), {"queue": HOME}
    fields["id"] = run.id
    reader, stranger = visit(access=Access.read()), visit(access=Access.full("others"))
    partly = visit(access=Access.full(HOME))
    for path in ("/cancel-flow", "/retry-flow"):
        assert (await act(reader, path, **fields)).status_code == 403
        assert (await act(stranger, path, **fields)).status_code == 404
        assert (await act(partly, path, **fields)).status_code == 404, "it has jobs on other queues"
    assert 'method="post"' not in (await reader.get(page_of(run.id))).text
    assert run.id not in (await stranger.get("/flows")).text
    assert (await stranger.get(page_of(run.id))).status_code == 404
    page = (await partly.get(page_of(run.id))).text
    assert ("boom" in page, 'method="post"' in page) == (False, False)
    assert states(page) == {"hidden": "running", "count": "waiting"}
    info = await run.info()
    assert info is not None
    assert info.state.value == "running"
    await shop.app.close()


async def test_large_flows_are_grouped_or_cut(visit: Visit, shop: FlowShop) -> None:
    flow = shop.app.flow("wide")
    nodes = [flow.add(shop.count, number) for number in range(900)]
    flow.add(shop.merge, numbers=[node.value for node in nodes])
    wide = await flow.start()
    flow = shop.app.flow("long")
    node = flow.add(shop.count, 1)
    for _ in range(200):
        node = flow.add(shop.count, node)
    long = await flow.start()
    client = visit()
    page = (await client.get(page_of(wide.id))).text
    assert states(page) == {"count \N{MULTIPLICATION SIGN} 900": "running", "merge": "waiting"}
    assert "The 901 nodes are grouped by their tasks and what they wait for." in page
    assert page.count('<tr data-row="') == 200
    page = (await client.get(page_of(long.id))).text
    assert "60 of 201 nodes are shown, first those that have failed or run." in page
    assert page.count('<g class="node-box ') == 60
    assert page.count('<g class="node-box running"') == 1
    await shop.app.close()


async def test_hostile_flows_are_escaped(visit: Visit, running: RunningServer) -> None:
    app, client = App(running.url), visit()
    for text in HOSTILE:
        task = app.task(name=text)(_nothing)
        flow = app.flow(text)
        flow.add(task).after(flow.add(task))
        run = await flow.start()
        for path in ("/flows", page_of(run.id)):
            page = await client.get(path)
            assert page.status_code == 200
            assert "<script>alert" not in page.text
            assert_harmless(page.text)
    await app.close()


async def _nothing() -> None:
    pass
