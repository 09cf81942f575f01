"""Runs Django's own tests of task backends against ours: `python upstream.py FOLDER`.

FOLDER has Django's tests. They name Django's two built-in backends. In their place stand here one
that only adds jobs, and one that adds a job and waits until a worker has run it. Prints a line for
each test: its name and "passed", or its name and the last line of what it raised.
"""

import asyncio
import json
import sys
import unittest
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import django
from django.conf import settings
from django.tasks.backends import dummy, immediate
from django.test.utils import get_runner, setup_test_environment

from tampu import AppWorker, JobFailed
from tampu.django import TampuBackend

if TYPE_CHECKING:
    from django.test.runner import DiscoverRunner

_LIMIT_S = 60


class QueuedBackend(TampuBackend):
    """Adds jobs; nobody runs them."""

    _ids: ClassVar[list[str]] = []

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        result = super().enqueue(task, args, kwargs)
        self._ids.append(result.id)
        return result

    async def aenqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        result = await super().aenqueue(task, args, kwargs)
        self._ids.append(result.id)
        return result

    @property
    def results(self) -> list[Any]:
        """What was enqueued since the last `clear`, oldest first."""
        return [self.get_result(each) for each in self._ids]

    def clear(self) -> None:
        """Remove all jobs."""
        for queue in {each.partition("@")[2] for each in self._ids}:
            self._call(partial(self._purge, queue))
        self._ids.clear()

    async def _purge(self, queue: str) -> None:
        async for each in self.app.queue(queue).jobs():
            await self.app.queue(queue).job(each.id).cancel()


class RunBackend(TampuBackend):
    """Adds a job and waits until a worker has run it."""

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        result = super().enqueue(task, args, kwargs)
        asyncio.run(self._work(result.id))
        result.refresh()
        return result

    async def aenqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        from asgiref.sync import sync_to_async  # noqa: PLC0415 - as Django's base class does

        return await sync_to_async(self.enqueue)(task, args, kwargs)

    async def _work(self, id: str) -> None:
        job_id, _, queue = id.partition("@")
        async with self.app, AppWorker(self.app, {queue: 2}):
            with suppress(JobFailed):
                await self.app.queue(queue).job(job_id).result(_LIMIT_S)


class Recorder(unittest.TestResult):
    """Keeps how each test has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.told: dict[str, str] = {}

    def startTest(self, test: Any) -> None:
        super().startTest(test)
        self.told[_name_of(test)] = "passed"

    def addError(self, test: Any, err: Any) -> None:
        self.told[_name_of(test)] = _last_line(err)

    addFailure = addError

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            self.told[_name_of(test)] = _last_line(err)

    def addSkip(self, test: Any, reason: str) -> None:
        self.told[_name_of(test)] = f"skipped: {reason}"


def _name_of(test: Any) -> str:
    return f"{type(test).__name__}.{getattr(test, '_testMethodName', test)}"


def _last_line(err: Any) -> str:
    return f"{err[0].__name__}: {str(err[1])[:200]}".splitlines()[0]


def main(folder: str) -> None:
    """Run the tests, and print how each has ended."""
    sys.path.insert(0, folder)
    memory = {"ENGINE": "django.db.backends.sqlite3"}
    settings.configure(
        DATABASES={"default": memory, "other": memory},
        INSTALLED_APPS=["tampu.django"],
        SECRET_KEY="only for tests",
        USE_TZ=False,
    )
    django.setup()
    dummy.DummyBackend, immediate.ImmediateBackend = QueuedBackend, RunBackend
    setup_test_environment()
    runner: DiscoverRunner = get_runner(settings)(verbosity=0)
    databases = runner.setup_databases()
    names = ["tasks.test_tasks", "tasks.test_dummy_backend", "tasks.test_immediate_backend"]
    recorder = Recorder()
    unittest.defaultTestLoader.loadTestsFromNames([*names, "tasks.test_custom_backend"]).run(
        recorder
    )
    runner.teardown_databases(databases)
    print(json.dumps(recorder.told))


if __name__ == "__main__":
    main(sys.argv[1])
