"""Services of workers that also run alone: the promoter, and what fires schedules."""

from contextlib import AsyncExitStack
from typing import ClassVar
from uuid import uuid4

from tampu.events import EVENTS_KEPT
from tampu.metrics.facts import MetricsSink, SafeSink, check_sink
from tampu.schedules.firing import FiringService
from tampu.server.client import CredentialCallback
from tampu.server.connect import Target, check_target, connect
from tampu.server.lane import Lane
from tampu.server.listening import Wakeups
from tampu.services.leader import LeaderContext, LeaderService
from tampu.services.promoter import PromotionService
from tampu.services.reaper import Fleet
from tampu.util.lifecycle import Lifetime, Runnable
from tampu.util.options import check_flag
from tampu.wire.holders import HolderKind, new_holder
from tampu.wire.keys import QueueKeys
from tampu.wire.names import check_name


class StandaloneService(Runnable):
    """A service that runs without a worker. It works while it leads.

    One leads among all that offer the service on a queue, workers included.
    """

    kind: ClassVar[HolderKind]
    service: ClassVar[type[LeaderService]]

    def __init__(
        self,
        queue: str,
        url: Target = None,
        *,
        credentials: CredentialCallback | None = None,
        events: bool = True,
        metrics: MetricsSink | None = None,
        name: str | None = None,
    ) -> None:
        check_target(url, credentials)
        check_flag("events", events)
        check_sink("metrics", metrics)
        self._keys = QueueKeys(queue)
        self._url, self._credentials = url, credentials
        self._events_max_len = EVENTS_KEPT if events else 0
        self._sink = SafeSink(metrics)
        self._holder = new_holder(
            self.kind, uuid4(), name=None if name is None else check_name("name", name)
        )
        self._life = Lifetime(self.service.name, self._open, lambda stack, _: stack.aclose())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self._keys.name!r}>"

    @property
    def id(self) -> str:
        """The id under which it leads."""
        return self._holder.text

    async def stop(self) -> None:
        """Give up the lead and disconnect. May be called twice."""
        await self._life.stop()

    async def _open(self) -> AsyncExitStack:
        async with AsyncExitStack() as stack:
            server = await connect(self._url, credentials=self._credentials)
            await stack.enter_async_context(server)
            lane = await stack.enter_async_context(await Lane.open(server, self._keys.stream))
            service = self.service(
                LeaderContext(
                    lane=lane,
                    keys=self._keys,
                    holder=self._holder,
                    events_max_len=self._events_max_len,
                    sink=self._sink,
                    wakeups=Wakeups(server),
                    fleet=Fleet(has_peers=True),  # it does not look at the consumers
                )
            )
            service.start()
            stack.push_async_callback(service.stop)
            return stack.pop_all()


class Promoter(StandaloneService):
    """Moves the delayed jobs of one queue to the stream when they are due; runs no job.

    For queues whose workers have `promote=False`. `await promoter.run()` works until `stop()`;
    `async with promoter:` works inside the block. A promoter can be started only once.
    """

    kind = HolderKind.PROMOTER
    service = PromotionService


class ScheduleFirer(StandaloneService):
    """Fires the schedules of one queue when they are due; runs no job.

    For queues whose workers have `schedule=False`. `await firer.run()` works until `stop()`;
    `async with firer:` works inside the block. It can be started only once.
    """

    kind = HolderKind.SCHEDULER
    service = FiringService
