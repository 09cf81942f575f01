"""A promoter without a worker, as users have it."""

from contextlib import AsyncExitStack
from typing import Self
from uuid import uuid4

from tampu.errors import OptionError
from tampu.events import EVENTS_KEPT
from tampu.lifetime import Lifetime
from tampu.metrics.sink import MetricsSink, Teller
from tampu.server.client import CredentialCallback
from tampu.server.connect import Target, connect
from tampu.server.lane import Lane
from tampu.services.promoter import Promoter as PromoterService
from tampu.settings import check_flag
from tampu.wire.keys import QueueKeys
from tampu.wire.lock import HolderKind, new_holder


class Promoter:
    """Moves the delayed jobs of one queue to those that wait, when they are due; runs none.

    For queues whose workers do not (`promote=False`). Of all that promote on a queue, workers
    among them, one leads. `await promoter.run()` works until `stop()`; `async with promoter:` works
    inside the block. A promoter is used once.
    """

    def __init__(
        self,
        queue: str,
        url: Target = None,
        *,
        credentials: CredentialCallback | None = None,
        events: bool = True,
        metrics: MetricsSink | None = None,
    ) -> None:
        check_flag("events", events)
        if metrics is not None and not callable(getattr(metrics, "record", None)):
            raise OptionError("metrics", metrics, "takes a sink: an object with record(facts)")
        self._keys = QueueKeys(queue)
        self._url, self._credentials = url, credentials
        self._events_max_len = EVENTS_KEPT if events else 0
        self._teller = Teller(metrics)
        self._holder = new_holder(HolderKind.PROMOTER, uuid4())
        self._life = Lifetime("promoter", self._open)

    def __repr__(self) -> str:
        return f"<Promoter {self.id} of {self._keys.name!r}>"

    @property
    def id(self) -> str:
        """The name under which it leads."""
        return self._holder.text

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def run(self) -> None:
        """Start, and work until `stop`."""
        await self._life.run(AsyncExitStack.aclose)

    async def start(self) -> None:
        """Connect and begin to work; raises what keeps it from that, and leaves nothing behind."""
        await self._life.start(AsyncExitStack.aclose)

    async def stop(self) -> None:
        """Give up the lead and disconnect. May be called twice."""
        await self._life.stop(AsyncExitStack.aclose)

    async def _open(self) -> AsyncExitStack:
        async with AsyncExitStack() as stack:
            server = await connect(self._url, credentials=self._credentials)
            await stack.enter_async_context(server)
            lane = await stack.enter_async_context(await Lane.open(server, self._keys.stream))
            service = PromoterService(
                lane,
                self._keys,
                holder=self._holder,
                events_max_len=self._events_max_len,
                teller=self._teller,
            )
            service.start()
            stack.push_async_callback(service.stop)
            return stack.pop_all()
