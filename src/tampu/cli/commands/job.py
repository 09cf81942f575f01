"""`tampu job`: single jobs."""

from typing import Annotated

import typer

from tampu.cli.shared import QueueName, Running, Shared, command, group

JobId = Annotated[str, typer.Argument(metavar="ID", help="The job's id.", show_default=False)]
JobIds = Annotated[list[str], typer.Argument(metavar="ID", help="Ids of jobs.", show_default=False)]
Deep = Annotated[
    bool,
    typer.Option("--all", help="Search all jobs, not 10000 of each state.", show_default=False),
]
Timeout = Annotated[str, typer.Option("--timeout", metavar="DURATION", help="Wait no longer.")]


def add_to(app: typer.Typer) -> None:
    """Register them."""
    jobs = group("job", "Single jobs.")
    command(jobs, "show")(show)
    command(jobs, "wait")(wait)
    command(jobs, "cancel")(cancel)
    app.add_typer(jobs)


def show(
    shared: Shared,
    queue: QueueName,
    job_id: JobId,
    deep: Deep = False,  # noqa: FBT002 - typer's way
) -> Running:
    """Show where a job is, and what it holds."""
    from tampu.cli.acts import job as act

    return act.show(shared, queue, job_id, deep=deep)


def wait(shared: Shared, queue: QueueName, job_id: JobId, timeout: Timeout = "30s") -> Running:
    """Wait for a job's result and print it.

    Its worker must store results. Exit code 1 if the job fails, or when the time is up.
    """
    from tampu.cli.acts import job as act

    return act.wait(shared, queue, job_id, timeout=timeout)


def cancel(shared: Shared, queue: QueueName, job_ids: JobIds) -> Running:
    """Take delayed jobs back.

    One that waits for a worker, runs or is done stays as it is: exit code 1.
    """
    from tampu.cli.acts import job as act

    return act.cancel(shared, queue, job_ids)
