"""Queues whose jobs and flows run when they are added."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Unpack

from tampu.admin.flows import Flows
from tampu.errors import ResultTimeout
from tampu.job import Job, JobOptions, NewJob
from tampu.limits.model import NamedLimits
from tampu.producer.connection import QueueConnection
from tampu.producer.options import QueueOptions
from tampu.producer.request import Request
from tampu.server.listening import SharedParts
from tampu.server.scripts.flows import FlowStart, Growth
from tampu.tasks.app_queue import AppQueue
from tampu.testing.jobs import Jobs
from tampu.util.clock import Duration
from tampu.util.lifecycle import Shared
from tampu.wire.keys import QueueKeys


class InlineFlows(Flows):
    """Flows whose jobs run when they are started, when they grow, and when they go on."""

    def __init__(
        self, keys: QueueKeys, connect: Callable[[], Awaitable[QueueConnection]], jobs: Jobs
    ) -> None:
        super().__init__(keys, connect)
        self._kit_jobs = jobs

    async def start(self, flow: FlowStart) -> bool:
        """Start a flow, and run its jobs."""
        self._kit_jobs.check_depth()
        is_new = await super().start(flow)
        await self._kit_jobs.run_flow(flow.flow_id)
        return is_new

    async def grow(self, growth: Growth) -> int:
        """Add jobs to a batch, and run them."""
        self._kit_jobs.check_depth()
        count = await super().grow(growth)
        await self._kit_jobs.run_inline([])
        return count

    async def resume(self, flow_id: str) -> bool:
        """Let a flow go on, and run its jobs."""
        can_go_on = await super().resume(flow_id)
        await self._kit_jobs.run_inline([])
        return can_go_on

    async def cancel(self, flow_id: str) -> bool:
        """Cancel a flow, also its jobs of other queues."""
        was_running = await super().cancel(flow_id)
        await self._kit_jobs.run_inline([])
        return was_running

    async def _wait_for_more(self, flow_id: str) -> None:
        """Nothing would come later."""
        raise ResultTimeout(flow_id, 0.0)


class InlineQueue(AppQueue):
    """A queue whose jobs run when they are added. A result is there at once, or never."""

    def __init__(
        self,
        jobs: Jobs,
        shared: Shared[SharedParts],
        name: str,
        *,
        limits: NamedLimits,
        **options: Unpack[QueueOptions],
    ) -> None:
        super().__init__(shared, name, limits, **options)
        self._kit_jobs = jobs
        self.flows = InlineFlows(self._keys, self._connect, jobs)

    async def add(self, name: str, data: object = None, **options: Unpack[JobOptions]) -> Job[Any]:
        """Add one job, and run it."""
        self._kit_jobs.check_depth()
        job = await super().add(name, data, **options)
        await self._kit_jobs.run_inline([job])
        return job

    async def add_many(self, jobs: Iterable[NewJob]) -> list[Job[Any]]:
        """Add many jobs, and run them."""
        self._kit_jobs.check_depth()
        added = await super().add_many(jobs)
        await self._kit_jobs.run_inline(added)
        return added

    async def add_each(
        self, name: str, datas: Iterable[object], **options: Unpack[JobOptions]
    ) -> list[Job[Any]]:
        """Add one job for each item of data, and run them."""
        self._kit_jobs.check_depth()
        added = await super().add_each(name, datas, **options)
        await self._kit_jobs.run_inline(added)
        return added

    async def add_request(self, request: Request) -> Job[Any]:
        """Add the first step of a chain, and run the chain."""
        self._kit_jobs.check_depth()
        job = await super().add_request(request)
        await self._kit_jobs.run_flow(job.id)
        return job

    async def wait_for_result(self, job_id: str, timeout: Duration) -> object:
        """The result of a job, without waiting: nothing would come later."""
        del timeout
        self._kit_jobs.note_seen(job_id)
        return await super().wait_for_result(job_id, 0)
