"""`tampu job`: list, show, follow, wait for, cancel and reschedule jobs."""

from contextlib import aclosing
from datetime import datetime
from typing import Annotated, Any, Final

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from tampu.admin.found import MAX_SEARCHED
from tampu.admin.jobs import job_info
from tampu.admin.listing import LISTABLE
from tampu.cli.command import add_group, command
from tampu.cli.dead import failure_json
from tampu.cli.options import QueueName, SharedOptions, new_app
from tampu.cli.output import CommandFailed, print_error, usage_error
from tampu.cli.screen import (
    NOTHING,
    JsonObject,
    Screen,
    count_of,
    details,
    format_instant,
    full_text,
    grid,
    join_words,
    short_text,
    to_json,
)
from tampu.cli.target import connect_to, open_queue
from tampu.errors import JobFailed
from tampu.job import CancelState, JobInfo, JobState
from tampu.wire.output import Chunk, Restarted

app = new_app()
job = add_group(app, "job", "List, show, follow, wait for, cancel or reschedule jobs.")

_STATES: Final = ", ".join(state.value for state in LISTABLE)
JobId = Annotated[str, typer.Argument(metavar="ID", help="Id of the job.", show_default=False)]
JobIds = Annotated[
    list[str], typer.Argument(metavar="ID", help="Ids of the jobs.", show_default=False)
]
Deep = Annotated[
    bool,
    typer.Option(
        "--all", help=f"Search all jobs, not just {MAX_SEARCHED} in each state.", show_default=False
    ),
]
Timeout = Annotated[str, typer.Option("--timeout", metavar="DURATION", help="How long to wait.")]
State = Annotated[
    str | None,
    typer.Option(
        "--state", metavar="STATE", help=f"Only jobs in this state: {_STATES}.", show_default=False
    ),
]
Name = Annotated[
    str | None,
    typer.Option("--name", metavar="NAME", help="Only jobs with this name.", show_default=False),
]
NewestFirst = Annotated[
    bool, typer.Option("--newest-first", help="Start with the newest.", show_default=False)
]
Limit = Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, help="How many to list.")]
After = Annotated[
    str | None,
    typer.Option(
        "--after", metavar="ID", help="Start after this chunk of its stream.", show_default=False
    ),
]
Delay = Annotated[
    str | None,
    typer.Option(
        "--delay", metavar="DURATION", help="Run it so long from now.", show_default=False
    ),
]
At = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="TIME",
        help="Run it at this time, such as 2030-01-31T09:00+01:00.",
        show_default=False,
    ),
]


@command(job, "ls")
async def list_jobs(
    shared: SharedOptions,
    queue: QueueName,
    *,
    state: State = None,
    name: Name = None,
    newest_first: NewestFirst = False,
    limit: Limit = 20,
) -> None:
    """List the jobs of a queue."""
    found: list[JobInfo] = []
    async with open_queue(shared, queue) as opened:
        listing = opened.jobs(state=state, name=name, newest_first=newest_first)
        async for info in listing:
            found.append(info)
            if len(found) == limit:
                break
    data = {
        "queue": queue,
        "jobs": [job_json(each) for each in found],
        "searched": listing.searched,
        "searched_all": listing.searched_all,
    }
    Screen(shared).show(data, lambda: jobs_table(found))
    if not listing.searched_all:
        print_error(f"Only the first {listing.searched} jobs were searched.")


@command(job, "show")
async def show_job(
    shared: SharedOptions, queue: QueueName, job_id: JobId, *, deep: Deep = False
) -> None:
    """Show the state of a job, its data, its attempts and its last error."""
    async with connect_to(shared, queue) as connection:
        found = await job_info(
            connection.lane, connection.keys, job_id, most=None if deep else MAX_SEARCHED
        )
    if found.state is not JobState.UNKNOWN:
        Screen(shared).show(job_json(found), lambda: job_page(found))
        return
    Screen(shared).show_json(job_json(found))
    if found.searched_all:
        why = "It was never added, was removed, or finished without a stored result"
        raise CommandFailed(f"Queue {queue!r} has no job {job_id!r}. {why}.")
    where = f"among the {MAX_SEARCHED} oldest jobs in each state of queue {queue!r}"
    raise CommandFailed(f"There is no job {job_id!r} {where}. Search all of them with --all.")


@command(job, "wait")
async def wait_for_job(
    shared: SharedOptions, queue: QueueName, job_id: JobId, *, timeout: Timeout = "30s"
) -> None:
    """Wait for the result of a job and print it.

    The worker must store results. Exit code 1 if the job fails or the time is up.
    """
    screen = Screen(shared)
    async with open_queue(shared, queue) as opened:
        try:
            result = await opened.job(job_id).result(timeout)
        except JobFailed as failed:
            screen.show_json({"job_id": job_id, "failed": failure_json(failed)})
            raise
    screen.show({"job_id": job_id, "result": result}, lambda: to_json(result))


@command(job, "tail")
async def tail_job(
    shared: SharedOptions, queue: QueueName, job_id: JobId, *, after: After = None
) -> None:
    """Print what a job yields, as it comes, up to its end.

    Text is printed as it is, anything else as a line of JSON. A new attempt is told on standard
    error. Exit code 1 if the job fails, is cancelled, or has no stream.
    """
    screen = Screen(shared)
    async with open_queue(shared, queue) as opened:
        try:
            async with aclosing(opened.job(job_id).stream(after)) as items:
                async for item in items:
                    _print_chunk(screen, item)
        finally:
            screen.end_text()


def _print_chunk(screen: Screen, item: Chunk[Any] | Restarted) -> None:
    if isinstance(item, Restarted):
        screen.end_text()
        if screen.as_json:
            screen.show_line(item, lambda each: {"restarted": each.attempt}, str)
        else:
            print_error(f"The job starts again: attempt {item.attempt}.")
    elif isinstance(item.value, str) and not screen.as_json:
        screen.show_text(item.value)
    else:
        screen.end_text()
        screen.show_line(item, _chunk_json, lambda each: to_json(each.value, indent=None))


def _chunk_json(chunk: Chunk[Any]) -> JsonObject:
    return {"id": chunk.id, "attempt": chunk.attempt, "value": chunk.value}


@command(job, "cancel")
async def cancel_jobs(shared: SharedOptions, queue: QueueName, job_ids: JobIds) -> None:
    """Cancel jobs. One that runs is stopped by its worker.

    Exit code 1 if it is too late for one of them, or if there is no such job.
    """
    ids = list(dict.fromkeys(job_ids))
    async with open_queue(shared, queue) as opened:
        states = dict(zip(ids, await opened.cancel_many(ids), strict=True))
    Screen(shared).show({"queue": queue, "jobs": states}, lambda: cancel_sentence(states))
    if late := [job_id for job_id, state in states.items() if state is CancelState.TOO_LATE]:
        raise CommandFailed(f"Ended already, or never added: {', '.join(late)}.")


@command(job, "run-now")
async def run_job_now(shared: SharedOptions, queue: QueueName, job_id: JobId) -> None:
    """Run a delayed job as soon as a worker is free. Exit code 1 if it is not delayed."""
    async with open_queue(shared, queue) as opened:
        moved = await opened.job(job_id).run_now()
    _show_move(shared, queue, job_id, moved=moved, sentence=f"{job_id} is waiting for a worker.")


@command(job, "reschedule")
async def reschedule_job(
    shared: SharedOptions, queue: QueueName, job_id: JobId, *, delay: Delay = None, at: At = None
) -> None:
    """Change when a delayed job runs. Exit code 1 if it is not delayed."""
    if (delay is None) == (at is None):
        raise usage_error("Pass either --delay or --at.")
    due = None if at is None else _parse_time(at)
    async with open_queue(shared, queue) as opened:
        moved = await opened.job(job_id).reschedule(delay=delay, at=due)
    when = f"in {delay}" if due is None else f"at {format_instant(due)}"
    _show_move(shared, queue, job_id, moved=moved, sentence=f"{job_id} runs {when}.")


def _show_move(
    shared: SharedOptions, queue: str, job_id: str, *, moved: bool, sentence: str
) -> None:
    data: JsonObject = {"queue": queue, "job_id": job_id, "moved": moved}
    if moved:
        Screen(shared).show(data, lambda: sentence)
        return
    Screen(shared).show_json(data)
    raise CommandFailed(f"Queue {queue!r} has no delayed job {job_id!r}.")


def _parse_time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        example = "2030-01-31T09:00+01:00"
        raise usage_error(f"Invalid --at {text!r}: expected a time such as {example}.") from None


# --- what is printed ----------------------------------------------------------------------------


def cancel_sentence(states: dict[str, CancelState]) -> str:
    """How many jobs were cancelled, and how many are being stopped."""
    counts = {state: list(states.values()).count(state) for state in CancelState}
    parts = [f"{counts[CancelState.CANCELLED]} of {count_of(len(states), 'job')} cancelled"]
    if stopping := counts[CancelState.CANCELLING]:
        parts.append(f"{stopping} being stopped by their workers")
    return f"{join_words(parts)}."


def job_json(found: JobInfo) -> JsonObject:
    """A job in any state."""
    data: JsonObject = {field: getattr(found, field) for field in found.__struct_fields__}
    failure = found.failure
    if failure is not None:
        data["failure"] = {field: getattr(failure, field) for field in failure.__struct_fields__}
    return data


def jobs_table(found: list[JobInfo]) -> RenderableType:
    """Many jobs, one a line."""
    if not found:
        return Text("There are no such jobs.")
    table = grid("Id", "State", "Name", "Attempt", "Added at", "Due at", "Error", shrink=("Error",))
    for each in found:
        table.add_row(
            full_text(each.id or NOTHING),
            each.state.value,
            short_text(each.name or NOTHING),
            NOTHING if each.attempt is None else str(each.attempt),
            format_instant(each.created_at),
            format_instant(each.due_at),
            short_text(error_text(each) or NOTHING),
        )
    return table


def error_text(found: JobInfo) -> str:
    """What the last failed attempt of a job raised, in one line."""
    failure = found.failure
    return "" if failure is None else f"{failure.error_type}: {failure.message}".lstrip(": ")


def job_page(found: JobInfo) -> RenderableType:
    """A job in full."""
    attempts = NOTHING if found.attempt is None else str(found.attempt)
    if found.attempts is not None:
        attempts += f" of {found.attempts}"
    times = [format_instant(each) for each in found.failed_at]
    pairs: list[tuple[str, object]] = [
        ("Job", found.id),
        ("State", found.state.value),
        ("Name", found.name),
        ("Attempts", None if found.attempt is None else attempts),
        ("Added at", found.created_at),
        ("Due at", found.due_at),
        ("Started at", found.started_at),
        ("Ended at", found.ended_at),
        ("Failed at", ", ".join(times) or None),
        ("Progress", None if found.progress is None else f"{found.progress} %"),
        ("Worker", found.worker),
        ("Schedule", found.schedule_key),
        ("Tenant", found.tenant),
        ("Headers", to_json(found.headers, indent=None) if found.headers else None),
        ("Dead letter", found.dead_id),
        ("Reason", found.reason),
        ("Error", error_text(found) or None),
        ("Result", to_json(found.result, indent=None) if found.state is JobState.DONE else None),
        ("Data", to_json(found.data, indent=None) if found.name is not None else None),
    ]
    page: list[RenderableType] = [
        details([(name, _cell(value)) for name, value in pairs if value is not None])
    ]
    if found.failure is not None and found.failure.traceback:
        page += [Text(""), full_text(found.failure.traceback.rstrip())]
    return Group(*page)


def _cell(value: object) -> object:
    return format_instant(value) if isinstance(value, datetime) else value
