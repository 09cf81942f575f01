"""Middleware: runs around every attempt and cannot hide its outcome."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from tampu import INJECTED, App, Backoff, BuryReason, Depends, Job, JobFailed, Retry, Snooze
from tests.contract.apps import dead, working
from tests.servers import RunningServer


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
