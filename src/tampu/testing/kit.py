"""The test kit: puts an app on the server for tests, and everything back afterwards."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from typing import Unpack

from tampu.app import App
from tampu.errors import WrongContext
from tampu.limits.model import NamedLimits
from tampu.producer.options import QueueOptions
from tampu.server.connect import URL_VARIABLE
from tampu.server.listening import SharedParts
from tampu.server.scripts.virtual_time import end_test
from tampu.tasks.app_queue import AppQueue
from tampu.tasks.task import AnyTask
from tampu.testing.enqueued import EnqueuedJob
from tampu.testing.inline import InlineQueue
from tampu.testing.jobs import LIMIT, Jobs
from tampu.testing.queue_bench import Attempt
from tampu.testing.server import start_server
from tampu.testing.threads import KitPortal
from tampu.util.clock import Duration, instant_ms, now_ms
from tampu.util.lifecycle import Shared
from tampu.util.options import check_flag, check_type
from tampu.util.portal import Blocking


class SyncJobs(Blocking[Jobs]):
    """The jobs of an app in a test without an event loop: `Jobs`, with plain methods."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<SyncJobs, now {self.now():%Y-%m-%d %H:%M:%S}>"

    @property
    def url(self) -> str:
        """The URL of the test's database."""
        return self._wrapped.url

    @property
    def attempts(self) -> list[Attempt]:
        """All attempts so far, in order."""
        return self._wrapped.attempts

    def now(self) -> datetime:
        """The time of the test."""
        return self._wrapped.now()

    def run(self, *, raise_errors: bool = True, limit: int = LIMIT) -> list[Attempt]:
        """Run what is ready; see `Jobs.run`. Plain tasks run in the thread that calls this."""
        jobs = self._wrapped
        return self._portal.call(lambda: jobs.run(raise_errors=raise_errors, limit=limit))

    def travel(
        self,
        to: Duration | datetime,
        *,
        run: bool = True,
        raise_errors: bool = True,
        limit: int = LIMIT,
    ) -> list[Attempt]:
        """Let time pass; see `Jobs.travel`."""
        jobs = self._wrapped
        return self._portal.call(
            lambda: jobs.travel(to, run=run, raise_errors=raise_errors, limit=limit)
        )

    def enqueued(self, task: AnyTask | str | None = None) -> list[EnqueuedJob]:
        """The jobs that wait or are delayed; see `Jobs.enqueued`."""
        return self._wrapped.enqueued(task)

    def assert_enqueued(
        self,
        task: AnyTask,
        /,
        *args: object,
        delay: Duration | None = None,
        at: datetime | None = None,
        **kwargs: object,
    ) -> EnqueuedJob:
        """Fail unless such a job waits or is delayed; see `Jobs.assert_enqueued`."""
        __tracebackhide__ = True
        return self._wrapped.assert_enqueued(task, *args, delay=delay, at=at, **kwargs)

    def assert_not_enqueued(
        self,
        task: AnyTask,
        /,
        *args: object,
        delay: Duration | None = None,
        at: datetime | None = None,
        **kwargs: object,
    ) -> None:
        """Fail if such a job waits or is delayed."""
        __tracebackhide__ = True
        self._wrapped.assert_not_enqueued(task, *args, delay=delay, at=at, **kwargs)


class Use:
    """An app in the test kit, inside of `async with` or `with`."""

    _current: "Use | None" = None

    def __init__(
        self, url: str, app: App, *, inline: bool, now: datetime | None, schedules: bool
    ) -> None:
        check_type("app", app, App, accepted="an App")
        check_flag("inline", inline)
        check_flag("schedules", schedules)
        self._url, self._app = url, app
        self._inline, self._schedules = inline, schedules
        self._now_ms = None if now is None else instant_ms("now", now)
        self._stack = ExitStack()
        self._portal = KitPortal("the test kit")
        self._jobs: Jobs | None = None

    async def __aenter__(self) -> Jobs:
        return await self._enter()

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with self._stack:
            if self._jobs is not None:
                await self._jobs.close()
        self._raise_unseen(error)

    def __enter__(self) -> SyncJobs:
        if _is_loop_running():
            raise WrongContext("use an app here", "an event loop is running; write `async with`")
        try:
            return SyncJobs(self._portal.call(self._enter), self._portal)
        except BaseException:
            self._portal.end(_nothing)
            raise

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with self._stack:
            if self._jobs is not None:
                self._portal.end(self._jobs.close)
        self._raise_unseen(error)

    async def _enter(self) -> Jobs:
        if Use._current is not None:
            raise WrongContext("use an app here", "another test kit is in use in this process")
        with ExitStack() as stack:
            self._jobs = jobs = Jobs(self._app, self._url, self._portal, inline=self._inline)
            Use._current = self
            stack.callback(self._forget)
            stack.callback(end_test)
            stack.enter_context(_environment(URL_VARIABLE, self._url))
            moved = self._app.move(self._url, portal=self._portal, make_queue=self._make_queue)
            stack.enter_context(moved)
            try:
                at_ms = now_ms() if self._now_ms is None else self._now_ms
                await jobs.open(at_ms, schedules=self._schedules)
            except BaseException:
                await jobs.close()
                raise
            self._stack = stack.pop_all()
        return jobs

    def _raise_unseen(self, error: BaseException | None) -> None:
        """Raise the error of an inline job that nobody has seen, unless the test has failed."""
        unseen = None if self._jobs is None else self._jobs.first_unseen_error()
        if error is None and unseen is not None:
            raise unseen

    def _make_queue(
        self,
        shared: Shared[SharedParts],
        name: str,
        limits: NamedLimits,
        **options: Unpack[QueueOptions],
    ) -> AppQueue:
        assert self._jobs is not None  # noqa: S101 - set before the app is used
        self._jobs.add_queue(name)
        options["durability"] = "memory"  # the server for tests has no replica
        if self._inline:
            return InlineQueue(self._jobs, shared, name, limits=limits, **options)
        return AppQueue(shared, name, limits, **options)

    @staticmethod
    def _forget() -> None:
        Use._current = None


class Kit:
    """The test kit on one server, whose database it empties for every test."""

    def __init__(self, url: str) -> None:
        self.url = url

    def use(
        self,
        app: App,
        *,
        inline: bool = False,
        now: datetime | None = None,
        schedules: bool = True,
    ) -> Use:
        """The app on the server for tests: `async with tampu.use(app) as jobs:`, or `with`.

        Every queue of the app is there, whatever its URL, and empty; TAMPU_URL is set too. Time
        stands still: at `now`, by default when the block begins. With `inline`, adding a job runs
        it at once. The app's declared schedules are stored, unless `schedules` is False. One app at
        a time can be used in a process.
        """
        return Use(self.url, app, inline=inline, now=now, schedules=schedules)


def use(
    app: App, *, inline: bool = False, now: datetime | None = None, schedules: bool = True
) -> Use:
    """As the fixture's `tampu.use`, for tests without pytest.

    The first call starts the server, which ends with the process.
    """
    return Kit(start_server()).use(app, inline=inline, now=now, schedules=schedules)


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


async def _nothing() -> None:
    """The last call of a portal that is not used."""


def _is_loop_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
