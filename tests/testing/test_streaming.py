"""Tasks that yield, in a test."""

from collections.abc import AsyncIterator, Iterator

import pytest

from tampu import INJECTED, App, Backoff, Chunk, Job, NoStream, Restarted
from tampu.testing import Kit

app = App("redis://192.0.2.1:6379/3", default_queue="answers")


@app.task(collect="".join)
async def answer(question: str) -> AsyncIterator[str]:
    yield question
    yield "!"


@app.task(collect=list[int], window=2)
def count(most: int) -> Iterator[int]:
    yield from range(most)


@app.task(attempts=2, backoff=Backoff.fixed(3600))
async def shaky(job: Job = INJECTED) -> AsyncIterator[int]:
    yield job.attempt
    if job.attempt == 1:
        raise ValueError("again")


async def read(job: Job) -> list[object]:
    return [item.value if isinstance(item, Chunk) else item async for item in job.stream()]


async def test_a_stream_is_read_after_its_job_has_run(tampu: Kit) -> None:
    async with tampu.use(app) as jobs:
        job = await answer.enqueue("why")
        await jobs.run()
        assert await read(job) == ["why", "!"]
        assert await job.result() == "why!"


async def test_a_plain_task_waits_for_no_reader(tampu: Kit) -> None:
    async with tampu.use(app) as jobs:
        job = await count.enqueue(50)
        await jobs.run()
        assert await read(job) == await job.result() == list(range(50))


async def test_attempts_and_virtual_time(tampu: Kit) -> None:
    async with tampu.use(app) as jobs:
        job = await shaky.enqueue()
        await jobs.run(raise_errors=False)
        await jobs.travel("1h")
        assert await read(job) == [1, Restarted(2), 2]


def test_code_without_a_loop_reads_them_too(tampu: Kit) -> None:
    with tampu.use(app, inline=True):
        job = answer.enqueue_sync("why")
        assert [item.value for item in job.stream() if isinstance(item, Chunk)] == ["why", "!"]
        with pytest.raises(NoStream):
            next(answer.job_sync("none").stream())
