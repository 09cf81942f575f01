"""A task that adds jobs to a queue."""

from datetime import timedelta
from typing import Any, Unpack

import pytest

from tampu.errors import OptionError
from tampu.job import Job, JobOptions
from tampu.scheduler import AddJob, RunStatus, TaskRun
from tests.unit.scheduler.clocks import House, ended, task
from tests.unit.scheduler.plans import MINUTE, START_MS

pytestmark = pytest.mark.usefixtures("nothing_is_left")


class Box:
    """Something that jobs can be added to."""

    def __init__(self) -> None:
        self.added: list[tuple[str, object, JobOptions]] = []
        self.trouble: Exception | None = None

    async def add(self, name: str, data: object = None, **options: Unpack[JobOptions]) -> Job[Any]:
        if self.trouble is not None:
            raise self.trouble
        self.added.append((name, data, options))
        return Job(id=str(options.get("job_id")), name=name, data=data)  # type: ignore[call-arg]


async def run_twice(function: AddJob) -> list[RunStatus]:
    house = House()
    running = await house.run_beside(task(function, max_runs=2))
    await house.turn(2 * MINUTE)
    return [record.status for record in (await ended(running)).history]


async def test_each_occurrence_adds_a_job_with_an_id_of_its_own() -> None:
    box = Box()
    function = AddJob(box, "digest", {"to": "ada"}, delay=timedelta(seconds=5), attempts=3)
    await run_twice(function)
    assert box.added == [
        (
            "digest",
            {"to": "ada"},
            {"delay": timedelta(seconds=5), "attempts": 3, "job_id": f"t@{START_MS + n * MINUTE}"},
        )
        for n in (1, 2)
    ]


async def test_the_data_may_be_made_for_each_run() -> None:
    box = Box()

    def made(run: TaskRun[Any]) -> object:
        return {"minute": (run.at_ms - START_MS) // MINUTE}

    await run_twice(AddJob(box, "digest", made))
    assert [data for _, data, _ in box.added] == [{"minute": 1}, {"minute": 2}]


async def test_without_data_there_is_none() -> None:
    box = Box()
    await run_twice(AddJob(box, "digest"))
    assert [data for _, data, _ in box.added] == [None, None]


async def test_a_queue_that_fails_fails_the_run_and_the_next_goes_on() -> None:
    box = Box()
    box.trouble = RuntimeError("full")
    assert await run_twice(AddJob(box, "digest")) == [RunStatus.FAILED] * 2


def test_what_cannot_be_is_refused_when_it_is_built() -> None:
    with pytest.raises(OptionError, match="Invalid queue 'emails': must be a Queue"):
        AddJob("emails", "digest")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="is made of the task and the occurrence"):
        AddJob(Box(), "digest", job_id="x")
    with pytest.raises(OptionError, match="Invalid name "):
        AddJob(Box(), "x" * 10_000)


def test_it_cannot_be_a_blocking_function() -> None:
    with pytest.raises(OptionError) as refused:
        task(AddJob(Box(), "digest"), blocking=True)
    assert refused.value.option == "blocking"
