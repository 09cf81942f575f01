"""Results of flows have the types that their tasks return; tasks that run in child processes."""

import os
from typing import TYPE_CHECKING, Any

import pytest

from tampu import App, JobFailed, Results, chain
from tests.contract import isolated_tasks
from tests.contract.apps import working
from tests.contract.isolated_tasks import Picture
from tests.contract.workers import SOON

if TYPE_CHECKING:
    from tests.servers import RunningServer

app = App()


@app.task
async def take(name: str, width: int = 4) -> Picture:
    return Picture(name, width)


@app.task
async def halve(picture: Picture) -> Picture:
    return Picture(picture.name, picture.width // 2)


@app.task
async def join(results: Results[Picture], untyped: Results[Any]) -> list[str]:
    found = [f"{each.name} {each.width}" async for each in results]
    return [*sorted(found), *[type(each).__name__ async for each in untyped]]


@pytest.fixture(autouse=True)
def _url(running: "RunningServer", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "url", running.url)
    monkeypatch.setattr(isolated_tasks.app, "url", running.url)


async def test_results_have_the_type_that_the_task_returns() -> None:
    async with working(app):
        flow = app.flow()
        one = flow.add(halve, flow.add(take, "a"))
        many = flow.map(halve, flow.map(take, ["b", "c"], width=6))
        run = await flow.start(result=one)
        assert await run.result(SOON) == Picture("a", 2)
        assert sorted([each async for each in run.completed(many)]) == [
            (0, Picture("b", 3)),
            (1, Picture("c", 3)),
        ]
        flow = app.flow()
        pictures = await flow.start(result=flow.map(take, ["b", "c"]))
        assert await pictures.result(SOON) == [Picture("b", 4), Picture("c", 4)]
        job = await chain(take.call("d", 8), halve, halve).enqueue()
        assert await job.result(SOON) == Picture("d", 2)


async def test_results_by_reference_have_the_type_of_the_annotation() -> None:
    async with working(app):
        flow = app.flow()
        many = flow.map(take, ["b", "c"])
        run = await flow.start(result=flow.add(join, many.results, untyped=many.results.value))
        assert await run.result(SOON) == ["b 4", "c 4", "dict", "dict"]


async def test_a_task_in_a_child_process_gets_results() -> None:
    flow = isolated_tasks.app.flow()
    picture = flow.add(isolated_tasks.shrink, Picture("a", 20), os.getpid())
    again = flow.add(isolated_tasks.shrink, picture, os.getpid())
    async with working(isolated_tasks.app, concurrency=1):
        run = await flow.start(result=again)
        assert await run.result(SOON) == Picture("a", 5)


async def test_what_a_task_in_a_child_process_cannot_do() -> None:
    flow = isolated_tasks.app.flow()
    numbers = flow.map(isolated_tasks.give, [1, 2])
    summed = flow.add(isolated_tasks.sum_up, numbers.results)
    async with working(isolated_tasks.app, concurrency=1):
        run = await flow.start(result=summed)
        with pytest.raises(JobFailed, match="the task runs in a child process"):
            await run.result(SOON)
        batch = isolated_tasks.app.batch()
        async with batch:
            await batch.add(isolated_tasks.add_more, 1)
        with pytest.raises(JobFailed, match="the task runs in a child process"):
            await batch.run.result(SOON)
