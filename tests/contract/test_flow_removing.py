"""Jobs of flows and steps of chains that somebody removes: whoever waits for them learns of it."""

import pytest

from tampu import (
    CancelState,
    Flow,
    FlowRun,
    Job,
    JobCancelled,
    JobFailed,
    JobState,
    Node,
    WaitsFor,
    chain,
)
from tampu.admin.queues import Purgeable, purge_jobs
from tampu.server.connect import Server
from tampu.server.lane import Lane
from tampu.wire.keys import QueueKeys
from tests.contract.flows import OTHER, FlowApp
from tests.contract.workers import SOON
from tests.servers import RunningServer
from tests.waiting import wait_until

pytestmark = pytest.mark.every_server


@pytest.fixture
def flows(running: RunningServer) -> FlowApp:
    return FlowApp(running)


def with_outcome(flows: FlowApp, node: Node[int], flow: Flow) -> Node[str]:
    return flow.add(flows.one_outcome, node.outcome)


async def purge(server: Server, queue: str, state: Purgeable) -> int:
    keys = QueueKeys(queue)
    async with await Lane.open(server, keys.stream) as lane:
        counts = await purge_jobs(lane, keys, [state])
    return counts.waiting + counts.delayed + counts.dead


async def run_to_end(flows: FlowApp, run: FlowRun[str]) -> str:
    async with flows.at_work():
        found = await run.result(SOON)
        await flows.ends(run, "done")
    return found


async def test_a_waiting_job_that_is_cancelled_ends_in_its_flow(flows: FlowApp) -> None:
    flow = flows.app.flow()
    run = await flow.start(result=with_outcome(flows, flow.add(flows.hold, 1), flow))
    assert await flows.home.job(f"{run.id}~0").cancel() is CancelState.CANCELLED
    assert await run_to_end(flows, run) == "cancelled"
    assert flows.ran == []


@pytest.mark.parametrize("has_begun", [False, True])
async def test_a_job_in_another_queue_that_is_cancelled_ends_in_its_flow(
    flows: FlowApp, *, has_begun: bool
) -> None:
    flow = flows.app.flow()
    run = await flow.start(result=with_outcome(flows, flow.add(flows.hold_there, 1), flow))
    if not has_begun:
        await flows.other.pause()
    async with flows.at_work():
        await wait_until(lambda: is_there(flows, 0, 1), within=SOON, sentence="it is added")
        if has_begun:
            await wait_until(lambda: flows.ran == ["hold 1"], within=SOON, sentence="it runs")
        state = CancelState.CANCELLING if has_begun else CancelState.CANCELLED
        assert await flows.other.job(f"{run.id}~0@default").cancel() is state
        await flows.other.resume()
        assert await run.result(SOON) == "cancelled"
        await flows.ends(run, "done")


async def test_a_job_that_nobody_handles_fails_its_flow_when_it_is_cancelled(
    flows: FlowApp,
) -> None:
    flow = flows.app.flow()
    run = await flow.start(result=flow.add(flows.double, flow.add(flows.double, 1)))
    await flows.home.cancel_many([f"{run.id}~0"])
    async with flows.at_work():
        with pytest.raises(JobCancelled):
            await run.result(SOON)
        info = await flows.ends(run, "failed")
        assert [str(node.state) for node in info.nodes] == ["failed", "waiting"]


async def test_waiting_jobs_of_both_queues_that_are_purged_end_in_their_flow(
    flows: FlowApp, server: Server
) -> None:
    flow = flows.app.flow()
    jobs = flow.map(flows.double, range(3))
    there = flow.map(flows.size_there, ["a", "b"])
    before = flow.add(flows.double, 7)
    # After those of the other queue: else it may be added while the first ones are purged.
    last = flow.add(flows.count_outcomes, jobs.outcomes).after(there)
    run = await flow.start(result=last)
    assert await purge(server, "default", Purgeable.WAITING) == 1  # the others are not added yet
    await flows.home.pause()
    await flows.other.pause()
    async with flows.at_work():
        await wait_until(lambda: is_there(flows, 3, 2), within=SOON, sentence="they are added")
        assert await purge(server, "default", Purgeable.WAITING) == 3
        assert await purge(server, OTHER, Purgeable.WAITING) == 2
        await flows.home.resume()
        await flows.other.resume()
        info = await flows.ends(run, "failed")
        assert [info.nodes[each.number].failed for each in (jobs, there, before)] == [3, 2, 1]


async def is_there(flows: FlowApp, home: int, other: int) -> bool:
    counts = [await queue.counts() for queue in (flows.home, flows.other)]
    return [each.waiting + each.active for each in counts] == [home, other]


async def test_jobs_that_wait_for_a_retry_and_are_purged_end_in_their_flow(
    flows: FlowApp, server: Server
) -> None:
    flow = flows.app.flow()
    run = await flow.start(result=with_outcome(flows, flow.add(flows.try_later, 1), flow))
    async with flows.at_work():

        async def is_delayed() -> bool:
            return (await flows.home.counts()).delayed == 1

        await wait_until(is_delayed, within=SOON, sentence="it waits for its next attempt")
        assert await purge(server, "default", Purgeable.DELAYED) == 1
        assert await run.result(SOON) == "cancelled"


async def test_jobs_in_lines_that_are_purged_or_cancelled_end_in_their_flow(
    flows: FlowApp, server: Server
) -> None:
    flow = flows.app.flow()
    jobs = [flow.add(flows.in_line, number) for number in range(3)]
    ends = [with_outcome(flows, job, flow) for job in jobs]
    run = await flow.start()
    assert await flows.home.job(f"{run.id}~1").cancel() is CancelState.CANCELLED
    assert await purge(server, "default", Purgeable.WAITING) == 2
    async with flows.at_work():
        info = await flows.ends(run, "done")
    assert [info.nodes[each.number].failed for each in jobs] == [1, 1, 1]
    assert [info.nodes[each.number].done for each in ends] == [1, 1, 1]
    assert flows.ran == []


# --- chains -------------------------------------------------------------------------------------


async def test_a_chain_that_waits_is_cancelled_by_its_last_job(flows: FlowApp) -> None:
    job = await chain(flows.double.call(1), flows.double).enqueue()
    assert await job.cancel() is CancelState.CANCELLED
    with pytest.raises(JobCancelled):
        await job.result(SOON)
    assert (await job.info()).state is JobState.CANCELLED
    assert await job.cancel() is CancelState.TOO_LATE
    async with flows.at_work():
        await (await flows.note.enqueue("later")).result(SOON)
    assert flows.ran == ["later"]


async def test_a_chain_whose_step_runs_is_cancelled_as_a_whole(flows: FlowApp) -> None:
    job = await chain(flows.double.call(1), flows.hold, flows.double).enqueue()
    async with flows.at_work():
        await wait_until(lambda: "hold 2" in flows.ran, within=SOON, sentence="step 2 runs")
        assert await job.cancel() is CancelState.CANCELLING
        with pytest.raises(JobCancelled):
            await job.result(SOON)
        assert (await job.info()).state is JobState.CANCELLED
        assert (await flows.home.counts()).waiting == 0
    assert flows.ran == [1, "hold 2"]


async def test_a_chain_whose_step_waits_for_a_retry_is_cancelled(flows: FlowApp) -> None:
    job = await chain(flows.double.call(1), flows.try_later, flows.double).enqueue()
    async with flows.at_work():

        async def is_delayed() -> bool:
            return (await flows.home.counts()).delayed == 1

        await wait_until(is_delayed, within=SOON, sentence="it waits for its next attempt")
        assert await job.cancel() is CancelState.CANCELLED
        with pytest.raises(JobCancelled):
            await job.result(SOON)
        assert (await flows.home.counts()).delayed == 0


async def test_the_last_job_of_a_chain_says_which_step_it_waits_for(flows: FlowApp) -> None:
    job = await chain(flows.hold.call(1), flows.double, flows.refuse).enqueue()
    assert await told(job) == (JobState.WAITING, "refuse", WaitsFor.STEP)
    async with flows.at_work():
        await wait_until(lambda: flows.ran == ["hold 1"], within=SOON, sentence="it runs")
        assert await told(job) == (JobState.WAITING, "refuse", WaitsFor.STEP)
        sentence = (await job.why()).sentence
        assert sentence == f"It waits for step 1 of 3 of its chain, job {job.id[:27]}1/3."
        flows.goes_on.set()
        with pytest.raises(JobFailed, match="no 2"):
            await job.result(SOON)
        assert await told(job) == (JobState.DEAD, "refuse", WaitsFor.REPLAY)
        flows.fails = False
        assert await flows.home.dead.replay() == 1
        assert await job.result(SOON) == 2
        assert await told(job) == (JobState.DONE, "refuse", WaitsFor.NOTHING)


async def test_a_step_in_the_middle_that_is_dead_is_what_its_chain_waits_for(
    flows: FlowApp,
) -> None:
    job = await chain(flows.refuse.call(1), flows.double).enqueue()
    async with flows.at_work():
        with pytest.raises(JobFailed):
            await job.result(SOON)
        info = await job.info()
        assert (info.id, info.state, info.name) == (job.id, JobState.DEAD, "refuse")


async def told(job: Job[int]) -> tuple[JobState, str | None, WaitsFor]:
    info, why = await job.info(), await job.why()
    assert (info.id, why.job_id) == (job.id, job.id)
    return info.state, info.name, why.waits_for
