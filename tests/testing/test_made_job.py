"""Jobs for calling a handler in a test."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tampu import INJECTED, App, Job, OptionError, WrongContext
from tampu.testing import make_job

app = App()


@app.task
async def resize(width: int, job: Job[Any] = INJECTED) -> str:
    job.progress(50)
    job.progress(200)
    return f"{width} on attempt {job.attempt} of {job.name}"


async def test_a_task_can_be_called_with_it() -> None:
    job = make_job(name="resize", attempt=3)
    assert await resize(80, job=job) == "80 on attempt 3 of resize"
    assert job.reported == [50, 100]


def test_it_has_what_a_job_has() -> None:
    at = datetime(2026, 3, 1, 9, tzinfo=UTC)
    job = make_job({"x": 1}, id="own", scheduled_at=at, headers={"trace": "7"})
    assert (job.id, job.data, job.attempt, job.name) == ("own", {"x": 1}, 1, "job")
    assert (job.scheduled_at, job.headers, job.tenant) == (at, {"trace": "7"}, None)
    assert abs(job.created_at - datetime.now(UTC)).total_seconds() < 60
    assert make_job().id != make_job().id
    assert isinstance(job, Job)


async def test_it_has_no_result() -> None:
    with pytest.raises(WrongContext, match="it is on no queue"):
        await make_job().result()


def test_invalid_values_are_refused() -> None:
    with pytest.raises(OptionError, match="attempt"):
        make_job(attempt=0)
    with pytest.raises(OptionError, match="id"):
        make_job(id=5)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="scheduled_at"):
        make_job(scheduled_at=datetime(2026, 1, 1))  # noqa: DTZ001 - as a test may do
