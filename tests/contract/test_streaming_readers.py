"""Readers of streams: many, slow ones, and those that come back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
import redis

from tampu import (
    INJECTED,
    App,
    Backoff,
    Chunk,
    Job,
    Queue,
    Restarted,
    StreamGap,
)
from tampu.streaming import reader as reading
from tests.contract.apps import nothing_left, working
from tests.contract.streaming import KEYS, next_value, until_yielded, values
from tests.contract.workers import SOON, own_tasks
from tests.servers import RunningServer
from tests.waiting import wait_until

pytestmark = pytest.mark.every_server


@pytest.fixture
def app(running: RunningServer) -> App:
    return App(running.url)


def readers(admin: redis.Redis) -> list[dict[str, str]]:
    """The connections of a queue that calls itself so."""
    return [each for each in admin.client_list() if each["name"] == "readers"]


class TestComingBack:
    async def test_a_reader_goes_on_after_its_last_chunk(self, app: App) -> None:
        @app.task
        async def count() -> AsyncIterator[int]:
            for number in range(2500):
                yield number

        async with working(app):
            job = await count.enqueue()
            seen: list[object] = []
            last: str | None = None
            while len(seen) < 2500:
                async with aclosing(job.stream(last)) as items:
                    async for item in items:
                        assert isinstance(item, Chunk)
                        seen.append(item.value)
                        last = item.id
                        if len(seen) % 700 == 0:
                            break
            assert seen == list(range(2500))
            assert await values(job.stream(last)) == []

    async def test_in_another_attempt(self, app: App, admin: redis.Redis) -> None:
        on = asyncio.Event()

        @app.task(attempts=2, backoff=Backoff.fixed(0))
        async def shaky(job: Job = INJECTED) -> AsyncIterator[str]:
            yield f"{job.attempt}a"
            if job.attempt == 1:
                raise ValueError
            await on.wait()
            yield "b"

        async with working(app):
            job = await shaky.enqueue()
            async with aclosing(job.stream()) as items:
                first = await anext(items)
            assert isinstance(first, Chunk)
            await until_yielded(admin, job.id, 2)
            on.set()
            assert await values(job.stream(first.id)) == [Restarted(2), "2a", "b"]

    async def test_chunks_that_are_gone_are_an_error(self, app: App, admin: redis.Redis) -> None:
        @app.task
        async def count() -> AsyncIterator[int]:
            for number in range(10):
                yield number

        async with working(app):
            job = await count.enqueue()
            items: list[Any] = [item async for item in job.stream()]
            admin.xtrim(KEYS.output(job.id), maxlen=5, approximate=False)  # four and the end
            for after in (None, items[0].id, items[4].id):
                with pytest.raises(StreamGap) as caught:
                    await values(job.stream(after))
                assert caught.value.next_id == items[6].id
            assert await values(job.stream(items[5].id)) == [6, 7, 8, 9]

    async def test_a_stream_keeps_a_limited_number_of_chunks(
        self, app: App, admin: redis.Redis
    ) -> None:
        @app.task
        async def count() -> AsyncIterator[int]:
            for number in range(12_000):
                yield number

        async with working(app):
            job = await count.enqueue()
            await job.result(timeout=SOON)
            assert 10_000 <= int(admin.xlen(KEYS.output(job.id))) < 10_500
            with pytest.raises(StreamGap):
                await values(job.stream())

    async def test_a_slow_reader_reads_again_what_it_has_not_taken(
        self, app: App, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(reading, "MOST_BUFFERED", 20)
        monkeypatch.setattr(reading, "ENTRIES_A_PAGE", 30)
        on = asyncio.Event()

        @app.task
        async def count() -> AsyncIterator[int]:
            yield -1
            await on.wait()
            for number in range(1000):
                yield number

        async with working(app):
            job = await count.enqueue()
            items = job.stream()
            assert await next_value(items) == -1
            on.set()
            await job.result(timeout=SOON)
            assert await values(items) == list(range(1000))

    async def test_broken_connections_lose_and_repeat_nothing(
        self, app: App, admin: redis.Redis
    ) -> None:
        @app.task
        async def count() -> AsyncIterator[int]:
            for number in range(300):
                yield number
                await asyncio.sleep(0.002)

        async with working(app):
            job = await count.enqueue()
            seen: list[object] = []
            async for item in job.stream():
                assert isinstance(item, Chunk)
                seen.append(item.value)
                if len(seen) % 100 == 50:
                    admin.client_kill_filter(_type="normal", skipme=True)
            assert seen == list(range(300))


class TestManyReaders:
    async def test_two_hundred_readers_share_a_connection_and_leave_nothing(
        self, app: App, admin: redis.Redis, running: RunningServer
    ) -> None:
        on = asyncio.Event()

        @app.task
        async def slow(number: int) -> AsyncIterator[int]:
            yield number
            await on.wait()
            yield number + 1

        async def follow_all(queue: Queue) -> None:
            streams = [queue.job(each.id).stream() for each in added]
            assert [await next_value(items) for items in streams] == list(range(200))
            # One that blocks, one for all calls, one that ends a blocking read.
            assert 0 < len(readers(admin)) <= 3
            for items in streams[:100]:
                await items.aclose()
            on.set()
            rest = [await values(items) for items in streams[100:]]
            assert rest == [[number + 1] for number in range(100, 200)]
            assert queue._connection is not None
            assert queue._connection.outputs._followed == {}

        async with working(app, concurrency=200):
            added = await slow.enqueue_many([slow.call(number) for number in range(200)])
            await until_yielded(admin, added[-1].id, 1)
            async with Queue("default", f"{running.url}?client_name=readers") as queue:
                await follow_all(queue)
            assert not [each for each in own_tasks() if "output" in each]
            await wait_until(
                lambda: not readers(admin),
                within=SOON,
                sentence="connections are closed",
            )

    async def test_nothing_is_left_by_an_app(self, running: RunningServer) -> None:
        async def act() -> None:
            app = App(running.url)

            @app.task
            async def count() -> AsyncIterator[int]:
                for number in range(10):
                    yield number

            async with working(app):
                job = await count.enqueue()
                many = await asyncio.gather(*(values(job.stream()) for _ in range(20)))
                assert many == [list(range(10))] * 20

        await nothing_left(running, act)
