"""Flows and chains that run when the test says so; flows in tests without an event loop."""

import pytest

from tampu import (
    RunState,
    chain,
)
from tampu.testing import Kit
from tests.testing.flow_tasks import app, count, failing, fetch, links_of, log, maybe, merge, tell


@pytest.fixture(autouse=True)
def _empty() -> None:
    log.clear()
    failing.clear()


# --- run and travel -----------------------------------------------------------------------------


async def test_run_brings_a_flow_to_its_end(tampu: Kit) -> None:
    async with tampu.use(app) as jobs:
        flow = app.flow(queue="home")
        counts = flow.map(count, flow.add(links_of, "abc"))
        run = await flow.start(result=flow.add(merge, counts))
        assert log == []
        jobs.assert_enqueued(links_of, "abc")
        jobs.assert_not_enqueued(count)
        ran = await jobs.run()
        assert [each.name for each in ran] == ["links_of", "count", "count", "merge"]
        assert await run.result() == {"sum": 9}


async def test_jobs_of_a_map_are_enqueued_when_it_is_started(tampu: Kit) -> None:
    async with tampu.use(app) as jobs:
        flow = app.flow(queue="home")
        flow.add(merge, flow.map(count, ["a", "b"], weight=2))
        await flow.start()
        jobs.assert_enqueued(count, "a", weight=2)
        assert [each.data["link"] for each in jobs.enqueued(count)] == ["a", "b"]
        jobs.assert_not_enqueued(merge)


async def test_a_job_that_fails_ends_the_run_and_goes_on_in_the_next(tampu: Kit) -> None:
    failing.add(2)
    async with tampu.use(app) as jobs:
        flow = app.flow()
        numbers = flow.map(maybe, [1, 2])
        run = await flow.start(result=flow.add(tell, numbers.outcomes))
        with pytest.raises(ValueError, match="no 2"):
            await jobs.run()
        with pytest.raises(ValueError, match="no 2"):
            await jobs.travel("1h")
        await jobs.run()
        assert await run.result() == 1
    assert log == [1, 2, 2]


async def test_retries_take_their_time(tampu: Kit) -> None:
    failing.add(2)
    async with tampu.use(app) as jobs:
        flow = app.flow()
        numbers = flow.map(maybe, [1, 2])
        run = await flow.start(result=flow.add(merge, numbers))
        await jobs.run(raise_errors=False)
        failing.clear()
        assert (await run.progress()).done == 1
        ran = await jobs.travel("1h")
        assert [each.name for each in ran] == ["maybe", "merge"]
        assert (ran[0].at - jobs.attempts[0].at).total_seconds() == 3600
        assert await run.result() == {"sum": 3}


async def test_a_chain_runs_step_by_step(tampu: Kit) -> None:
    async with tampu.use(app) as jobs:
        job = await maybe.call(3).then(maybe).enqueue()
        assert [each.data for each in jobs.enqueued(maybe)] == [{"number": 3}]
        assert [each.job.data for each in await jobs.run()] == [{"number": 3}] * 2
        assert await job.result() == 3


async def test_a_flow_with_fail_fast_is_halted_and_retried(tampu: Kit) -> None:
    failing.add(1)
    async with tampu.use(app) as jobs:
        flow = app.flow(fail_fast=True)
        numbers = flow.map(maybe.options(attempts=1), [1, 2, 3])
        run = await flow.start(result=flow.add(merge, numbers))
        await jobs.run(raise_errors=False)
        assert log == [1]
        info = await run.info()
        assert info is not None
        assert info.state in {RunState.HALTED, RunState.FAILED}
        failing.clear()
        await run.retry()
        await jobs.run()
        assert await run.result() == {"sum": 6}
        assert sorted(map(str, log)) == ["1", "1", "2", "3"]


# --- without an event loop ----------------------------------------------------------------------


def test_flows_in_a_plain_test(tampu: Kit) -> None:
    with tampu.use(app, inline=True) as jobs:
        flow = app.flow()
        numbers = flow.map(maybe, [1, 2])
        run = flow.start_sync(result=flow.add(merge, numbers))
        assert run.result() == {"sum": 3}
        assert list(run.completed(numbers)) == [(0, 1), (1, 2)]
        assert run.progress().done == 3
        assert chain(maybe.call(3), maybe).enqueue_sync().result() == 3
        with app.batch_sync(on_success=fetch.call("end")) as batch:
            batch.add(maybe, 7)
        assert log[-2:] == [7, "end"]
        batch.run.result()
        assert len(jobs.attempts) == 7


def test_flows_in_a_plain_test_that_runs_them_itself(tampu: Kit) -> None:
    with tampu.use(app) as jobs:
        flow = app.flow(queue="home")
        run = flow.start_sync(result=flow.add(merge, flow.map(count, ["a", "b"])))
        jobs.assert_enqueued(count, "a")
        assert [each.name for each in jobs.run()] == ["count", "count", "merge"]
        assert run.result() == {"sum": 2}
