"""What `tampu job` does."""

from tampu.admin.jobs import MOST, JobState, find_job
from tampu.cli.acts.desk import desk_for, queue_for
from tampu.cli.ending import no
from tampu.cli.screen import Screen
from tampu.cli.shared import Shared
from tampu.cli.show.plain import as_json
from tampu.cli.show.shapes import failed_shape, job_shape
from tampu.cli.show.tables import job_page
from tampu.cli.show.text import counted
from tampu.errors import JobFailed


async def show(shared: Shared, queue: str, job_id: str, *, deep: bool) -> None:
    """Say where a job is."""
    async with desk_for(shared, queue) as desk:
        job = await find_job(desk.lane, desk.keys, job_id, most=None if deep else MOST)
    if job.state is not JobState.UNKNOWN:
        Screen(shared).show(job_shape(job), lambda: job_page(job))
        return
    Screen(shared).tell_programs(job_shape(job))
    if job.searched_all:
        why = "it is done and left no result, was removed, or never was there"
        raise no(f"queue {queue!r} has no job {job_id!r}: {why}.")
    raise no(f"job {job_id!r} is not among the {MOST} oldest of {queue!r}; --all searches all.")


async def wait(shared: Shared, queue: str, job_id: str, *, timeout: str) -> None:
    """Print a job's result when it is there."""
    screen = Screen(shared)
    async with queue_for(shared, queue) as opened:
        try:
            result = await opened.result(job_id, timeout)
        except JobFailed as failed:
            screen.tell_programs({"job_id": job_id, "failed": failed_shape(failed)})
            raise
    screen.show({"job_id": job_id, "result": result}, lambda: as_json(result))


async def cancel(shared: Shared, queue: str, job_ids: list[str]) -> None:
    """Take delayed jobs back."""
    async with queue_for(shared, queue) as opened:
        done = dict(zip(job_ids, await opened.cancel_many(job_ids), strict=True))
    count = sum(done.values())
    Screen(shared).show(
        {"queue": queue, "cancelled": done},
        lambda: f"{count} of {counted(len(done), 'job')} taken back.",
    )
    if missed := [job_id for job_id, cancelled in done.items() if not cancelled]:
        raise no(f"not delayed, and left as they are: {', '.join(missed)}.")
