"""Middleware: runs around every attempt and cannot hide its outcome."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from typing import Any

import pytest

from tampu import INJECTED, App, Backoff, BuryReason, Depends, Job, JobFailed, Retry, Snooze
from tests.contract.apps import dead, working
from tests.servers import RunningServer

current_tenant: ContextVar[str] = ContextVar("current_tenant")


class Noting:
    """An object as middleware, with a log of its own."""

    def __init__(self, name: str, log: list[str]) -> None:
        self._name, self._log = name, log

    @asynccontextmanager
    async def __call__(self, job: Job[Any]) -> AsyncIterator[None]:
        self._log.append(f"{self._name} {job.attempt}")
        try:
            yield
        except Exception as error:
            self._log.append(f"{self._name} saw {error}")
            raise
        self._log.append(f"{self._name} done")


async def test_the_first_is_outermost_and_all_see_failures(
    running: RunningServer,
) -> None:
    log: list[str] = []
    app = App(running.url, middleware=[Noting("outer", log), Noting("inner", log)])

    async def session() -> AsyncIterator[None]:
        log.append("session")
        yield
        log.append("committed")

    @app.task(backoff=Backoff.fixed(0), middleware=[Noting("own", log)])
    async def task(db: None = Depends(session), job: Job[Any] = INJECTED) -> str:
        if job.attempt == 1:
            raise ValueError("boom")
        return "done"

    async with working(app):
        assert await (await task.enqueue()).result() == "done"
    assert log == [
        *("outer 1", "inner 1", "own 1", "session"),
        *("own saw boom", "inner saw boom", "outer saw boom"),
        *("outer 2", "inner 2", "own 2", "session"),
        *("committed", "own done", "inner done", "outer done"),
    ]


async def test_it_applies_to_plain_tasks_too(running: RunningServer) -> None:
    log: list[str] = []
    app = App(running.url, middleware=[Noting("around", log)])
    task = app.task(name="plain")(lambda: 5)
    async with working(app):
        assert await (await task.enqueue()).result() == 5
    assert log == ["around 1", "around done"]


async def test_it_cannot_suppress_a_failure(running: RunningServer) -> None:
    @asynccontextmanager
    async def swallowing(job: Job[Any]) -> AsyncIterator[None]:
        with suppress(ValueError):
            yield

    app = App(running.url, middleware=[swallowing])

    @app.task(attempts=1)
    async def task() -> None:
        raise ValueError("boom")

    async with working(app):
        with pytest.raises(JobFailed, match="ValueError: boom"):
            await (await task.enqueue()).result()


async def test_an_error_after_the_task_does_not_change_its_outcome(
    running: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    @asynccontextmanager
    async def failing(job: Job[Any]) -> AsyncIterator[None]:
        yield
        raise KeyError("a bug")

    app = App(running.url, middleware=[failing])
    task = app.task(name="task")(lambda: "done")
    with caplog.at_level(logging.WARNING):
        async with working(app):
            assert await (await task.enqueue()).result() == "done"
    assert "failing after job" in caplog.text


async def test_an_error_before_the_task_fails_the_attempt(running: RunningServer) -> None:
    ran: list[int] = []

    @asynccontextmanager
    async def not_yet(job: Job[Any]) -> AsyncIterator[None]:
        if not ran:
            ran.append(0)
            raise Snooze("5ms")
        yield

    app = App(running.url, middleware=[not_yet])

    @app.task(attempts=1)
    async def task(job: Job[Any] = INJECTED) -> int:
        ran.append(job.attempt)
        return job.attempt

    async with working(app):
        assert await (await task.enqueue()).result() == 1
    assert ran == [0, 1]


async def test_it_may_retry_or_bury_a_failed_job(running: RunningServer) -> None:
    @asynccontextmanager
    async def patient(job: Job[Any]) -> AsyncIterator[None]:
        try:
            yield
        except ConnectionError:
            raise Retry(after=0) from None

    app = App(running.url, middleware=[patient])

    @app.task(backoff=Backoff.fixed(60))
    async def task(job: Job[Any] = INJECTED) -> int:
        if job.attempt == 1:
            raise ConnectionError
        return job.attempt

    async with working(app):
        assert await (await task.enqueue()).result() == 2


async def test_it_sees_arguments_that_do_not_fit(running: RunningServer) -> None:
    log: list[str] = []
    app = App(running.url, middleware=[Noting("around", log)])

    @app.task
    async def task(n: int) -> None: ...

    async with working(app):
        await app.queue().add("task", {"n": "one"})
        (letter,) = await dead(app)
    assert letter.reason is BuryReason.UNRECOVERABLE
    assert log == ["around 1", "around saw Task 'task', argument 'n': expected int."]


async def test_it_sees_a_timeout(running: RunningServer) -> None:
    left: list[type[BaseException]] = []

    @asynccontextmanager
    async def noting(job: Job[Any]) -> AsyncIterator[None]:
        try:
            yield
        except BaseException as error:
            left.append(type(error))
            raise

    app = App(running.url, middleware=[noting])

    @app.task(timeout="20ms", attempts=1)
    async def slow() -> None:
        await asyncio.Event().wait()

    async with working(app):
        with pytest.raises(JobFailed, match="JobTimeout"):
            await (await slow.enqueue()).result()
    assert left == [asyncio.CancelledError]


@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_a_plain_context_manager_is_entered_where_the_task_runs(
    running: RunningServer, kind: str
) -> None:
    seen: list[tuple[str, int]] = []

    @contextmanager
    def tenant(job: Job[Any]) -> Iterator[None]:
        token = current_tenant.set(job.name)
        seen.append(("enter", threading.get_ident()))
        try:
            yield
        finally:
            seen.append(("leave", threading.get_ident()))
            current_tenant.reset(token)

    app = App(running.url, middleware=[Noting("outer", []), tenant])

    def plain() -> str:
        seen.append(("task", threading.get_ident()))
        return current_tenant.get()

    async def awaited() -> str:
        return plain()

    task = app.task(plain) if kind == "plain" else app.task(name="plain")(awaited)
    async with working(app):
        assert await (await task.enqueue()).result(20) == "plain"
    assert [name for name, _ in seen] == ["enter", "task", "leave"]
    assert len({thread for _, thread in seen}) == 1
    assert (seen[0][1] == threading.get_ident()) == (kind == "async")


async def test_an_error_that_a_plain_context_manager_raises_fails_the_attempt_only_before_it(
    running: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    @contextmanager
    def locked(_: Job[Any]) -> Iterator[None]:
        raise PermissionError("locked")
        yield

    @contextmanager
    def untidy(_: Job[Any]) -> Iterator[None]:
        yield
        raise OSError("disk")

    app = App(running.url)

    @app.task(attempts=1, middleware=[locked])
    def never() -> None: ...

    @app.task(attempts=1, middleware=[untidy])
    def once() -> str:
        return "done"

    async with working(app):
        with pytest.raises(JobFailed, match="locked"):
            await (await never.enqueue()).result(20)
        assert await (await once.enqueue()).result(20) == "done"
    assert "ignored an error of " in caplog.text
    assert "untidy after job" in caplog.text


async def test_middleware_that_is_added_later_is_outermost(running: RunningServer) -> None:
    log: list[str] = []
    app = App(running.url, middleware=[Noting("own", log)])

    @app.task
    async def task() -> None: ...

    app.add_middleware(Noting("first", log), Noting("second", log))
    async with working(app):
        await (await task.enqueue()).result(20)
    assert log[:3] == ["first 1", "second 1", "own 1"]
