"""Tasks that wait for the readers of their streams, and that end without them."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest
import redis

from tampu import App, AppWorker, Chunk, JobCancelled, JobFailed
from tampu.consumer import output as writing
from tampu.server.scripts import output
from tampu.util.lifecycle import cancel_all
from tests.contract import isolated_tasks
from tests.contract.apps import working
from tests.contract.streaming import KEYS, next_value, until_yielded, values
from tests.contract.workers import SOON
from tests.servers import RunningServer
from tests.waiting import wait_until


@pytest.fixture
def app(running: RunningServer) -> App:
    return App(running.url)


class TestWindows:
    @pytest.mark.every_server
    async def test_the_task_waits_for_its_readers(self, app: App) -> None:
        made: list[int] = []

        @app.task(window=4)
        async def count() -> AsyncIterator[int]:
            for number in range(20):
                made.append(number)
                yield number

        async with working(app):
            job = await count.enqueue()
            async with aclosing(job.stream()) as items:
                for number in range(20):
                    assert await next_value(items) == number
                    assert len(made) <= number + 1 + 4
                assert await values(items) == []

    async def test_a_plain_task_waits_for_its_readers(self, app: App) -> None:
        made: list[int] = []

        @app.task(window=4)
        def count() -> Iterator[int]:
            for number in range(20):
                made.append(number)
                yield number

        async with working(app):
            job = await count.enqueue()
            async with aclosing(job.stream()) as items:
                for number in range(20):
                    assert await next_value(items) == number
                    assert len(made) <= number + 1 + 4
                assert await values(items) == []

    async def test_a_child_process_waits_for_its_readers(
        self, running: RunningServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(isolated_tasks.app, "url", running.url)
        file = tmp_path / "made"
        file.write_text("-1")
        async with working(isolated_tasks.app):
            job = await isolated_tasks.count_in_a_window.enqueue(10, str(file))
            async with aclosing(job.stream()) as items:
                for number in range(10):
                    assert await next_value(items) == number
                    assert int(file.read_text() or -1) <= number + 2
                assert await values(items) == []

    @pytest.mark.parametrize("window", [1, 2, 3])
    async def test_a_reader_that_leaves_after_each_chunk_and_comes_back(
        self, app: App, window: int
    ) -> None:
        @app.task(window=window)
        async def count() -> AsyncIterator[int]:
            for number in range(7):
                yield number

        async with working(app):
            job = await count.enqueue()
            last: str | None = None
            for number in range(7):
                async with aclosing(job.stream(last)) as items:
                    async with asyncio.timeout(SOON):
                        item = await anext(items)
                    assert isinstance(item, Chunk)
                    assert item.value == number
                    last = item.id
            async with asyncio.timeout(SOON):
                assert await values(job.stream(last)) == []

    @pytest.mark.every_server
    async def test_of_several_readers_the_fastest_counts(self, app: App) -> None:
        @app.task(window=2)
        async def count() -> AsyncIterator[int]:
            for number in range(20):
                yield number

        async with working(app):
            job = await count.enqueue()
            async with aclosing(job.stream()) as slow:
                assert await next_value(slow) == 0
                async with asyncio.timeout(SOON):
                    assert await values(job.stream()) == list(range(20))
                assert await values(slow) == list(range(1, 20))

    async def test_without_a_reader_it_waits_until_its_time_is_over(
        self, app: App, admin: redis.Redis
    ) -> None:
        @app.task(window=3, timeout=1, attempts=1)
        async def count() -> AsyncIterator[int]:
            for number in range(20):
                yield number

        async with working(app):
            job = await count.enqueue()
            with pytest.raises(JobFailed, match="JobTimeout"):
                await job.result(timeout=SOON)
            assert int(admin.xlen(KEYS.output(job.id))) == 4  # with the end

    async def test_without_a_reader_a_plain_task_waits_until_its_time_is_over(
        self, app: App, admin: redis.Redis
    ) -> None:
        @app.task(window=3, timeout=1, attempts=1)
        def count() -> Iterator[int]:
            yield from range(20)

        async with working(app):
            job = await count.enqueue()
            with pytest.raises(JobFailed, match="JobTimeout"):
                await job.result(timeout=SOON)
            assert int(admin.xlen(KEYS.output(job.id))) == 4

    async def test_a_worker_that_stops_does_not_wait_for_readers(
        self, app: App, admin: redis.Redis
    ) -> None:
        @app.task(window=1)
        def count() -> Iterator[int]:
            yield from range(20)

        async with app:
            job = await count.enqueue()
            async with AppWorker(app, grace=0):
                await until_yielded(admin, job.id, 1)


class TestCancelOnClose:
    @pytest.mark.every_server
    async def test_a_job_whose_last_reader_leaves_is_cancelled(self, app: App) -> None:
        @app.task(cancel_on_close=True)
        async def endless() -> AsyncIterator[int]:
            number = 0
            while True:
                yield number
                number += 1
                await asyncio.sleep(0.01)

        async with working(app):
            job = await endless.enqueue()
            async with aclosing(job.stream()) as one:
                assert await next_value(one) == 0
                async with aclosing(job.stream()) as two:
                    assert await next_value(two) == 0
            with pytest.raises(JobCancelled):
                await job.result(timeout=SOON)

    async def test_a_job_that_never_had_a_reader_runs_to_its_end(self, app: App) -> None:
        @app.task(cancel_on_close=True, collect=list)
        async def count() -> AsyncIterator[int]:
            yield 1
            await asyncio.sleep(1.5)
            yield 2

        async with working(app):
            assert await (await count.enqueue()).result(timeout=SOON) == [1, 2]

    async def test_readers_that_left_before_the_job_began(
        self, app: App, admin: redis.Redis
    ) -> None:
        on = asyncio.Event()

        @app.task(cancel_on_close=True)
        async def slow() -> AsyncIterator[int]:
            await on.wait()
            yield 1

        async with app:
            job = await slow.enqueue()
            readers = [asyncio.create_task(values(job.stream())) for _ in range(2)]
            await wait_until(
                lambda: bool(admin.exists(KEYS.readers(job.id))),
                within=SOON,
                sentence="it is followed",
            )
            await cancel_all(readers)
            async with AppWorker(app):
                with pytest.raises(JobCancelled):
                    await job.result(timeout=SOON)

    async def test_readers_that_say_nothing_for_a_moment_are_believed_to_be_there(
        self, app: App, admin: redis.Redis, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(output, "PRESENT_MS", 1)
        on = asyncio.Event()

        @app.task(cancel_on_close=True, collect=list)
        async def slow() -> AsyncIterator[int]:
            yield 1
            await on.wait()
            yield 2

        async with working(app):
            job = await slow.enqueue()
            async with aclosing(job.stream()) as items:
                assert await next_value(items) == 1
                await until_looked(admin, 3)
                on.set()
                assert await job.result(timeout=SOON) == [1, 2]

    @pytest.mark.every_server
    async def test_readers_that_say_nothing_for_long_are_gone(
        self, app: App, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(output, "PRESENT_MS", 1)
        monkeypatch.setattr(writing, "SAY_EVERY_S", -writing._GAP_S)

        @app.task(cancel_on_close=True)
        async def slow() -> AsyncIterator[int]:
            yield 1
            await asyncio.sleep(10 * SOON)

        async with working(app):
            job = await slow.enqueue()
            async with aclosing(job.stream()) as items:
                assert await next_value(items) == 1
                with pytest.raises(JobCancelled):
                    await job.result(timeout=SOON)


async def until_looked(admin: redis.Redis, times: int) -> None:
    """Return when a worker has looked so often whether streams have readers, the only ZCOUNT."""

    def calls() -> int:
        return int(admin.info("commandstats").get("cmdstat_zcount", {}).get("calls", 0))

    before = calls()
    await wait_until(
        lambda: calls() >= before + times, within=SOON, sentence="the worker has looked"
    )
