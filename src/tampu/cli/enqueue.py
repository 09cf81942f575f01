"""`tampu enqueue`: add a job and print its id."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Annotated, Any, TypeAlias

import typer

from tampu.app import App
from tampu.cli.command import Running, command
from tampu.cli.dead import failure_json
from tampu.cli.options import SharedOptions, new_app
from tampu.cli.output import print_error, usage_error
from tampu.cli.screen import Screen, parse_instant, to_json
from tampu.cli.target import did_you_mean, find_app
from tampu.errors import JobFailed, OptionError, ResultTimeout
from tampu.job import Job, JobOptions
from tampu.producer.request import new_job
from tampu.queue import Queue
from tampu.tasks.task import Task
from tampu.util.clock import to_ms

AddedJob: TypeAlias = AbstractAsyncContextManager[tuple[Queue, Job[Any]]]
"""Adds a job when it is entered."""

app = new_app()

Words = Annotated[
    list[str],
    typer.Argument(
        metavar="MODULE:APP TASK",
        help="The app and its task. With --queue and no app: the name of the job.",
        show_default=False,
    ),
]
ToQueue = Annotated[
    str | None,
    typer.Option(
        "--queue",
        "-q",
        metavar="NAME",
        help="The queue. Default: the queue of the task.",
        show_default=False,
    ),
]
Args = Annotated[
    list[str] | None,
    typer.Option(
        "--arg",
        "-a",
        metavar="NAME=VALUE",
        help="An argument of the task, as JSON or else as text. Can be repeated.",
        show_default=False,
    ),
]
JsonArgs = Annotated[
    str | None,
    typer.Option(
        "--json-args",
        metavar="JSON",
        help='Arguments of the task, such as {"to": "ada"}.',
        show_default=False,
    ),
]
Data = Annotated[
    str | None,
    typer.Option(
        "--data", metavar="JSON", help="Data of a job without an app.", show_default=False
    ),
]
Delay = Annotated[
    str | None,
    typer.Option(
        "--delay", metavar="DURATION", help="Run the job this much later.", show_default=False
    ),
]
At = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="INSTANT",
        help="Run the job at this time, such as 2026-12-24T18:00+01:00.",
        show_default=False,
    ),
]
Attempts = Annotated[
    int | None,
    typer.Option(
        "--attempts", metavar="N", min=1, help="Run the job at most N times.", show_default=False
    ),
]
Headers = Annotated[
    list[str] | None,
    typer.Option(
        "--header",
        metavar="NAME=VALUE",
        help="A header of the job, as text. Can be repeated.",
        show_default=False,
    ),
]
NewJobId = Annotated[
    str | None, typer.Option("--id", metavar="ID", help="Id of the job.", show_default=False)
]
Wait = Annotated[
    bool, typer.Option("--wait", help="Wait for the result and print it.", show_default=False)
]
WaitTimeout = Annotated[
    str, typer.Option("--timeout", metavar="DURATION", help="How long to wait for the result.")
]


@command(app, "enqueue")
def enqueue(
    shared: SharedOptions,
    words: Words,
    *,
    queue: ToQueue = None,
    arg: Args = None,
    json_args: JsonArgs = None,
    data: Data = None,
    delay: Delay = None,
    at: At = None,
    attempts: Attempts = None,
    header: Headers = None,
    job_id: NewJobId = None,
    wait: Wait = False,
    timeout: WaitTimeout = "30s",
) -> Running:
    """Add a job and print its id.

    Calls a task of an app with checked arguments, or adds a job by its name with --queue.
    """
    to_ms("timeout", timeout)  # refuses a wrong duration before anything is added
    options = _job_options(delay=delay, at=at, attempts=attempts, header=header, job_id=job_id)
    added: AddedJob
    match words:
        case [target, name]:
            if data is not None:
                raise usage_error("--data is for a job without an app. Use --arg for a task.")
            # The app is imported before there is an event loop: its module may run its own.
            owner = find_app(target, shared)
            task = _find_task(owner, target, name).options(queue=queue, **options)
            added = _call_task(owner, task, _parse_arguments(task, arg or [], json_args))
        case [name] if queue is not None:
            if arg or json_args is not None:
                raise usage_error(
                    "--arg and --json-args are for a task. Use --data without an app."
                )
            payload = None if data is None else parse_json("data", data)
            added = _add_job(Queue(queue, shared.url), name, payload, options=options)
        case [_]:
            raise usage_error("Write MODULE:APP TASK, or --queue NAME and the name of the job.")
        case _:
            raise usage_error("Too many words. Write arguments as --arg NAME=VALUE.")
    return _print_job(shared, added, timeout if wait else None)


def _job_options(
    *,
    delay: str | None,
    at: str | None,
    attempts: int | None,
    header: Sequence[str] | None,
    job_id: str | None,
) -> JobOptions:
    options = JobOptions(delay=delay, attempts=attempts, job_id=job_id)
    if at is not None:
        options["at"] = parse_instant("at", at)
    if header:
        options["headers"] = dict(split_named("header", header))
    new_job("job", None, options)  # refuses a wrong combination before the app is imported
    return options


def _find_task(owner: App, target: str, name: str) -> Task[..., Any]:
    task = owner.tasks.get(name)
    if task is None:
        hint = did_you_mean(name, list(owner.tasks))
        raise usage_error(f"{target} has no task {name!r}.{hint}")
    return task


@asynccontextmanager
async def _call_task(
    owner: App, task: Task[..., Any], arguments: dict[str, object]
) -> AsyncIterator[tuple[Queue, Job[Any]]]:
    async with owner:
        yield owner.queue(task.queue), await task.enqueue(**arguments)


@asynccontextmanager
async def _add_job(
    queue: Queue, name: str, data: object, *, options: JobOptions
) -> AsyncIterator[tuple[Queue, Job[Any]]]:
    async with queue:
        yield queue, await queue.add(name, data, **options)


async def _print_job(shared: SharedOptions, added: AddedJob, timeout: str | None) -> None:
    screen = Screen(shared)
    async with added as (queue, job):
        data = {"queue": queue.name, "job_id": job.id, "duplicate": job.duplicate}
        if job.duplicate:
            print_error(f"Job {job.id!r} was not added: there already is one with this id.")
        if timeout is None:
            screen.show(data, lambda: job.id)
            return
        if not shared.as_json:
            screen.show(data, lambda: job.id)
        try:
            result = await job.result(timeout)
        except JobFailed as failed:
            screen.show_json(data | {"failed": failure_json(failed)})
            raise
        except ResultTimeout:
            screen.show_json(data)
            raise
    screen.show(data | {"result": result}, lambda: to_json(result))


# --- values as they are typed -------------------------------------------------------------------


def _parse_arguments(
    task: Task[..., Any], args: Sequence[str], json_args: str | None
) -> dict[str, object]:
    """The arguments of a task by name. What does not fit as JSON is taken as text."""
    given = {} if json_args is None else parse_json("json_args", json_args)
    if not isinstance(given, dict):
        raise OptionError("json_args", "...", 'expected an object, such as {"to": "ada"}')
    accepts, named = task.definition.arguments.accepts, dict[str, object]()
    for name, text in split_named("arg", args):
        value = _json_or_text(text)
        named[name] = value if accepts(name, value) else text
    for name in named.keys() & given.keys():
        raise OptionError("arg", name, "must be given only once")
    return given | named


def parse_json(option: str, text: str) -> object:
    """A JSON document. Errors do not quote the text, which may be a secret."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise OptionError(option, "...", f"expected JSON ({error})") from None


def split_named(option: str, texts: Sequence[str]) -> list[tuple[str, str]]:
    """Names and values from texts such as to=ada; each name once."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise OptionError(option, name, "expected NAME=VALUE, such as to=ada or count=3")
        if name in found:
            raise OptionError(option, name, "must be given only once")
        found[name] = value
    return list(found.items())


def _json_or_text(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text
