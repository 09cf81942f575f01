"""Where plain tasks and their plain dependencies run: in one thread, whatever is around them."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import pytest

from tampu import INJECTED, App, Depends, Job
from tests.contract.apps import working
from tests.contract.workers import SOON
from tests.servers import RunningServer
from tests.waiting import wait_until


@pytest.fixture
def app(running: RunningServer) -> App:
    return App(running.url)


async def test_a_plain_task_with_plain_dependencies_stays_in_its_thread(app: App) -> None:
    threads: set[str] = set()

    def note() -> Iterator[None]:
        threads.add(threading.current_thread().name)
        yield
        threads.add(threading.current_thread().name)

    @app.task
    def task(noted: None = Depends(note)) -> None:
        threads.add(threading.current_thread().name)

    async with working(app):
        await (await task.enqueue()).result()
    assert len(threads) == 1
    assert threads.pop().startswith("tampu-handler")


async def test_a_plain_task_with_an_async_dependency_runs_in_a_thread(
    app: App,
) -> None:
    async def loop() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    @app.task
    def task(loop: object = Depends(loop), job: Job[Any] = INJECTED) -> str:
        return f"{job.name} in {threading.current_thread().name}"

    async with working(app):
        assert (await (await task.enqueue()).result()).startswith("task in tampu-handler")


_request: ContextVar[str] = ContextVar("request")


@asynccontextmanager
async def named_request(job: Job[Any]) -> AsyncIterator[None]:
    _request.set("by middleware")
    yield


@pytest.mark.parametrize("around", ["nothing", "middleware", "an async neighbour", "both"])
async def test_a_plain_task_shares_its_thread_with_its_plain_dependencies(
    running: RunningServer, around: str
) -> None:
    """As sqlite3 demands: a connection may be used and closed only in the thread that opened it."""
    app = App(running.url, middleware=[named_request] if around in {"middleware", "both"} else [])
    closed: list[int] = []

    def path() -> str:
        threads.append(threading.get_ident())
        return ":memory:"

    def database(name: str = Depends(path)) -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(name)
        yield connection
        connection.close()
        closed.append(threading.get_ident())

    async def neighbour(db: sqlite3.Connection = Depends(database)) -> str:
        return "awaited"

    def needed() -> str:
        return "plain"

    threads: list[int] = []
    other = neighbour if around in {"an async neighbour", "both"} else needed

    @app.task
    def count(db: sqlite3.Connection = Depends(database), text: str = Depends(other)) -> int:
        threads.append(threading.get_ident())
        (found,) = db.execute("select 40 + 2").fetchone()
        return int(found)

    async with working(app, concurrency=4):
        jobs = [await count.enqueue() for _ in range(20)]
        assert [await job.result() for job in jobs] == [42] * 20
    assert len(closed) == 20
    assert threading.get_ident() not in {*threads, *closed}


async def test_a_plain_task_sees_the_context_of_middleware_and_async_dependencies(
    running: RunningServer,
) -> None:
    app = App(running.url, middleware=[named_request])
    colour: ContextVar[str] = ContextVar("colour")
    seen: list[str] = []

    def first() -> Iterator[str]:
        token = colour.set("red")
        yield _request.get()
        colour.reset(token)  # works only in the context in which it was set
        seen.append(_request.get())

    async def second(given: str = Depends(first)) -> str:
        _request.set("by a dependency")
        return given

    @app.task
    def look(given: str = Depends(second)) -> list[str]:
        return [given, _request.get(), colour.get()]

    async with working(app):
        job = await look.enqueue()
        assert await job.result() == ["by middleware", "by a dependency", "red"]
    assert seen == ["by a dependency"]


async def test_a_worker_that_stops_does_not_wait_for_the_thread_which_closes_what_it_uses(
    app: App,
) -> None:
    go_on, ended = threading.Event(), threading.Event()
    log: list[str] = []

    async def neighbour() -> None: ...

    def resource() -> Iterator[str]:
        try:
            yield "open"
        finally:
            log.append("closed")
            ended.set()

    @app.task
    def work(used: str = Depends(resource), other: None = Depends(neighbour)) -> None:
        log.append("begins")
        go_on.wait(30)
        log.append("ends")

    async with working(app):
        await work.enqueue()
        await wait_until(lambda: log == ["begins"], within=SOON, sentence="it runs")
    assert log == ["begins"]
    go_on.set()
    assert await asyncio.to_thread(ended.wait, 30)
    assert log == ["begins", "ends", "closed"]
