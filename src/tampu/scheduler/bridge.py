"""From the scheduler in a process to the jobs of a queue."""

from collections.abc import Callable
from typing import Any, Protocol, Unpack

from tampu.errors import OptionError
from tampu.job import Job, JobOptions
from tampu.scheduler.run import TaskRun
from tampu.wire.keys import check_job_name


class Adds(Protocol):
    """What a job can be added to."""

    async def add(self, name: str, data: object = None, **options: Unpack[JobOptions]) -> Job[Any]:
        """Add one job."""
        ...


class AddJob:
    """The function of a task that adds a job to a queue at each occurrence.

    The job's id is the task's and the occurrence's, so that however many schedulers run the task,
    and however often an occurrence is replayed, one job is added; as long as the queue keeps ids
    unique, by default for an hour. `data` may be a function of the run. Options are those of
    `Queue.add`, but for `job_id`.
    """

    def __init__(
        self,
        queue: Adds,
        name: str,
        data: object | Callable[[TaskRun[Any]], object] = None,
        **options: Unpack[JobOptions],
    ) -> None:
        if not callable(getattr(queue, "add", None)):
            raise OptionError("queue", queue, "must be a Queue")
        if "job_id" in options:
            raise OptionError("job_id", options["job_id"], "is made of the task and the occurrence")
        self._queue = queue
        self._name = check_job_name(name)
        self._data = data
        self._options = options

    async def __call__(self, run: TaskRun[Any]) -> None:
        """Add the job of one occurrence."""
        data = self._data(run) if callable(self._data) else self._data
        options: JobOptions = {**self._options, "job_id": f"{run.task_id}@{run.at_ms}"}
        await self._queue.add(self._name, data, **options)
