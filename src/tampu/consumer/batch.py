"""What a handler of batches gets: many jobs at once, each of which can be settled alone."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from threading import get_ident
from typing import Any, ClassVar, Generic, TypeVar

from msgspec.structs import replace

from tampu.errors import OptionError, WrongContext
from tampu.job import Job, JobActions
from tampu.outcome import Done, Failed, Outcome, Retry, Snoozed, outcome_of_error
from tampu.util.clock import Duration, now_ms, to_ms, to_positive_ms
from tampu.util.ids import new_id
from tampu.wire.output import JobOutput, OutputRules
from tampu.wire.result import NodeResults

T = TypeVar("T")


class BatchRun:
    """Which jobs of a running batch are not settled yet; its handler may run in a thread."""

    def __init__(
        self, jobs: Sequence[Job[Any]], settle: Callable[[Job[Any], Outcome], None]
    ) -> None:
        self._left = dict.fromkeys(jobs)
        self._settle: Callable[[Job[Any], Outcome], None] | None = settle
        self._loop, self._thread = asyncio.get_running_loop(), get_ident()
        self.cancelled: set[Job[Any]] = set()  # jobs that somebody has cancelled meanwhile

    @property
    def left(self) -> list[Job[Any]]:
        """The jobs that are not settled yet."""
        return list(self._left)

    @property
    def is_cancelled(self) -> bool:
        """Whether all jobs that are not settled yet were cancelled."""
        left = self.left
        return bool(left) and self.cancelled.issuperset(left)

    def settle(self, job: Job[Any], outcome: Outcome) -> None:
        """Settle one job alone; `WrongContext` if that has happened already."""
        settle = self._settle
        if settle is None:
            raise WrongContext("settle a job of this batch", "the batch has ended")
        try:
            del self._left[job]
        except KeyError:
            raise WrongContext(f"settle job {job.id}", "it is settled already") from None
        if get_ident() == self._thread:
            settle(job, outcome)
            return
        with suppress(RuntimeError):  # the loop has ended before the thread
            self._loop.call_soon_threadsafe(settle, job, outcome)

    def close(self) -> None:
        """Settle no more jobs alone."""
        self._settle = None  # also ends a cycle that the collector does not see
        self._left = {}


class BatchJob(Job[Any], Generic[T], frozen=True, eq=False, gc=False, kw_only=True):
    """A job of a batch: as any other, with data of its type."""

    data: T
    source: Job[Any]  # as it arrived
    run: BatchRun

    @property
    def cancelled(self) -> bool:
        """Whether the job was cancelled while its batch runs."""
        return self.source in self.run.cancelled


class JobBatch(Job[Any], Generic[T], frozen=True, eq=False, gc=True, kw_only=True):
    """The jobs that a handler gets at once: `for job in batch: ... job.data`.

    If the handler returns, all jobs are done; if it raises, all have failed, and each is retried as
    its own attempts allow. `done`, `fail` and `snooze` settle one job alone, at once and for good.
    They may be called in any thread.

    It is a job itself, with an id of its own, so that middleware and dependencies get one. `data`
    is the list of what the jobs have, `attempt` that of the job with the most attempts.
    """

    is_batch: ClassVar[bool] = True
    data: list[T]
    jobs: tuple[BatchJob[T], ...]
    run: BatchRun

    @classmethod
    def of(cls, jobs: Sequence[Job[Any]], run: BatchRun) -> "JobBatch[Any]":
        """The batch of these jobs, of which there is at least one."""
        members = tuple(_member(each, run) for each in jobs)
        return JobBatch(
            id=new_id(now_ms()),
            name=members[0].name,
            data=[each.data for each in members],
            attempt=max(each.attempt for each in members),
            created_at_ms=min(each.created_at_ms for each in members),
            host=_BatchHost(run),
            jobs=members,
            run=run,
        )

    def __repr__(self) -> str:
        return f"<JobBatch {self.id} of {len(self.jobs)} {self.name!r}>"

    def __len__(self) -> int:
        return len(self.jobs)

    def __iter__(self) -> Iterator[BatchJob[T]]:
        return iter(self.jobs)

    def __getitem__(self, position: int) -> BatchJob[T]:
        return self.jobs[position]

    @property
    def left(self) -> list[BatchJob[T]]:
        """The jobs that were not settled alone, in order."""
        left = set(self.run.left)
        return [each for each in self.jobs if each.source in left]

    @property
    def cancelled(self) -> bool:
        """Whether all jobs that are left were cancelled: the handler should end."""
        return self.run.is_cancelled

    def done(self, job: BatchJob[T], result: object = None) -> None:
        """One job is done, with this result, whatever becomes of the others."""
        self._settle(job, Done(result))

    def fail(
        self, job: BatchJob[T], error: BaseException | str, *, after: Duration | None = None
    ) -> None:
        """One job has failed: it is retried, after its backoff unless you say when, or buried.

        An error that means something when a handler raises it, such as `Bury`, means the same here.
        """
        outcome = outcome_of_error(Retry(error) if isinstance(error, str) else error)
        if after is not None and isinstance(outcome, Failed):
            outcome = replace(outcome, after_ms=to_ms("after", after))
        self._settle(job, outcome)

    def snooze(self, job: BatchJob[T], after: Duration) -> None:
        """Run one job again later; this run does not count as an attempt of it."""
        self._settle(job, Snoozed(to_positive_ms("after", after)))

    def _settle(self, job: BatchJob[T], outcome: Outcome) -> None:
        given: object = job
        if not isinstance(given, BatchJob) or given.run is not self.run:
            raise OptionError("job", given, "expected a job of this batch")
        self.run.settle(given.source, outcome)


def convert_batch(
    batch: JobBatch[Any], convert: Callable[[object], object]
) -> "JobBatch[Any] | None":
    """The batch with converted data; a job whose data does not fit is settled alone.

    None if there is no other.
    """
    fitting: list[BatchJob[Any]] = []
    for job in batch.jobs:
        try:
            fitting.append(replace(job, data=convert(job.data)))
        except Exception as error:  # noqa: BLE001 - border: types of the user convert themselves
            batch.run.settle(job.source, outcome_of_error(error))
    if not fitting:
        return None
    return replace(batch, jobs=tuple(fitting), data=[each.data for each in fitting])


class _BatchHost:
    """What a batch can do as a job: report the progress of its jobs."""

    def __init__(self, run: BatchRun) -> None:
        self._run = run

    @property
    def actions(self) -> JobActions:
        """A queue knows jobs, not batches."""
        raise WrongContext("ask about a batch", "ask about each of its jobs")

    async def wait_for_result(self, job_id: str, timeout: Duration) -> object:
        """A handler makes the results; it cannot wait for them."""
        raise WrongContext("call batch.result() in a handler", "the results do not exist yet")

    def read_results(self, of: NodeResults) -> AsyncIterator[object]:
        """As any of its jobs would."""
        return self._run.left[0].host.read_results(of)

    def charge(self, resources: list[str], tokens: int) -> None:
        """Jobs have limits, a batch has none."""
        raise WrongContext("charge a batch", "charge one of its jobs")

    def open_output(self, job: Job[Any], rules: OutputRules) -> JobOutput:
        """Jobs have streams, a batch has none."""
        raise WrongContext("yield in a handler of batches", "each job has its own stream")

    def report_progress(self, job: Job[Any], percent: int) -> None:
        """The progress of each job that is left."""
        for each in self._run.left:
            each.host.report_progress(each, percent)


def _member(job: Job[Any], run: BatchRun) -> BatchJob[Any]:
    return BatchJob(
        id=job.id,
        name=job.name,
        data=job.data,
        attempt=job.attempt,
        created_at_ms=job.created_at_ms,
        host=job.host,
        extras=job.extras,
        source=job,
        run=run,
    )
