"""How long the results of flows are kept."""

import asyncio
from contextlib import nullcontext

import pytest
import redis

from tampu import App, JobFailed
from tampu.wire.keys import QueueKeys
from tests.contract.apps import working
from tests.contract.workers import SOON
from tests.servers import RunningServer
from tests.waiting import wait_until

pytestmark = pytest.mark.every_server


async def test_a_result_stays_while_other_jobs_of_the_flow_run(running: RunningServer) -> None:
    app, go_on = App(running.url), asyncio.Event()

    @app.task
    async def quick() -> int:
        return 3

    @app.task
    async def hold() -> None:
        await asyncio.wait_for(go_on.wait(), SOON)

    flow = app.flow(result_ttl="1s")
    flow.add(hold)
    with running.admin() as admin:
        async with working(app):
            run = await flow.start(result=flow.add(quick))
            key = QueueKeys("default").result(run.id)
            assert await run.result(SOON) == 3
            assert admin.ttl(key) > 1000
            go_on.set()
            await wait_until(
                lambda: admin.ttl(key) <= 1, within=SOON, sentence="its time begins at the end"
            )


@pytest.mark.parametrize(("fails", "kept_s"), [(False, 3600), (True, 14 * 86_400)])
async def test_flows_are_kept_for_an_hour_and_failed_ones_for_fourteen_days(
    running: RunningServer, admin: redis.Redis, *, fails: bool, kept_s: int
) -> None:
    app = App(running.url)

    @app.task(attempts=1)
    async def work(number: int) -> int:
        if fails:
            raise ValueError(number)
        return number

    async with working(app):
        flow = app.flow()
        flow.map(work, [1, 2])
        run = await flow.start(result=flow.add(work, 3))
        with pytest.raises(JobFailed) if fails else nullcontext():
            await run.result(SOON)
        await wait_until(
            lambda: admin.ttl(QueueKeys("default").flow(run.id)) > 0,
            within=SOON,
            sentence="the flow has ended",
        )
        keys = [key for key in admin.scan_iter("*") if run.id.encode() in key]
        assert keys
        assert all(kept_s - 100 < admin.ttl(key) <= kept_s for key in keys)
