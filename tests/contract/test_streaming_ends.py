"""How streams of jobs end: with each kind of end of a job, whoever brings it about."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

import pytest
import redis

from tampu import (
    INJECTED,
    App,
    AppWorker,
    Chunk,
    Job,
    JobCancelled,
    JobFailed,
    NoStream,
    OptionError,
    Restarted,
    StreamGap,
    WrongContext,
)
from tampu.streaming import reader as reading
from tests.contract.apps import working
from tests.contract.streaming import KEYS, next_value, purge_queue, until_yielded, values
from tests.contract.workers import SOON
from tests.servers import RunningServer
from tests.waiting import wait_until


@pytest.fixture
def app(running: RunningServer) -> App:
    return App(running.url)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers that never ask about a job: only the end of its stream ends them."""
    for name in ("FIRST_LOOK_S", "LATER_LOOK_S", "_LONGEST_LOOK_S"):
        monkeypatch.setattr(reading, name, 3600.0)


@pytest.mark.timeout(60)
@pytest.mark.usefixtures("patient")
@pytest.mark.every_server
class TestEnds:
    @pytest.mark.parametrize("fails", [False, True])
    async def test_the_end_comes_after_the_last_chunk(self, app: App, *, fails: bool) -> None:
        @app.task(attempts=1)
        async def much() -> AsyncIterator[str]:
            for number in range(60):
                yield f"{number}".ljust(200_000)  # some calls
            if fails:
                raise ValueError("after all")

        async with working(app):
            items = (await much.enqueue()).stream()
            for number in range(60):
                assert str(await next_value(items)).strip() == str(number)
            if fails:
                with pytest.raises(JobFailed, match="after all"):
                    await next_value(items)
            else:
                assert await values(items) == []

    async def test_a_job_that_fails_for_good(self, app: App) -> None:
        @app.task(attempts=1)
        async def boom() -> AsyncIterator[str]:
            yield "a"
            raise ValueError("no")

        async with working(app):
            job = await boom.enqueue()
            items = job.stream()
            assert await next_value(items) == "a"
            with pytest.raises(JobFailed, match="ValueError: no"):
                await next_value(items)
            late = job.stream()
            assert await next_value(late) == "a"
            with pytest.raises(JobFailed, match="ValueError: no"):
                await next_value(late)

    async def test_a_job_that_fails_on_a_worker_that_stores_nothing(self, app: App) -> None:
        @app.task(attempts=1, result_ttl=0)
        async def boom() -> AsyncIterator[str]:
            yield "a"
            raise ValueError("no")

        async with working(app):
            items = (await boom.enqueue()).stream()
            assert await next_value(items) == "a"
            with pytest.raises(JobFailed):
                await next_value(items)

    @pytest.mark.parametrize("delay", [None, 3600])
    async def test_a_job_that_is_cancelled_before_it_runs(
        self, app: App, admin: redis.Redis, delay: int | None
    ) -> None:
        @app.task
        async def never() -> AsyncIterator[str]:
            yield "a"

        async with app:
            job = await never.options(delay=delay).enqueue()
            reader = asyncio.create_task(values(job.stream()))
            await until_yielded(admin, job.id, 1)
            await job.cancel()
            with pytest.raises(JobCancelled):
                await reader

    async def test_a_job_that_is_cancelled_while_it_runs(self, app: App) -> None:
        on = asyncio.Event()

        @app.task
        async def slow() -> AsyncIterator[str]:
            yield "a"
            await on.wait()

        async with working(app):
            job = await slow.enqueue()
            items = job.stream()
            assert await next_value(items) == "a"
            await job.cancel()
            with pytest.raises(JobCancelled):
                await next_value(items)

    async def test_a_plain_task_that_is_cancelled_ends_at_its_next_yield(self, app: App) -> None:
        ended: list[bool] = []

        @app.task
        def endless() -> Iterator[int]:
            try:
                number = 0
                while True:
                    number += 1
                    yield number
            finally:
                ended.append(True)

        async with working(app, cancel_grace=SOON):
            job = await endless.enqueue()
            async with aclosing(job.stream()) as items:
                assert await next_value(items) == 1
                await job.cancel()
                with pytest.raises((JobCancelled, StreamGap)):
                    await values(items)
            await wait_until(lambda: bool(ended), within=SOON, sentence="the generator is closed")

    async def test_a_job_that_expires_before_it_runs(self, app: App, admin: redis.Redis) -> None:
        @app.task
        async def never() -> AsyncIterator[str]:
            yield "a"

        async with app:
            job = await never.options(expires=0.001).enqueue()
            reader = asyncio.create_task(values(job.stream()))
            await until_yielded(admin, job.id, 1)
            async with AppWorker(app):
                with pytest.raises(JobFailed, match="expired"):
                    await reader

    @pytest.mark.parametrize(("delay", "key"), [(None, None), (3600, None), (None, "k")])
    async def test_a_job_that_is_purged(
        self, app: App, admin: redis.Redis, delay: int | None, key: str | None
    ) -> None:
        @app.task(key="key")
        async def never(key: str | None) -> AsyncIterator[str | None]:
            yield key

        async with app:
            job = await never.options(delay=delay).enqueue(key)
            reader = asyncio.create_task(values(job.stream()))
            await until_yielded(admin, job.id, 1)
            await purge_queue(app)
            with pytest.raises(JobCancelled):
                await reader

    async def test_a_job_that_is_dropped_from_its_line(self, app: App, admin: redis.Redis) -> None:
        @app.task(key="name", keep="latest")
        async def never(name: str) -> AsyncIterator[str]:
            yield name

        async with app:
            job = await never.enqueue("a")
            reader = asyncio.create_task(values(job.stream()))
            await until_yielded(admin, job.id, 1)
            await never.enqueue("a")
            with pytest.raises(JobCancelled):
                await reader

    async def test_a_dead_letter_that_is_replayed_has_a_new_stream(self, app: App) -> None:
        fixed: list[bool] = []

        @app.task(attempts=1)
        async def shaky() -> AsyncIterator[str]:
            yield "a"
            if not fixed:
                raise ValueError("no")
            yield "b"

        async with working(app):
            job = await shaky.enqueue()
            items = job.stream()
            first = await anext(items)
            with pytest.raises(JobFailed):
                await next_value(items)
            fixed.append(True)
            assert await app.queue().dead.replay(1) == 1
            assert await values(job.stream()) == ["a", "b"]
            assert isinstance(first, Chunk)
            assert await values(job.stream(first.id)) == [Restarted(1), "a", "b"]

    async def test_an_id_that_is_used_again_has_a_new_stream(
        self, app: App, admin: redis.Redis
    ) -> None:
        @app.task
        async def tell(word: str) -> AsyncIterator[str]:
            yield word

        async with working(app):
            for word in ("old", "new"):
                job = await tell.options(job_id="mine").enqueue(word)
                assert not job.duplicate
                assert await values(job.stream()) == [word]
                admin.delete(KEYS.marker("mine"))


class TestNoStream:
    async def test_of_an_unknown_job(self, app: App) -> None:
        async with app:
            for job_id in ("none", "01J00000000000000000000000"):
                with pytest.raises(NoStream, match="there is no such job, or it has ended"):
                    await values(app.queue().job(job_id).stream())

    async def test_of_a_job_whose_task_does_not_yield(self, app: App) -> None:
        @app.task
        async def plain() -> int:
            return 5

        async with working(app):
            job = await plain.enqueue()
            with pytest.raises(NoStream, match="its task does not yield"):
                await values(job.stream())

    @pytest.mark.parametrize("after", ["", "5", "$", "1-1-1", 5])
    async def test_after_must_be_the_id_of_a_chunk(self, app: App, after: Any) -> None:  # noqa: ANN401
        async with app:
            with pytest.raises(OptionError, match="expected the id of a chunk"):
                app.queue().job("x").stream(after)
            with pytest.raises(OptionError, match="expected one of yield, raise"):
                app.queue().job("x").stream(on_restart="no")  # type: ignore[arg-type]

    async def test_a_handler_cannot_follow_streams(self, app: App) -> None:
        @app.task
        async def nosy(job: Job = INJECTED) -> str:
            with pytest.raises(WrongContext, match="follow a stream"):
                await anext(job.stream())
            return "refused"

        async with working(app):
            assert await (await nosy.enqueue()).result() == "refused"
