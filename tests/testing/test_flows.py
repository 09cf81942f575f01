"""Flows, chains and batches that run when they are started."""

import asyncio

import pytest

from tampu import (
    ArgumentError,
    JobCancelled,
    JobFailed,
    OptionError,
    ResultTimeout,
    RunState,
    chain,
)
from tampu.testing import Kit
from tests.testing.flow_tasks import (
    Weighed,
    add_more,
    add_more_plain,
    app,
    count,
    failing,
    fetch,
    for_tenant,
    links_of,
    log,
    maybe,
    measure,
    merge,
    sleepy,
    sleepy_number,
    start_inside,
    tell,
    total,
    weigh,
)


@pytest.fixture(autouse=True)
def _empty() -> None:
    log.clear()
    failing.clear()


# --- inline -------------------------------------------------------------------------------------


async def test_a_flow_has_run_when_it_is_started(tampu: Kit) -> None:
    async with tampu.use(app, inline=True) as jobs:
        flow = app.flow("index")
        counts = flow.map(count, flow.add(fetch, "u"), weight=2)
        label = flow.add(merge, counts, label="x")
        told = flow.add(tell, counts.outcomes)
        summed = flow.add(total, counts.results)
        run = await flow.start(result=label)
        names = [each.name for each in jobs.attempts]
        assert names[:4] == ["fetch", "count", "count", "count"]
        assert sorted(names[4:]) == ["merge", "tell", "total"]
        assert await run.result() == {"x": 12}
        assert [each.value for each in jobs.attempts if each.name == "tell"] == [3]
        assert [each.value for each in jobs.attempts if each.name == "total"] == [12]
        info, progress = await run.info(), await run.progress()
        assert info is not None
        assert info.state is RunState.DONE
        assert (progress.jobs, progress.done, progress.failed) == (7, 7, 0)
        assert [each async for each in run.completed(counts)] == [(0, 2), (1, 4), (2, 6)]
        assert (told.name, summed.name) == ("tell", "total")


async def test_a_map_over_a_result_of_another_queue(tampu: Kit) -> None:
    async with tampu.use(app, inline=True):
        flow = app.flow(queue="home")
        counts = flow.map(count, flow.add(links_of, "abc"))
        run = await flow.start(result=flow.add(merge, counts))
        assert await run.result() == {"sum": 9}


async def test_a_task_on_a_queue_of_its_options(tampu: Kit) -> None:
    async with tampu.use(app, inline=True):
        flow = app.flow()
        one = flow.add(count.options(queue="elsewhere"), "abc")
        run = await flow.start(result=flow.add(merge, [one.value]))
        assert await run.result() == {"sum": 3}


async def test_a_chain_has_run_when_it_is_added(tampu: Kit) -> None:
    async with tampu.use(app, inline=True) as jobs:
        job = await chain(maybe.call(3), maybe, maybe).enqueue()
        assert [each.name for each in jobs.attempts] == ["maybe"] * 3
        assert await job.result() == 3


async def test_jobs_of_a_batch_have_run_at_its_end(tampu: Kit) -> None:
    async with tampu.use(app, inline=True) as jobs:
        async with app.batch(on_success=fetch.call("yes"), on_complete=fetch.call("end")) as batch:
            await batch.add(maybe, 1)
            await batch.flush()
            assert log == [1]
            await batch.add(maybe, 2)
            assert log == [1]
        assert log[:2] == [1, 2]
        assert {*log[2:]} == {"yes", "end"}
        await batch.run.result()
        assert len(jobs.attempts) == 4


async def test_a_job_adds_to_its_own_batch(tampu: Kit) -> None:
    async with tampu.use(app, inline=True):
        async with app.batch(on_success=fetch.call("end")) as batch:
            await batch.add(add_more, 3)
        assert log == [3, 2, 1, 0, "end"]
        log.clear()
        async with app.batch(on_success=fetch.call("end")) as batch:
            await batch.add(add_more_plain, 2)
        assert log == [2, 1, 0, "end"]


async def test_a_job_starts_a_flow_and_waits_for_it(tampu: Kit) -> None:
    async with tampu.use(app, inline=True):
        assert await (await start_inside.enqueue("u")).result() == {"sum": 6}


async def test_jobs_of_a_map_that_wait_in_lines(tampu: Kit) -> None:
    async with tampu.use(app, inline=True):
        flow = app.flow()
        run = await flow.start(result=flow.map(for_tenant, ["a", "b", "a"]))
        assert await run.result() == ["a", "b", "a"]


async def test_a_failure_that_nobody_takes_care_of_is_raised_at_the_end(tampu: Kit) -> None:
    failing.add(2)
    with pytest.raises(ValueError, match="no 2"):
        async with tampu.use(app, inline=True):
            flow = app.flow()
            flow.add(merge, flow.map(maybe, [1, 2]))
            await flow.start()
    assert log == [1, 2, 2]
    with pytest.raises(ValueError, match="no 2"):
        async with tampu.use(app, inline=True):
            await chain(maybe.call(2), maybe).enqueue()


async def test_who_asks_for_the_result_knows_of_the_failure(tampu: Kit) -> None:
    failing.add(2)
    async with tampu.use(app, inline=True):
        flow = app.flow()
        label = flow.add(merge, flow.map(maybe, [1, 2]))
        run = await flow.start(result=label)
        with pytest.raises(JobFailed, match="no 2"):
            await run.result()
        job = await chain(maybe.call(2), maybe).enqueue()
        with pytest.raises(JobFailed, match="no 2"):
            await job.result()
        batch = app.batch(on_success=fetch.call("yes"), on_complete=fetch.call("end"))
        async with batch:
            await batch.add(maybe, 2)
        with pytest.raises(JobFailed, match="no 2"):
            await batch.run.result()
        assert "yes" not in log
        assert "end" in log


async def test_a_failure_that_the_flow_takes_care_of_is_none(tampu: Kit) -> None:
    failing.update({2, 4})
    async with tampu.use(app, inline=True) as jobs:
        flow = app.flow()
        numbers = flow.map(maybe, [1, 2, 3])
        flow.add(tell, numbers.outcomes)
        flow.add(maybe, flow.add(maybe, 4).default(5))
        flow.add(merge, flow.map(maybe, [6, 4]).tolerate(0.5))
        run = await flow.start()
        assert [each.value for each in jobs.attempts if each.name == "tell"] == [2]
        assert [each.value for each in jobs.attempts if each.name == "merge"] == [{"sum": 6}]
        info = await run.info()
        assert info is not None
        assert (info.state, info.failed) == (RunState.DONE, 3)
    assert 5 in log


async def test_a_map_with_failures_has_a_default(tampu: Kit) -> None:
    failing.add(2)
    async with tampu.use(app, inline=True) as jobs:
        flow = app.flow()
        bad, good = flow.map(maybe, [1, 2]), flow.map(maybe, [1, 3])
        most = flow.map(maybe, [1, 2, 3]).tolerate(0.5)
        for each in (bad, good, most):
            flow.add(merge, each.default([7]))
        with pytest.raises(OptionError, match="outcomes"):
            _ = bad.outcome
        await flow.start()
        values = [each.value for each in jobs.attempts if each.name == "merge"]
        assert sorted(map(str, values)) == ["{'sum': 4}", "{'sum': 4}", "{'sum': 7}"]


async def test_a_flow_is_retried(tampu: Kit) -> None:
    failing.add(2)
    async with tampu.use(app, inline=True):
        flow = app.flow()
        numbers = flow.map(maybe, [1, 2])
        run = await flow.start(result=flow.add(merge, numbers))
        with pytest.raises(JobFailed):
            await run.result()
        failing.clear()
        log.clear()
        assert await run.retry() == 1
        assert log == [2]
        assert await run.result() == {"sum": 3}


async def test_what_waits_for_its_time_is_not_waited_for(tampu: Kit) -> None:
    async with tampu.use(app, inline=True) as jobs:
        flow = app.flow()
        slept = flow.map(sleepy_number, [0])
        run = await flow.start(result=flow.add(merge, slept))
        with pytest.raises(ResultTimeout):
            await run.result()
        with pytest.raises(ResultTimeout):
            assert [each async for each in run.completed(slept)] == []
        await jobs.travel("1d")
        assert await run.result() == {"sum": 3}
        assert [each async for each in run.completed(slept)] == [(0, 3)]


async def test_a_flow_is_cancelled(tampu: Kit) -> None:
    async with tampu.use(app, inline=True) as jobs:
        flow = app.flow()
        run = await flow.start(result=flow.add(maybe, flow.add(sleepy)))
        assert await run.cancel()
        with pytest.raises(JobCancelled):
            await run.result()
        await jobs.travel("2d")
        assert [each.name for each in jobs.attempts] == ["sleepy"]


async def test_flows_that_are_started_together(tampu: Kit) -> None:
    async with tampu.use(app, inline=True):
        flows = [app.flow() for _ in range(3)]
        ends = [each.add(merge, each.map(count, each.add(links_of, "abc"))) for each in flows]
        runs = await asyncio.gather(
            *(flow.start(result=end) for flow, end in zip(flows, ends, strict=True))
        )
        assert [await run.result() for run in runs] == [{"sum": 9}] * 3


async def test_a_task_that_gets_batches(tampu: Kit) -> None:
    async with tampu.use(app, inline=True) as jobs:
        flow = app.flow()
        mapped = await flow.start(result=flow.map(weigh, [Weighed(1, 2), Weighed(3, 4)]))
        assert await mapped.result() == [2, 12]
        assert log == [2]
        log.clear()
        flow = app.flow()
        with pytest.raises(ArgumentError):
            flow.map(weigh, [{"number": 1}])  # type: ignore[call-overload]
        weighed = [flow.add(weigh, flow.add(measure, link)).value for link in ("a", "bb")]
        run = await flow.start(result=flow.add(merge, weighed))
        assert await run.result() == {"sum": 5}
        assert log == ["a", "bb", 2]
        assert len(jobs.attempts) == 7
