"""What `tampu enqueue` does."""

import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from tampu.app import App
from tampu.cli.acts.desk import near_misses
from tampu.cli.acts.target import app_at
from tampu.cli.ending import Ended, ExitCode
from tampu.cli.given import json_of, named_values
from tampu.cli.screen import Screen
from tampu.cli.shared import Running, Shared
from tampu.cli.show.plain import as_json
from tampu.cli.show.shapes import failed_shape
from tampu.errors import JobFailed, OptionError, ResultTimeout
from tampu.job import Job, JobOptions
from tampu.queue import Queue
from tampu.tasks.task import Task


@dataclass(frozen=True, slots=True)
class Given:
    """What the job is to hold, as it was typed."""

    arg: list[str]
    json_args: str | None
    data: str | None

    def arguments(self) -> dict[str, object]:
        """Of a task, by their names."""
        if self.data is not None:
            raise OptionError("data", "...", "is for a job without an app; a task has --arg")
        found = {} if self.json_args is None else json_of("json_args", self.json_args)
        if not isinstance(found, dict):
            raise OptionError("json_args", "...", 'expected an object, such as {"to": "ada"}')
        named = named_values("arg", self.arg)
        for name in named.keys() & found.keys():
            raise OptionError("arg", name, "is given twice")
        return found | named

    def payload(self) -> object:
        """Of a job without an app."""
        if self.arg or self.json_args is not None:
            raise OptionError("arg", "...", "is for a task of an app; without one there is --data")
        return None if self.data is None else json_of("data", self.data)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Where the job goes, and when; `timeout`: wait so long for its result."""

    queue: str | None
    delay: str | None
    job_id: str | None
    timeout: str | None

    @property
    def options(self) -> JobOptions:
        """Those of the job that were given."""
        found = JobOptions()
        if self.delay is not None:
            found["delay"] = self.delay
        if self.job_id is not None:
            found["job_id"] = self.job_id
        return found


def enqueue(shared: Shared, words: list[str], given: Given, wanted: Wanted) -> Running:
    """Add a job; a task's app is imported before there is an event loop."""
    match words:
        case [target, name]:
            app = app_at(target, shared)
            task = _task(app, target, name).options(queue=wanted.queue, **wanted.options)
            adding: Adding = _call(app, task, given.arguments())
        case [name] if wanted.queue is not None:
            adding = _plain(shared, name, given.payload(), wanted)
        case [_]:
            raise _wrong("say MODULE:APP TASK, or --queue NAME and the job's name.")
        case _:
            raise _wrong("there are too many words; arguments are given as --arg NAME=VALUE.")
    return _told(shared, adding, wanted)


Adding: TypeAlias = AbstractAsyncContextManager[tuple[Queue, Job[Any]]]


@asynccontextmanager
async def _call(
    app: App, task: Task[..., Any], arguments: dict[str, object]
) -> AsyncIterator[tuple[Queue, Job[Any]]]:
    async with app:
        yield app.queue(task.queue), await task.enqueue(**arguments)


@asynccontextmanager
async def _plain(
    shared: Shared, name: str, data: object, wanted: Wanted
) -> AsyncIterator[tuple[Queue, Job[Any]]]:
    async with Queue(str(wanted.queue), shared.url) as queue:
        yield queue, await queue.add(name, data, **wanted.options)


async def _told(shared: Shared, adding: Adding, wanted: Wanted) -> None:
    screen = Screen(shared)
    async with adding as (queue, job):
        shape = {"queue": queue.name, "job_id": job.id, "duplicate": job.duplicate}
        if job.duplicate:
            sys.stderr.write(f"tampu: there is a job {job.id!r} already; nothing was added.\n")
        if wanted.timeout is None:
            screen.show(shape, lambda: job.id)
            return
        if not shared.as_json:
            screen.show(shape, lambda: job.id)
        try:
            result = await queue.result(job.id, wanted.timeout)
        except JobFailed as failed:
            screen.tell_programs(shape | {"failed": failed_shape(failed)})
            raise
        except ResultTimeout:
            screen.tell_programs(shape)
            raise
    screen.show(shape | {"result": result}, lambda: as_json(result))


def _task(app: App, target: str, name: str) -> Task[..., Any]:
    found = app.tasks.get(name)
    if found is None:
        raise _wrong(f"{target} has no task {name!r}{near_misses(name, list(app.tasks))}")
    return found


def _wrong(sentence: str) -> Ended:
    return Ended(ExitCode.USAGE, sentence)
