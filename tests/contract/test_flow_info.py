"""What a queue knows about its flows."""

import pytest

from tampu import App
from tests.contract.apps import working
from tests.contract.flow_runs import FlowShop, wait_for_state
from tests.servers import RunningServer

pytestmark = pytest.mark.every_server


@pytest.fixture
def shop(running: RunningServer) -> FlowShop:
    return FlowShop(running.url)


async def test_nodes_know_when_they_began_and_ended(shop: FlowShop) -> None:
    async with working(shop.app, {"default": 5, "other": 5}):
        run, bad = await shop.start_sum(), await shop.start_failing()
        await run.result(20)
        await wait_for_state(bad, "failed")
        info, failed = await run.info(), await bad.info()
        assert info is not None
        assert failed is not None
        fetch, counts, merge = info.nodes
        times = [info.started_at, fetch.started_at, fetch.ended_at, counts.started_at]
        times += [counts.ended_at, merge.started_at, merge.ended_at, info.ended_at]
        assert None not in times
        assert times == sorted(times, key=lambda at: at.timestamp() if at else 0.0)
        boom, waiting = failed.nodes
        assert (waiting.started_at, waiting.ended_at, waiting.running) == (None, None, 0)
        first_end = boom.ended_at
        assert first_end is not None
        shop.fails = False
        await bad.retry()
        await bad.result(20)
        again = await bad.info()
    assert again is not None
    assert again.nodes[0].started_at == boom.started_at
    assert again.nodes[0].ended_at is not None
    assert again.nodes[0].ended_at >= first_end


async def test_flows_are_found_by_their_state(shop: FlowShop) -> None:
    for _ in range(5):
        await shop.start_sum(0)
    flows = shop.app.queue("default").flows
    ids = [each.id for each in await flows.newest()]
    await flows.cancel(ids[1])
    await flows.cancel(ids[3])
    running = await flows.newest(2, state="running")
    assert [each.id for each in running] == [ids[0], ids[2]]
    rest = await flows.newest(2, state="running", after=2)
    assert [each.id for each in rest] == [ids[4]]
    cancelled = await flows.newest(state="cancelled")
    assert [each.id for each in cancelled] == [ids[1], ids[3]]
    assert [each.id for each in await flows.newest(3, after=1)] == ids[1:4]
    await shop.app.close()


async def test_a_flow_with_thousands_of_nodes_starts_and_ends(running: RunningServer) -> None:
    app = App(running.url)

    @app.task
    async def one(number: int) -> int:
        return number

    async with working(app, concurrency=50):
        flow = app.flow("wide")
        for number in range(2000):
            flow.add(one, number)
        run = await flow.start()
        await run.result(30)
        progress = await run.progress()
    assert (progress.jobs, progress.done) == (2000, 2000)
