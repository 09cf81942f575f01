"""A flow that was started: wait for it, look at it, stop it, let it go on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from msgspec import Struct

from tampu.errors import OptionError
from tampu.flows.nodes import Nodes
from tampu.job import DEFAULT_RESULT_WAIT_S
from tampu.util.options import check_type
from tampu.util.portal import Blocking, iterate

if TYPE_CHECKING:
    from tampu.admin.flow_info import FlowInfo
    from tampu.queue import Queue
    from tampu.util.clock import Duration

R = TypeVar("R")
T = TypeVar("T")


class RunProducer(Protocol):
    """What a run needs from its app."""

    def queue(self, name: str) -> Queue:
        """The queue with this name, for the running event loop."""


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
        self, app: RunProducer, queue: str, flow_id: str, *, map_node: int | None = None
    ) -> None:
        self._app = app
        self._queue = queue
        self._map_node = map_node  # if the result is that of a map
        self.id = flow_id

    def __repr__(self) -> str:
        return f"<FlowRun {self.id}>"

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
        if self._map_node is not None:
            value = await queue.flows.map_result(self.id, self._map_node)
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
        """Cancel it: nothing more starts, and what runs is cancelled; False if it was over."""
        return await self._app.queue(self._queue).flows.cancel(self.id)

    async def retry(self) -> int:
        """Run its dead letters again, and let it go on; returns how many there were.

        Jobs that are done stay done. A dead letter that was deleted cannot run again.
        """
        flows, count, elsewhere = self._app.queue(self._queue).flows, 0, list[str]()
        for queue, ids in (await flows.dead_letters(self.id)).items():
            replayed = await self._app.queue(queue).dead.replay(len(ids), ids=ids)
            count += replayed
            if replayed == len(ids) and queue != self._queue:
                elsewhere += ids
        await flows.until_replayed(self.id, elsewhere)
        await flows.resume(self.id)
        return count

    def completed(self, nodes: Nodes[T], *, after: str | None = None) -> CompletedJobs[T]:
        """The jobs of a map as they are done: `async for number, result in run.completed(nodes)`.

        It ends when all of them have ended. Its `cursor` is where to go on later: pass it as
        `after`, also in another program.
        """
        check_type("nodes", nodes, Nodes, accepted="what flow.map() returns")
        return CompletedJobs(self, nodes.number, after)

    def follow(self, node: int, after: str | None) -> AsyncIterator[tuple[int, object, str]]:
        """The results of a map, each with its number and a cursor."""
        return self._app.queue(self._queue).flows.follow_map(self.id, node, after=after)


class CompletedJobs(Generic[T]):
    """The jobs of a map as they are done."""

    def __init__(self, run: FlowRun[Any], node: int, after: str | None) -> None:
        self._run = run
        self._node = node
        self.cursor = after

    async def __aiter__(self) -> AsyncIterator[tuple[int, T]]:
        async for number, value, cursor in self._run.follow(self._node, self.cursor):
            self.cursor = cursor
            yield number, value  # type: ignore[misc] # only the caller knows T


class SyncFlowRun(Blocking[FlowRun[R]]):
    """A flow that was started: `FlowRun`, for code without an event loop."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<SyncFlowRun {self.id}>"

    @property
    def id(self) -> str:
        """The id of the flow."""
        return self._wrapped.id

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

    def completed(self, nodes: Nodes[T], *, after: str | None = None) -> Iterator[tuple[int, T]]:
        """The jobs of a map as they are done; see `FlowRun.completed`."""
        return iterate(self._portal, self._wrapped.completed(nodes, after=after))
