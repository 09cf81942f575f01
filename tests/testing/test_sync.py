"""The kit in tests without an event loop."""

import asyncio
import threading
import unittest
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import redis
from fastapi import FastAPI
from fastapi.testclient import TestClient

from tampu import App, Depends, ServerUnreachable, WrongContext
from tampu.testing import Kit, use
from tests.waiting import block_until

app = App("redis://192.0.2.1", default_queue="plain")
log: list[str] = []


def get_name() -> str:
    return "real"


@app.task
def note(text: str, name: str = Depends(get_name)) -> int:
    log.append(f"{name} {text}")
    assert threading.current_thread() is threading.main_thread()
    return len(text)


@app.task
async def shout(text: str) -> str:
    await note.enqueue(text.upper())
    return text.upper()


@pytest.fixture(autouse=True)
def _empty() -> None:
    log.clear()


def test_plain_tasks_run_in_the_thread_of_the_test(tampu: Kit) -> None:
    with tampu.use(app) as jobs:
        job = note.enqueue_sync("hello")
        jobs.assert_enqueued(note, "hello")
        jobs.assert_not_enqueued(note, "bye")
        assert [each.value for each in jobs.run()] == [5]
        assert job.result() == 5
        note.options(delay="1d").enqueue_sync("later")
        before = jobs.now()
        jobs.travel("2d")
        assert (jobs.now() - before).days == 2
        assert [each.job.data["text"] for each in jobs.attempts] == ["hello", "later"]
        assert jobs.enqueued() == []
        assert jobs.url == tampu.url
    assert log == ["real hello", "real later"]


def test_async_tasks_run_too_and_errors_are_raised(tampu: Kit) -> None:
    with tampu.use(app) as jobs:
        shout.enqueue_sync("loud")
        assert [each.name for each in jobs.run()] == ["shout", "note"]
        note.enqueue_sync("x" * 3)
        with app.override(get_name, lambda: 1 / 0), pytest.raises(ZeroDivisionError):
            jobs.run()
    assert log == ["real LOUD"]


def test_inline_runs_in_the_thread_of_the_caller(tampu: Kit) -> None:
    with tampu.use(app, inline=True):
        assert note.enqueue_sync("now").result() == 3
        assert log == ["real now"]
        assert shout.enqueue_sync("loud").result() == "LOUD"
    assert log == ["real now", "real LOUD"]


def test_in_a_loop_it_must_be_async(tampu: Kit) -> None:
    async def wrong() -> None:
        with tampu.use(app):
            raise AssertionError

    with pytest.raises(WrongContext, match="write `async with`"):
        asyncio.run(wrong())
    with tampu.use(app):
        pass


def test_a_block_that_cannot_begin_leaves_no_thread(tampu: Kit) -> None:
    before = threading.active_count()
    with tampu.use(app) as jobs:
        with pytest.raises(WrongContext, match="another test kit is in use"), tampu.use(app):
            raise AssertionError
        note.enqueue_sync("still there")
        jobs.run()
    with pytest.raises(ServerUnreachable), Kit("redis://127.0.0.1:1").use(app):
        raise AssertionError
    assert threading.active_count() == before


def test_closing_the_app_inside_does_not_end_the_kit(tampu: Kit) -> None:
    with tampu.use(app) as jobs:
        note.enqueue_sync("one")
        app.close_sync()
        jobs.assert_enqueued(note, "one")


@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize("entered", [False, True])
def test_a_web_application_adds_jobs_from_its_own_loop(
    tampu: Kit, *, inline: bool, entered: bool
) -> None:
    own, seen = App("redis://192.0.2.1"), []

    @own.task
    async def work(number: int) -> int:
        seen.append(number)
        return number

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with own:
            yield

    web = FastAPI(lifespan=lifespan)

    @web.post("/async/{number}")
    async def start(number: int) -> None:
        await work.enqueue(number)

    @web.post("/plain/{number}")
    def start_plainly(number: int) -> None:
        work.enqueue_sync(number)

    with tampu.use(own, inline=inline) as jobs:
        client = TestClient(web)
        if entered:
            with client:
                client.post("/async/1")
                client.post("/plain/2")
        else:
            client.post("/async/1")
            client.post("/plain/2")
        if not inline:
            jobs.assert_enqueued(work, 1)
            jobs.assert_enqueued(work, 2)
            jobs.run()
    assert seen == [1, 2]


def test_queues_of_other_loops_are_closed(tampu: Kit) -> None:
    own = App("redis://192.0.2.1")

    @own.task
    async def work() -> None: ...

    web = FastAPI()

    @web.post("/")
    async def start() -> None:
        await work.enqueue()

    with TestClient(web) as client, redis.Redis.from_url(tampu.url) as admin:
        for _ in range(2):
            with tampu.use(own) as jobs:
                client.post("/")
                jobs.assert_enqueued(work)
        block_until(
            lambda: len(admin.client_list()) == 1, within=60, sentence="all have disconnected"
        )


class PlainTests(unittest.TestCase):
    def test_it_is_a_context_manager_for_unittest(self) -> None:
        jobs = self.enterContext(use(app))
        note.enqueue_sync("unittest")
        jobs.run()
        self.assertEqual(log, ["real unittest"])


class AsyncTests(unittest.IsolatedAsyncioTestCase):
    async def test_also_for_async_tests(self) -> None:
        jobs = await self.enterAsyncContext(use(app))
        await shout.enqueue("x")
        jobs.assert_enqueued(shout)
