"""What type checkers know of the test kit; checked by both of them, run by nobody."""

from datetime import UTC, datetime, timedelta
from typing import assert_type

from tampu import App
from tampu.testing import Attempt, EnqueuedJob, Jobs, Kit, MadeJob, SyncJobs, make_job, use

app = App()


@app.task
async def send(to: str, template: str = "hello") -> int:
    return len(to + template)


def get_db() -> str:
    return "db"


async def async_tests(tampu: Kit) -> None:
    async with tampu.use(app, now=datetime.now(UTC), schedules=False) as jobs:
        assert_type(jobs, Jobs)
        assert_type(await jobs.run(), list[Attempt])
        assert_type(await jobs.travel("3d", raise_errors=False), list[Attempt])
        await jobs.travel(timedelta(days=3), run=False)
        await jobs.travel(datetime.now(UTC), limit=5)
        assert_type(jobs.assert_enqueued(send, "ada", delay="3d"), EnqueuedJob)
        jobs.assert_not_enqueued(send, template="bye")
        assert_type(jobs.enqueued(send), list[EnqueuedJob])
        assert_type(jobs.now(), datetime)
        assert_type(jobs.attempts[0].error, BaseException | None)
    async with use(app, inline=True) as inline:
        assert_type(inline, Jobs)


def plain_tests(tampu: Kit) -> None:
    with tampu.use(app) as jobs:
        assert_type(jobs, SyncJobs)
        assert_type(jobs.run(), list[Attempt])
        assert_type(jobs.travel(5), list[Attempt])
        assert_type(jobs.assert_enqueued(send, at=datetime.now(UTC)), EnqueuedJob)
    with app.override(get_db, lambda: "fake"):
        pass


def made_jobs() -> None:
    job = make_job({"x": 1}, attempt=3)
    assert_type(job, MadeJob)
    assert_type(job.reported, list[int])


async def wrong_calls_are_errors(tampu: Kit) -> None:
    """Each of these must be an error: an ignore that nothing needs is reported."""
    tampu.use("app")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    async with tampu.use(app) as jobs:
        await jobs.travel()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        jobs.assert_enqueued("send")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        jobs.assert_enqueued(send, delay=[])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    make_job(attempts=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
