"""Jobs of flows, chains and batches belong to the trace in which they were started."""

from collections.abc import Awaitable, Callable

import pytest

from tampu import App, AppWorker, chain
from tests.contract.telemetry import Recording, ids, links_of, parent_of
from tests.contract.workers import SOON
from tests.servers import RunningServer


async def start_flow(app: App) -> None:
    double = app.tasks["double"]
    flow = app.flow()
    last = flow.add(double, flow.add(double, 1))
    flow.map(double, [1])
    run = await flow.start(result=last)
    assert await run.result(SOON) == 4


async def start_chain(app: App) -> None:
    double = app.tasks["double"]
    assert await (await chain(double.call(1), double, double).enqueue()).result(SOON) == 8


async def start_batch(app: App) -> None:
    double = app.tasks["double"]
    async with app.batch(on_success=double.call(1)) as batch:
        await batch.add(double, 1)
        await batch.add(double, 2)
    await batch.run.result(SOON)


@pytest.mark.parametrize("start", [start_flow, start_chain, start_batch])
async def test_all_jobs_belong_to_the_trace_in_which_they_were_started(
    running: RunningServer, start: Callable[[App], Awaitable[None]]
) -> None:
    recording = Recording()
    app = App(running.url, telemetry=recording.telemetry)

    @app.task
    async def double(number: int) -> int:
        return 2 * number

    async with app, AppWorker(app):
        with recording.tracer.start_as_current_span("request") as request:
            await start(app)
        runs = await recording.runs(3)
    trace, _ = ids(request)  # type: ignore[arg-type] # it is a span that was recorded
    for run in runs:
        origins = [*links_of(run), parent_of(run)]
        assert trace in {each[0] for each in origins if each is not None}
