"""A flow that was started: wait for it, look at it, stop it, let it go on."""

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

from msgspec import Struct

from tampu.admin.flow_info import FlowInfo
from tampu.errors import OptionError
from tampu.flows.nodes import Node, Nodes
from tampu.job import DEFAULT_RESULT_WAIT_S
from tampu.util.clock import Duration
from tampu.util.options import check_type
from tampu.util.portal import Blocking, Portal, iterate

if TYPE_CHECKING:
    from tampu.queue import Queue
    from tampu.tasks.drafts import Draft

R = TypeVar("R")
T = TypeVar("T")


class RunProducer(Protocol):
    """What a run needs from its app."""

    def queue(self, name: str) -> "Queue":
        """The queue with this name, for the running event loop."""


class FlowProducer(RunProducer, Protocol):
    """What a flow needs from its app."""

    def portal(self) -> Portal:
        """The portal for threads without an event loop."""

    def trace_headers(self) -> dict[str, str]:
        """What jobs carry that are added later, so that they belong to the trace of now."""

    async def prepare_gates(self, drafts: Iterable["Draft"]) -> None:
        """Make known to the queues what flow control needs for jobs that are added later."""


class FlowProgress(Struct, frozen=True):
    """How many jobs of a flow are known so far, are done, and have failed.

    `is_growing` says that there will be more of them.
    """

    jobs: int
    done: int
    failed: int
    is_growing: bool


class FlowRun(Generic[R]):
    """A flow that was started. Also from another program: `app.flow_run(id)`."""

    def __init__(
        self, app: RunProducer, queue: str, flow_id: str, *, node: Node[Any] | None = None
    ) -> None:
        self._app = app
        self._queue = queue
        self._node = node  # whose result is that of the flow
        self._id = flow_id

    def __repr__(self) -> str:
        return f"<FlowRun {self.id}>"

    @property
    def id(self) -> str:
        """The id of the flow, for `app.flow_run`."""
        return self._id

    @property
    def queue(self) -> str:
        """The queue that keeps the flow."""
        return self._queue

    async def result(self, timeout: Duration = DEFAULT_RESULT_WAIT_S) -> R:
        """Wait for the result of the flow: that of the node that `start` named, else None.

        Raises `JobFailed` as soon as a job has failed whose failure nobody takes care of,
        `JobCancelled` if the flow was cancelled, and `ResultTimeout` after `timeout`.
        """
        queue = self._app.queue(self._queue)
        value: Any = await queue.job(self.id).result(timeout)
        node = self._node
        if isinstance(node, Nodes):
            values = await queue.flows.map_result(self.id, node.number)
            value = [node.kind.convert(each) for each in values]
        elif node is not None:
            value = node.kind.convert(value)
        elif value is None:  # also what stands for the results of a map
            info = await self.info()
            number = None if info is None else info.result_node
            if info is not None and number is not None and info.nodes[number].is_map:
                value = await queue.flows.map_result(self.id, number)
        return value  # type: ignore[no-any-return] # only the caller knows R

    async def info(self) -> FlowInfo | None:
        """Its state and that of each node; None if it is no longer stored."""
        return await self._app.queue(self._queue).flows.info(self.id)

    async def progress(self) -> FlowProgress:
        """How many of its jobs have ended."""
        info = await self.info()
        if info is None:
            raise OptionError("flow", self.id, "it does not exist, or no longer does")
        return FlowProgress(info.jobs, info.done, info.failed, info.is_growing)

    async def cancel(self) -> bool:
        """Cancel it and what runs of it; False if it was done or cancelled before."""
        return await self._app.queue(self._queue).flows.cancel(self.id)

    async def retry(self) -> int:
        """Run its dead letters again, and let it go on; returns how many there were.

        Jobs that are done stay done. A dead letter that was deleted cannot run again.
        """

        async def replay(queue: str, ids: Sequence[str]) -> int:
            return await self._app.queue(queue).dead.replay(len(ids), ids=ids)

        return await self._app.queue(self._queue).flows.retry(self.id, replay)

    def completed(self, nodes: Nodes[T], *, after: str | None = None) -> "CompletedJobs[T]":
        """The jobs of a map as they are done: `async for number, result in run.completed(nodes)`.

        It ends when all of them have ended. Its `cursor` is where to go on later: pass it as
        `after`, also in another program.
        """
        check_type("nodes", nodes, Nodes, accepted="what flow.map() returns")
        return CompletedJobs(self, nodes, after)

    def follow(self, node: int, after: str | None) -> AsyncIterator[tuple[int, object, str]]:
        """The results of a map, each with its number and a cursor."""
        return self._app.queue(self._queue).flows.follow_map(self.id, node, after=after)


class CompletedJobs(Generic[T]):
    """The jobs of a map as they are done."""

    def __init__(self, run: FlowRun[Any], nodes: Nodes[T], after: str | None) -> None:
        self._run = run
        self._nodes = nodes
        self._cursor = after

    def __repr__(self) -> str:
        return f"<CompletedJobs of {self._nodes!r} of {self._run.id}>"

    @property
    def cursor(self) -> str | None:
        """Where to go on later: pass it as `after`. None before the first result."""
        return self._cursor

    async def __aiter__(self) -> AsyncIterator[tuple[int, T]]:
        async for number, value, cursor in self._run.follow(self._nodes.number, self._cursor):
            self._cursor = cursor
            yield number, cast("T", self._nodes.kind.convert(value))


class SyncFlowRun(Blocking[FlowRun[R]]):
    """A flow that was started: `FlowRun`, for code without an event loop."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<SyncFlowRun {self.id}>"

    @property
    def id(self) -> str:
        """The id of the flow."""
        return self._wrapped.id

    @property
    def queue(self) -> str:
        """The queue that keeps the flow."""
        return self._wrapped.queue

    def result(self, timeout: Duration = DEFAULT_RESULT_WAIT_S) -> R:
        """Wait for its result; see `FlowRun.result`."""
        return self._portal.wait(lambda: self._wrapped.result(timeout))

    def info(self) -> FlowInfo | None:
        """Its state; see `FlowRun.info`."""
        return self._portal.call(self._wrapped.info)

    def progress(self) -> FlowProgress:
        """How many of its jobs have ended; see `FlowRun.progress`."""
        return self._portal.call(self._wrapped.progress)

    def cancel(self) -> bool:
        """Cancel it; see `FlowRun.cancel`."""
        return self._portal.call(self._wrapped.cancel)

    def retry(self) -> int:
        """Run its dead letters again; see `FlowRun.retry`."""
        return self._portal.call(self._wrapped.retry)

    def completed(self, nodes: Nodes[T], *, after: str | None = None) -> "SyncCompletedJobs[T]":
        """The jobs of a map as they are done; see `FlowRun.completed`."""
        return SyncCompletedJobs(self._wrapped.completed(nodes, after=after), self._portal)


class SyncCompletedJobs(Blocking[CompletedJobs[T]]):
    """The jobs of a map as they are done, for code without an event loop."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<Sync{repr(self._wrapped)[1:]}"

    @property
    def cursor(self) -> str | None:
        """Where to go on later; see `FlowRun.completed`."""
        return self._wrapped.cursor

    def __iter__(self) -> Iterator[tuple[int, T]]:
        return iterate(self._portal, self._wrapped)
