"""Inline mode: adding a job runs it."""

import asyncio
import threading

import pytest
import redis

from tampu import (
    INJECTED,
    App,
    ArgumentError,
    Backoff,
    EncodeError,
    Job,
    JobFailed,
    NewJob,
    ResultTimeout,
    Snooze,
    TampuError,
)
from tampu.testing import Kit

app = App("redis://192.0.2.1")
log: list[object] = []


@app.task
async def double(number: int) -> int:
    log.append(number)
    return 2 * number


@app.task(attempts=3, backoff=Backoff.fixed("1h"))
def fail(job: Job[None] = INJECTED) -> None:
    log.append(job.attempt)
    raise ValueError(f"attempt {job.attempt}")


@app.task
async def sleepy() -> None:
    log.append("sleepy")
    raise Snooze("1d")


@app.task
async def parent() -> int:
    job = await double.enqueue(21)
    log.append("parent")
    return await job.result()


@pytest.fixture(autouse=True)
def _empty() -> None:
    log.clear()


async def test_a_job_has_run_when_it_is_added(tampu: Kit) -> None:
    async with tampu.use(app, inline=True) as jobs:
        job = await double.enqueue(4)
        assert log == [4]
        assert await job.result() == 8
        assert await app.queue().job(job.id).result() == 8
        assert [each.value for each in jobs.attempts] == [8]
        assert jobs.enqueued() == []


async def test_many_jobs_run_in_their_order(tampu: Kit) -> None:
    async with tampu.use(app, inline=True):
        added = await double.enqueue_many([double.call(n) for n in range(5)])
        assert [await job.result() for job in added] == [0, 2, 4, 6, 8]
        await app.queue().add_each("double", [{"number": 5}, {"number": 6}])
        await app.queue().add_many([NewJob("double", {"number": 7})])
    assert log == list(range(8))


async def test_jobs_inside_of_jobs_run_at_once(tampu: Kit) -> None:
    async with tampu.use(app, inline=True) as jobs:
        assert await (await parent.enqueue()).result() == 42
        assert [each.name for each in jobs.attempts] == ["double", "parent"]
    assert log == [21, "parent"]


async def test_retries_do_not_wait_and_the_result_is_that_of_a_real_job(tampu: Kit) -> None:
    async with tampu.use(app, inline=True):
        job = await fail.enqueue()
        assert log == [1, 2, 3]
        with pytest.raises(JobFailed, match="ValueError: attempt 3") as caught:
            await job.result()
    assert caught.value.reason == "retries_exhausted"


async def test_a_failure_that_nobody_asked_about_is_raised_at_the_end(tampu: Kit) -> None:
    with pytest.raises(ValueError, match="attempt 3"):
        async with tampu.use(app, inline=True):
            await fail.enqueue()
            await double.enqueue(1)
    assert log == [1, 2, 3, 1]
    with pytest.raises(KeyError):
        async with tampu.use(app, inline=True):
            await fail.enqueue()
            raise KeyError


async def test_delayed_and_snoozed_jobs_wait_for_their_time(tampu: Kit) -> None:
    async with tampu.use(app, inline=True) as jobs:
        later = await double.options(delay="1h").enqueue(1)
        snoozed = await sleepy.enqueue()
        assert log == ["sleepy"]
        jobs.assert_enqueued(double, 1, delay="1h")
        for job in (later, snoozed):
            with pytest.raises(ResultTimeout):
                await job.result()  # does not wait
        await jobs.travel("1h")
        assert await later.result() == 2


async def test_arguments_go_over_the_wire(tampu: Kit) -> None:
    async with tampu.use(app, inline=True):
        with pytest.raises(ArgumentError):
            await double.enqueue(object())  # type: ignore[arg-type]
        with pytest.raises(EncodeError):
            await app.queue().add("double", {"number": object()})
    assert log == []


async def test_a_taken_id_runs_nothing(tampu: Kit) -> None:
    async with tampu.use(app, inline=True):
        once = double.options(job_id="once")
        assert not (await once.enqueue(1)).duplicate
        assert (await once.enqueue(2)).duplicate
    assert log == [1]


async def test_jobs_that_add_each_other_without_end_are_stopped(tampu: Kit) -> None:
    own = App("redis://192.0.2.1")

    @own.task(attempts=1)
    async def again() -> None:
        await again.enqueue()

    with pytest.raises(TampuError, match="added each other 100 deep"):
        async with tampu.use(own, inline=True):
            await again.enqueue()


async def test_a_verdict_of_pytest_is_not_taken_for_a_failed_job(tampu: Kit) -> None:
    own = App("redis://192.0.2.1")

    @own.task
    async def check() -> None:
        pytest.fail("seen")

    async with tampu.use(own, inline=True):
        with pytest.raises(pytest.fail.Exception, match="seen"):
            await check.enqueue()


async def test_plain_code_adds_jobs_of_its_own_thread(tampu: Kit) -> None:
    own, threads = App("redis://192.0.2.1"), []

    @own.task
    def inner() -> None:
        threads.append(threading.get_ident())

    @own.task
    def outer() -> None:
        threads.append(threading.get_ident())
        inner.enqueue_sync()

    async with tampu.use(own, inline=True):
        outer.enqueue_sync()
        assert threads == [threading.get_ident()] * 2
        threads.clear()
        await outer.enqueue()
    assert len(set(threads)) == 1, "the inner one runs in the thread of the outer one"
    assert threads[0] != threading.get_ident()


async def test_a_job_that_another_task_runs_is_waited_for(tampu: Kit) -> None:
    own = App("redis://192.0.2.1")

    @own.task
    async def slow(number: int) -> int:
        for _ in range(50):
            await asyncio.sleep(0)
        return number

    async def add(number: int) -> int:
        return await (await slow.enqueue(number)).result()

    async with tampu.use(own, inline=True):
        assert await asyncio.gather(*map(add, range(20))) == list(range(20))


def test_nothing_is_left_in_the_database(tampu: Kit) -> None:
    with tampu.use(app, inline=True):
        double.enqueue_sync(1)
    with redis.Redis.from_url(tampu.url) as client:
        assert client.dbsize() == 0
