"""Tasks that yield, and who reads what they yield."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis

from tampu import (
    INJECTED,
    App,
    AppWorker,
    Backoff,
    Depends,
    Job,
    JobFailed,
    Restarted,
    StreamRestarted,
)
from tests.contract import isolated_tasks
from tests.contract.apps import working
from tests.contract.streaming import KEYS, next_value, until_yielded, values
from tests.contract.workers import SOON, own_tasks
from tests.servers import RunningServer


@pytest.fixture
def app(running: RunningServer) -> App:
    return App(running.url)


@dataclass
class Row:
    number: int


class TestYielding:
    @pytest.mark.every_server
    async def test_readers_get_what_an_async_task_yields_early_and_late(self, app: App) -> None:
        @app.task(collect="".join)
        async def answer(question: str) -> AsyncIterator[str]:
            for word in question.split():
                yield word

        async with working(app):
            job = await answer.enqueue("why is it so")
            assert await values(job.stream()) == ["why", "is", "it", "so"]
            assert await job.result() == "whyisitso"
            assert await values(answer.job(job.id).stream()) == ["why", "is", "it", "so"]
            assert await values(app.queue().job(job.id).stream()) == ["why", "is", "it", "so"]

    async def test_a_plain_task_yields_from_its_thread(self, app: App) -> None:
        @app.task(collect=sum)
        def count(most: int) -> Iterator[int]:
            yield from range(most)

        async with working(app):
            job = await count.enqueue(3000)
            assert await values(job.stream()) == list(range(3000))
            assert await job.result() == sum(range(3000))

    async def test_child_processes_yield(
        self, running: RunningServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(isolated_tasks.app, "url", running.url)
        async with working(isolated_tasks.app):
            one = await isolated_tasks.count_up.enqueue(300, os.getpid())
            assert await values(one.stream()) == list(range(300))
            assert await one.result() == list(range(300))
            two = await isolated_tasks.count_up_plainly.enqueue(300, os.getpid())
            assert await values(two.stream()) == list(range(300))
            assert await two.result() == sum(range(300))

    async def test_a_child_process_that_crashes_ends_an_attempt(
        self, running: RunningServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(isolated_tasks.app, "url", running.url)
        async with working(isolated_tasks.app, backoff=Backoff.fixed(0)):
            job = await isolated_tasks.crash_once.enqueue(str(tmp_path / "crashed"))
            seen = await values(job.stream())
        assert seen[-3:] == [Restarted(2), "first", "second"]

    async def test_without_collect_the_result_is_none(self, app: App) -> None:
        @app.task
        async def answer() -> AsyncIterator[str]:
            yield "a"

        async with working(app):
            job = app.queue().job((await answer.enqueue()).id)
            assert await job.result() is None

    async def test_a_job_that_yields_nothing_has_a_stream_with_an_end(self, app: App) -> None:
        @app.task(result_ttl=0, cancel_on_close=True)
        async def silent() -> AsyncIterator[str]:
            for word in list[str]():
                yield word

        async with working(app):
            job = await silent.enqueue()
            await app.queue().drain(timeout=SOON)
            assert await values(job.stream()) == []
            assert "tampu-abandoned-streams" not in own_tasks(), "nobody is watched any more"

    async def test_chunks_arrive_as_the_type_that_the_task_yields(self, app: App) -> None:
        @app.task(collect=list)
        async def rows() -> AsyncIterator[Row]:
            yield Row(1)

        async with working(app):
            job = await rows.enqueue()
            assert await values(job.stream()) == [Row(1)]
            assert await values(app.queue().job(job.id).stream()) == [{"number": 1}]

    async def test_dependencies_live_as_long_as_the_generator(self, app: App) -> None:
        told: list[str] = []

        async def source() -> AsyncIterator[str]:
            told.append("opened")
            yield "from the source"
            told.append("closed")

        @app.task
        async def read(text: str = Depends(source), job: Job = INJECTED) -> AsyncIterator[str]:
            yield text
            told.append(f"read by attempt {job.attempt}")

        async with working(app):
            job = await read.enqueue()
            assert await values(job.stream()) == ["from the source"]
        assert told == ["opened", "read by attempt 1", "closed"]

    async def test_a_chunk_that_cannot_be_sent_buries_the_job(self, app: App) -> None:
        @app.task(attempts=5)
        async def odd() -> AsyncIterator[object]:
            yield 1
            yield object()

        async with working(app):
            items = (await odd.enqueue()).stream()
            assert await next_value(items) == 1
            with pytest.raises(JobFailed, match="Cannot encode the chunk"):
                await next_value(items)

    @pytest.mark.parametrize(("ttl", "kept_s"), [(None, 600), (0, 60), (1, 60), ("2h", 7200)])
    @pytest.mark.every_server
    async def test_every_key_of_a_stream_expires(
        self, app: App, admin: redis.Redis, ttl: str | int | None, kept_s: int
    ) -> None:
        on = asyncio.Event()

        @app.task(window=2, cancel_on_close=True, result_ttl=ttl)
        async def slow() -> AsyncIterator[int]:
            yield 1
            yield 2
            await on.wait()

        async with working(app):
            job = await slow.enqueue()
            async with aclosing(job.stream()) as items:
                assert [await next_value(items) for _ in range(2)] == [1, 2]
                assert 86_300 < int(admin.ttl(KEYS.output(job.id))) <= 86_400
                assert 3500 < int(admin.ttl(KEYS.readers(job.id))) <= 3600
                on.set()
                assert await values(items) == []
            assert kept_s - 30 < int(admin.ttl(KEYS.output(job.id))) <= kept_s
        for key in admin.scan_iter(b"*tampu:out*"):
            assert int(admin.ttl(key)) > 0, key


@pytest.mark.every_server
class TestAttempts:
    async def test_the_next_attempt_starts_with_its_first_chunk(self, app: App) -> None:
        @app.task(attempts=2, backoff=Backoff.fixed(0))
        async def shaky(job: Job = INJECTED) -> AsyncIterator[str]:
            yield f"{job.attempt}a"
            yield f"{job.attempt}b"
            if job.attempt == 1:
                raise ValueError("again")

        async with working(app):
            job = await shaky.enqueue()
            assert await values(job.stream()) == ["1a", "1b", Restarted(2), "2a", "2b"]
            with pytest.raises(StreamRestarted, match="started again: this is attempt 2"):
                await values(job.stream(on_restart="raise"))

    async def test_a_worker_that_stops_gives_the_job_to_another_one(
        self, app: App, admin: redis.Redis
    ) -> None:
        on = asyncio.Event()

        @app.task
        async def slow() -> AsyncIterator[str]:
            yield "a"
            await on.wait()
            yield "b"

        async with app:
            job = await slow.enqueue()
            reading = asyncio.create_task(values(job.stream()))
            async with AppWorker(app, grace=0):
                await until_yielded(admin, job.id, 1)
            on.set()
            async with AppWorker(app):
                assert await reading == ["a", Restarted(1), "a", "b"]

    async def test_a_late_worker_is_not_heard(self, app: App, admin: redis.Redis) -> None:
        @app.task(attempts=2, backoff=Backoff.fixed(0))
        async def shaky(job: Job = INJECTED) -> AsyncIterator[int]:
            yield job.attempt
            if job.attempt == 1:
                raise ValueError

        async with working(app):
            job = await shaky.enqueue()
            await values(job.stream())
        first: Any = admin.xrange(KEYS.output(job.id))
        run = first[0][0].partition(b"-")[0]
        with pytest.raises(redis.ResponseError, match="equal or smaller"):
            admin.xadd(KEYS.output(job.id), {"a": 1, "v": b"\1"}, id=run + b"-2")
