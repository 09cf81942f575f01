"""A batch: jobs that are added one after the other while they run, and calls for its end."""

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Self

from tampu.errors import Closed, OptionError, WrongContext
from tampu.flows.run import FlowProducer, FlowRun, SyncFlowRun
from tampu.job import current_job, current_queue, current_run
from tampu.server.scripts.flows import Growth
from tampu.tasks.task import AnyTask, Task
from tampu.util.clock import now_ms
from tampu.util.ids import new_id
from tampu.util.portal import Blocking
from tampu.wire.flow import NewMember, batch_id, parse_member

if TYPE_CHECKING:
    from tampu.flows.flow import Flow
    from tampu.tasks.drafts import Draft

P = ParamSpec("P")
_MOST_A_CALL: Final = 1000
_MOST_BYTES: Final = 1_048_576
_NODE: Final = 0  # the jobs of a batch are the first node of its flow


class FlowBatch:
    """Jobs that are added one after the other. Made by `app.batch()`, for `async with`.

    They run while others are still added. When all are done, a job of `on_success` starts; when all
    have ended, one of `on_complete`. An error inside the block cancels the batch.
    """

    def __init__(
        self,
        app: FlowProducer,
        queue: str,
        *,
        flow: "Flow | None" = None,
        run: FlowRun[None] | None = None,
    ) -> None:
        self._app = app
        self._queue = queue
        self._flow = flow  # None: it was started elsewhere
        self._run = run
        self._members: list[tuple[Draft, bytes]] = []
        self._size = 0
        self._unsent: Growth | None = None  # was sent, and has no answer yet
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<FlowBatch on {self._queue!r}>"

    @property
    def run(self) -> FlowRun[None]:
        """The batch as a flow: its progress, `cancel`, `retry`."""
        if self._run is None:
            raise WrongContext("use a batch", "it has not begun; use `async with`")
        return self._run

    async def __aenter__(self) -> Self:
        if self._flow is not None:
            self._run = await self._flow.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        frames: TracebackType | None,
    ) -> None:
        self._is_closed = True
        if error is not None and self._flow is not None:
            await self.run.cancel()
        elif error is None:
            await self._send(is_last=self._flow is not None)

    async def add(self, task: Task[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> None:
        """Add a job of a task; it is sent with others, a thousand at a time.

        `flush` sends what has been added. If the arguments do not fit, raises `ArgumentError`.
        """
        if self.collect(task, args, kwargs):
            await self.flush()

    def collect(
        self, task: AnyTask, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> bool:
        """Add a job without sending it; whether there are so many that they should be sent."""
        if self._is_closed:
            raise Closed("batch")
        if task.queue != self._queue:
            problem = f"it is of queue {task.queue!r}, and the batch of queue {self._queue!r}"
            raise OptionError("task", task, problem)
        draft = task.draft(args, kwargs).with_headers(self._app.trace_headers())
        if draft.later:
            raise OptionError("task", task, "jobs of a batch cannot wait for nodes; use a flow")
        self._members.append(self._member_of(draft))
        self._size += len(draft.template)
        return len(self._members) >= _MOST_A_CALL or self._size >= _MOST_BYTES

    async def flush(self) -> None:
        """Send the jobs that have been added so far."""
        await self._send(is_last=False)

    def _member_of(self, draft: "Draft") -> tuple["Draft", bytes]:
        job = NewMember(
            name=draft.name, extras=draft.extras, retry=draft.retry, created_at_ms=now_ms()
        )
        return draft, job.to_member(batch_id(self.run.id, _NODE), draft.template)

    async def _send(self, *, is_last: bool) -> None:
        while self._unsent is not None or self._members or is_last:
            if self._unsent is None:
                await self._app.prepare_gates([draft for draft, _ in self._members])
                texts = [member for _, member in self._members]
                # Kept until the server has answered: with its token, nothing of it is added twice.
                self._unsent = Growth(self.run.id, _NODE, new_id(now_ms()), texts, is_last)
                self._members, self._size = [], 0
            growth = self._unsent
            count = await self._app.queue(self._queue).flows.grow(growth)
            self._unsent = None
            if count < 0:
                problem = "it was cancelled or halted, all of its jobs have ended, or it is none"
                raise WrongContext("add to a batch", problem)
            if growth.is_last:
                return


class SyncFlowBatch(Blocking[FlowBatch]):
    """Jobs that are added one after the other: `FlowBatch`, for code without an event loop."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<Sync{repr(self._wrapped)[1:]}"

    @property
    def run(self) -> SyncFlowRun[None]:
        """The batch as a flow; see `FlowBatch.run`."""
        return SyncFlowRun(self._wrapped.run, self._portal)

    def __enter__(self) -> Self:
        self._portal.call(self._wrapped.__aenter__)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        frames: TracebackType | None,
    ) -> None:
        self._portal.call(lambda: self._wrapped.__aexit__(kind, error, frames))

    def add(self, task: Task[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> None:
        """Add a job of a task; see `FlowBatch.add`."""
        if self._wrapped.collect(task, args, kwargs):
            self.flush()

    def flush(self) -> None:
        """Send the jobs that have been added so far."""
        self._portal.call(self._wrapped.flush)


def own_batch(app: FlowProducer) -> FlowBatch:
    """The batch that the calling job belongs to."""
    queue = current_queue()
    if queue is None:
        is_child = current_run() is not None
        problem = "the task runs in a child process" if is_child else "no job is running"
        raise WrongContext("add to the batch of this job", problem)
    member = parse_member(current_job().id)
    if member is None or member.number is None or member.node != _NODE or member.home is not None:
        raise WrongContext("add to the batch of this job", "the job belongs to none")
    return FlowBatch(app, queue, run=FlowRun(app, queue, member.flow))
