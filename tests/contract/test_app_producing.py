"""Adding jobs of tasks: with and without an event loop, and from several loops."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tampu import App, AppWorker, ArgumentError, Retry, SyncQueue, WrongContext
from tests.contract.apps import nothing_left, working
from tests.contract.workers import SOON
from tests.servers import RunningServer
from tests.waiting import wait_until


@pytest.fixture
def app(running: RunningServer) -> App:
    return App(running.url)


PROGRAM = """
import atexit, logging, sys, threading
from tampu import App

logging.getLogger("asyncio").setLevel(logging.ERROR)  # below that it tells of a busy machine
atexit.register(lambda: print("threads left:", threading.active_count() - 1))  # the last to be run
app = App(sys.argv[1])

@app.task
def send(to: str) -> str: ...

jobs = [send.enqueue_sync("ada"), *send.enqueue_many_sync([send.call("bob")])]
print(*(job.result(timeout=10) for job in jobs))
"""


class TestWithoutLoop:
    @pytest.fixture
    def closed(self, app: App) -> Iterator[App]:
        yield app
        app.close_sync()
        assert not [each for each in threading.enumerate() if each.name == "tampu-portal"]

    async def test_threads_enqueue_and_wait_through_one_shared_loop(self, closed: App) -> None:
        @closed.task
        async def send(to: str) -> tuple[int]:
            return (len(to),)

        def work(to: str) -> tuple[int]:
            return send.enqueue_sync(to).result(timeout=SOON)

        async with working(closed):
            lengths = await asyncio.gather(*(asyncio.to_thread(work, "x" * n) for n in range(8)))
            with pytest.raises(ArgumentError):
                await asyncio.to_thread(send.enqueue_sync)  # type: ignore[call-arg]
        assert lengths == [(n,) for n in range(8)]
        portals = [each for each in threading.enumerate() if each.name == "tampu-portal"]
        assert len(portals) == 1

    async def test_a_program_without_a_loop_ends_by_itself(self, app: App, tmp_path: Path) -> None:
        @app.task
        async def send(to: str) -> str:
            return to.upper()

        command = [sys.executable, "-X", "dev", "-W", "error", "-c", PROGRAM, str(app.url)]
        async with working(app):
            done = await asyncio.to_thread(
                subprocess.run, command, cwd=tmp_path, capture_output=True, text=True, timeout=30
            )
        assert (done.stdout, done.stderr, done.returncode) == ("ADA BOB\nthreads left: 0\n", "", 0)

    async def test_a_plain_task_enqueues_another(self, closed: App) -> None:
        ended: list[str] = []

        @closed.task
        def second(text: str) -> None:
            ended.append(text)

        @closed.task
        def first() -> None:
            second.enqueue_sync("from a thread")

        async with working(closed):
            await first.enqueue()
            await wait_until(lambda: bool(ended), within=SOON, sentence="the second has run")


class TestOpening:
    async def test_queues_are_closed_with_the_app_and_opened_again(
        self, app: App, running: RunningServer
    ) -> None:
        @app.task
        async def send() -> None: ...

        async def act() -> None:
            async with app:
                await send.enqueue()
            await send.enqueue()
            await app.close()

        await nothing_left(running, act)
        assert (await app.queue().counts()).waiting == 2
        await app.close()

    async def test_an_inner_block_closes_nothing(self, app: App) -> None:
        async with app:
            queue = app.queue()
            async with app:
                await queue.counts()
            await queue.counts()

    async def test_a_second_loop_has_its_own_queues(self, app: App) -> None:
        @app.task
        async def send() -> None: ...

        async def elsewhere() -> None:
            async with app:
                await send.enqueue()

        async with app:
            await send.enqueue()
            await asyncio.to_thread(asyncio.run, elsewhere())
            await send.enqueue()
            assert (await app.queue().counts()).waiting == 3

    async def test_a_task_enqueues_another_while_it_runs(
        self, app: App, running: RunningServer
    ) -> None:
        @app.task
        async def first() -> None:
            await second.enqueue(1)
            raise Retry(after=60)

        done = asyncio.Event()

        @app.task(queue="other")
        async def second(n: int) -> None:
            done.set()

        async def act() -> None:
            async with working(app):
                await first.enqueue()
                await asyncio.wait_for(done.wait(), SOON)

        await nothing_left(running, act)


async def test_a_blocking_wait_in_an_event_loop_is_refused_with_what_to_do(
    running: RunningServer,
) -> None:
    app = App(running.url)

    @app.task
    def double(number: int) -> int:
        return 2 * number

    try:
        job = double.enqueue_sync(4)  # takes a moment, so it is allowed
        with pytest.raises(WrongContext, match=r"wait for a result here.*await task\.enqueue"):
            job.result()
        async with AppWorker(app, grace=0):
            assert await asyncio.to_thread(job.result) == 8
        with SyncQueue("default", running.url) as queue:
            with pytest.raises(WrongContext, match="an event loop runs in this thread"):
                queue.job(job.id).result()
    finally:
        await asyncio.to_thread(app.close_sync)
        await app.close()
