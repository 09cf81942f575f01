"""Dependencies written for FastAPI: a route and a task use the same ones, unchanged."""

import functools
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Annotated, Any

import pytest
from fastapi import Depends, FastAPI, Security
from fastapi.testclient import TestClient

from tampu import INJECTED, App, Job, JobFailed
from tests.contract.apps import working
from tests.servers import RunningServer

log: list[str] = []


class Settings:
    def __init__(self) -> None:
        log.append("settings")
        self.name = "shop"


def traced(function: Callable[..., Awaitable[str]]) -> Callable[..., Awaitable[str]]:
    """A decorator that hides that the function is async."""

    @functools.wraps(function)
    def call(*args: str, **kwargs: str) -> Awaitable[str]:
        return function(*args, **kwargs)

    return call


async def get_db(settings: Annotated[Settings, Depends()]) -> AsyncIterator[str]:
    log.append("open")
    try:
        yield f"db of {settings.name}"
    except ValueError:
        log.append("rollback")
        raise
    log.append("commit")


async def get_cache(db: str = Depends(get_db)) -> str:
    return f"cache of {db}"


class Repository:
    def __init__(
        self,
        db: Annotated[str, Depends(get_db)],
        settings: Annotated[Settings, Depends()],
        limit: int = 5,
    ) -> None:
        self.text = f"{limit} rows of {db}, {settings.name}"


class Greeter:
    """A callable object, as FastAPI takes them."""

    def __init__(self, word: str) -> None:
        self.word = word

    async def __call__(self, db: Annotated[str, Depends(get_db)]) -> str:
        return f"{self.word} from {db}"


greet = Greeter("hello")


def get_number() -> int:
    log.append("number")
    return log.count("number")


Db = Annotated[str, Depends(get_db)]
Repo = Annotated[Repository, Depends()]


async def report(
    db: Db,
    repo: Repo,
    cache: str = Depends(get_cache),
    greeting: str = Security(greet),
    first: int = Depends(get_number, use_cache=False),
    second: int = Depends(get_number, use_cache=False),
) -> list[str]:
    return [db, repo.text, cache, greeting, f"{first} and {second}"]


EXPECTED = [
    "db of shop",
    "5 rows of db of shop, shop",
    "cache of db of shop",
    "hello from db of shop",
    "1 and 2",
]


@pytest.fixture
def app(running: RunningServer) -> App:
    log.clear()
    return App(running.url)


async def test_a_route_and_a_task_get_the_same(app: App) -> None:
    web = FastAPI()
    web.get("/report")(report)
    task: Any = app.task(report)
    answered = TestClient(web).get("/report").json()
    by_route = [*log]
    log.clear()
    async with working(app):
        result = await (await task.enqueue()).result(20)
    assert result == answered == EXPECTED
    assert sorted(log) == sorted(by_route)
    assert (log[0], log[1], log[-1]) == ("settings", "open", "commit")


async def test_a_decorator_may_hide_that_a_dependency_is_async(app: App) -> None:
    hidden = traced(get_cache)

    @app.task
    async def cached(cache: str = Depends(hidden)) -> str:
        return cache

    async with working(app):
        assert await (await cached.enqueue()).result(20) == "cache of db of shop"


async def test_a_dependency_sees_the_error_of_the_task(app: App) -> None:
    @app.task(attempts=1)
    async def failing(db: str = Depends(get_db)) -> None:
        raise ValueError(db)

    async with working(app):
        with pytest.raises(JobFailed, match="db of shop"):
            await (await failing.enqueue()).result(20)
    assert log == ["settings", "open", "rollback"]


async def test_a_plain_task_and_its_plain_dependencies_share_a_thread(app: App) -> None:
    threads: list[int] = []

    def get_session(job: Job = INJECTED) -> Iterator[str]:
        threads.append(threading.get_ident())
        yield f"session of {job.name}"
        threads.append(threading.get_ident())

    @app.task
    def plain(session: str = Depends(get_session)) -> str:
        threads.append(threading.get_ident())
        return session

    async with working(app):
        assert await (await plain.enqueue()).result(20) == "session of plain"
    assert len(threads) == 3
    assert len({*threads, threading.get_ident()}) == 2


async def test_arguments_and_dependencies_stand_side_by_side(app: App) -> None:
    @app.task
    async def add(a: int, b: int = 1, *, db: str = Depends(get_db), job: Job = INJECTED) -> str:
        return f"{a + b} in {db} by {job.name}"

    async with working(app):
        assert await (await add.enqueue(2)).result(20) == "3 in db of shop by add"


async def test_an_override_replaces_them(app: App) -> None:
    task: Any = app.task(report)

    async def fake_db() -> str:
        return "fake"

    class FakeSettings(Settings):
        def __init__(self) -> None:
            super().__init__()
            self.name = "test"

    with app.override(get_db, fake_db), app.override(Settings, FakeSettings):
        async with working(app):
            result = await (await task.enqueue()).result(20)
    assert result[:4] == ["fake", "5 rows of fake, test", "cache of fake", "hello from fake"]
    assert "open" not in log
