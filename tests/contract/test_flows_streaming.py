"""Tasks that yield, as jobs of flows and as steps of chains: their streams end."""

from collections.abc import AsyncIterator

import pytest

from tampu import App, AppWorker, Call, Chunk, JobFailed, chain
from tampu.wire.flow import MemberId, StepId
from tests.contract.workers import SOON
from tests.servers import RunningServer


@pytest.fixture
def app(running: RunningServer) -> App:
    app = App(running.url)

    @app.task(collect="".join, attempts=1)
    async def spell(word: str) -> AsyncIterator[str]:
        for letter in word:
            yield letter
        if word == "no":
            raise ValueError(word)

    @app.task
    async def shout(word: str) -> str:
        return word.upper()

    return app


async def chunks_of(app: App, job_id: str) -> list[object]:
    """All that a job has yielded, when its stream has ended."""
    stream = app.queue().job(job_id).stream()
    return [each.value async for each in stream if isinstance(each, Chunk)]


async def test_the_stream_of_a_job_of_a_flow_ends_and_its_result_goes_on(app: App) -> None:
    flow = app.flow()
    word = flow.add(app.tasks["spell"], "yes")
    last = flow.add(app.tasks["shout"], word)
    async with app, AppWorker(app):
        run = await flow.start(result=last)
        assert await chunks_of(app, str(MemberId(run.id, word.number))) == ["y", "e", "s"]
        assert await run.result(SOON) == "YES"


async def test_the_stream_of_a_job_of_a_flow_that_fails_ends_with_its_failure(app: App) -> None:
    flow = app.flow()
    word = flow.add(app.tasks["spell"], "no")
    async with app, AppWorker(app):
        run = await flow.start(result=word)
        with pytest.raises(JobFailed, match="ValueError"):
            await chunks_of(app, str(MemberId(run.id, word.number)))


async def test_the_stream_of_a_step_of_a_chain_ends_when_the_next_one_begins(app: App) -> None:
    spell = app.tasks["spell"]
    first: Call[str] = spell.call("hi")
    async with app, AppWorker(app):
        job = await chain(first, app.tasks["shout"], spell).enqueue()
        step = StepId(job.id.partition("~")[0], 1, 3)
        assert await chunks_of(app, str(step)) == ["h", "i"]
        assert await chunks_of(app, job.id) == ["H", "I"]
        assert await job.result(SOON) == "HI"
