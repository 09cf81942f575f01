"""The queues of an app: with their connections together, one set of them for each event loop."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Final, Self, TypeAlias, Unpack

from tampu.admin.queues import QueueSummary, summarise_queue
from tampu.job import Job
from tampu.limits.model import NamedLimits
from tampu.producer.options import QueueOptions
from tampu.producer.request import Request
from tampu.queue import Queue
from tampu.schedules.model import Schedule
from tampu.server.listening import SharedParts
from tampu.server.scripts.outbox import wake_relay
from tampu.tasks.router import DeclaredSchedule
from tampu.util.lifecycle import Shared

_MOST_SCHEDULES: Final = 10_000


class AppQueue(Queue):
    """A queue that has its connections together with the others of the app."""

    def __init__(
        self,
        shared: Shared[SharedParts],
        name: str,
        limits: NamedLimits,
        **options: Unpack[QueueOptions],
    ) -> None:
        self._limits = limits  # of the app, which may declare more later
        super().__init__(name, **options)
        self._shared = shared

    async def store_schedule(self, declared: DeclaredSchedule) -> None:
        """Store a schedule that the app declares."""
        await self.schedules.store(declared.to_store(self._rules))

    async def declared_schedules(self) -> list[Schedule]:
        """The schedules that an app has declared, this one or another one."""
        stored = await self.schedules.list(_MOST_SCHEDULES)
        return [each for each in stored if each.declared_by is not None]

    async def add_request(self, request: Request) -> Job[Any]:
        """Add a job that was checked before."""
        return await self._add_one(request)

    async def add_repeated(self, requests: list[Request]) -> list[Job[Any]]:
        """Add jobs with ids that may have been added before; one that was is a duplicate."""
        jobs = await self._add_traced(requests)
        for place, job in enumerate(jobs):
            if job.duplicate:
                jobs[place] = await self._conflicts.resolve_repeated(requests[place], job)
        return jobs

    async def wake_relay(self, outbox: str) -> None:
        """Tell the relay of an outbox, whose home is this queue, of new rows."""
        await wake_relay((await self._connect()).lane, self._keys, outbox)

    async def forget_result(self, job_id: str) -> None:
        """Delete the stored result of a job."""
        await (await self._connect()).results.forget(job_id)

    async def summary(self) -> QueueSummary:
        """The queue at this moment: counts, ages, workers."""
        lane = (await self._connect()).lane
        return await summarise_queue(lane, self._keys, self._settings.group)

    async def server_version(self) -> str:
        """The name and version of the server, which must answer for it."""
        lane = (await self._connect()).lane
        await lane.call("PING", repeatable=True)
        return str(lane.server.dialect)

    async def remove_schedule(self, schedule: Schedule) -> None:
        """Remove a stored schedule."""
        await self.schedules.remove(schedule.raw_key)


MakeQueue: TypeAlias = Callable[..., AppQueue]
"""Takes what `AppQueue` takes."""


class LoopQueues:
    """The queues that one event loop uses, and the `async with app:` blocks that share them."""

    def __init__(self, shared: Shared[SharedParts]) -> None:
        self.shared = shared
        self.queues: dict[str, AppQueue] = {}
        self.blocks = Shared(self._open, LoopQueues.close)

    async def _open(self) -> Self:
        return self  # queues connect on first use

    async def close(self) -> None:
        """Close them all; they are made again when needed."""
        queues, self.queues = self.queues, {}
        async with AsyncExitStack() as stack:
            for queue in queues.values():
                stack.push_async_callback(queue.close)
