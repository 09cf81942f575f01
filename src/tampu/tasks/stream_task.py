"""Tasks that yield, and their jobs, whose streams have the type of what is yielded."""

from collections.abc import AsyncGenerator, Generator, Iterable
from contextlib import aclosing
from typing import Any, Generic, Literal, ParamSpec, TypeVar, cast

from msgspec.structs import asdict, replace

from tampu.job import Job
from tampu.producer.sync_job import SyncJob
from tampu.tasks.arguments import ReturnType
from tampu.tasks.calls import Call
from tampu.tasks.task import Task
from tampu.util.portal import Portal
from tampu.wire.output import Chunk, Restarted

P = ParamSpec("P")
R = TypeVar("R")
Y = TypeVar("Y")


class StreamJob(Job[R], Generic[R, Y], frozen=True, eq=False, gc=False, kw_only=True):
    """A job of a task that yields."""

    yield_type: ReturnType

    def stream(
        self, after: str | None = None, *, on_restart: Literal["yield", "raise"] = "yield"
    ) -> AsyncGenerator[Chunk[Y] | Restarted]:
        """What the job has yielded and will yield, up to its end; see `Job.stream`."""
        items = super().stream(after, on_restart=on_restart)
        return _convert(items, self.yield_type) if self.yield_type.converts else items


class SyncStreamJob(SyncJob[R], Generic[R, Y]):
    """A job of a task that yields, for code without an event loop."""

    __slots__ = ()

    def stream(
        self, after: str | None = None, *, on_restart: Literal["yield", "raise"] = "yield"
    ) -> Generator[Chunk[Y] | Restarted]:
        """What the job has yielded and will yield, up to its end; see `Job.stream`."""
        return super().stream(after, on_restart=on_restart)


class StreamTask(Task[P, R], Generic[P, R, Y]):
    """A task whose function yields, so that its jobs have streams. `Y` is what it yields."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:  # noqa: ANN401 - its generator
        """Call the function itself, without a job."""
        self._check_plain_call(args, kwargs)
        return self.function(*args, **kwargs)

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> StreamJob[R, Y]:
        """Add a job that calls the function with these arguments; see `Task.enqueue`."""
        return cast("StreamJob[R, Y]", await super().enqueue(*args, **kwargs))

    async def enqueue_many(self, calls: Iterable[Call[R]]) -> list[StreamJob[R, Y]]:  # type: ignore[override] # a list that only its caller has
        """Add many calls of this task with few calls to the server; see `Task.enqueue_many`."""
        return cast("list[StreamJob[R, Y]]", await super().enqueue_many(calls))

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> SyncStreamJob[R, Y]:
        """As `enqueue`, from code without an event loop; waits until the job is added."""
        return cast("SyncStreamJob[R, Y]", super().enqueue_sync(*args, **kwargs))

    def enqueue_many_sync(self, calls: Iterable[Call[R]]) -> list[SyncStreamJob[R, Y]]:  # type: ignore[override] # as above
        """As `enqueue_many`, from code without an event loop."""
        return cast("list[SyncStreamJob[R, Y]]", super().enqueue_many_sync(calls))

    def job(self, job_id: str) -> StreamJob[R, Y]:
        """The job of this task with this id, whoever added it; see `Queue.job`."""
        return cast("StreamJob[R, Y]", super().job(job_id))

    def job_sync(self, job_id: str) -> SyncStreamJob[R, Y]:
        """As `job`, for code without an event loop."""
        return cast("SyncStreamJob[R, Y]", super().job_sync(job_id))

    def typed(self, job: Job[Any]) -> Job[R]:
        """The job of this task; its `stream` converts what is yielded."""
        return StreamJob(**asdict(job), yield_type=self._lazy.yield_type)

    @staticmethod
    def _make_sync(job: Job[Any], portal: Portal) -> SyncJob[Any]:
        return SyncStreamJob(job, portal)


async def _convert(
    items: AsyncGenerator[Chunk[Any] | Restarted], kind: ReturnType
) -> AsyncGenerator[Chunk[Any] | Restarted]:
    async with aclosing(items):
        async for item in items:
            if isinstance(item, Chunk):
                yield replace(item, value=kind.convert(item.value))
            else:
                yield item
