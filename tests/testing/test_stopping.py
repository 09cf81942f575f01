"""Cancelled jobs, paused queues and unique keys in the test kit."""

import pytest

from tampu import App, CancelState, JobCancelled, Unique
from tampu.testing import Kit

app = App("redis://192.0.2.1")
log: list[int] = []


@app.task
async def note(number: int) -> int:
    log.append(number)
    return number


@app.task(unique=Unique(until="started"))
async def refresh() -> None:
    if not log:
        log.append(1)
        await refresh.enqueue()


@pytest.fixture(autouse=True)
def _empty() -> None:
    log.clear()


async def test_a_cancelled_job_does_not_run(tampu: Kit) -> None:
    async with tampu.use(app) as jobs:
        first, second = await note.enqueue(1), await note.enqueue(2)
        assert await second.cancel() is CancelState.CANCELLED
        await jobs.run()
        assert await first.result() == 1
        with pytest.raises(JobCancelled):
            await second.result()
    assert log == [1]


async def test_a_job_that_another_one_cancels_while_it_is_read_ahead_does_not_run(
    tampu: Kit,
) -> None:
    own = App("redis://192.0.2.1")
    ids: list[str] = []

    @own.task
    async def cancel_next() -> None:
        await later.job(ids[0]).cancel()

    @own.task
    async def later() -> None:
        log.append(1)

    async with tampu.use(own) as jobs:
        await cancel_next.enqueue()
        ids.append((await later.enqueue()).id)
        await jobs.run()
    assert log == []


async def test_the_jobs_of_a_paused_queue_wait(tampu: Kit) -> None:
    async with tampu.use(app) as jobs:
        await note.enqueue(1)
        await app.queue().pause()
        await jobs.run()
        assert log == []
        await app.queue().resume()
        await jobs.run()
    assert log == [1]


async def test_a_paused_queue_waits_while_time_passes(tampu: Kit) -> None:
    async with tampu.use(app) as jobs:
        await note.options(delay="1h").enqueue(1)
        await app.queue().pause()
        await jobs.travel("2h")
        assert log == []
        await app.queue().resume()
        await jobs.travel("1h")
    assert log == [1]


async def test_a_key_that_is_held_until_the_start_is_free_when_the_task_runs(tampu: Kit) -> None:
    async with tampu.use(app) as jobs:
        await refresh.enqueue()
        assert (await refresh.enqueue()).duplicate
        await jobs.run()
        assert len(jobs.attempts) == 2
