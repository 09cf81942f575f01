"""What an app does for flows: makes them, and adds their jobs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tampu.flows.batch import FlowBatch, SyncFlowBatch, own_batch
from tampu.flows.flow import RESULT_TTL, Flow
from tampu.flows.run import FlowRun, SyncFlowRun
from tampu.tasks.drafts import gate_needs
from tampu.tasks.router import Router
from tampu.wire.names import check_job_id, check_job_name, check_queue_name

if TYPE_CHECKING:
    from tampu.producer.request import Request
    from tampu.queue import Queue
    from tampu.tasks.calls import Call
    from tampu.tasks.drafts import Draft
    from tampu.util.clock import Duration
    from tampu.util.portal import Portal


class FlowRouter(Router):
    """A router that has queues, and so can start flows: an app."""

    @abstractmethod
    def queue(self, name: str | None = None) -> Queue:
        """The queue with this name, or the default one."""

    @abstractmethod
    def portal(self) -> Portal:
        """The portal for threads without an event loop."""

    @abstractmethod
    def trace_headers(self) -> dict[str, str]:
        """What jobs carry that are added later, so that they belong to the trace of now."""

    @property
    @abstractmethod
    def default_queue(self) -> str:
        """The queue of tasks that name none."""

    @property
    @abstractmethod
    def queues(self) -> list[str]:
        """The queues of its tasks."""

    def flow(
        self,
        name: str = "flow",
        *,
        queue: str | None = None,
        fail_fast: bool = False,
        result_ttl: Duration = RESULT_TTL,
    ) -> Flow:
        """A graph of jobs, to be started when it is complete; see `Flow`.

        `queue` keeps its state: the default queue unless you say otherwise, or if no task is there,
        the first queue that has tasks. A worker must serve it. The jobs are added to the queues of
        their tasks. Once the flow is done, it and its result are kept for `result_ttl`.
        """
        name, queue = check_job_name(name), self._home_queue(queue)
        return Flow(name, self, queue=queue, fail_fast=fail_fast, result_ttl=result_ttl)

    def flow_run(self, flow_id: str, *, queue: str | None = None) -> FlowRun[Any]:
        """A flow that was started, by its id and the queue that keeps it."""
        return FlowRun(self, self._home_queue(queue), check_job_id(flow_id))

    def flow_run_sync(self, flow_id: str, *, queue: str | None = None) -> SyncFlowRun[Any]:
        """As `flow_run`, for code without an event loop."""
        return SyncFlowRun(self.flow_run(flow_id, queue=queue), self.portal())

    def batch(
        self,
        *,
        on_success: Call[Any] | None = None,
        on_complete: Call[Any] | None = None,
        name: str = "batch",
        queue: str | None = None,
    ) -> FlowBatch:
        """Jobs that are added one after the other, for `async with`; see `FlowBatch`.

        `on_success` is called when all of them are done, `on_complete` when all have ended. All of
        them are of one queue, the default one unless you say otherwise.
        """
        home = self._home_queue(queue)
        flow = Flow(check_job_name(name), self, queue=home)
        nodes = flow.open_batch()
        if on_success is not None:
            flow.add_call(on_success).needs(nodes)
        if on_complete is not None:
            flow.add_call(on_complete).after(nodes)
        return FlowBatch(self, home, flow=flow)

    def batch_sync(
        self,
        *,
        on_success: Call[Any] | None = None,
        on_complete: Call[Any] | None = None,
        name: str = "batch",
        queue: str | None = None,
    ) -> SyncFlowBatch:
        """As `batch`, for `with`, from code without an event loop."""
        batch = self.batch(on_success=on_success, on_complete=on_complete, name=name, queue=queue)
        return SyncFlowBatch(batch, self.portal())

    def own_batch(self) -> FlowBatch:
        """The batch that the calling job belongs to, to add more jobs to it, for `async with`."""
        return own_batch(self)

    def own_batch_sync(self) -> SyncFlowBatch:
        """As `own_batch`, for `with`, from a task that is a plain function."""
        return SyncFlowBatch(own_batch(self), self.portal())

    def _home_queue(self, given: str | None) -> str:
        if given is not None:
            return check_queue_name(given)
        # A queue without tasks has no worker, unless somebody thinks of it.
        has_worker = self.default_queue in self.queues or not self.queues
        return self.default_queue if has_worker else self.queues[0]

    async def prepare_gates(self, drafts: Iterable[Draft]) -> None:
        """Make known to the queues what flow control needs for jobs that are added later."""
        by_queue: dict[str, list[Request]] = {}
        for each in drafts:
            by_queue.setdefault(each.queue, []).append(each.request)
        for name, requests in by_queue.items():
            queue, needs = self.queue(name), gate_needs(requests)  # every queue: tests serve those
            if needs is not None:
                await queue.flows.prepare_gate(needs)
