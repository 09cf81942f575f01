"""A service of workers that runs without one."""

from contextlib import AsyncExitStack
from typing import ClassVar
from uuid import uuid4

from tampu.errors import OptionError
from tampu.events import EVENTS_KEPT
from tampu.metrics.sinks import MetricsSink, Teller
from tampu.schedules.firing import FiringService as RepeaterService
from tampu.server.client import CredentialCallback
from tampu.server.connect import Target, check_target, connect
from tampu.server.lane import Lane
from tampu.services.leader import LeaderService
from tampu.services.promoter import PromotionService as PromoterService
from tampu.util.lifecycle import Lifetime, Runnable
from tampu.util.options import check_flag
from tampu.wire.holders import HolderKind, new_holder
from tampu.wire.keys import QueueKeys, check_name


class StandaloneService(Runnable):
    """What one leads among all who offer it on a queue, workers among them.

    `await service.run()` works until `stop()`; `async with service:` works inside the block. It is
    used once.
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
        if metrics is not None and not callable(getattr(metrics, "record", None)):
            raise OptionError("metrics", metrics, "expected a sink: an object with record(facts)")
        self._keys = QueueKeys(queue)
        self._url, self._credentials = url, credentials
        self._events_max_len = EVENTS_KEPT if events else 0
        self._teller = Teller(metrics)
        self._holder = new_holder(
            self.kind, uuid4(), name=None if name is None else check_name("name", name)
        )
        self._life = Lifetime(self.service.name, self._open, _close)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self._keys.name!r}>"

    @property
    def id(self) -> str:
        """The name under which it leads."""
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
                lane,
                self._keys,
                holder=self._holder,
                events_max_len=self._events_max_len,
                teller=self._teller,
            )
            service.start()
            stack.push_async_callback(service.stop)
            return stack.pop_all()


async def _close(stack: AsyncExitStack, grace_s: float) -> None:
    del grace_s  # nothing of a user's runs here
    await stack.aclose()


class Promoter(StandaloneService):
    """Moves the delayed jobs of one queue to those that wait, when they are due; runs none.

    For queues whose workers do not (`promote=False`). Of all that promote on a queue, workers
    among them, one leads. `await promoter.run()` works until `stop()`; `async with promoter:` works
    inside the block. A promoter is used once.
    """

    kind = HolderKind.PROMOTER
    service = PromoterService


class ScheduleFirer(StandaloneService):
    """Fires the schedules of one queue when they are due; runs no job.

    For queues whose workers do not (`schedule=False`). Of all that fire on a queue, workers among
    them, one leads. `await repeater.run()` works until `stop()`; `async with repeater:` works
    inside the block. A repeater is used once.
    """

    kind = HolderKind.SCHEDULER
    service = RepeaterService
