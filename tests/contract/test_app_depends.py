"""Dependencies: created before the task runs and closed after it, however it ends."""

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import pytest

from tampu import INJECTED, App, Backoff, Depends, Job, JobFailed, Retry
from tests.contract.apps import dead, nothing_left, working
from tests.servers import RunningServer


@pytest.fixture
def app(running: RunningServer) -> App:
    return App(running.url)


async def test_dependencies_are_created_once_per_job_and_closed_in_reverse(app: App) -> None:
    log: list[str] = []

    def plain() -> str:
        log.append("plain")
        return "plain"

    async def awaited(given: Annotated[str, Depends(plain)], job: Job[Any]) -> str:
        log.append("awaited")
        return f"awaited of {given} for {job.name}"

    def generated(given: str = Depends(awaited)) -> Iterator[str]:
        log.append("generated")
        yield "generated"
        log.append("generated closed")

    async def generated_async(given: str = Depends(generated)) -> AsyncIterator[str]:
        log.append("generated async")
        yield "generated async"
        log.append("generated async closed")

    @app.task
    async def task(
        a: str,
        b: Annotated[str, Depends(awaited)],
        c: str = Depends(generated_async),
        d: str = Depends(plain),
    ) -> list[str]:
        log.append("task")
        return [a, b, c, d]

    enqueue: Any = task.enqueue
    async with working(app):
        job = await enqueue("given")
        result = await job.result()
    assert result == ["given", "awaited of plain for task", "generated async", "plain"]
    assert log == [
        "plain",
        "awaited",
        "generated",
        "generated async",
        "task",
        "generated async closed",
        "generated closed",
    ]


@pytest.mark.parametrize("kind", ["async", "plain", "plain with async dependency"])
async def test_generators_see_the_error_and_cannot_suppress_it(app: App, kind: str) -> None:
    log: list[str] = []

    def swallowing() -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            log.append(f"swallowed {error}")

    async def noting(other: None = Depends(swallowing)) -> AsyncIterator[None]:
        try:
            yield
        except ValueError as error:
            log.append(f"noted {error}")
            raise

    factory = swallowing if kind == "plain" else noting

    async def fails_async(db: None = Depends(factory)) -> None:
        raise ValueError("boom")

    def fails(db: None = Depends(factory)) -> None:
        raise ValueError("boom")

    task = app.task(name="fails", attempts=1)(fails_async if kind == "async" else fails)
    async with working(app):
        await task.enqueue()
        (letter,) = await dead(app)
    assert letter.failure is not None
    assert (letter.failure.error_type, letter.failure.message) == ("ValueError", "boom")
    assert "fails" in letter.failure.traceback
    assert log == (["swallowed boom"] if kind == "plain" else ["noted boom", "swallowed boom"])


async def test_dependencies_stay_open_for_an_async_function_in_a_plain_decorator(app: App) -> None:
    log: list[str] = []

    def session() -> Iterator[str]:
        yield "session"
        log.append("closed")

    def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def around(*args: object, **kwargs: object) -> object:
            return function(*args, **kwargs)

        return around

    @app.task
    @decorated
    async def task(db: str = Depends(session)) -> str:
        await asyncio.sleep(0)
        log.append("used")
        return db

    async with working(app):
        assert await (await task.enqueue()).result() == "session"
    assert log == ["used", "closed"]


async def test_a_dependency_that_cannot_be_closed_fails_the_attempt(app: App) -> None:
    async def transaction() -> AsyncIterator[None]:
        yield
        raise ConnectionError("not committed")

    @app.task(attempts=1)
    async def task(db: None = Depends(transaction)) -> str:
        return "done"

    async with working(app):
        with pytest.raises(JobFailed, match="ConnectionError: not committed"):
            await (await task.enqueue()).result()


async def test_a_factory_that_raises_fails_the_attempt_and_is_called_again(app: App) -> None:
    made: list[int] = []

    def flaky(job: Job[Any]) -> int:
        made.append(job.attempt)
        if job.attempt == 1:
            raise ConnectionError
        return job.attempt

    @app.task(backoff=Backoff.fixed(0))
    async def task(db: int = Depends(flaky)) -> int:
        return db

    async with working(app):
        assert await (await task.enqueue()).result() == 2
    assert made == [1, 2]


async def test_a_returned_retry_is_seen_as_raised(app: App) -> None:
    log: list[str] = []

    async def session() -> AsyncIterator[None]:
        try:
            yield
        except Retry:
            log.append("rolled back")
            raise
        log.append("committed")

    @app.task
    async def task(db: None = Depends(session), job: Job[Any] = INJECTED) -> object:
        return Retry(after=0) if job.attempt == 1 else "done"

    async with working(app):
        assert await (await task.enqueue()).result() == "done"
    assert log == ["rolled back", "committed"]


async def test_after_a_timeout_dependencies_stay_open_until_the_thread_ends(app: App) -> None:
    log: list[str] = []

    async def closing() -> AsyncIterator[None]:
        try:
            yield
        finally:
            log.append("closed")

    @app.task(timeout="20ms", attempts=1)
    def task(db: None = Depends(closing)) -> None:
        threading.Event().wait(0.1)
        log.append("ended")

    async with working(app):
        job = await task.enqueue()
        with pytest.raises(JobFailed, match="JobTimeout"):
            await job.result()
    assert log == ["ended", "closed"]


class TestScopeApp:
    async def test_a_value_lives_as_long_as_the_worker_inside_the_lifespan(
        self, running: RunningServer
    ) -> None:
        log: list[str] = []

        @asynccontextmanager
        async def lifespan(app: App) -> AsyncIterator[dict[str, str]]:
            entered_in = asyncio.current_task()
            log.append("lifespan")
            yield {"name": "state"}
            assert asyncio.current_task() is entered_in  # a task group insists on that
            log.append("lifespan left")

        app = App(running.url, lifespan=lifespan)

        async def pool() -> AsyncIterator[str]:
            log.append("pool")
            yield f"pool with {app.state['name']}"
            log.append("pool closed")

        async def session(
            pool: Annotated[str, Depends(pool, scope="app")],
        ) -> AsyncIterator[str]:
            log.append("session")
            yield f"session of {pool}"

        @app.task
        async def task(db: str = Depends(session)) -> str:
            return db

        async def act() -> None:
            async with working(app):
                assert log == ["lifespan", "pool"]
                for _ in range(2):
                    job = await task.enqueue()
                    assert await job.result() == "session of pool with state"

        await nothing_left(running, act)
        assert log == [
            "lifespan",
            "pool",
            "session",
            "session",
            "pool closed",
            "lifespan left",
        ]

    async def test_a_worker_does_not_start_if_a_value_cannot_be_created(
        self, running: RunningServer
    ) -> None:
        left: list[str] = []

        @asynccontextmanager
        async def lifespan(app: App) -> AsyncIterator[None]:
            try:
                yield
            finally:
                left.append("lifespan")

        def first() -> Iterator[None]:
            try:
                yield
            finally:
                left.append("first")

        def second(other: None = Depends(first, scope="app")) -> None:
            raise ConnectionError("no pool")

        app = App(running.url, lifespan=lifespan)

        @app.task
        async def task(db: None = Depends(second, scope="app")) -> None: ...

        async def act() -> None:
            with pytest.raises(ConnectionError, match="no pool"):
                async with working(app):
                    pass

        await nothing_left(running, act)
        assert left == ["first", "lifespan"]
