"""A job that no queue knows, for calling a handler in a test."""

from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from typing import Any

from tampu.errors import OptionError, WrongContext
from tampu.job import Job, JobActions
from tampu.util.clock import Duration, instant_ms, now_ms
from tampu.util.ids import new_id
from tampu.util.options import at_least
from tampu.wire.extras import Extras
from tampu.wire.output import JobOutput, OutputRules
from tampu.wire.result import NodeResults


class _MadeHost:
    """Records the progress of a made job."""

    def __init__(self) -> None:
        self.reported: list[int] = []
        self.charged: list[tuple[str, int]] = []

    @property
    def actions(self) -> JobActions:
        """A made job is on no queue."""
        raise WrongContext("ask about a job from make_job()", "it is on no queue")

    async def wait_for_result(self, job_id: str, timeout: Duration) -> object:
        """A made job has no result."""
        raise WrongContext("wait for the result of a job from make_job()", "it is on no queue")

    def read_results(self, of: NodeResults) -> AsyncIterator[object]:
        """Raises `WrongContext`."""
        del of
        raise WrongContext("read results of a node here", "the job was made for a test")

    def charge(self, resources: list[str], tokens: int) -> None:
        """Record what was charged."""
        self.charged += [(each, tokens) for each in resources]

    def open_output(self, job: Job[Any], rules: OutputRules) -> JobOutput:
        """A made job has no stream: call the generator itself."""
        del job, rules
        raise WrongContext("write the stream of a job from make_job()", "it is on no queue")

    def report_progress(self, job: Job[Any], percent: int) -> None:
        """Record a number."""
        self.reported.append(percent)


class MadeJob(Job[Any], frozen=True, eq=False, gc=False):
    """A job that no queue knows. Its progress is recorded."""

    @property
    def reported(self) -> list[int]:
        """The numbers that `progress` was called with."""
        assert isinstance(self.host, _MadeHost)  # noqa: S101 - made by make_job
        return self.host.reported


def make_job(
    data: object = None,
    *,
    name: str = "job",
    id: str | None = None,
    attempt: int = 1,
    scheduled_at: datetime | None = None,
    headers: Mapping[str, str] | None = None,
) -> MadeJob:
    """A job for calling a handler in a test: `await handle(make_job({"to": "ada"}, attempt=3))`.

    `job.reported` has its progress; its `result()` raises `WrongContext`.
    """
    at_least("attempt", attempt, 1)
    created_ms = now_ms()
    if id is not None and not isinstance(id, str):
        raise OptionError("id", id, "expected text")
    at_ms = None if scheduled_at is None else instant_ms("scheduled_at", scheduled_at)
    return MadeJob(
        id=new_id(created_ms) if id is None else id,
        name=name,
        data=data,
        attempt=attempt,
        created_at_ms=created_ms,
        host=_MadeHost(),
        extras=Extras(scheduled_at_ms=at_ms, headers=dict(headers or {})),
    )
