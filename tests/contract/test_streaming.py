"""Generator tasks and the streams of their jobs."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tampu import App, Chunk
from tampu.wire.keys import QueueKeys
from tests.contract.apps import working
from tests.servers import RunningServer

pytestmark = pytest.mark.every_server
KEYS = QueueKeys("default")


@pytest.fixture
def app(running: RunningServer) -> App:
    return App(running.url)


async def values(items: Any) -> list[Any]:  # noqa: ANN401 - a stream
    """What a stream gives: values, and `Restarted` as it is."""
    return [item.value if isinstance(item, Chunk) else item async for item in items]


async def test_a_reader_gets_what_an_async_task_yields(app: App) -> None:
    @app.task(collect="".join)
    async def answer(question: str) -> AsyncIterator[str]:
        for word in question.split():
            yield word

    async with working(app):
        job = await answer.enqueue("why is it so")
        assert await values(job.stream()) == ["why", "is", "it", "so"]
        assert await job.result() == "whyisitso"
        assert await values(answer.job(job.id).stream()) == ["why", "is", "it", "so"]
