"""A job that was added, for code without an event loop."""

from collections.abc import Generator
from datetime import datetime
from typing import Any, Literal

from tampu.job import DEFAULT_RESULT_WAIT_S, CancelState, Job, JobEvent, JobInfo, R
from tampu.limits.reasons import Why
from tampu.util.clock import Duration
from tampu.util.portal import Blocking, iterate
from tampu.wire.output import Chunk, Restarted


class SyncJob(Blocking[Job[R]]):
    """A job that was added: a producer's `Job`, for code without an event loop."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<SyncJob {self.id} {self.name!r}>"

    @property
    def id(self) -> str:
        """The job's id."""
        return self._wrapped.id

    @property
    def name(self) -> str:
        """The job's name."""
        return self._wrapped.name

    @property
    def data(self) -> Any:  # noqa: ANN401 - what the producer gave
        """The job's data, as it was given."""
        return self._wrapped.data

    @property
    def created_at(self) -> datetime:
        """When it was added, by the clock of this machine."""
        return self._wrapped.created_at

    @property
    def duplicate(self) -> bool:
        """Whether the id was taken, and nothing was added."""
        return self._wrapped.duplicate

    @property
    def dropped(self) -> bool:
        """Whether its line was full, and nothing was added."""
        return self._wrapped.dropped

    def info(self) -> JobInfo:
        """What is known about the job; see `Job.info`."""
        return self._portal.call(self._wrapped.info)

    def cancel(self) -> CancelState:
        """Cancel the job; see `Job.cancel`."""
        return self._portal.call(self._wrapped.cancel)

    def reschedule(self, *, delay: Duration | None = None, at: datetime | None = None) -> bool:
        """Change when a delayed job is due; see `Job.reschedule`."""
        return self._portal.call(lambda: self._wrapped.reschedule(delay=delay, at=at))

    def run_now(self) -> bool:
        """Make a delayed job run as soon as a worker is free; see `Job.run_now`."""
        return self._portal.call(self._wrapped.run_now)

    def why(self) -> Why:
        """Why the job is not running yet; see `Job.why`."""
        return self._portal.call(self._wrapped.why)

    def events(self, after: str | None = None) -> Generator[JobEvent]:
        """The events of the job up to its end; see `Job.events`."""
        return iterate(self._portal, self._wrapped.events(after))

    def stream(
        self, after: str | None = None, *, on_restart: Literal["yield", "raise"] = "yield"
    ) -> Generator[Chunk[Any] | Restarted]:
        """What the job has yielded and will yield, up to its end; see `Job.stream`."""
        return iterate(self._portal, self._wrapped.stream(after, on_restart=on_restart))

    def result(self, timeout: Duration = DEFAULT_RESULT_WAIT_S) -> R:
        """Wait for the value that the handler returned; see `Job.result`.

        Raises `WrongContext` in a thread that runs an event loop, which would stand still.
        """
        return self._portal.wait(lambda: self._wrapped.result(timeout))
