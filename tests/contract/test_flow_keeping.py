"""How long the results of flows are kept."""

import asyncio

import pytest

from tampu import App
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
