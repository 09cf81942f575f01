"""`tampu job`: show, wait for and cancel single jobs."""

from typing import Annotated

import typer
from rich.console import RenderableType

from tampu.admin.jobs import MAX_SEARCHED, JobInfo, JobState, find_job
from tampu.cli.command import add_group, command
from tampu.cli.dead import dead_json, error_of, failure_json, reason_of
from tampu.cli.options import QueueName, SharedOptions, new_app
from tampu.cli.output import CommandFailed
from tampu.cli.screen import NOTHING, JsonObject, Screen, count_of, details, format_instant, to_json
from tampu.cli.target import connect_to, open_queue
from tampu.errors import JobFailed

app = new_app()
job = add_group(app, "job", "Show, wait for or cancel single jobs.")

JobId = Annotated[str, typer.Argument(metavar="ID", help="Id of the job.", show_default=False)]
JobIds = Annotated[
    list[str], typer.Argument(metavar="ID", help="Ids of the jobs.", show_default=False)
]
Deep = Annotated[
    bool,
    typer.Option(
        "--all", help="Search all jobs, not just 10000 in each state.", show_default=False
    ),
]
Timeout = Annotated[str, typer.Option("--timeout", metavar="DURATION", help="How long to wait.")]


@command(job, "show")
async def show_job(
    shared: SharedOptions, queue: QueueName, job_id: JobId, *, deep: Deep = False
) -> None:
    """Show the state of a job and its data."""
    async with connect_to(shared, queue) as connection:
        found = await find_job(
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
            result = await opened.result(job_id, timeout)
        except JobFailed as failed:
            screen.show_json({"job_id": job_id, "failed": failure_json(failed)})
            raise
    screen.show({"job_id": job_id, "result": result}, lambda: to_json(result))


@command(job, "cancel")
async def cancel_jobs(shared: SharedOptions, queue: QueueName, job_ids: JobIds) -> None:
    """Cancel delayed jobs.

    Jobs that are waiting, running or finished stay as they are: exit code 1.
    """
    async with open_queue(shared, queue) as opened:
        cancelled = dict(zip(job_ids, await opened.cancel_many(job_ids), strict=True))
    count = sum(cancelled.values())
    Screen(shared).show(
        {"queue": queue, "cancelled": cancelled},
        lambda: f"{count} of {count_of(len(cancelled), 'job')} cancelled.",
    )
    if left := [job_id for job_id, done in cancelled.items() if not done]:
        raise CommandFailed(f"Not cancelled, because not delayed: {', '.join(left)}.")


# --- what is printed ----------------------------------------------------------------------------


def job_json(found: JobInfo) -> JsonObject:
    """A job in any state."""
    return {
        "id": found.id,
        "state": found.state,
        "searched_all": found.searched_all,
        "name": found.name,
        "data": found.data,
        "attempt": found.attempt,
        "created_at": found.created_at,
        "due_at": found.due_at,
        "worker": found.worker,
        "entry_id": found.entry_id,
        "result": found.result,
        "dead": None if found.dead is None else dead_json(found.dead),
    }


def job_page(found: JobInfo) -> RenderableType:
    """A job in full."""
    pairs: list[tuple[str, object]] = [("Job", found.id), ("State", found.state.value)]
    if found.state is JobState.DONE:
        pairs.append(("Result", to_json(found.result, indent=None)))
        return details(pairs)
    pairs += [("Name", found.name or NOTHING), ("Added at", format_instant(found.created_at))]
    if found.due_at is not None:
        pairs.append(("Due at", format_instant(found.due_at)))
    if found.worker is not None:
        pairs.append(("Worker", found.worker))
    pairs += [("Attempts", found.attempt if found.attempt is not None else NOTHING)]
    if found.dead is not None:
        pairs += [
            ("Dead letter", found.dead.dead_id),
            ("Reason", reason_of(found.dead)),
            ("Error", error_of(found.dead) or NOTHING),
        ]
    pairs.append(("Data", to_json(found.data, indent=None)))
    return details(pairs)
